//! What is in flight, as selection counts it: the policies' state that all workers share.

use alloc::boxed::Box;
use anabranch_policy::{ControllerLedger, NodeLatency, Shared, WorkerLedger};

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
