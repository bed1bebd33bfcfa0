//! The picture that shards work from.

use super::Control;
use super::affinity;
use super::controller::Controller;
use super::env::Env;
use super::facts::Facts;
use super::subsystem::{Head, Path, Subsystem};
use crate::event::HostEvent;
use crate::load::PathLoad;
use crate::mail::ToShard;
use crate::topology::{
    ControllerId, ControllerState, ControllerView, HeadView, Limits, PathView, Topology,
};
use crate::verb::Hindrance;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_policy::{Parameters, Policy};
use anabranch_proto::nvme::ana::AnaState;

/// How often a command that failed for another reason than its path is tried again
/// (`nvme_core.max_retries`).
const MAX_RETRIES: u8 = 5;

/// Bytes in one command when the controllers set no lower limit.
const MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Blocks that one Write Zeroes command can name (NLB has 16 bits).
const MAX_ZEROES_BLOCKS: u32 = 1 << 16;

type Controllers = BTreeMap<ControllerId, Controller>;

/// A path's condition, worked out from its controller.
pub(super) struct Condition {
    pub(super) ana_state: AnaState,
    pub(super) ana_group: u32,
    pub(super) ana_pending: bool,
    /// The log that was read has no such group.
    ana_unlisted: bool,
    /// What stands between it and being ready.
    unready: Option<Hindrance>,
    pub(super) live: bool,
    /// Its controller is being removed.
    leaves: bool,
}

impl Condition {
    pub(super) fn of(head: &Head, path: &Path, controllers: &Controllers) -> Condition {
        let Some(controller) = controllers.get(&path.controller) else {
            let ana_state = AnaState::Inaccessible;
            let (ana_group, ana_pending) = (path.ana_group, false);
            let unready = Some(Hindrance::Controller);
            return Condition {
                ana_state,
                ana_group,
                ana_pending,
                ana_unlisted: false,
                unready,
                live: false,
                leaves: true,
            };
        };
        let (group, state) = controller.ana.state_of(path.nsid, path.ana_group);
        Condition {
            // Data keeps off while it is not known; a flush goes by what was known last.
            ana_state: state.or(path.shown).unwrap_or(AnaState::Inaccessible),
            ana_group: group,
            ana_pending: state.is_none()
                || controller.ana.is_suspect(path.nsid)
                || path.nsid != head.nsid,
            ana_unlisted: state.is_none() && controller.ana.lacks_groups(),
            unready: unready(head, path, controller),
            live: controller.is_live(),
            leaves: matches!(controller.state, ControllerState::Deleting | ControllerState::Dead),
        }
    }

    pub(super) fn ready(&self) -> bool {
        self.unready.is_none()
    }

    pub(super) fn usable(&self) -> bool {
        self.hindrance().is_none()
    }

    /// Whether it could be used if its size were the device's.
    pub(super) fn serves(&self) -> bool {
        let known = matches!(self.unready, None | Some(Hindrance::Size)) && !self.ana_pending;
        self.live && known && self.ana_state.is_accessible()
    }

    /// Whether the path is out of use, and not for a moment only. One that leaves is none any more.
    fn lasts(&self) -> bool {
        match self.hindrance() {
            Some(Hindrance::Controller) => !self.leaves,
            Some(Hindrance::AnaState | Hindrance::AnaGroup) => true,
            _ => false,
        }
    }

    /// What keeps the path from being chosen; of several things the one that says most.
    pub(super) fn hindrance(&self) -> Option<Hindrance> {
        match self {
            Condition { live: false, .. } => Some(Hindrance::Controller),
            Condition { unready: Some(unready), .. } => Some(*unready),
            Condition { ana_unlisted: true, .. } => Some(Hindrance::AnaGroup),
            Condition { ana_pending: true, .. } => Some(Hindrance::AnaLog),
            Condition { ana_state, .. } if !ana_state.is_accessible() => Some(Hindrance::AnaState),
            _ => None,
        }
    }
}

fn unready(head: &Head, path: &Path, controller: &Controller) -> Option<Hindrance> {
    // A controller that is being removed only finishes what it has.
    if controller.state == ControllerState::Deleting {
        return Some(Hindrance::Controller);
    }
    // After a reconnect the namespace may be another one until it was looked at.
    if !is_looked_at(path, controller) || path.nsid != head.nsid {
        return Some(Hindrance::Scan);
    }
    (!head.agrees(path)).then_some(Hindrance::Size)
}

fn is_looked_at(path: &Path, controller: &Controller) -> bool {
    let newer = |scan| controller.scan.is_newer_than(scan, path.nsid);
    // Whoever comes back does not name what it had to say before.
    let unknown = path.unread || path.awaits_news && controller.scan.has_unheard();
    controller.has_read(path.nsid) && !unknown && path.doubted.is_none_or(newer)
}

impl Control {
    /// Sends everybody a new picture when something has changed.
    pub(super) fn publish(&mut self) {
        if !core::mem::take(&mut self.env.dirty) {
            return;
        }
        self.epoch += 1;
        self.settle_sizes();
        self.tell_changes();
        self.work_out_limits();
        self.provide_nodes();
        self.provide_loads();
        let controllers = self.controllers.values().filter(|c| !c.is_discovery());
        let controllers = controllers.map(|c| Arc::new(self.controller_view(c))).collect();
        let mut heads: vec::Vec<Arc<HeadView>> = self
            .subsystems
            .iter()
            .flat_map(|subsystem| {
                subsystem
                    .heads
                    .iter()
                    .filter(|head| head.visible)
                    .map(move |head| (subsystem, head))
            })
            .map(|(subsystem, head)| Arc::new(self.head_view(subsystem, head)))
            .collect();
        heads.sort_unstable_by_key(|head| head.id);
        let topology = Arc::new(Topology { epoch: self.epoch, controllers, heads });
        self.env.mail_first(|| ToShard::Topology(topology.clone()));
    }

    /// Devices that appear now, and ANA states that have changed.
    fn tell_changes(&mut self) {
        let Control { subsystems, controllers, env, .. } = self;
        for subsystem in subsystems {
            let instance = subsystem.instance;
            for head in &mut subsystem.heads {
                let (mut usable, mut lasts) = (false, !head.paths.is_empty());
                tell_sizes(env, instance, head, controllers);
                for at in 0..head.paths.len() {
                    let condition = Condition::of(head, &head.paths[at], controllers);
                    usable |= condition.usable();
                    lasts &= condition.lasts();
                    let path = &mut head.paths[at];
                    if !condition.live || condition.ana_pending {
                        continue;
                    }
                    let to = condition.ana_state;
                    if let Some(from) = path.shown.replace(to).filter(|&from| from != to) {
                        let controller = path.controller_instance;
                        let name = alloc::format!("nvme{instance}c{controller}n{}", head.instance);
                        env.event(HostEvent::AnaChange { path: name, from, to });
                    }
                }
                if usable && !head.visible {
                    head.visible = true;
                    let name = alloc::format!("nvme{instance}n{}", head.instance);
                    let (bytes, nsid, wwid) = (head.bytes(), head.nsid, head.wwid());
                    env.event(HostEvent::HeadAdded { head: name, bytes, nsid, wwid });
                }
                tell_whether_served(env, instance, head, (usable, lasts));
            }
        }
    }

    fn controller_view(&self, controller: &Controller) -> ControllerView {
        let owners = controller.queues.owners(self.env.config.data_workers);
        ControllerView {
            id: controller.id,
            association: controller.association,
            state: controller.state,
            fast_io_failed: controller.fast_io_failed,
            queue_of_worker: owners.others,
            read_queue_of_worker: owners.reads,
            tags: controller.facts.queue_entries.saturating_sub(1),
            io_timeout: controller.request.options.io_timeout,
            command_retry_delays: controller.proven.retry_delays,
            ana_generation: controller.ana.generation(),
            load: controller.load.clone(),
        }
    }

    fn head_view(&self, subsystem: &Subsystem, head: &Head) -> HeadView {
        let affinity = match subsystem.parameters.policy {
            Policy::IoAffinity => affinity::of_paths(head, &self.env.config),
            // Nobody asks.
            _ => Vec::new(),
        };
        let affinity = affinity.into_iter().chain(core::iter::repeat_with(Arc::default));
        let paths = head.paths.iter().zip(affinity).map(|(path, affinity)| {
            let condition = Condition::of(head, path, &self.controllers);
            let controller = self.controllers.get(&path.controller);
            let distances = controller.and_then(|controller| controller.distances.as_ref());
            PathView {
                id: path.id,
                controller: path.controller,
                nsid: path.nsid,
                // Under another NSID than the device it may lead elsewhere by now: nobody asks it
                // for anything, not even to flush what it has.
                ana_state: if path.nsid == head.nsid {
                    condition.ana_state
                } else {
                    AnaState::Inaccessible
                },
                ana_pending: condition.ana_pending,
                verified: controller
                    .is_some_and(|it| is_looked_at(path, it) && !it.scan.has_unheard()),
                blocks: path.blocks,
                ready: condition.ready(),
                doubts: path.doubts,
                doubted: path.doubted_times,
                zeroes_may_deallocate: path.zeroes_may_deallocate,
                distance: distances.unwrap_or(&self.near).clone(),
                affinity,
                load: path.load.clone(),
                nodes: path.nodes.clone(),
                writes: path.writes.clone(),
            }
        });
        HeadView {
            id: head.id,
            name: subsystem.head_name(head),
            wwid: head.wwid(),
            blocks: head.blocks,
            block_bytes: head.block_bytes,
            limits: head.last_limits.unwrap_or_else(|| self.limits(head)),
            parameters: Parameters { latency: head.settings.latency, ..subsystem.parameters },
            // Either may change; both only grow.
            policy_epoch: subsystem.policy_epoch.wrapping_add(head.policy_epoch),
            paths: paths.collect(),
            queue_if_no_path: head.settings.delayed_removal_secs > 0,
            gone: false,
            quiesced: head.quiesced,
            frozen: head.frozen,
            max_retries: MAX_RETRIES,
            explain_sample: head.settings.explain_sample,
            zeroes_refused: head.zeroes_refused,
            written: head.written.clone(),
            leftovers: head.leftovers.clone(),
            failed_flushes: head.failed_flushes.clone(),
        }
    }

    /// Paths have room for measurements of NUMA nodes where something is measured so: it is a
    /// kilobyte per path and node.
    fn provide_nodes(&mut self) {
        let nodes = self.env.config.nodes().max(1);
        for subsystem in &mut self.subsystems {
            let by_latency = subsystem.parameters.policy == Policy::Latency;
            for head in &mut subsystem.heads {
                let wanted = if by_latency && head.settings.latency.per_node { nodes } else { 0 };
                for path in head.paths.iter_mut().filter(|path| path.nodes.len() != wanted) {
                    path.nodes = (0..wanted).map(|_| Arc::default()).collect();
                }
            }
        }
    }

    /// Paths have counters of their own from when a policy first counts by path. They keep them:
    /// what is charged there by then goes back there under whatever policy.
    fn provide_loads(&mut self) {
        let workers = self.env.config.data_workers;
        let counting = self.subsystems.iter_mut().filter(|it| it.parameters.count_by_path());
        let paths = counting.flat_map(|it| &mut it.heads).flat_map(|head| &mut head.paths);
        for path in paths.filter(|path| Arc::ptr_eq(&path.load, &self.no_load)) {
            path.load = Arc::new(PathLoad::new(workers));
        }
    }

    fn work_out_limits(&mut self) {
        for subsystem in 0..self.subsystems.len() {
            for head in 0..self.subsystems[subsystem].heads.len() {
                let limits = self.limits(&self.subsystems[subsystem].heads[head]);
                self.subsystems[subsystem].heads[head].last_limits = Some(limits);
            }
        }
    }

    /// The strictest over the paths. Without a path, what held before: commands are cut and flushes
    /// are due as if it came back.
    fn limits(&self, head: &Head) -> Limits {
        if let (true, Some(limits)) = (head.paths.is_empty(), head.last_limits) {
            return limits;
        }
        let mut limits = Limits {
            max_transfer_bytes: MAX_TRANSFER_BYTES,
            max_write_zeroes_blocks: MAX_ZEROES_BLOCKS,
            max_discard_blocks: u32::MAX,
            volatile_write_cache: false,
            compare: true,
            read_only: !head.paths.is_empty(),
        };
        for path in &head.paths {
            let Some(controller) = self.controllers.get(&path.controller) else { continue };
            limit(&mut limits, &controller.proven, head.block_bytes);
            limits.read_only &= path.write_protected;
        }
        let whole = limits.max_transfer_bytes / head.block_bytes * head.block_bytes;
        // None is less than a block for longer than it takes to find that out: see the scan.
        limits.max_transfer_bytes = whole.max(head.block_bytes);
        limits
    }
}

/// Tells when a device has no usable path, and when it has one again. What only has to be looked at
/// is in a moment, and what leaves was told.
fn tell_whether_served(
    env: &mut Env,
    subsystem: u32,
    head: &mut Head,
    (usable, lasts): (bool, bool),
) {
    let stranded = if head.stranded { !usable } else { head.visible && lasts };
    if core::mem::replace(&mut head.stranded, stranded) == stranded {
        return;
    }
    let (name, paths) = (alloc::format!("nvme{subsystem}n{}", head.instance), head.paths.len());
    env.event(match stranded {
        true => HostEvent::HeadStranded { head: name, paths },
        false => HostEvent::HeadServed { head: name },
    });
}

/// Tells which paths stand idle because their controllers say another size, and which no longer.
fn tell_sizes(env: &mut Env, subsystem: u32, head: &mut Head, controllers: &Controllers) {
    let (blocks, block_bytes) = (head.blocks, u64::from(head.block_bytes));
    let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
    for path in &mut head.paths {
        let knows = controllers.get(&path.controller);
        if !knows.is_some_and(|controller| controller.vouches_for(path.nsid)) {
            continue;
        }
        let disagrees = path.blocks != blocks;
        if core::mem::replace(&mut path.disagrees, disagrees) == disagrees {
            continue;
        }
        let (instance, controller) = (head.instance, path.controller_instance);
        let name = alloc::format!("nvme{subsystem}c{controller}n{instance}");
        let head = alloc::format!("nvme{subsystem}n{instance}");
        let (path_bytes, head_bytes) = (bytes(path.blocks), bytes(blocks));
        env.event(match disagrees {
            true => HostEvent::PathDisagrees { path: name, bytes: path_bytes, head, head_bytes },
            false => HostEvent::PathAgrees { path: name, bytes: path_bytes, head },
        });
    }
}

fn limit(limits: &mut Limits, facts: &Facts, block_bytes: u32) {
    let transfer = facts.max_transfer_bytes.unwrap_or(u32::MAX);
    limits.max_transfer_bytes = limits.max_transfer_bytes.min(transfer);
    // MDTS does not apply to Write Zeroes, yet without WZSL Linux keeps to it, to be careful.
    let zeroes = facts.max_write_zeroes_bytes.unwrap_or(transfer) / block_bytes;
    let zeroes = if facts.write_zeroes { zeroes } else { 0 };
    limits.max_write_zeroes_blocks = limits.max_write_zeroes_blocks.min(zeroes);
    let discard = if facts.discard { facts.max_discard_blocks } else { 0 };
    limits.max_discard_blocks = limits.max_discard_blocks.min(discard);
    limits.volatile_write_cache |= facts.volatile_write_cache;
    limits.compare &= facts.compare;
}
