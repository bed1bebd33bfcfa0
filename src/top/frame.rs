//! What is shown: the difference of two looks, as plain values. `-o json` prints just this.

use crate::daemon::top::{Estimates, Latencies, TopView};
use crate::daemon::view::{ControllerView, HeadView, PathView, SubsystemView};
use anabranch_policy::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the shape.
pub const SCHEMA: u32 = 1;

/// Everything at one moment, and what happened since the look before.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Frame {
    /// [`SCHEMA`].
    pub schema: u32,
    /// When this was true, by the host's clock.
    pub at_ns: u64,
    /// How long before that the look before was; `null` when there was none that compares. Then
    /// nothing is known about the time between: rates are `null`, counts in it 0.
    pub interval_ns: Option<u64>,
    /// The look before was at another run of the host: all counts began anew.
    pub restarted: bool,
    /// How long the host has been running.
    pub uptime_ns: u64,
    /// Its data workers.
    pub data_workers: u16,
    /// Its NBD clients.
    pub clients: usize,
    /// Sums over the heads, and percentiles of all their requests.
    pub total: Flow,
    /// The heads.
    pub heads: Vec<HeadFrame>,
}

/// What flows through a path or a head.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Flow {
    /// Commands of a path, requests of a head: in flight now.
    pub in_flight: u64,
    /// Ended well per second.
    pub iops: Option<f64>,
    /// Bytes read per second.
    pub read_bytes_per_s: Option<f64>,
    /// Bytes written per second.
    pub written_bytes_per_s: Option<f64>,
    /// Median latency in the interval; `null` when nothing ended.
    pub p50_ns: Option<u64>,
    /// 99th percentile of latency in the interval; `null` when nothing ended.
    pub p99_ns: Option<u64>,
    /// Ended with an error.
    pub errors: Count,
    /// Of a head: commands that waited for a usable path.
    pub requeued: Count,
    /// Of a head: commands that failed for want of an available path.
    pub failed: Count,
    /// Commands tried again on the same path.
    pub retries: Count,
    /// Commands that left for another path.
    pub failovers: Count,
}

/// Something that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Since the path joined or the host started.
    pub total: u64,
    /// In the interval.
    pub new: u64,
}

/// A head.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HeadFrame {
    /// `nvmeXnY`.
    pub device: String,
    /// `nvme-subsysN`.
    pub subsystem: String,
    /// Its NQN.
    pub nqn: String,
    /// NSID.
    pub nsid: u32,
    /// Bytes that it holds.
    pub size_bytes: u64,
    /// The policy in force.
    pub iopolicy: String,
    /// Where it was set: default, configuration or attribute.
    pub iopolicy_set_by: String,
    /// How often it is quiesced: while not 0, its I/O waits.
    pub quiesced: u32,
    /// How often it is frozen: while not 0, no I/O is taken in.
    pub frozen: u32,
    /// Its requests.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its paths in order.
    pub paths: Vec<PathFrame>,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PathFrame {
    /// `nvmeXcYnZ`.
    pub path: String,
    /// `nvmeN`.
    pub controller: String,
    /// Address and port.
    pub address: String,
    /// The controller's state.
    pub controller_state: String,
    /// Why the controller was last lost or could not connect.
    pub last_error: Option<String>,
    /// ANA state.
    pub ana_state: String,
    /// ANA group, 0 without ANA.
    pub ana_group: u32,
    /// It may be chosen now.
    pub usable: bool,
    /// What keeps it from being chosen, a word.
    pub hindrance: Option<String>,
    /// It has left since the look before: nothing else is known.
    pub left: bool,
    /// NUMA nodes that use it, under `numa`.
    pub numa_nodes: Vec<u32>,
    /// Its commands.
    #[serde(flatten)]
    pub flow: Flow,
    /// Its part of the head's bytes (of its commands when no byte was moved), 0 to 1.
    pub share: Option<f64>,
    /// Bytes in flight, as far as the policy counts them: `service-time` per controller,
    /// `finish-time` per path and with 4 KiB per command.
    pub in_flight_bytes: Option<u64>,
    /// What the policy weighs it with.
    pub weights: Weights,
    /// Probes of `finish-time` that were sent; nothing else counts them.
    pub probes: Count,
    /// Bytes that they asked for, since the path joined.
    pub probe_bytes: u64,
    /// Reads that were stuck on it while it was silent and were sent again elsewhere, since it
    /// joined.
    pub rescued: u64,
    /// Since it joined: commands that ended well (reads, writes, others), and bytes read, written.
    pub since_joined: ([u64; 3], [u64; 2]),
    /// Writes whose outcome was unknown when they were sent again elsewhere.
    pub uncertain_writes_resent: u64,
}

/// What a policy weighs a path with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Weights {
    /// `queue-depth`: commands that it compares.
    pub queue_depth: Option<u32>,
    /// `service-time`: the weight that was set.
    pub relative_throughput: Option<u32>,
    /// `latency`: measured weights for reads, writes, others.
    pub latency: Option<[u32; 3]>,
    /// `finish-time`: its estimates.
    pub finish_time: Option<Estimates>,
}

/// Two looks; the one before only if it was at the same run of the host.
struct Looks<'a> {
    now: &'a TopView,
    before: Option<&'a TopView>,
    seconds: Option<f64>,
}

impl Frame {
    /// What is there now, and what happened since the look before.
    #[must_use]
    pub fn new(now: &TopView, before: Option<&TopView>) -> Frame {
        Frame::of(None, now, before)
    }

    /// That of one device, or of all.
    #[must_use]
    pub fn of(device: Option<&str>, now: &TopView, before: Option<&TopView>) -> Frame {
        let same = before.filter(|before| before.instance == now.instance);
        let interval_ns = same
            .and_then(|before| now.host.at_ns.checked_sub(before.host.at_ns))
            .filter(|interval| *interval > 0);
        let looks = Looks {
            now,
            before: same.filter(|_| interval_ns.is_some()),
            seconds: interval_ns.map(|ns| ns as f64 / 1e9),
        };
        let (heads, took): (Vec<HeadFrame>, Vec<Latencies>) = now
            .host
            .subsystems
            .iter()
            .flat_map(|subsystem| subsystem.heads.iter().map(move |head| (subsystem, head)))
            .filter(|(_, head)| device.is_none_or(|device| head.name == device))
            .map(|(subsystem, head)| looks.head(subsystem, head))
            .unzip();
        let mut total = Flow::default();
        if interval_ns.is_some() {
            let none = Some(0.0);
            (total.iops, total.read_bytes_per_s, total.written_bytes_per_s) = (none, none, none);
        }
        heads.iter().for_each(|head| total.add(&head.flow));
        let took = sum(&took);
        (total.p50_ns, total.p99_ns) = (percentile(&took, 50), percentile(&took, 99));
        Frame {
            schema: SCHEMA,
            at_ns: now.host.at_ns,
            interval_ns,
            restarted: before.is_some() && same.is_none(),
            uptime_ns: now.uptime_ns,
            data_workers: now.host.data_workers,
            clients: now.clients,
            total,
            heads,
        }
    }
}

impl Flow {
    fn add(&mut self, other: &Flow) {
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        self.in_flight += other.in_flight;
        self.iops = sum(self.iops, other.iops);
        self.read_bytes_per_s = sum(self.read_bytes_per_s, other.read_bytes_per_s);
        self.written_bytes_per_s = sum(self.written_bytes_per_s, other.written_bytes_per_s);
        for (mine, theirs) in [
            (&mut self.errors, other.errors),
            (&mut self.requeued, other.requeued),
            (&mut self.failed, other.failed),
            (&mut self.retries, other.retries),
            (&mut self.failovers, other.failovers),
        ] {
            mine.total += theirs.total;
            mine.new += theirs.new;
        }
    }

    /// Bytes per second in both directions.
    #[must_use]
    pub fn bytes_per_s(&self) -> Option<f64> {
        Some(self.read_bytes_per_s? + self.written_bytes_per_s?)
    }
}

/// What is counted on a path or a head.
#[derive(Clone, Copy, Default)]
struct Sums {
    ended: [u64; 3],
    bytes: [u64; 2],
}

impl Sums {
    /// A count is less than it was: it began anew in between.
    fn fell(self, before: Sums) -> bool {
        let pairs = self.ended.iter().zip(&before.ended);
        pairs.chain(self.bytes.iter().zip(&before.bytes)).any(|(now, then)| now < then)
    }

    /// What was added; none of the counts has fallen.
    fn since(self, before: Sums) -> Sums {
        let mut sums = self;
        sums.ended.iter_mut().zip(before.ended).for_each(|(sum, less)| *sum -= less);
        sums.bytes.iter_mut().zip(before.bytes).for_each(|(sum, less)| *sum -= less);
        sums
    }
}

impl Looks<'_> {
    /// A head, and how long each of its requests took in the interval.
    fn head(&self, subsystem: &SubsystemView, head: &HeadView) -> (HeadFrame, Latencies) {
        let before = self.before.and_then(|view| head_named(view, &head.name));
        let sums = |head: &HeadView| Sums { ended: head.requests, bytes: head.bytes };
        let (mut flow, took) = self.flow(&head.name, sums(head), before.map(sums));
        let count = |of: fn(&HeadView) -> u64| self.count(of(head), before.map(of));
        flow.in_flight = head.in_flight;
        flow.errors = count(|head| head.errors);
        flow.requeued = count(|head| head.requeued_no_usable_path);
        flow.failed = count(|head| head.failed_no_available_path);
        let mut paths: Vec<PathFrame> =
            head.paths.iter().map(|path| self.path(subsystem, before, path)).collect();
        share(&mut paths);
        for path in &paths {
            for (sum, more) in
                [(&mut flow.retries, path.flow.retries), (&mut flow.failovers, path.flow.failovers)]
            {
                sum.total += more.total;
                sum.new += more.new;
            }
        }
        for gone in before.map_or(&[][..], |before| &before.paths) {
            if !paths.iter().any(|path| path.path == gone.name) {
                let (path, controller) = (gone.name.clone(), gone.controller.clone());
                paths.push(PathFrame { path, controller, left: true, ..PathFrame::default() });
            }
        }
        let frame = HeadFrame {
            device: head.name.clone(),
            subsystem: subsystem.name.clone(),
            nqn: subsystem.nqn.clone(),
            nsid: head.nsid,
            size_bytes: head.blocks.saturating_mul(head.block_bytes.into()),
            iopolicy: subsystem.iopolicy.clone(),
            iopolicy_set_by: subsystem.iopolicy_set_by.clone(),
            quiesced: head.quiesced,
            frozen: head.frozen,
            flow,
            paths,
        };
        (frame, took)
    }

    fn path(
        &self,
        subsystem: &SubsystemView,
        head_before: Option<&HeadView>,
        path: &PathView,
    ) -> PathFrame {
        let same = |then: &&PathView| (&then.name, then.id) == (&path.name, path.id);
        let before = head_before.and_then(|head| head.paths.iter().find(same));
        let sums = |path: &PathView| Sums { ended: path.commands, bytes: path.bytes };
        let (mut flow, _) = self.flow(&path.name, sums(path), before.map(sums));
        let count = |of: fn(&PathView) -> u64| self.count(of(path), before.map(of));
        flow.in_flight = path.in_flight;
        flow.errors = count(|path| path.errors);
        flow.retries = count(|path| path.retries);
        flow.failovers = count(|path| path.failovers);
        let controller = subsystem.controllers.iter().find(|c| c.name == path.controller);
        let estimates = self.now.estimates.get(&path.name);
        PathFrame {
            path: path.name.clone(),
            controller: path.controller.clone(),
            address: controller.map(address).unwrap_or_default(),
            controller_state: controller.map(|c| c.state.clone()).unwrap_or_default(),
            last_error: controller.and_then(|c| c.last_error.clone()),
            ana_state: path.ana_state.clone(),
            ana_group: path.ana_group,
            usable: path.usable,
            hindrance: path.hindrance.clone(),
            left: false,
            numa_nodes: path.numa_nodes.clone(),
            flow,
            share: None,
            in_flight_bytes: subsystem
                .charged_bytes(path)
                .or(estimates.map(|estimates| estimates.in_flight_bytes)),
            weights: weights(&subsystem.iopolicy, path, estimates),
            probes: count(|path| path.probes),
            probe_bytes: path.probe_bytes,
            rescued: path.rescued,
            since_joined: (path.commands, path.bytes),
            uncertain_writes_resent: path.uncertain_writes_resent,
        }
    }

    fn flow(&self, name: &str, now: Sums, before: Option<Sums>) -> (Flow, Latencies) {
        let Some(seconds) = self.seconds else { return Default::default() };
        // A path that left and came back has begun anew: all of it is new.
        let before = before.filter(|before| !now.fell(*before));
        let sums = before.map_or(now, |before| now.since(before));
        let per_second = |count: u64| Some(count as f64 / seconds);
        let nothing = Latencies::new();
        let of = |view: &'_ TopView| view.latencies.get(name).cloned();
        let then = before.and(self.before).and_then(of).unwrap_or_default();
        let took = difference(self.now.latencies.get(name).unwrap_or(&nothing), &then);
        let flow = Flow {
            iops: per_second(sums.ended.iter().sum()),
            read_bytes_per_s: per_second(sums.bytes[0]),
            written_bytes_per_s: per_second(sums.bytes[1]),
            p50_ns: percentile(&took, 50),
            p99_ns: percentile(&took, 99),
            ..Flow::default()
        };
        (flow, took)
    }

    fn count(&self, total: u64, before: Option<u64>) -> Count {
        let new = match (self.before, before) {
            (None, _) => 0,
            (Some(_), Some(before)) if before <= total => total - before,
            // New since then, or it began anew.
            (Some(_), _) => total,
        };
        Count { total, new }
    }
}

fn head_named<'a>(view: &'a TopView, name: &str) -> Option<&'a HeadView> {
    let mut heads = view.host.subsystems.iter().flat_map(|subsystem| &subsystem.heads);
    heads.find(|head| head.name == name)
}

fn address(controller: &ControllerView) -> String {
    if controller.traddr.contains(':') {
        format!("[{}]:{}", controller.traddr, controller.trsvcid)
    } else {
        format!("{}:{}", controller.traddr, controller.trsvcid)
    }
}

fn weights(iopolicy: &str, path: &PathView, estimates: Option<&Estimates>) -> Weights {
    let of = |policy: &str| iopolicy == policy;
    Weights {
        queue_depth: of("queue-depth").then_some(path.queue_depth),
        relative_throughput: of("service-time").then_some(path.relative_throughput),
        latency: path.latency_weights.filter(|_| of("latency")),
        finish_time: estimates.filter(|_| of("finish-time")).cloned(),
    }
}

/// What each path has of the head's bytes; of its commands when no bytes were moved.
fn share(paths: &mut [PathFrame]) {
    let bytes = |path: &PathFrame| path.flow.bytes_per_s().unwrap_or(0.0);
    let commands = |path: &PathFrame| path.flow.iops.unwrap_or(0.0);
    for of in [bytes, commands] as [fn(&PathFrame) -> f64; 2] {
        let sum: f64 = paths.iter().map(of).sum();
        if sum > 0.0 {
            return paths.iter_mut().for_each(|path| path.share = Some(of(path) / sum));
        }
    }
}

/// What was added to a histogram. A count that has fallen, because the path is another one of that
/// name, counts nothing.
fn difference(now: &Latencies, before: &Latencies) -> Latencies {
    let then: BTreeMap<u16, u64> = before.iter().copied().collect();
    let added = now.iter().map(|(position, count)| {
        (*position, count.saturating_sub(then.get(position).copied().unwrap_or(0)))
    });
    added.filter(|(_, count)| *count > 0).collect()
}

/// All of them together.
fn sum(all: &[Latencies]) -> Latencies {
    let mut sum = BTreeMap::new();
    for (position, count) in all.iter().flatten() {
        *sum.entry(*position).or_insert(0) += count;
    }
    sum.into_iter().collect()
}

/// The value at or below which so many hundredths lie.
fn percentile(took: &Latencies, percent: u64) -> Option<u64> {
    let total: u64 = took.iter().map(|(_, count)| count).sum();
    let rank = (total * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let found = took.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    found.map(|(position, _)| Histogram::value_at(*position))
}
