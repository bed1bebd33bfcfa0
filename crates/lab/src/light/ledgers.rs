//! Everything that policies count in and measure with: the same tables that the host allocates.

use crate::cell::Cell;
use crate::scenario::AnaState;
use anabranch_policy::{
    Affinity, AnaRank, Candidate, ControllerLedger, LOCAL_DISTANCE, Lane, Load, Local, NodeLatency,
    Shared, WorkerLedger,
};

/// The distance between two nodes: scenarios tell nodes apart but no distances.
pub(crate) fn node_distance(from: u32, to: u32) -> u32 {
    if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
}

/// Between any two nodes.
const REMOTE_DISTANCE: u32 = 20;

/// One host's controller behind one path, and the one namespace through it.
#[derive(Debug)]
struct Controller {
    ledger: ControllerLedger,
    workers: Vec<WorkerLedger>,
    shared: Shared,
    /// By place of the node among the nodes of the host.
    nodes: Vec<NodeLatency>,
    /// Per worker.
    lanes: Vec<Lane>,
    locals: Vec<Local>,
}

/// All controllers of all hosts.
#[derive(Debug)]
pub(super) struct Ledgers {
    /// Host by host, in the order of the paths.
    controllers: Vec<Controller>,
    paths: usize,
    nodes: Vec<u32>,
}

impl Ledgers {
    pub(super) fn new(cell: Cell<'_>) -> Ledgers {
        let hosts = &cell.scenario.hosts;
        let mut nodes = hosts.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let workers = cell.workers();
        let mut controllers = Vec::new();
        for _ in 0..hosts.count {
            for weight in &cell.variant.weights {
                let controller = Controller {
                    ledger: ControllerLedger::new(),
                    workers: (0..workers).map(|_| WorkerLedger::new()).collect(),
                    shared: Shared::new(),
                    nodes: nodes.iter().map(|_| NodeLatency::new()).collect(),
                    lanes: (0..workers).map(|_| Lane::new()).collect(),
                    locals: (0..workers).map(|_| Local::new()).collect(),
                };
                controller.ledger.set_relative_throughput(*weight);
                controllers.push(controller);
            }
        }
        Ledgers { controllers, paths: cell.paths().len(), nodes }
    }

    /// The paths of one worker of one host.
    pub(super) fn candidates<'a>(
        &'a self,
        cell: Cell<'_>,
        host: usize,
        worker: usize,
    ) -> Vec<Candidate<'a>> {
        let node = cell.scenario.hosts.nodes[worker];
        let place = self.nodes.binary_search(&node).unwrap_or(0);
        let queues = cell.variant.queues(&cell.scenario.hosts);
        let is_alone = queues as usize >= cell.workers();
        let tags = if is_alone { cell.scenario.hosts.tags() as u16 } else { 0 };
        let paths = cell.paths().iter().enumerate();
        paths
            .map(|(index, path)| {
                let controller = &self.controllers[host * self.paths + index];
                Candidate {
                    usable: path.ana != AnaState::Inaccessible,
                    rank: rank(path.ana),
                    numa_distance: node_distance(node, path.node),
                    affinity: affinity(cell, worker, index),
                    load: Load {
                        controller: &controller.ledger,
                        workers: &controller.workers,
                        worker: worker as u16,
                        queue: (worker as u32 % queues) as u16,
                        tags,
                        shared: &controller.shared,
                        lane: &controller.lanes[worker],
                        node: Some(&controller.nodes[place]),
                        local: Some(&controller.locals[worker]),
                    },
                }
            })
            .collect()
    }

    /// The sum of all load counters: commands, and bytes.
    pub(super) fn charged(&self) -> (u64, u64) {
        let (mut commands, mut bytes) = (0, 0);
        for controller in &self.controllers {
            bytes += controller.ledger.in_flight_bytes() + controller.shared.in_flight_work();
            commands += u64::from(controller.ledger.nr_active() + controller.shared.nr_active());
            for worker in &controller.workers {
                commands += u64::from(worker.queue_active() + worker.worker_active());
            }
        }
        (commands, bytes)
    }
}

pub(super) fn rank(ana: AnaState) -> AnaRank {
    match ana {
        AnaState::Optimized => AnaRank::Optimized,
        AnaState::NonOptimized | AnaState::Inaccessible => AnaRank::NonOptimized,
    }
}

/// Masks of `io-affinity` that give each worker its path in turn, and each path a worker.
fn affinity(cell: Cell<'_>, worker: usize, path: usize) -> Affinity {
    let (workers, paths) = (cell.workers(), cell.paths().len());
    let names = |worker: usize| worker % paths == path || path % workers == worker;
    let near =
        |other: &usize| cell.scenario.hosts.nodes[*other] == cell.scenario.hosts.nodes[worker];
    if names(worker) {
        Affinity::Own
    } else if (0..workers).filter(near).any(names) {
        Affinity::Node
    } else {
        Affinity::Mapped
    }
}
