//! Configuration of the host engine: plain values with the kernel's names, defaults and limits.

use crate::explain::DEFAULT_SAMPLE;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{
    DEFAULT_RELATIVE_THROUGHPUT, LOCAL_DISTANCE, LatencyParameters, Parameters, Policy,
};
use anabranch_proto::machine::{Endpoint, SocketOptions, WorkerId};
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::nvme::nqn::Nqn;
use core::time::Duration;

/// What the whole host engine is made with.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Who we are, the same on every path.
    pub host_nqn: Nqn,
    /// Host identifier, the same on every path.
    pub host_id: Uuid,
    /// How many data workers (shards) there are, at least one; `WorkerId(1)` is the first.
    pub data_workers: u16,
    /// All workers submit through one queue pair per controller instead of one each (for
    /// comparison with the multi-queue data plane).
    pub shared_queue: bool,
    /// I/O policy of subsystems that are seen for the first time (`nvme_core.iopolicy`).
    pub default_policy: Policy,
    /// `kernel_exact` of subsystems that are seen for the first time.
    pub kernel_exact: bool,
    /// What single subsystems have whenever they are seen anew, by NQN.
    pub subsystems: Vec<(Nqn, SubsystemSettings)>,
    /// Requests that one shard holds at once for one head, while it holds none for others; more
    /// push back on the submitter. The table has about three times as many places, so that a head
    /// that waits for a path leaves enough to the others.
    pub max_requests: u32,
    /// NUMA node of each data worker, in order: 0 on a one-node machine, and for workers that are
    /// not bound to one node.
    pub worker_nodes: Vec<u32>,
    /// NUMA distance from each data worker, in order, to each node by its number; 10 is local.
    /// Empty for workers that are not bound to one node: to those all nodes are equally near.
    pub distances: Vec<Vec<u32>>,
    /// How long an orderly shutdown of a controller may take (`shutdown_timeout`, 5 s).
    pub shutdown_timeout: Duration,
}

impl HostConfig {
    /// NUMA node of a data worker.
    #[must_use]
    pub fn node_of(&self, worker: WorkerId) -> u32 {
        let index = usize::from(worker.0.saturating_sub(1));
        self.worker_nodes.get(index).copied().unwrap_or(0)
    }

    /// What a subsystem has when it is seen anew.
    pub(crate) fn settings_of(&self, nqn: &Nqn) -> SubsystemSettings {
        let own = self.subsystems.iter().find(|(of, _)| of == nqn);
        own.map_or_else(|| SubsystemSettings::new(None, self.kernel_exact), |(_, own)| *own)
    }

    /// The distance from each data worker to a node; local, where it is not known.
    pub(crate) fn distances_to(&self, node: u32) -> Arc<[u32]> {
        let known = |worker: usize| self.distances.get(worker)?.get(node as usize).copied();
        let workers = 0..usize::from(self.data_workers);
        workers.map(|worker| known(worker).unwrap_or(LOCAL_DISTANCE)).collect()
    }

    /// How many NUMA nodes to reckon with: numbers from 0 up to the highest of a worker.
    pub(crate) fn nodes(&self) -> usize {
        self.worker_nodes.iter().max().map_or(1, |&highest| highest as usize + 1)
    }
}

/// What a subsystem and its devices have when they are seen anew. Their attributes are filled in by
/// [`SubsystemSettings::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubsystemSettings {
    /// Its policy; the default of that time when `None`.
    pub policy: Option<Policy>,
    /// What else is set about its policies.
    pub(crate) parameters: Parameters,
    /// Of each of its devices.
    pub(crate) devices: DeviceSettings,
}

impl SubsystemSettings {
    /// With the defaults of everything else.
    #[must_use]
    pub fn new(policy: Option<Policy>, kernel_exact: bool) -> SubsystemSettings {
        let parameters = Parameters { kernel_exact, ..Parameters::default() };
        SubsystemSettings { policy, parameters, devices: DeviceSettings::default() }
    }
}

/// What is set about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceSettings {
    /// How long it stays when its last path is gone; 0: not at all.
    pub(crate) delayed_removal_secs: u32,
    /// One in so many choices of a worker is noted in full; 0 = none.
    pub(crate) explain_sample: u32,
    /// What is set about `latency`.
    pub(crate) latency: LatencyParameters,
}

impl Default for DeviceSettings {
    fn default() -> Self {
        DeviceSettings {
            delayed_removal_secs: 0,
            explain_sample: DEFAULT_SAMPLE,
            latency: LatencyParameters::default(),
        }
    }
}

/// Requests that one shard holds at once for one head by default.
pub const DEFAULT_MAX_REQUESTS: u32 = 4096;

/// The shortest time limit, pause and keep-alive time-out: less than a way over a network takes
/// would do nothing but reset controllers.
pub const SHORTEST_TIME: Duration = Duration::from_millis(1);

/// The longest of them: as in the kernel, what fits 31 bits of seconds.
pub const LONGEST_TIME: Duration = Duration::from_secs(i32::MAX as u64);

/// Whether a time limit or a pause of a controller may be this long.
///
/// # Errors
/// What would be right, to be put behind its name.
pub fn check_time(time: Duration) -> Result<(), &'static str> {
    if time < SHORTEST_TIME {
        return Err("must be at least 1 ms");
    }
    if time > LONGEST_TIME { Err("must not exceed 2147483647 s") } else { Ok(()) }
}

/// Controllers of one host, discovery included.
pub const MAX_CONTROLLERS: usize = 1024;

/// Whether a subsystem has namespaces to connect to.
///
/// # Errors
/// It is the discovery subsystem: one sentence.
pub fn check_subsystem(nqn: &Nqn) -> Result<(), &'static str> {
    if nqn.is_discovery() {
        return Err("the discovery subsystem carries no namespaces: use discover or connect-all");
    }
    Ok(())
}

/// Where a controller is and how to talk to it. Defaults and ranges are those of Linux fabrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerOptions {
    /// Entries of each I/O queue, 16 to 1024 (`queue-size`); one stays free.
    pub queue_size: u16,
    /// I/O queues to ask for; one per data worker when `None`. With `nr_write_queues` these are for
    /// reads alone.
    pub nr_io_queues: Option<u16>,
    /// Further I/O queues, for all but reads; 0 = none: all commands share queues.
    pub nr_write_queues: u16,
    /// Keep-alive time-out; zero (none) is for discovery controllers only.
    pub keep_alive_tmo: Duration,
    /// Pause before each attempt to reconnect.
    pub reconnect_delay: Duration,
    /// How long to try to reconnect before the controller is removed; `None` = for ever.
    pub ctrl_loss_tmo: Option<Duration>,
    /// After this time without a connection, waiting I/O fails; `None` = off.
    pub fast_io_fail_tmo: Option<Duration>,
    /// Time limit of one I/O command.
    pub io_timeout: Duration,
    /// Time limit of one admin command and of each step of connecting (TCP has 5 s at most, ICResp
    /// 10 s).
    pub admin_timeout: Duration,
    /// PDU header digests.
    pub hdr_digest: bool,
    /// PDU data digests.
    pub data_digest: bool,
    /// Ask for no SQ flow control (Fabrics Connect attribute bit 2).
    pub disable_sqflow: bool,
    /// Socket options (`host-traddr`, `host-iface`, `tos`).
    pub socket: SocketOptions,
    /// Its weight under `service-time` at first, 0 (standby) to 100; the attribute of its paths
    /// changes it later.
    pub relative_throughput: u32,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        ControllerOptions {
            queue_size: 128,
            nr_io_queues: None,
            nr_write_queues: 0,
            keep_alive_tmo: Duration::from_secs(5),
            reconnect_delay: Duration::from_secs(10),
            ctrl_loss_tmo: Some(Duration::from_secs(600)),
            fast_io_fail_tmo: None,
            io_timeout: Duration::from_secs(30),
            admin_timeout: Duration::from_secs(60),
            hdr_digest: false,
            data_digest: false,
            disable_sqflow: false,
            socket: SocketOptions::default(),
            relative_throughput: DEFAULT_RELATIVE_THROUGHPUT,
        }
    }
}

impl ControllerOptions {
    /// I/O queues to ask for with so many data workers, for reads alone (0: the others take them,
    /// too) and for the others. More of a kind than workers would be idle.
    #[must_use]
    pub fn io_queues(&self, workers: u16) -> (u16, u16) {
        let workers = workers.max(1);
        let io = self.nr_io_queues.unwrap_or(workers).clamp(1, workers);
        match self.nr_write_queues.min(workers) {
            0 => (0, io),
            writes => (io, writes),
        }
    }
}

/// A controller to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The controller's address.
    pub to: Endpoint,
    /// How to talk to it.
    pub options: ControllerOptions,
    /// Keep trying when the first attempt fails (within `ctrl_loss_tmo`) instead of giving up.
    pub keep_trying: bool,
}
