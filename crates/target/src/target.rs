//! The engine: everything that one target is, and how inputs go through it.
//!
//! The parts are in the folder: `lifecycle` (connections, controllers, listeners), `command`
//! (arrival, shaping, execution, answers), `serve` (service times), `data` (namespaces' blocks),
//! `disk` (file operations), `absent` (what hosts that left have heard), `admin` and `connect`
//! (admin and Fabrics commands), `verbs`, `timer`, `turns` (how much at once), `waiting`,
//! `capsules` and `held` (who gets payload memory).

mod absent;
mod admin;
mod capsules;
mod command;
mod connect;
mod data;
mod disk;
mod held;
mod lifecycle;
mod serve;
mod timer;
mod turns;
mod verbs;
mod waiting;

use crate::config::{ConfigError, Limits, TargetConfig};
use crate::conn::{Conns, SlotId};
use crate::controller::Controller;
use crate::port::Port;
use crate::rng::Rng;
use crate::service::Stations;
use crate::subsystem::Subsystem;
use crate::verb::{TargetError, TargetEvent, TargetReply, TargetVerb};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Machine, Output, Time};
use core::convert::Infallible;
use disk::DiskTable;
use held::Held;
use turns::Turns;

/// What the engine wants done.
pub type TargetOutput = Output<Infallible, Result<TargetReply, TargetError>, TargetEvent>;

/// Outputs that one input leaves at most, as a rule: room for them is kept.
const OUTPUTS: usize = 1024;

/// A command of a connection that may have gone meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticket {
    place: u32,
    generation: u32,
    slot: SlotId,
}

/// The embedded target: all its subsystems and ports, on one worker.
#[derive(Debug)]
pub struct Target {
    limits: Limits,
    ports: Vec<Port>,
    subsystems: Vec<Subsystem>,
    controllers: Vec<Option<Controller>>,
    conns: Conns,
    disk: DiskTable,
    /// Connections with commands that wait for a buffer, by place and generation.
    waiting: VecDeque<(u32, u32)>,
    /// Connections that are not read because of what they have brought, by place and generation.
    choked: VecDeque<(u32, u32)>,
    held: Held,
    turns: Turns,
    /// Where commands take their time, if they do.
    stations: Option<Stations<Ticket>>,
    outputs: VecDeque<TargetOutput>,
    rng: Rng,
    /// When connections and controllers are looked at again for what has run out of time.
    next_check: Option<Time>,
    /// When commands that wait for a buffer are tried again, and connections that are choked.
    retry_at: Option<Time>,
    discovery_generation: u64,
    next_generation: u64,
    next_listener: u32,
    next_cntlid: u16,
}

impl Target {
    /// A target that does nothing until its first input. `seed` feeds jitter.
    ///
    /// # Errors
    /// When the configuration is out of bounds; names the field and its limit.
    pub fn new(config: TargetConfig, seed: u64) -> Result<Target, ConfigError> {
        config.check()?;
        let mut generation = 0;
        Ok(Target {
            limits: config.limits,
            ports: config.ports.into_iter().map(|port| Port::new(port, Time::ZERO)).collect(),
            subsystems: config
                .subsystems
                .into_iter()
                .map(|subsystem| Subsystem::new(subsystem, &mut generation))
                .collect(),
            controllers: Vec::new(),
            conns: Conns::default(),
            disk: DiskTable::default(),
            waiting: VecDeque::new(),
            choked: VecDeque::new(),
            held: Held::default(),
            turns: Turns::default(),
            stations: None,
            outputs: VecDeque::with_capacity(OUTPUTS),
            rng: Rng::new(seed),
            next_check: None,
            retry_at: None,
            discovery_generation: 1,
            next_generation: generation,
            next_listener: 0,
            next_cntlid: config.first_cntlid.unwrap_or(1),
        })
    }

    fn tell(&mut self, event: TargetEvent) {
        self.outputs.push_back(Output::Event(event));
    }
}

impl Machine for Target {
    type Mail = Infallible;
    type Verb = TargetVerb;
    type Reply = Result<TargetReply, TargetError>;
    type Event = TargetEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, TargetVerb, Infallible>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Start => self.start(now),
            Input::Timeout => self.timeout(now, bufs),
            Input::Accepted { listener, conn, peer } => self.accepted(now, listener, conn, peer),
            Input::Listening { listener, at } => self.listening(listener, at),
            Input::Unlistened { listener, error } => self.unlistened(listener, error),
            Input::Received { conn, bytes } => {
                if let Some(place) = self.hears(conn) {
                    self.take_bytes(place, bytes, bufs);
                    self.received(now, place, bufs);
                }
            }
            Input::ReceivedInto { conn, len } => {
                if let Some(place) = self.hears(conn) {
                    if let Some(conn) = self.conns.get_mut(place) {
                        conn.queue.received_into(len, bufs);
                    }
                    self.received(now, place, bufs);
                }
            }
            Input::Transmitted { conn } => self.transmitted(now, conn, bufs),
            Input::Closed { conn, .. } => self.closed(conn, bufs),
            Input::DiskDone { id, result } => self.disk_done(now, id, result, bufs),
            Input::Verb { id, verb } => self.verb(now, id, verb, bufs),
            Input::Mail { mail, .. } => match mail {},
            // A target opens no connections, and looks for nobody.
            Input::Connected { .. } | Input::Looked { .. } => {}
        }
        self.retry_waiting(now, bufs);
        self.serve_touched(now, bufs);
    }

    fn poll_output(&mut self) -> Option<TargetOutput> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        self.transmit(conn, batch, bufs);
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.next_timeout()
    }
}
