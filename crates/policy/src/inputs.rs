//! What a policy compares, to be shown.

use crate::{
    Affinity, AnaRank, Candidate, OpClass, Parameters, Policy, Scope, WorkerLedger, finish_time,
    latency_inputs,
};

/// What stands for one path in a decision. A field is `None` when the policy does not look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// The path could be chosen.
    pub usable: bool,
    /// Its ANA state. Without meaning when not usable.
    pub rank: AnaRank,
    /// Commands in flight: `queue-depth` (as its [`Scope`] counts them), `queue-length` and
    /// `historical-service-time` (on the path, all workers).
    pub commands: Option<u32>,
    /// `service-time`: payload bytes in flight on the controller; with those of the command itself,
    /// unless kernel-exact. `finish-time`: bytes in flight on the path, 4 KiB per command counted
    /// with them; where reads and writes are predicted apart, those of the direction that is done
    /// last.
    pub bytes: Option<u64>,
    /// `service-time`: the relative throughput, 0 to 100. `latency`: the weight, 0 before it is
    /// known.
    pub weight: Option<u32>,
    /// `latency`: commands left of the burst.
    pub credit: Option<u32>,
    /// `latency`: the smoothed latency, ns; 0 before it is known. `historical-service-time`: the
    /// history, ns, rounded down. `finish-time`: what such a command takes there without a queue,
    /// ns; 0 when nothing is known.
    pub latency_ns: Option<u64>,
    /// `historical-service-time`: for how long its history has been stale, ns; 0 when it is not.
    /// `finish-time`: for how long nothing has ended there, ns, when that keeps this write away.
    pub stale_ns: Option<u64>,
    /// `finish-time`: when the command would be done there, ns from now; 0 when nothing is known.
    pub finish_ns: Option<u64>,
    /// `finish-time`: what the path delivers, KiB per second, 4 KiB per command counted with them,
    /// of the same; 0 when it is not known.
    pub rate_kib_per_s: Option<u32>,
    /// `numa`: the distance to the path's node.
    pub distance: Option<u32>,
    /// `io-affinity`: to whom the path is assigned.
    pub affinity: Option<Affinity>,
}

/// What the policy in force compares when such a command is placed at `now_ns`. Look before the
/// choice is made: choosing spends credit, starting raises counters.
#[cold]
#[must_use]
pub fn inputs(
    parameters: &Parameters,
    path: Candidate<'_>,
    op: OpClass,
    bytes: u32,
    now_ns: u64,
) -> Inputs {
    let mut inputs = Inputs {
        usable: path.usable,
        rank: path.rank,
        commands: None,
        bytes: None,
        weight: None,
        credit: None,
        latency_ns: None,
        stale_ns: None,
        finish_ns: None,
        rate_kib_per_s: None,
        distance: None,
        affinity: None,
    };
    let load = path.load;
    match parameters.policy {
        Policy::Numa => inputs.distance = Some(path.numa_distance),
        Policy::RoundRobin => {}
        Policy::QueueDepth => inputs.commands = Some(depth(parameters.scope, path)),
        Policy::ServiceTime => {
            let incoming = if parameters.kernel_exact { 0 } else { u64::from(bytes) };
            inputs.bytes = Some(load.controller.in_flight_bytes().saturating_add(incoming));
            inputs.weight = Some(load.controller.relative_throughput());
        }
        Policy::Latency => {
            let latency = latency_inputs(parameters, load, op, bytes);
            inputs.weight = Some(latency.weight);
            inputs.credit = Some(latency.credit);
            inputs.latency_ns = Some(latency.smoothed_ns);
        }
        Policy::QueueLength => inputs.commands = Some(load.shared.nr_active()),
        Policy::HistoricalServiceTime => {
            let (history_ns, stale_after_ns) = load.shared.history().report_ns();
            inputs.commands = Some(load.shared.nr_active());
            inputs.latency_ns = Some(history_ns);
            // Nothing has ended there yet: it has no history that could be stale.
            let measured = stale_after_ns > 0;
            inputs.stale_ns = measured.then(|| now_ns.saturating_sub(stale_after_ns));
        }
        Policy::IoAffinity => inputs.affinity = Some(path.affinity),
        Policy::FinishTime => {
            let prediction = finish_time::predict(parameters.finish_time, load, op, bytes, now_ns);
            inputs.bytes = Some(prediction.in_flight_bytes);
            inputs.finish_ns = Some(prediction.finish_ns);
            inputs.latency_ns = Some(prediction.base_ns);
            inputs.stale_ns = (prediction.unheard_ns > 0).then_some(prediction.unheard_ns);
            let rate = u32::try_from(prediction.rate_bytes_per_s >> 10);
            inputs.rate_kib_per_s = Some(rate.unwrap_or(u32::MAX));
        }
    }
    inputs
}

/// What `queue-depth` compares.
fn depth(scope: Scope, path: Candidate<'_>) -> u32 {
    let load = path.load;
    match scope {
        Scope::Controller => load.controller.nr_active(),
        Scope::Namespace => load.shared.nr_active(),
        Scope::QueuePair => load.workers[usize::from(load.queue)].queue_active(),
        Scope::Worker => load.workers[usize::from(load.worker)].worker_active(),
        Scope::Sum => load.workers.iter().map(WorkerLedger::queue_active).sum(),
    }
}
