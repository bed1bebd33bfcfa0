//! What is in flight, as selection counts it: the policies' state that all workers share.

use alloc::boxed::Box;
use anabranch_policy::{ControllerLedger, NodeLatency, Scope, Shared, WorkerLedger};

/// The counters of one controller. They live as long as it does, over reconnects.
#[derive(Debug)]
pub struct ControllerLoad {
    /// All workers, all namespaces.
    pub ledger: ControllerLedger,
    /// One per data worker, in order.
    pub workers: Box<[WorkerLedger]>,
}

impl ControllerLoad {
    pub(crate) fn new(data_workers: u16) -> ControllerLoad {
        ControllerLoad {
            ledger: ControllerLedger::new(),
            workers: (0..data_workers).map(|_| WorkerLedger::new()).collect(),
        }
    }

    /// Commands in flight that `queue-depth` counts in the ledger of `scope`, for a path through
    /// this controller. What one worker compares under a scope per queue pair or worker is its own
    /// part; this is the sum over all of them.
    #[must_use]
    pub fn queue_depth(&self, scope: Scope, path: &PathLoad) -> u32 {
        let sum = |of: fn(&WorkerLedger) -> u32| self.workers.iter().map(of).sum();
        match scope {
            Scope::Controller => self.ledger.nr_active(),
            Scope::Namespace => path.shared.nr_active(),
            Scope::QueuePair | Scope::Sum => sum(WorkerLedger::queue_active),
            Scope::Worker => sum(WorkerLedger::worker_active),
        }
    }
}

/// The counters and measurements of one path. Made when it joins its head.
#[derive(Debug)]
pub struct PathLoad {
    /// All workers.
    pub shared: Shared,
    /// One per NUMA node.
    pub nodes: Box<[NodeLatency]>,
}

impl PathLoad {
    pub(crate) fn new(nodes: usize) -> PathLoad {
        PathLoad {
            shared: Shared::new(),
            nodes: (0..nodes.max(1)).map(|_| NodeLatency::new()).collect(),
        }
    }
}
