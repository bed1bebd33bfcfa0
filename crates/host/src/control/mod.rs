//! The control half of a host: controllers' life cycles, admin queues, heads, attributes, verbs.
//!
//! Each controller is a state machine of its own (`lifecycle`); connecting one never waits for
//! another. What they learn becomes heads and paths (`reconcile`), and each change becomes a new
//! [`Topology`](crate::topology::Topology) for the shards (`publish`), at most one per input.

mod admission;
mod affinity;
mod ana;
mod ana_pace;
mod ana_read;
mod async_event;
pub mod attribute;
mod controller;
mod discovery;
mod env;
mod explain;
mod facts;
pub mod fuzz;
mod inputs;
mod lifecycle;
mod link;
mod namespace;
mod pace;
mod publish;
mod queues;
mod reconcile;
mod scan;
mod setup;
mod shutdown;
mod sizes;
mod snapshot;
mod subsystem;
mod verbs;
mod waits;
mod wire;

pub use env::ControlOutput;

use crate::config::HostConfig;
use crate::leftovers::Places;
use crate::load::PathLoad;
use crate::mail::ToControl;
use crate::topology::ControllerId;
use crate::verb::Verb;
use crate::write_marks::LeftMarks;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Histogram, LOCAL_DISTANCE};
use anabranch_proto::machine::{Buffers, ConnId, Gather, Input, Time};
use controller::Controller;
use core::convert::Infallible;
use env::{Env, Notice};
use reconcile::Refusals;
use subsystem::{Head, Subsystem};
use waits::Waits;

/// The control half of a host. Runs on `WorkerId(0)`; the five functions are those of
/// [`Machine`](anabranch_proto::machine::Machine).
pub struct Control {
    env: Env,
    controllers: BTreeMap<ControllerId, Controller>,
    subsystems: Vec<Subsystem>,
    refusals: Refusals,
    /// Some of them may have been because of a head that has gone, or are to be asked about again.
    retry_refused: bool,
    /// Controllers with namespaces whose users wait for a look and that were seen.
    seen: BTreeSet<ControllerId>,
    /// Controllers whose namespaces should be read again.
    rescan: Vec<ControllerId>,
    waits: Waits,
    /// Controllers that are to come.
    set_aside: Vec<verbs::Aside>,
    next_aside: u64,
    next_controller: u32,
    next_discovery: u32,
    next_head: u32,
    /// Where heads note the blocks of theirs.
    leftovers: Places,
    next_path: u64,
    left_marks: LeftMarks,
    epoch: u64,
    /// What paths share as long as no policy counts by path: two thirds of what is known of one.
    no_load: Arc<PathLoad>,
    /// How far each data worker is from a path through a network device whose node is not known:
    /// all are equally near.
    near: Arc<[u32]>,
    /// What pictures of devices and paths without any latency share: one is 2.6 KiB.
    no_latency: Arc<Histogram>,
    /// `Shutdown` was asked for: nothing new begins.
    shutting_down: bool,
}

/// Numbers of temporary discovery controllers start here: they never reach a shard.
const DISCOVERY_IDS: u32 = 1 << 31;

impl Control {
    /// A host without controllers.
    #[must_use]
    pub fn new(config: HostConfig) -> Control {
        let workers = config.data_workers;
        Control {
            env: Env::new(config),
            controllers: BTreeMap::new(),
            subsystems: Vec::new(),
            refusals: Refusals::new(),
            retry_refused: false,
            seen: BTreeSet::new(),
            rescan: Vec::new(),
            waits: Waits::default(),
            set_aside: Vec::new(),
            next_aside: 0,
            next_controller: 0,
            next_discovery: DISCOVERY_IDS,
            next_head: 0,
            leftovers: Places::default(),
            next_path: 0,
            left_marks: LeftMarks::default(),
            epoch: 0,
            no_load: Arc::new(PathLoad::new(workers)),
            near: (0..workers).map(|_| LOCAL_DISTANCE).collect(),
            no_latency: Arc::default(),
            shutting_down: false,
        }
    }

    /// Takes one input.
    pub fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Verb<Infallible>, ToControl>,
        bufs: &mut dyn Buffers,
    ) {
        self.env.now = now;
        // Each worker reports each path of each device: there may be a thousand such reports at
        // once, and a picture for each would keep everybody from their work.
        let report = matches!(
            input,
            Input::Mail {
                mail: ToControl::AnaError { .. } | ToControl::NamespaceSuspect { .. },
                ..
            }
        );
        self.input(input, bufs);
        self.settle(bufs);
        if !report || self.env.has_mail() {
            self.publish();
        }
        self.env.post();
    }

    /// The next thing that control wants done.
    pub fn poll_output(&mut self) -> Option<ControlOutput> {
        self.env.next_output()
    }

    /// Fills one batch for an admin connection.
    pub fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        if let Some(link) = self.controller_of(conn).and_then(|c| c.link.as_mut()) {
            link.poll_transmit(batch, bufs);
        }
    }

    /// When `Input::Timeout` must come at the latest.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        let controllers = self.controllers.values().filter_map(Controller::due).min();
        let heads = self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
        let heads = heads.filter_map(Head::due).min();
        // What was not published yet is with whatever comes next.
        let unpublished = (self.env.dirty || !self.rescan.is_empty()).then_some(self.env.now);
        [controllers, heads, self.waits.due(), unpublished].into_iter().flatten().min()
    }

    fn controller_of(&mut self, conn: ConnId) -> Option<&mut Controller> {
        self.controllers
            .values_mut()
            .find(|controller| controller.link.as_ref().is_some_and(|link| link.conn() == conn))
    }

    /// Carries what happened in controllers up to heads and callers.
    fn settle(&mut self, bufs: &mut dyn Buffers) {
        loop {
            if let Some((id, notice)) = self.env.next_notice() {
                self.notice(id, notice, bufs);
            } else if let Some(id) = self.rescan.pop() {
                if let Some(controller) = self.controllers.get_mut(&id) {
                    controller.request_paced_scan(&mut self.env, bufs);
                }
            } else if let Some(id) = self.seen.first() {
                self.look_at_seen(*id, bufs);
            } else if core::mem::take(&mut self.retry_refused) {
                self.place_refused(bufs);
            } else {
                break;
            }
        }
    }

    fn notice(&mut self, id: ControllerId, notice: Notice, bufs: &mut dyn Buffers) {
        match notice {
            Notice::Identified => self.admit(id, bufs),
            Notice::Unheard { unused } => self.await_news(id, unused),
            Notice::Named => self.doubt_named(id),
            Notice::Seen => drop(self.seen.insert(id)),
            Notice::Scanned => self.scanned(id, bufs),
            Notice::AnaRead => self.ana_read(id, bufs),
            Notice::Lost => self.witness_lost(id, bufs),
            Notice::Draining => self.ask_in_flight(id),
            Notice::Gone => self.gone(id, bufs),
        }
    }
}
