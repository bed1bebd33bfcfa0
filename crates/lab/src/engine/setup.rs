//! From a cell to configurations: the target, the hosts, and how a policy is set.

use crate::cell::Cell;
use crate::light::{COMMAND_BYTES, RESPONSE_BYTES, node_distance};
use crate::scenario::{
    Alteration, AnaState, Arrival, Distribution, MAX_NODES, Part, PathState, Problem, Scenario,
};
use anabranch_host::config::{ConnectRequest, ControllerOptions, HostConfig};
use anabranch_policy::Parameters;
use anabranch_proto::machine::{Endpoint, FileId};
use anabranch_proto::nvme::{self, Nqn, Uuid};
use anabranch_target::config::{
    BackendConfig, Limits, MAX_NAMESPACE_BYTES, NamespaceConfig, PortConfig, SubsystemConfig,
};
use anabranch_target::{Brownout, Service, TargetConfig};
use std::time::Duration;

/// From the loss of a path to the first attempt to connect again, and between attempts.
pub const RECONNECT_DELAY: Duration = Duration::from_millis(10);

/// Requests that one worker holds at once, at least: what open loops may pile up there. What is
/// beyond waits in the load.
const LEAST_REQUESTS: u32 = 4096;

/// The head's name on every host.
pub(super) const DEVICE: &str = "nvme0n1";

/// The one group that the namespace is in.
pub(super) const GROUP: u32 = 1;

/// What the engines cannot be made for.
///
/// # Errors
/// Names the key and the limit.
pub(super) fn check(cell: Cell<'_>) -> Result<(), Problem> {
    cell.check()?;
    cell.scenario.check_device()?;
    let (hosts, target) = (&cell.scenario.hosts, &cell.scenario.target);
    if !(16..=1024).contains(&hosts.queue_depth) {
        let text = format!(
            "the engine simulation runs real queue pairs: use 16 to 1024, not {}",
            hosts.queue_depth
        );
        return Err(Problem::of(Part::Host, "queue_depth", text));
    }
    if target.size_bytes > MAX_NAMESPACE_BYTES {
        let text = "must not exceed 16t in the engine simulation";
        return Err(Problem::of(Part::Target, "size", text));
    }
    let connections = connections(cell);
    if connections > MAX_CONNECTIONS {
        let text = format!(
            "{connections} connections (hosts x paths x (queue pairs + 1)); the engine simulation \
             takes {MAX_CONNECTIONS}"
        );
        return Err(Problem::of(Part::Host, "count", text));
    }
    check_keep_alive(cell)
}

/// Hosts give up a path on which a Keep Alive is not answered in time, whatever the load.
fn check_keep_alive(cell: Cell<'_>) -> Result<(), Problem> {
    let limit = keep_alive_interval(cell);
    let whose = if falls_silent(cell) { "detect" } else { "half of their time-out" };
    let Scenario { paths, changes, .. } = cell.scenario;
    let begin = paths.iter().enumerate();
    let begin = begin.map(|(at, path)| (Part::Path(at), path, &path.shape));
    let later = changes.iter().enumerate().filter_map(|(at, change)| match &change.what {
        Alteration::Shape(shape) => Some((Part::Change(at), &paths[change.path], shape)),
        _ => None,
    });
    for (part, path, shape) in begin.chain(later) {
        let link = |bytes: u64, rate: Option<u64>| {
            let ns = rate.map_or(0, |rate| u128::from(bytes) * 8_000_000_000 / u128::from(rate));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
        };
        // What jitter takes away it may take away each time.
        let far = shape.delay - shape.jitter.min(shape.delay);
        let links = link(COMMAND_BYTES, shape.rate_in) + link(RESPONSE_BYTES, shape.rate_out);
        if far + links >= limit {
            let text = format!(
                "on path {:?} ({shape}) a Keep Alive takes {:?} without any other load; the \
                 engine simulation runs real hosts, which give a path up after {limit:?} \
                 ({whose}); use a faster path, or --mode light",
                path.name,
                far + links
            );
            return Err(Problem::of(part, if far > links { "delay" } else { "rate" }, text));
        }
    }
    Ok(())
}

fn falls_silent(cell: Cell<'_>) -> bool {
    let silence = Alteration::State(PathState::Silent);
    cell.scenario.changes.iter().any(|change| change.what == silence)
}

/// What a target takes.
const MAX_CONNECTIONS: u64 = 16_384;

fn connections(cell: Cell<'_>) -> u64 {
    let queues = cell.workers() as u64 + 1;
    u64::from(cell.scenario.hosts.count) * cell.scenario.paths.len() as u64 * queues
}

pub(super) fn subsystem() -> Nqn {
    "nqn.2026-01.org.anabranch:lab".parse().expect("a valid NQN")
}

fn endpoint(path: usize) -> Endpoint {
    Endpoint::Tcp(([10, 0, (path / 250) as u8, (path % 250) as u8 + 1], 4420).into())
}

pub(super) fn ana(state: AnaState) -> nvme::AnaState {
    match state {
        AnaState::Optimized => nvme::AnaState::Optimized,
        AnaState::NonOptimized => nvme::AnaState::NonOptimized,
        AnaState::Inaccessible => nvme::AnaState::Inaccessible,
    }
}

/// One port per path, without any shaping yet: connecting takes no time.
pub(super) fn target(cell: Cell<'_>) -> TargetConfig {
    let scenario = cell.scenario;
    let ports = scenario.paths.iter().enumerate().map(|(index, path)| {
        let mut port = PortConfig::new(endpoint(index));
        port.ana.insert(GROUP, ana(path.ana));
        port
    });
    let namespace = NamespaceConfig {
        nsid: 1,
        backend: BackendConfig::File { file: FileId(0), bytes: scenario.target.size_bytes },
        block_bytes: scenario.target.block_bytes,
        uuid: None,
        nguid: None,
        ana_group: GROUP,
    };
    let subsystem = SubsystemConfig {
        nqn: subsystem(),
        serial: "LAB".to_owned(),
        model: "Anabranch lab".to_owned(),
        namespaces: vec![namespace],
        allowed_hosts: Vec::new(),
    };
    let limits = Limits {
        io_queues: (cell.workers() as u16).max(1),
        connections: MAX_CONNECTIONS as u32,
        ..Limits::default()
    };
    let ports = ports.collect();
    TargetConfig { subsystems: vec![subsystem], ports, limits, ..TargetConfig::default() }
}

/// The target's servers; `None` when no command takes any time.
pub(super) fn service(cell: Cell<'_>) -> Option<Service> {
    let target = &cell.scenario.target;
    if (target.read_ns, target.write_ns, target.other_ns) == (0, 0, 0) {
        return None;
    }
    Some(Service {
        servers: target.servers,
        read: Duration::from_nanos(target.read_ns),
        write: Duration::from_nanos(target.write_ns),
        other: Duration::from_nanos(target.other_ns),
        exponential: target.distribution == Distribution::Exponential,
        per_port: target.per_path,
    })
}

pub(super) fn brownout(of: Option<crate::scenario::Brownout>) -> Option<Brownout> {
    of.map(|brownout| Brownout { percent: brownout.percent, delay: brownout.delay })
}

/// The host of this number.
pub(super) fn host(cell: Cell<'_>, number: u32) -> HostConfig {
    let nqn = format!("nqn.2014-08.org.nvmexpress:uuid:0c0ffee0-0000-4000-8000-{number:012x}");
    let mut id = [0x0c; 16];
    id[12..].copy_from_slice(&number.to_be_bytes());
    HostConfig {
        host_nqn: nqn.parse().expect("a valid NQN"),
        host_id: Uuid(id),
        data_workers: cell.workers() as u16,
        shared_queue: false,
        default_policy: cell.variant.parameters.policy,
        subsystems: Vec::new(),
        kernel_exact: cell.variant.parameters.kernel_exact,
        max_requests: requests(cell),
        worker_nodes: cell.scenario.hosts.nodes.clone(),
        distances: distances(cell),
        shutdown_timeout: Duration::from_secs(5),
    }
}

/// From each worker of a host to each node.
fn distances(cell: Cell<'_>) -> Vec<Vec<u32>> {
    let to = |from: &u32| (0..MAX_NODES).map(|node| node_distance(*from, node)).collect();
    cell.scenario.hosts.nodes.iter().map(to).collect()
}

/// The node of the network device that leads to each path's port.
pub(super) fn nodes(cell: Cell<'_>) -> Vec<(Endpoint, u32)> {
    let paths = cell.scenario.paths.iter().enumerate();
    paths.map(|(index, path)| (endpoint(index), path.node)).collect()
}

/// What one worker holds at once at most: all closed loops could be on it.
fn requests(cell: Cell<'_>) -> u32 {
    let jobs = cell.scenario.jobs.iter().filter(|job| job.arrival == Arrival::Closed);
    let closed: u64 = jobs.map(|job| u64::from(job.depth) * u64::from(job.clones)).sum();
    u32::try_from(closed).unwrap_or(u32::MAX).max(LEAST_REQUESTS)
}

/// How to connect through a path. Silence is noticed by Keep Alive: one that is sent when a path
/// falls silent is missed `detect_ns` later. No command times out by itself, however long queues
/// are.
pub(super) fn connect(cell: Cell<'_>, path: usize) -> ConnectRequest {
    let hosts = &cell.scenario.hosts;
    let queues = cell.variant.io_queues.or(hosts.io_queues);
    ConnectRequest {
        subsystem_nqn: subsystem(),
        to: endpoint(path),
        options: ControllerOptions {
            queue_size: hosts.queue_depth as u16,
            nr_io_queues: queues.map(|queues| queues as u16),
            keep_alive_tmo: keep_alive_interval(cell) * 2,
            reconnect_delay: RECONNECT_DELAY,
            ctrl_loss_tmo: None,
            io_timeout: Duration::from_secs(2 * 3600),
            ..ControllerOptions::default()
        },
        keep_trying: false,
    }
}

/// Between two Keep Alive commands of a controller, and how long one may take. Where nothing falls
/// silent it is the hosts' default: a path that is only congested for a while is not given up.
pub(super) fn keep_alive_interval(cell: Cell<'_>) -> Duration {
    if falls_silent(cell) {
        Duration::from_nanos(cell.scenario.hosts.detect_ns).max(Duration::from_millis(1))
    } else {
        ControllerOptions::default().keep_alive_tmo / 2
    }
}

/// An attribute to set: object, name, value.
pub(super) type Setting = (String, &'static str, String);

/// Everything that differs from the defaults. Paths were connected in order, by a host that knows
/// nothing else.
pub(super) fn settings(cell: Cell<'_>) -> Vec<Setting> {
    let (is, was) = (&cell.variant.parameters, Parameters::of(cell.variant.parameters.policy));
    let (latency, historical) = (&is.latency, &is.historical);
    let (finish, was_finish) = (&is.finish_time, &was.finish_time);
    let flag = |on: bool| u8::from(on).to_string();
    let all = [
        ("queue_depth_scope", is.scope.to_string(), was.scope.to_string()),
        (
            "hst_base_weight",
            historical.base_weight.to_string(),
            was.historical.base_weight.to_string(),
        ),
        (
            "hst_threshold_multiplier",
            historical.threshold_multiplier.to_string(),
            was.historical.threshold_multiplier.to_string(),
        ),
        ("finish_time_tail", flag(finish.tail), flag(was_finish.tail)),
        ("finish_time_compete", flag(finish.compete), flag(was_finish.compete)),
        ("finish_time_probes", flag(finish.probes), flag(was_finish.probes)),
        (
            "latency_batch_timeout",
            latency.batch_timeout.to_string(),
            was.latency.batch_timeout.to_string(),
        ),
        ("latency_ewma_shift", latency.ewma_shift.to_string(), was.latency.ewma_shift.to_string()),
        ("latency_size_buckets", flag(latency.size_buckets), flag(was.latency.size_buckets)),
        ("latency_per_node", flag(latency.per_node), flag(was.latency.per_node)),
        ("latency_ignore_ana", flag(latency.compete), flag(was.latency.compete)),
    ];
    let mut settings = Vec::new();
    for (attribute, is, was) in all {
        let object = if attribute.starts_with("latency") { DEVICE } else { "nvme-subsys0" };
        if is != was {
            settings.push((object.to_owned(), attribute, is));
        }
    }
    for (path, weight) in cell.variant.weights.iter().enumerate().filter(|(_, w)| **w != 1) {
        settings.push((format!("nvme0c{path}n1"), "relative_throughput", weight.to_string()));
    }
    settings
}
