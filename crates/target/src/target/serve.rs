//! Commands that take their time before they are executed.

use super::command::Step;
use super::{Target, Ticket};
use crate::conn::{Conns, SlotId, Stage};
use crate::io::Plan;
use crate::service::{Service, Stations, Work};
use crate::verb::{TargetError, TargetReply};
use alloc::string::ToString;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, Time};

impl Target {
    /// Whether a command has to take its time before it does what it plans.
    pub(super) fn service_due(&mut self, place: u32, slot: SlotId, plan: &Plan) -> Option<Step> {
        self.stations.as_ref()?;
        let entry = self.conns.get_mut(place)?.entry(slot)?;
        if entry.served {
            return None;
        }
        Some(Step::Serve(match plan {
            Plan::Read { .. } => Work::Read,
            Plan::Write { .. } => Work::Write,
            _ => Work::Other,
        }))
    }

    /// A command takes a server, or waits for one.
    pub(super) fn serve(&mut self, now: Time, ticket: Ticket, work: Work) {
        let Some(conn) = self.conns.get_mut(ticket.place) else { return };
        let port = conn.port;
        let (Some(entry), Some(stations)) = (conn.entry(ticket.slot), &mut self.stations) else {
            return;
        };
        entry.stage = Stage::Served;
        let conns = &self.conns;
        stations.sweep(|ticket| is_alive(conns, ticket));
        stations.enter(now, port, ticket, work, &mut self.rng);
    }

    /// Executes what has taken its time; after a round the rest is due still.
    pub(super) fn run_served(&mut self, now: Time, bufs: &mut dyn Buffers) {
        let end = self.turns.round();
        while let Some(stations) = self.stations.as_mut().filter(|_| !self.turns.is_over(end)) {
            self.turns.one();
            let conns = &self.conns;
            let alive = |ticket: &Ticket| is_alive(conns, ticket);
            let Some(ticket) = stations.served(now, &mut self.rng, alive) else { return };
            self.execute_served(now, ticket, bufs);
        }
    }

    fn execute_served(&mut self, now: Time, ticket: Ticket, bufs: &mut dyn Buffers) {
        let Ticket { place, generation, slot } = ticket;
        let conn = self.conns.get_mut(place).filter(|conn| conn.generation == generation);
        let Some(conn) = conn else { return };
        let port = conn.port;
        let Some(entry) = conn.entry(slot).filter(|entry| entry.stage == Stage::Served) else {
            return;
        };
        entry.served = true;
        if self.ports[port].is_stalled() {
            entry.stage = Stage::Held;
            self.ports[port].held.push((place, generation, slot));
        } else {
            self.run(now, place, slot, bufs);
            self.ports[port].touched = true;
        }
    }

    /// Other servers from now on.
    pub(super) fn set_service(
        &mut self,
        now: Time,
        service: Option<Service>,
        bufs: &mut dyn Buffers,
    ) -> Result<TargetReply, TargetError> {
        if let Some(problem) = service.and_then(|service| service.problem()) {
            return Err(TargetError::OutOfBounds(problem.to_string()));
        }
        let ports = self.ports.len();
        let stations = service.map(|service| Stations::new(service, ports));
        let before = core::mem::replace(&mut self.stations, stations);
        let open: Vec<Ticket> = before.map(Stations::drain).unwrap_or_default();
        for ticket in open {
            self.execute_served(now, ticket, bufs);
        }
        Ok(TargetReply::Done)
    }
}

/// Whether a command's connection still wants it.
fn is_alive(conns: &Conns, ticket: &Ticket) -> bool {
    let conn = conns.get(ticket.place);
    conn.is_some_and(|conn| conn.generation == ticket.generation && !conn.closing)
}
