//! The picture of controllers and namespaces that control sends, and what a new one changes.

use super::command::{Carried, Command, Origin};
use super::head::{Carrier, ControllerEntry, HeadState, PathState, entry};
use super::queue::{Phase, Queue};
use super::split::Split;
use super::{Shard, all_commands};
use crate::by_id::ById;
use crate::mail::CommandOutcome;
use crate::table::Key;
use crate::topology::{Association, ControllerId, ControllerState, HeadId, Topology};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::OpClass;
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Buffers, Time};

impl Shard {
    pub(super) fn topology(&mut self, topology: Arc<Topology>, now: Time, bufs: &mut dyn Buffers) {
        if topology.epoch <= self.topology.epoch {
            return;
        }
        for entry in self.controllers.values_mut() {
            entry.present = false;
        }
        for view in &topology.controllers {
            let new = || ControllerEntry::new(Arc::clone(view));
            let entry = self.controllers.get_or_insert_with(view.id.0, new);
            entry.view = Arc::clone(view);
            entry.present = true;
        }
        for queue in self.queues.iter_mut().flatten() {
            let id = queue.open.controller;
            if let Some(view) = topology.controllers.iter().find(|view| view.id == id) {
                queue.io_timeout = view.io_timeout;
            }
        }
        self.some_stopped = topology.heads.iter().any(|head| head.frozen > 0 || head.quiesced > 0);
        self.topology = topology;
        self.refresh_slots();
        self.update_heads(now);
        self.deal_tags();
        self.watch_heads(now);
        self.settle_doubted(now, bufs);
        self.recall_waiting(now, bufs);
        self.sort_waiting();
        self.forget_controllers();
        self.heads_changed = true;
        for place in 0..self.heads.places() {
            let Some(head) = self.heads.id_at(place).map(HeadId) else { continue };
            self.kick(head, now, bufs);
            let Some(state) = self.heads.get(head.0) else { continue };
            if state.view.frozen == 0 || state.gone {
                self.release_held(head);
            }
        }
        self.forget_heads();
        self.deal_places();
        self.stats.forget(&self.heads);
    }

    /// Tells the tables how many heads share them now; with many they grow.
    fn deal_places(&mut self) {
        let (heads, count) = (self.heads.values(), self.heads.len());
        // A flush is one command for each path, all at once.
        let paths = heads.clone().map(|head| head.paths.len()).max().unwrap_or(0);
        self.request_shares.deal(count, 1, heads.clone().map(|head| head.requests));
        self.command_shares.deal(count, paths, heads.map(|head| head.commands));
        let requests = self.request_shares.places();
        self.requests.make_room(requests);
        self.dones.reserve((requests as usize).saturating_sub(self.dones.len()));
        self.own_limit = self.command_shares.places();
        let commands = all_commands(self.own_limit, self.workers - 1);
        self.commands.make_room(commands);
        self.delayed.reserve((commands as usize).saturating_sub(self.delayed.len()));
    }

    fn update_heads(&mut self, now: Time) {
        for head in self.heads.values_mut() {
            head.gone = true;
        }
        let heads = &self.topology.heads;
        self.stats.make_room(heads.len(), heads.iter().map(|head| head.paths.len()).sum());
        for view in heads {
            let stats = &mut self.stats;
            let new = || HeadState::new(Arc::clone(view), stats);
            let head = self.heads.get_or_insert_with(view.id.0, new);
            head.update(Arc::clone(view), self.me, &self.controllers, stats, now);
        }
        self.weights_due.reserve(self.heads.len());
        self.issuing.reserve(self.heads.len());
        for head in self.heads.values_mut() {
            if head.gone {
                head.rebind(self.me, &self.controllers);
            }
        }
    }

    /// Commands that were not sent leave a path that their head no longer has, or that is to be
    /// looked at first: behind the same NSID may be another namespace by now. They leave one that
    /// gives no access any more, too, rather than be told so one by one, and one that is about to
    /// be cut: what has not been sent to it by then is not uncertain.
    pub(super) fn recall_waiting(&mut self, now: Time, bufs: &mut dyn Buffers) {
        let mut lost = Vec::new();
        for slot in 0..self.queues.len() {
            let known = Known {
                epoch: self.topology.epoch,
                heads: &self.heads,
                controllers: &self.controllers,
            };
            let Some(queue) = self.queues[slot].as_mut() else { continue };
            let has_lost = |command: &Command| {
                has_lost_its_path(command, known)
                    || has_lost_access(command, known)
                    || is_too_late(command, known)
            };
            queue.take_unsent(&mut self.commands, has_lost, &mut lost);
            queue.scatter(&mut self.commands);
            // What was set aside came first; whatever belongs there is set aside again.
            let lists =
                [core::mem::take(&mut queue.set_aside), core::mem::take(&mut queue.waiting)];
            for mut list in lists {
                while let Some(key) = list.pop_front(&mut self.commands) {
                    if has_lost(&self.commands[key]) {
                        lost.push(key);
                    } else {
                        queue.waiting.push_back(&mut self.commands, key);
                    }
                }
            }
            for key in lost.drain(..) {
                self.recall(key, now, bufs);
            }
        }
    }

    fn recall(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        match self.commands[key].origin {
            Origin::Own { .. } => {
                self.leave_path(key);
                self.dispatch_again(key, None, now, bufs);
            }
            Origin::Peer(Carried { worker, token, .. }) => {
                let outcome = CommandOutcome::Lost { attempt: Attempt::NeverSent, gone: None };
                self.answer_peer(key, worker, token, outcome);
            }
            Origin::Probe { .. } => self.probe_lost(key, Attempt::NeverSent),
            Origin::LeftBehind => {
                self.end_left_behind(key);
            }
        }
    }

    /// Whether the path of a command that has ended may lead to another namespace by now.
    #[cold]
    pub(super) fn has_lost_its_path(&self, key: Key) -> bool {
        has_lost_its_path(&self.commands[key], self.known())
    }

    pub(super) fn known(&self) -> Known<'_> {
        let Shard { topology, heads, controllers, .. } = self;
        Known { epoch: topology.epoch, heads, controllers }
    }

    fn forget_controllers(&mut self) {
        self.controllers.retain(|entry| entry.present);
    }

    fn forget_heads(&mut self) {
        let listed = &self.topology.heads;
        self.heads.retain(|head| {
            let idle = head.gone && head.requests == 0 && head.requeue.is_empty();
            !idle || listed.iter().any(|view| view.id == head.view.id)
        });
    }

    pub(super) fn rebind_all(&mut self, now: Time, bufs: &mut dyn Buffers) {
        self.refresh_slots();
        for head in self.heads.values_mut() {
            head.rebind(self.me, &self.controllers);
        }
        self.deal_tags();
        for place in 0..self.heads.places() {
            if let Some(id) = self.heads.id_at(place) {
                self.kick(HeadId(id), now, bufs);
            }
        }
    }

    /// Tells the queue pairs how many heads share them now.
    fn deal_tags(&mut self) {
        let mut users = alloc::vec![0_u32; self.queues.len()];
        for head in self.heads.values().filter(|head| !head.gone) {
            for path in &head.paths {
                let Split { reads, others } = path.carriers;
                let second = (others != reads).then_some(others);
                for carrier in core::iter::once(reads).chain(second) {
                    if let Carrier::Own { slot } = carrier {
                        users[usize::from(slot)] += 1;
                    }
                }
            }
        }
        for (queue, users) in self.queues.iter_mut().zip(users) {
            if let Some(queue) = queue {
                queue.is_used_by(users);
            }
        }
    }

    /// Works out anew through which queue pair each controller is reached.
    fn refresh_slots(&mut self) {
        for entry in self.controllers.values_mut() {
            entry.slots = Split::default();
        }
        // One pass over each: when hundreds of controllers come up each one leads here.
        for (slot, queue) in self.queues.iter().enumerate() {
            let Some(queue) = queue.as_ref().filter(|queue| queue.phase == Phase::Open) else {
                continue;
            };
            let (controller, association) = queue.of();
            let entry = self.controllers.get_mut(controller.0);
            let Some(entry) = entry.filter(|it| it.view.association == association) else {
                continue;
            };
            for class in [OpClass::Read, OpClass::Other] {
                if queue.takes(class) {
                    entry.slots.of_mut(class).get_or_insert(slot as u16);
                }
            }
        }
    }
}

/// The open queue pair of an association that takes such commands.
pub(super) fn open_slot(
    queues: &[Option<Box<Queue>>],
    of: (ControllerId, Association),
    class: OpClass,
) -> Option<u16> {
    let slot = queues.iter().position(|queue| {
        queue.as_ref().is_some_and(|queue| {
            queue.of() == of && queue.phase == Phase::Open && queue.takes(class)
        })
    });
    slot.map(|slot| slot as u16)
}

/// What a shard knows of paths.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    epoch: u64,
    heads: &'a ById<HeadState>,
    controllers: &'a ById<ControllerEntry>,
}

/// Whether the path that was chosen for a command is no longer one of its head, or is to be looked
/// at first while its controller lives. A head or path that this worker does not know may be newer
/// than its picture; if whoever sent the command works from no newer one, it is gone, and its NSID
/// may be another one's.
pub(super) fn has_lost_its_path(command: &Command, known: Known<'_>) -> bool {
    let Known { epoch, heads, controllers } = known;
    let is_newer = matches!(command.origin, Origin::Peer(carried) if carried.epoch > epoch);
    let Some(head) = heads.get(command.head.0) else { return !is_newer };
    let path = match command.origin {
        Origin::Own { .. } | Origin::Probe { .. } | Origin::LeftBehind => head.path_of(command),
        // A device may have followed its namespace to another NSID.
        Origin::Peer(Carried { sqe, .. }) => {
            head.through(command.controller).filter(|path| path.view.nsid == sqe.nsid())
        }
    };
    let Some(path) = path.filter(|_| !head.gone) else { return head.gone || !is_newer };
    // Whatever is there by now, to flush it does no harm.
    if command.flushes_here() {
        return false;
    }
    let lives = || {
        let controller = entry(controllers, path.view.controller);
        controller.is_some_and(|it| it.view.state == ControllerState::Live)
    };
    path.namespace_suspect.is_some() || !path.view.ready && lives()
}

/// Whether the controller of a command is being reset: that only ends what it has.
pub(super) fn is_too_late(command: &Command, Known { controllers, .. }: Known<'_>) -> bool {
    let controller = entry(controllers, command.controller).filter(|_| !command.flushes_here());
    controller.is_some_and(|it| it.view.state == ControllerState::Resetting)
}

/// Whether the path that was chosen for a command gives no access by ANA, while its controller
/// lives.
fn has_lost_access(command: &Command, Known { heads, controllers, .. }: Known<'_>) -> bool {
    let path = heads.get(command.head.0).and_then(|head| head.through(command.controller));
    let gives_none =
        |path: &&PathState| !path.flushes || !command.flushes_here() && path.awaits_log();
    let Some(path) = path.filter(|path| path.is_reached()).filter(gives_none) else { return false };
    let controller = entry(controllers, path.view.controller);
    controller.is_some_and(|it| it.view.state == ControllerState::Live)
}
