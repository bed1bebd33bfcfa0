//! What runs out of time: connections that do not get through Connect, peers that do not end a
//! connection, hosts that fell silent. Deadlines only move away, so one lazy check serves all.

use super::Target;
use crate::conn::Role;
use crate::verb::TargetEvent;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, CloseHow, Time};

impl Target {
    /// Looks at everything again at `deadline` at the latest.
    pub(super) fn check_by(&mut self, deadline: Time) {
        self.next_check = Some(self.next_check.map_or(deadline, |at| at.min(deadline)));
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let ports = self.ports.iter().filter(|port| !port.is_stalled());
        let links = ports.filter_map(|port| port.shaper.next()).min();
        let served = self.stations.as_ref().and_then(|stations| stations.next());
        [self.next_check, self.retry_at, links, served, self.turns.next()]
            .into_iter()
            .flatten()
            .min()
    }

    pub(super) fn timeout(&mut self, now: Time, bufs: &mut dyn Buffers) {
        if self.next_check.is_some_and(|at| at <= now) {
            self.check(now);
        }
        self.take_turns(now, bufs);
        self.run_served(now, bufs);
        for at in 0..self.ports.len() {
            if self.ports[at].shaper.next().is_some_and(|next| next <= now) {
                self.serve_port(now, at, bufs);
            }
        }
    }

    fn check(&mut self, now: Time) {
        let late: Vec<u32> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.deadline.is_some_and(|at| at <= now))
            .map(|(place, _)| place)
            .collect();
        for place in late {
            self.give_up(place);
        }
        for at in 0..self.controllers.len() {
            if self.controllers[at].as_mut().is_some_and(|found| found.has_expired(now)) {
                self.end_controller(at, "its host fell silent (keep-alive)");
            }
        }
        let conns = self.conns.iter().filter_map(|(_, conn)| conn.deadline);
        let controllers = self.controllers.iter().flatten().filter_map(|c| c.timer_ends());
        self.next_check = conns.chain(controllers).min();
    }

    /// A connection took too long: before Connect, or to close.
    fn give_up(&mut self, place: u32) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.deadline = None;
        if conn.closing {
            // The graceful end takes too long. On a stalled port `restore` does it.
            if self.ports[conn.port].is_stalled() {
                conn.ends_later = true;
            } else {
                self.end_now(place);
            }
        } else {
            let (port, peer) = (super::lifecycle::number(conn.port), conn.peer);
            if conn.role == Role::New && conn.last.is_none() {
                let reason = "it took too long";
                self.tell(TargetEvent::ConnectRefused { port, peer, asked: None, reason });
            }
            self.close(place, CloseHow::Abort);
        }
    }
}
