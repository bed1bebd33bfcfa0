//! A head as this shard works on it: the published view plus what only this worker knows.

use super::command::{Command, Work};
use super::doubt::Doubt;
use super::explain::Countdown;
use super::issue::transfer_blocks;
use super::split::Split;
use super::stats::{Held, StatsTable};
use crate::by_id::ById;
use crate::load::{ControllerLoad, PathLoad};
use crate::table::List;
use crate::topology::{
    Association, ControllerId, ControllerState, ControllerView, HeadView, PathView,
};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, Groups, LOCAL_DISTANCE, Lane, Load, Local,
    NodeLatency, Parameters, Policy, Selector, rejoined, reset_statistics,
};
use anabranch_proto::machine::{Time, WorkerId};
use anabranch_proto::nvme::ana::AnaState;
use core::time::Duration;

/// Which worker this is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Me {
    pub(super) id: WorkerId,
    /// Its NUMA node.
    pub(super) node: u16,
}

impl Me {
    /// Its place among the data workers, from 0.
    pub(super) fn index(self) -> u16 {
        self.id.0.saturating_sub(1)
    }
}

/// How this worker reaches a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// Through its own queue pair.
    Own { slot: u16 },
    /// Through another worker's.
    Peer { worker: WorkerId },
    /// Not at all, now.
    None,
}

/// A controller as this shard works on it.
pub(super) struct ControllerEntry {
    pub(super) view: Arc<ControllerView>,
    /// The controller is in the present picture.
    pub(super) present: bool,
    /// Our open queue pairs of its present association.
    pub(super) slots: Split<Option<u16>>,
    /// The worker that carries our commands has lost its queue pair of this association.
    pub(super) carrier_lost: Split<Option<Association>>,
    /// The worker that carries our commands has heard that this association is being reset, which
    /// our picture does not say yet: nothing but flushes goes there any more.
    pub(super) takes_no_more: Option<Association>,
}

impl ControllerEntry {
    pub(super) fn new(view: Arc<ControllerView>) -> ControllerEntry {
        let (slots, carrier_lost) = (Split::default(), Split::default());
        ControllerEntry { view, present: true, slots, carrier_lost, takes_no_more: None }
    }

    /// What is in flight still ends there.
    fn takes_data(&self) -> bool {
        matches!(self.view.state, ControllerState::Live | ControllerState::Deleting)
            && self.takes_no_more != Some(self.view.association)
    }

    /// It is there, or may be again in time.
    pub(super) fn may_come_back(&self) -> bool {
        use ControllerState::{Connecting, Live, Resetting};
        self.present
            && !self.view.fast_io_failed
            && matches!(self.view.state, Live | Resetting | Connecting)
    }

    fn carriers(&self, me: WorkerId) -> Split<Carrier> {
        let index = usize::from(me.0.saturating_sub(1));
        let view = &self.view;
        let carrier = |owners: &[WorkerId], slot: Option<u16>, lost| match owners.get(index) {
            Some(&owner) if owner == me => slot.map_or(Carrier::None, |slot| Carrier::Own { slot }),
            Some(&worker) if lost != Some(view.association) => Carrier::Peer { worker },
            _ => Carrier::None,
        };
        // A reset on request leaves the queues open until what is in flight has ended.
        let open = matches!(
            view.state,
            ControllerState::Live | ControllerState::Deleting | ControllerState::Resetting
        );
        if !self.present || !open {
            return Split { reads: Carrier::None, others: Carrier::None };
        }
        let (slots, lost) = (self.slots, self.carrier_lost);
        Split {
            reads: carrier(&view.read_queue_of_worker, slots.reads, lost.reads),
            others: carrier(&view.queue_of_worker, slots.others, lost.others),
        }
    }
}

/// That there is no such namespace, as control is told. A picture may have been on its way before.
#[derive(Clone, Copy)]
pub(super) struct Suspicion {
    /// What control had counted of them.
    doubts: u32,
    /// Of another association control does not count it, and has looked at everything again.
    association: Association,
}

impl Suspicion {
    fn is_unheard(&self, path: &PathView, association: Association) -> bool {
        path.doubts <= self.doubts && association == self.association
    }
}

/// One path of a head on this worker.
pub(super) struct PathState {
    pub(super) view: PathView,
    pub(super) carriers: Split<Carrier>,
    pub(super) controller: Arc<ControllerLoad>,
    pub(super) load: Arc<PathLoad>,
    /// What this worker has in flight.
    lane: Arc<Lane>,
    /// What this worker measures, under `latency`.
    local: Option<Box<Local>>,
    /// This worker among the data workers, from 0.
    worker: u16,
    /// The data worker whose queue pair this one submits through what is no read.
    queue: u16,
    /// Commands that its own queue pairs there carry at once; 0 where it has none of its own.
    tags: u16,
    /// What the workers of this one's NUMA node measure together, where `latency` averages so. Kept
    /// apart: a checked index could not be left out where a policy does not look at it.
    node: Option<Arc<NodeLatency>>,
    /// May be chosen (statement M1).
    pub(super) usable: bool,
    /// It was optimized when that was worked out.
    optimized: bool,
    /// May be asked to flush. What keeps data from a path, such as another size, keeps nothing in
    /// its controller from becoming durable.
    pub(super) flushes: bool,
    /// An ANA status came back when the controller's log had this generation: out until it grows.
    pub(super) ana_suspect: Option<u64>,
    /// There was no such namespace: out until a picture says what control has made of that.
    pub(super) namespace_suspect: Option<Suspicion>,
    pub(super) doubt: Doubt,
    pub(super) distance: u32,
    affinity: Affinity,
    pub(super) stats: u32,
}

/// How many commands a worker has tags for, where each queue pair has so many.
fn tags(carriers: Split<Carrier>, each: u16) -> u16 {
    match (carriers.reads, carriers.others) {
        (Carrier::Own { slot: reads }, Carrier::Own { slot: others }) => {
            if reads == others {
                each
            } else {
                each.saturating_mul(2)
            }
        }
        _ => 0,
    }
}

impl PathState {
    /// Whether its controller takes commands of this worker, of whatever kind.
    pub(super) fn is_reached(&self) -> bool {
        self.carriers.reads != Carrier::None && self.carriers.others != Carrier::None
    }

    /// Whether what its controller says of ANA is to be read anew, before data goes there again. To
    /// flush it does no harm: it may be as it was.
    pub(super) fn awaits_log(&self) -> bool {
        self.view.ana_pending || self.ana_suspect.is_some()
    }

    /// There is no such namespace, it was told in this association.
    pub(super) fn suspect_namespace(&mut self, association: Association) {
        let doubts = self.view.doubts;
        self.namespace_suspect = Some(Suspicion { doubts, association });
        self.usable = false;
    }

    /// It may be chosen, in this association. What was measured in an earlier one says nothing: the
    /// way there may be a different one. The first worker to come here says so for all.
    fn joined(&self, parameters: &Parameters, association: Association) {
        if self.load.is_new(association) {
            rejoined(parameters, self.load());
        }
    }

    /// What its commands are charged to.
    #[inline]
    pub(super) fn load(&self) -> Load<'_> {
        Load {
            controller: &self.controller.ledger,
            workers: &self.controller.workers,
            worker: self.worker,
            queue: self.queue,
            tags: self.tags,
            shared: &self.load.shared,
            lane: &self.lane,
            node: self.node.as_deref(),
            local: self.local.as_deref(),
        }
    }
}

impl AsCandidate for PathState {
    #[inline]
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: match self.view.ana_state {
                AnaState::Optimized => AnaRank::Optimized,
                _ => AnaRank::NonOptimized,
            },
            numa_distance: self.distance,
            affinity: self.affinity,
            load: self.load(),
        }
    }
}

/// A head on this worker.
pub(super) struct HeadState {
    pub(super) view: Arc<HeadView>,
    /// Blocks that one command may transfer.
    pub(super) transfer_blocks: u32,
    pub(super) paths: Vec<PathState>,
    pub(super) selector: Selector,
    /// Which of its choices are noted.
    pub(super) noted: Countdown,
    /// Weights that have to be computed.
    pub(super) weights_due: Groups,
    /// Commands without a path.
    pub(super) requeue: List,
    /// Requests with parts that no command has been made for, oldest first.
    pub(super) issue: List,
    /// It is on the shard's list of heads that have such requests, or put aside.
    pub(super) issuing: bool,
    /// It is put aside: the first of them waits for news of paths.
    pub(super) awaits_news: bool,
    /// Its requests that are not answered, and its commands that have not ended.
    pub(super) requests: u32,
    pub(super) commands: u32,
    /// Requests that came while the head was frozen.
    pub(super) held: List,
    /// The head has left the picture, or is marked gone in it.
    pub(super) gone: bool,
    /// The epoch in which `Frozen` was last reported.
    pub(super) frozen_reported: Option<u64>,
    /// The epoch in which `Quiesced` was last reported.
    pub(super) quiesced_reported: Option<u64>,
    /// Failed requests, as the log hears of them.
    pub(super) failures: Telling,
    /// The same of commands that the controller has wrongly answered with success.
    pub(super) flaws: Telling,
    /// The same of durable writes that have failed and are tried again.
    pub(super) losses: Telling,
    /// A Write Zeroes was refused as a command that the namespace does not have: it gets no more.
    pub(super) zeroes_refused: bool,
    pub(super) stats: u32,
}

/// What is told to the log once per pause, however often it happens.
#[derive(Debug, Default)]
pub(super) struct Telling {
    quiet_until: Option<Time>,
    untold: u32,
}

impl Telling {
    /// It has happened: how often before it since that was last told, if it is to be told now.
    pub(super) fn told(&mut self, now: Time, pause: Duration) -> Option<u32> {
        if self.quiet_until.is_some_and(|until| now < until) {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        self.quiet_until = Some(now.after(pause));
        Some(core::mem::take(&mut self.untold))
    }
}

impl HeadState {
    pub(super) fn new(view: Arc<HeadView>, stats: &mut StatsTable) -> HeadState {
        HeadState {
            stats: stats.head(view.id),
            transfer_blocks: transfer_blocks(&view),
            paths: Vec::new(),
            selector: Selector::new(),
            noted: Countdown::default(),
            weights_due: Groups::NONE,
            requeue: List::default(),
            issue: List::default(),
            issuing: false,
            awaits_news: false,
            requests: 0,
            commands: 0,
            held: List::default(),
            gone: view.gone,
            frozen_reported: None,
            quiesced_reported: None,
            failures: Telling::default(),
            flaws: Telling::default(),
            losses: Telling::default(),
            zeroes_refused: view.zeroes_refused,
            view,
        }
    }

    /// Takes over a new picture of the head; what this worker knows of a path stays with it.
    pub(super) fn update(
        &mut self,
        view: Arc<HeadView>,
        me: Me,
        controllers: &ById<ControllerEntry>,
        stats: &mut StatsTable,
        now: Time,
    ) {
        self.forget_what_is_over(&view);
        self.zeroes_refused |= view.zeroes_refused;
        let worker = me.index();
        let mut old = core::mem::take(&mut self.paths);
        self.paths.reserve_exact(view.paths.len());
        let measures = view.parameters.policy == Policy::Latency;
        for path in &view.paths {
            let Some(entry) = entry(controllers, path.controller) else { continue };
            let distance = *path.distance.get(usize::from(worker)).unwrap_or(&LOCAL_DISTANCE);
            let affinity = path.affinity.get(usize::from(worker)).copied().unwrap_or_default();
            let node = path.nodes.get(usize::from(me.node)).or(path.nodes.last()).cloned();
            let held = || Held {
                controller: Arc::clone(&entry.view.load),
                path: Arc::clone(&path.load),
                lane: Arc::clone(&path.load.lanes[usize::from(worker)]),
            };
            let known = old.iter().position(|known| known.view.id == path.id);
            if let Some(known) = known {
                let mut known = old.swap_remove(known);
                let unheard = |it: &Suspicion| it.is_unheard(path, entry.view.association);
                let namespace_suspect = known.namespace_suspect.filter(unheard);
                known.doubt.seen(&known.view, path, now);
                let local = measures.then(|| known.local.unwrap_or_default());
                // Nothing was charged to what it had before, if it is another one.
                if !Arc::ptr_eq(&known.load, &path.load) {
                    let held = held();
                    stats.paths[known.stats as usize].held = held.clone();
                    (known.load, known.lane) = (held.path, held.lane);
                }
                self.paths.push(PathState {
                    distance,
                    affinity,
                    view: path.clone(),
                    namespace_suspect,
                    node,
                    local,
                    ..known
                });
                continue;
            }
            let held = held();
            // It takes the place of one that was there, and still is: that moves down.
            if !old.is_empty() {
                self.selector.path_added(self.paths.len());
            }
            self.paths.push(PathState {
                carriers: Split { reads: Carrier::None, others: Carrier::None },
                controller: Arc::clone(&held.controller),
                load: Arc::clone(&held.path),
                lane: Arc::clone(&held.lane),
                local: measures.then(Box::default),
                worker,
                queue: worker,
                tags: 0,
                node,
                usable: false,
                optimized: false,
                flushes: false,
                ana_suspect: None,
                namespace_suspect: None,
                doubt: Doubt::default(),
                distance,
                affinity,
                stats: stats.path(view.id, (path.controller, path.id), held),
                view: path.clone(),
            });
        }
        self.noted.set(view.explain_sample);
        self.gone = view.gone;
        self.transfer_blocks = transfer_blocks(&view);
        self.view = view;
        self.rebind(me, controllers);
    }

    /// Drops what was remembered and measured under conditions that the new picture ends.
    fn forget_what_is_over(&mut self, view: &HeadView) {
        // The same controller may have lost the namespace and found it again: another path.
        let stays = |old: &PathState| view.paths.iter().any(|new| old.view.id == new.id);
        for index in (0..self.paths.len()).rev() {
            if !stays(&self.paths[index]) {
                self.selector.path_removed(index);
                self.paths.remove(index);
            }
        }
        let policy_changed = view.policy_epoch != self.view.policy_epoch;
        if policy_changed {
            self.selector.policy_changed();
        }
        let resized = view.blocks != self.view.blocks;
        if resized {
            self.selector.clear_cache();
        }
        if policy_changed || resized {
            self.paths.iter().for_each(|path| reset_statistics(path.load()));
        }
    }

    /// The path that a command of this worker is on; `None` when it has left.
    #[inline]
    pub(super) fn path_of(&self, command: &Command) -> Option<&PathState> {
        let path = self.paths.get(usize::from(command.path));
        match path.filter(|path| path.stats == command.stats) {
            Some(path) => Some(path),
            None => self.moved(command.stats),
        }
    }

    /// The list has changed since the path was chosen.
    #[cold]
    fn moved(&self, stats: u32) -> Option<&PathState> {
        self.paths.iter().find(|path| path.stats == stats)
    }

    /// Notes what a command that ended well means for flushes: what a controller has not made
    /// durable is owed to it, also when its path is another one by now. `epoch` is that of our
    /// picture.
    #[inline]
    pub(super) fn durable(&self, command: &Command, work: &Work, epoch: u64) {
        let owed = match *work {
            Work::Read { .. } => return,
            Work::Flush { owed: None } => return self.flushed_elsewhere(),
            Work::Write { fua, .. } => !fua,
            // Only a flush makes these durable: what is gone must not come back.
            Work::WriteZeroes { .. } | Work::Discard { .. } => true,
            Work::Compare { .. } | Work::Flush { .. } => false,
        };
        let path = self.path_of(command).or_else(|| self.through(command.controller));
        let Some(PathState { view, .. }) = path else { return };
        if let Work::Flush { owed: Some((_, mark)) } = *work {
            view.writes.flushed(mark);
        } else if owed && self.view.limits.volatile_write_cache {
            view.writes.acknowledge();
            self.view.written.note(epoch);
        }
    }

    /// A flush has ended well that was for no controller, or for one that could not be asked.
    fn flushed_elsewhere(&self) {
        if self.paths.iter().any(|path| path.view.writes.owes()) {
            self.view.failed_flushes.pass_over();
        }
    }

    /// The path through a controller.
    pub(super) fn through(&self, controller: ControllerId) -> Option<&PathState> {
        self.paths.iter().find(|path| path.view.controller == controller)
    }

    /// Works out anew which paths may be chosen.
    pub(super) fn rebind(&mut self, me: Me, controllers: &ById<ControllerEntry>) {
        let kernel_exact = self.view.parameters.kernel_exact;
        let mut goes_live = false;
        for (index, path) in self.paths.iter_mut().enumerate() {
            let was = path.usable;
            let was_optimized = was && path.optimized;
            path.carriers = Split { reads: Carrier::None, others: Carrier::None };
            if let Some(entry) = entry(controllers, path.view.controller) {
                path.carriers = entry.carriers(me.id);
                path.queue = match path.carriers.others {
                    Carrier::Peer { worker } => worker.0.saturating_sub(1),
                    _ => path.worker,
                };
                path.tags = tags(path.carriers, entry.view.tags);
                if path.ana_suspect.is_some_and(|at| entry.view.ana_generation > at) {
                    path.ana_suspect = None;
                }
            }
            let entry = entry(controllers, path.view.controller);
            // A flush goes with what is no read: without the queue pair of reads it finds its way.
            let flushes = path.carriers.others != Carrier::None && !path.doubt.is_in_vain();
            let takes_data = path.is_reached()
                && !path.awaits_log()
                && entry.is_some_and(ControllerEntry::takes_data)
                && path.view.ready
                && path.namespace_suspect.is_none();
            let accessible = path.view.ana_state.is_accessible();
            path.usable = takes_data && accessible;
            path.optimized = path.view.ana_state == AnaState::Optimized;
            path.flushes = flushes && accessible;
            goes_live |= path.usable && path.optimized && !was_optimized;
            // Linux does not drop it for its state alone: the next command sees that, and goes on
            // from there.
            if (was || kernel_exact) && !path.usable && !(kernel_exact && takes_data) {
                self.selector.forget_path(index);
            }
            if let (true, Some(entry)) = (path.usable, entry) {
                path.joined(&self.view.parameters, entry.view.association);
            }
        }
        if goes_live {
            self.selector.path_live(&self.view.parameters, &self.paths);
        }
    }

    /// Whether a command without a usable path should wait: some controller may carry it again.
    pub(super) fn may_come_back(&self, controllers: &ById<ControllerEntry>) -> bool {
        if self.gone {
            return false;
        }
        let some_path = self.paths.iter().filter(|path| self.may_choose(path)).any(|path| {
            let entry = entry(controllers, path.view.controller);
            entry.is_some_and(ControllerEntry::may_come_back)
        });
        some_path || self.view.queue_if_no_path
    }

    /// Whether the policy would ever choose a path: not one that `io-affinity` has for nobody.
    pub(super) fn may_choose(&self, path: &PathState) -> bool {
        path.affinity != Affinity::Unmapped || self.view.parameters.policy != Policy::IoAffinity
    }

    /// Whether there is a path through another controller that only gives no access now, or is to
    /// be connected again. Where a namespace moves, the one that had it may lose it before the next
    /// one is there.
    pub(super) fn may_be_elsewhere(
        &self,
        than: ControllerId,
        controllers: &ById<ControllerEntry>,
    ) -> bool {
        self.paths.iter().filter(|path| path.view.controller != than).any(|path| {
            let Some(entry) = entry(controllers, path.view.controller) else { return false };
            let kept_out = path.view.ready && path.namespace_suspect.is_none();
            let reconnects = entry.view.state != ControllerState::Live;
            let may_serve = self.may_choose(path) && entry.may_come_back();
            !path.usable && (kept_out || reconnects) && may_serve
        })
    }

    /// Requests that are not held and not answered.
    pub(super) fn active(&self) -> u32 {
        self.requests - self.held.len()
    }

    /// The index of the usable path through `controller`.
    pub(super) fn usable_through(&self, controller: ControllerId) -> Option<usize> {
        self.paths.iter().position(|path| path.view.controller == controller && path.usable)
    }

    /// The index of the path through `controller`, if that may be asked to flush.
    pub(super) fn flushes_through(&self, controller: ControllerId) -> Option<usize> {
        self.paths.iter().position(|path| path.view.controller == controller && path.flushes)
    }
}

pub(super) fn entry(
    controllers: &ById<ControllerEntry>,
    id: ControllerId,
) -> Option<&ControllerEntry> {
    controllers.get(id.0)
}
