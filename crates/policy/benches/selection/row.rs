//! A path table of the shape that the host has: what is shared lies behind pointers, elsewhere.

use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, ControllerLedger, LOCAL_DISTANCE, Lane, Load, Local,
    NodeLatency, Shared, WorkerLedger,
};
use std::sync::Arc;

/// What all workers share about one path.
#[derive(Clone)]
pub(crate) struct Common {
    queues: u16,
    controller: Arc<(ControllerLedger, Box<[WorkerLedger]>)>,
    path: Arc<(Shared, Box<[NodeLatency]>)>,
    /// One per worker, which has it apart, as the host does.
    lanes: Arc<[Arc<Lane>]>,
}

impl Common {
    /// A path of its own controller, which grants `queues` queue pairs. It has a ledger for each
    /// worker, and at least as many as queue pairs.
    pub(crate) fn new(queues: usize, workers: usize) -> Common {
        let lanes = (0..workers.max(queues)).map(|_| Arc::new(Lane::new())).collect();
        let workers = (0..workers.max(queues)).map(|_| WorkerLedger::new()).collect();
        let nodes = Box::new([NodeLatency::new()]);
        Common {
            queues: queues as u16,
            controller: Arc::new((ControllerLedger::new(), workers)),
            path: Arc::new((Shared::new(), nodes)),
            lanes,
        }
    }
}

/// Stands for a node that does not exist.
static NOWHERE: NodeLatency = NodeLatency::new();

/// One path as one worker has it.
pub(crate) struct Row {
    common: Common,
    lane: Arc<Lane>,
    local: Local,
    usable: bool,
    rank: AnaRank,
    distance: u32,
    affinity: Affinity,
    worker: u16,
    queue: u16,
    node: u16,
}

impl Row {
    /// As worker number `worker` sees it; workers share queue pairs when there are too few.
    pub(crate) fn new(common: &Common, worker: u16) -> Row {
        Row {
            common: common.clone(),
            lane: Arc::clone(&common.lanes[usize::from(worker)]),
            local: Local::new(),
            usable: true,
            rank: AnaRank::Optimized,
            distance: LOCAL_DISTANCE,
            affinity: Affinity::Own,
            worker,
            queue: worker % common.queues,
            node: 0,
        }
    }

    #[inline]
    pub(crate) fn load(&self) -> Load<'_> {
        Load {
            controller: &self.common.controller.0,
            workers: &self.common.controller.1,
            worker: self.worker,
            queue: self.queue,
            tags: 0,
            shared: &self.common.path.0,
            lane: &self.lane,
            node: Some(self.common.path.1.get(usize::from(self.node)).unwrap_or(&NOWHERE)),
            local: Some(&self.local),
        }
    }
}

impl AsCandidate for Row {
    #[inline]
    fn candidate(&self) -> Candidate<'_> {
        Candidate {
            usable: self.usable,
            rank: self.rank,
            numa_distance: self.distance,
            affinity: self.affinity,
            load: self.load(),
        }
    }
}
