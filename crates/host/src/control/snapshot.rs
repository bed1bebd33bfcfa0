//! Everything there is to see, as plain values.

use super::Control;
use super::controller::Controller;
use super::publish::Condition;
use super::subsystem::{Head, Path, Subsystem};
use super::verbs::address;
use crate::mail::{HeadStats, PathStats, ShardStats};
use crate::verb::{
    AwaitedSnapshot, ControllerSnapshot, HeadSnapshot, HostSnapshot, IgnoredSnapshot, PathSnapshot,
    SubsystemSnapshot,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{LatencyReport, LatencySummary, OpClass, Policy, SizeBucket};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::nqn::Nqn;

type Figures = [(WorkerId, ShardStats)];

impl Control {
    /// NUMA node of a data worker.
    pub(super) fn node_of(&self, worker: WorkerId) -> u32 {
        self.env.config.node_of(worker)
    }

    pub(super) fn snapshot(&self, figures: &Figures) -> HostSnapshot {
        let known = self.subsystems.iter();
        let mut subsystems: Vec<(u32, SubsystemSnapshot)> = known
            .map(|subsystem| (subsystem.instance, self.subsystem_snapshot(subsystem, figures)))
            .collect();
        self.add_unidentified(&mut subsystems);
        self.add_awaited(&mut subsystems);
        // Not in the order in which their targets have answered.
        subsystems.sort_by_key(|(number, _)| *number);
        for (_, subsystem) in &mut subsystems {
            // `nvme10` comes behind `nvme9`.
            subsystem.controllers.sort_by(|one, other| {
                (one.name.len(), &one.name).cmp(&(other.name.len(), &other.name))
            });
        }
        HostSnapshot {
            at: self.env.now,
            data_workers: self.env.config.data_workers,
            host_nqn: self.env.config.host_nqn.to_string(),
            host_id: self.env.config.host_id.to_string(),
            subsystems: subsystems.into_iter().map(|(_, subsystem)| subsystem).collect(),
        }
    }

    /// Controllers that have never said who they are stand with the others of their NQN, or in a
    /// subsystem of their own.
    fn add_unidentified(&self, subsystems: &mut Vec<(u32, SubsystemSnapshot)>) {
        let unknown = self.controllers.values().filter(|controller| {
            !controller.is_discovery() && self.subsystem_of(controller.id).is_none()
        });
        for controller in unknown {
            let nqn = controller.request.subsystem_nqn.to_string();
            let snapshot = self.controller_snapshot(controller);
            if let Some((_, same)) = subsystems.iter_mut().find(|(_, it)| it.nqn == nqn) {
                same.controllers.push(snapshot);
                continue;
            }
            let mut own = self.nobodys(controller.instance, &controller.request.subsystem_nqn);
            own.1.controllers.push(snapshot);
            subsystems.push(own);
        }
    }

    /// So do those that are to come.
    fn add_awaited(&self, subsystems: &mut Vec<(u32, SubsystemSnapshot)>) {
        for aside in &self.set_aside {
            let nqn = aside.nqn.to_string();
            let snapshot = AwaitedSnapshot {
                name: format!("nvme{}", aside.number),
                traddr: aside.traddr.clone(),
                trsvcid: aside.trsvcid.clone(),
            };
            if let Some((_, same)) = subsystems.iter_mut().find(|(_, it)| it.nqn == nqn) {
                same.awaited.push(snapshot);
                continue;
            }
            let mut own = self.nobodys(aside.number, &aside.nqn);
            own.1.awaited.push(snapshot);
            subsystems.push(own);
        }
    }

    /// A subsystem of which nobody has said anything, as it would be called, and its number. One
    /// of its controllers has that one.
    fn nobodys(&self, number: u32, nqn: &Nqn) -> (u32, SubsystemSnapshot) {
        let number = self.first_number(nqn).unwrap_or(number);
        let (first, source) = self.first_parameters(nqn);
        let snapshot = SubsystemSnapshot {
            name: format!("nvme-subsys{number}"),
            nqn: nqn.to_string(),
            model: String::new(),
            serial: String::new(),
            firmware: String::new(),
            iopolicy: first.policy.to_string(),
            iopolicy_default: self.env.config.default_policy.to_string(),
            iopolicy_source: source,
            kernel_exact: first.kernel_exact,
            queue_depth_scope: first.scope.to_string(),
            controllers: Vec::new(),
            awaited: Vec::new(),
            heads: Vec::new(),
            unborn: Vec::new(),
        };
        (number, snapshot)
    }

    fn subsystem_snapshot(&self, subsystem: &Subsystem, figures: &Figures) -> SubsystemSnapshot {
        let controllers = subsystem.controllers.iter();
        let mut heads: Vec<&Head> = subsystem.heads.iter().collect();
        // One that has come back has its number, but not its place.
        heads.sort_by_key(|head| head.instance);
        let (seen, unborn): (Vec<&Head>, Vec<&Head>) = heads.iter().partition(|it| it.visible);
        let shown = |heads: Vec<&Head>| {
            heads.into_iter().map(|head| self.head_snapshot(subsystem, head, figures)).collect()
        };
        SubsystemSnapshot {
            name: subsystem.name(),
            nqn: subsystem.identity.nqn.to_string(),
            model: subsystem.identity.model.clone(),
            serial: subsystem.identity.serial.clone(),
            firmware: subsystem.firmware.clone(),
            iopolicy: subsystem.parameters.policy.to_string(),
            iopolicy_default: self.env.config.default_policy.to_string(),
            iopolicy_source: subsystem.policy_source,
            kernel_exact: subsystem.parameters.kernel_exact,
            queue_depth_scope: subsystem.parameters.scope.to_string(),
            controllers: controllers
                .filter_map(|id| self.controllers.get(id))
                .map(|controller| self.controller_snapshot(controller))
                .collect(),
            awaited: Vec::new(),
            heads: shown(seen),
            unborn: shown(unborn),
        }
    }

    fn controller_snapshot(&self, controller: &Controller) -> ControllerSnapshot {
        let (traddr, trsvcid) = address(&controller.request.to);
        let live = controller.is_live();
        let identity = controller.identity.as_ref();
        ControllerSnapshot {
            name: controller.name(),
            transport: String::from("tcp"),
            traddr,
            trsvcid,
            host_traddr: controller.request.options.socket.source.map(|ip| ip.to_string()),
            host_iface: controller.request.options.socket.interface.clone(),
            src_addr: controller.local.filter(|_| live).map(|local| local.ip().to_string()),
            state: controller.state,
            cntlid: live.then_some(controller.proven.cntlid),
            serial: identity.map(|it| it.serial.clone()).unwrap_or_default(),
            model: identity.map(|it| it.model.clone()).unwrap_or_default(),
            firmware: controller.proven.firmware.clone(),
            io_queues: if live { controller.queues.count() } else { 0 },
            queue_size: match controller.proven.queue_entries {
                0 => controller.request.options.queue_size,
                entries => entries,
            },
            reconnects: controller.reconnects,
            reconnect_attempts: controller.reconnect_attempts,
            resets: controller.resets,
            last_error: controller.last_error.clone(),
            options: self.option_texts(controller.id),
            ignored: self.ignored(controller),
        }
    }

    /// What a controller has that is no device's: it cannot be used, or contradicts another one.
    pub(super) fn ignored(&self, controller: &Controller) -> Vec<IgnoredSnapshot> {
        let id = controller.id;
        let contradicts = self.refusals.range((id, 0)..=(id, u32::MAX));
        let contradicts = contradicts.map(|(&(_, nsid), refusal)| (nsid, refusal.why.as_str()));
        let mut all: BTreeMap<u32, &str> = controller.scan.refused().chain(contradicts).collect();
        if !all.is_empty() {
            let heads = self.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
            for path in heads.filter_map(|head| head.path(id)) {
                all.remove(&path.nsid);
            }
        }
        all.into_iter().map(|(nsid, why)| IgnoredSnapshot { nsid, why: why.into() }).collect()
    }

    fn head_snapshot(&self, subsystem: &Subsystem, head: &Head, figures: &Figures) -> HeadSnapshot {
        let text = |none: bool, text: String| (!none).then_some(text);
        let mut snapshot = HeadSnapshot {
            name: subsystem.head_name(head),
            wwid: head.wwid(),
            nsid: head.nsid,
            uuid: text(head.ids.uuid.is_zero(), head.ids.uuid.to_string()),
            nguid: text(head.ids.nguid.is_zero(), head.ids.nguid.to_string()),
            eui64: text(head.ids.eui64.is_zero(), head.ids.eui64.to_string()),
            blocks: head.blocks,
            used_blocks: head.paths.first().map_or(0, |path| path.used_blocks),
            block_bytes: head.block_bytes,
            read_only: head.last_limits.is_some_and(|limits| limits.read_only),
            requests: [0; 3],
            bytes: [0; 2],
            latency_sums_ns: [0; 3],
            errors: 0,
            in_flight: 0,
            quiesced: head.quiesced,
            frozen: head.frozen,
            requeued_no_usable_path: 0,
            failed_no_available_path: 0,
            latency_ns: Arc::clone(&self.no_latency),
            paths: Vec::new(),
        };
        for stats in figures.iter().flat_map(|(_, stats)| stats.of_head(head.id)) {
            add_head(&mut snapshot, stats);
        }
        snapshot.requeued_no_usable_path -=
            head.requeues_base.min(snapshot.requeued_no_usable_path);
        snapshot.failed_no_available_path -=
            head.no_path_base.min(snapshot.failed_no_available_path);
        let paths = head.paths.iter();
        snapshot.paths =
            paths.map(|path| self.path_snapshot(subsystem, (head, path), figures)).collect();
        snapshot
    }

    fn path_snapshot(
        &self,
        subsystem: &Subsystem,
        (head, path): (&Head, &Path),
        figures: &Figures,
    ) -> PathSnapshot {
        let condition = Condition::of(head, path, &self.controllers);
        let load = self.controllers.get(&path.controller).map(|controller| &controller.load);
        let mut snapshot = PathSnapshot {
            id: path.id,
            name: subsystem.path_name(head, path.controller_instance),
            controller: format!("nvme{}", path.controller_instance),
            ana_state: condition.ana_state,
            ana_group: condition.ana_group,
            usable: condition.usable(),
            hindrance: condition.hindrance(),
            queue_depth: load
                .map_or(0, |load| load.queue_depth(subsystem.parameters.scope, &path.load)),
            relative_throughput: load.map_or(0, |load| load.ledger.relative_throughput()),
            charged: load.map(|load| load.charged(&path.load)).unwrap_or_default(),
            latency_weights: None,
            finish_time: None,
            numa_nodes: Vec::new(),
            commands: [0; 3],
            bytes: [0; 2],
            latency_sums_ns: [0; 3],
            errors: 0,
            flawed: 0,
            retries: 0,
            failovers: 0,
            uncertain_writes_resent: 0,
            in_flight: 0,
            probes: 0,
            probe_bytes: 0,
            probe_errors: 0,
            rescued: 0,
            latency_ns: Arc::clone(&self.no_latency),
        };
        let mut reports: Vec<&LatencyReport> = Vec::new();
        for (worker, stats) in figures {
            for stats in stats.of_path(head.id, path.controller) {
                add_path(&mut snapshot, stats);
                reports.extend(stats.latency.as_deref());
                if subsystem.parameters.policy == Policy::FinishTime {
                    // All workers share what is known.
                    snapshot.finish_time = stats.finish_time.clone().or(snapshot.finish_time);
                }
                if stats.numa_cached {
                    snapshot.numa_nodes.push(self.node_of(*worker));
                }
            }
        }
        if subsystem.parameters.policy == Policy::Latency && !reports.is_empty() {
            snapshot.latency_weights = Some(weights(&reports));
        }
        snapshot.numa_nodes.sort_unstable();
        snapshot.numa_nodes.dedup();
        snapshot.failovers -= path.failovers_base.min(snapshot.failovers);
        snapshot.errors -= path.errors_base.min(snapshot.errors);
        snapshot.retries -= path.retries_base.min(snapshot.retries);
        snapshot
    }
}

/// Weights of a path, from what each worker knows about it.
fn weights(reports: &[&LatencyReport]) -> [u32; 3] {
    OpClass::ALL.map(|op| {
        let stats = reports
            .iter()
            .flat_map(|report| SizeBucket::all().map(move |bucket| report.stat(op, bucket)));
        stats.collect::<LatencySummary>().weight()
    })
}

fn add<const N: usize>(sum: &mut [u64; N], more: &[u64; N]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
}

fn add_head(sum: &mut HeadSnapshot, more: &HeadStats) {
    add(&mut sum.requests, &more.requests);
    add(&mut sum.bytes, &more.bytes);
    add(&mut sum.latency_sums_ns, &more.latency_sums_ns);
    sum.errors += more.errors;
    sum.in_flight += u64::from(more.in_flight);
    sum.requeued_no_usable_path += more.requeued_no_usable_path;
    sum.failed_no_available_path += more.failed_no_available_path;
    if let Some(latency_ns) = &more.latency_ns {
        Arc::make_mut(&mut sum.latency_ns).merge(latency_ns);
    }
}

fn add_path(sum: &mut PathSnapshot, more: &PathStats) {
    add(&mut sum.commands, &more.commands);
    add(&mut sum.bytes, &more.bytes);
    add(&mut sum.latency_sums_ns, &more.latency_sums_ns);
    sum.errors += more.errors;
    sum.flawed += more.flawed;
    sum.retries += more.retries;
    sum.failovers += more.failovers;
    sum.uncertain_writes_resent += more.uncertain_writes_resent;
    sum.in_flight += u64::from(more.in_flight);
    sum.probes += more.probes;
    sum.probe_bytes += more.probe_bytes;
    sum.probe_errors += more.probe_errors;
    sum.rescued += more.rescued;
    if let Some(latency_ns) = &more.latency_ns {
        Arc::make_mut(&mut sum.latency_ns).merge(latency_ns);
    }
}
