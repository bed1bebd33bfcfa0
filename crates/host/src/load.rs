//! What is in flight, as selection counts it: the policies' state that all workers share.

use crate::topology::Association;
use alloc::boxed::Box;
use alloc::sync::Arc;
use anabranch_policy::{ControllerLedger, Lane, Scope, Shared, WorkerLedger};
use anabranch_proto::machine::Time;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

/// The counters of one controller. They live as long as it does, over reconnects.
#[derive(Debug)]
pub struct ControllerLoad {
    /// All workers, all namespaces.
    pub ledger: ControllerLedger,
    /// One per data worker, in order.
    pub workers: Box<[WorkerLedger]>,
    /// When something came from it on an I/O queue, in nanoseconds; some [`HEARD_STEP`] late.
    heard_ns: AtomicU64,
}

/// Workers note that a controller is heard of no more often than this: all of them write there.
const HEARD_STEP: Duration = Duration::from_millis(10);

impl ControllerLoad {
    pub(crate) fn new(data_workers: u16) -> ControllerLoad {
        ControllerLoad {
            ledger: ControllerLedger::new(),
            workers: (0..data_workers).map(|_| WorkerLedger::new()).collect(),
            heard_ns: AtomicU64::new(0),
        }
    }

    /// Notes that something has come from it on an I/O queue.
    #[inline]
    pub(crate) fn hear(&self, now: Time) {
        let before = Time::from_ns(self.heard_ns.load(Ordering::Relaxed));
        if now.since(before) >= HEARD_STEP {
            self.heard_ns.store(now.ns(), Ordering::Relaxed);
        }
    }

    /// When something has come, or a moment before.
    pub(crate) fn heard_at(&self) -> Time {
        Time::from_ns(self.heard_ns.load(Ordering::Relaxed))
    }

    /// What is charged to this controller and one of its paths.
    #[must_use]
    pub fn charged(&self, path: &PathLoad) -> Charged {
        Charged {
            controller: self.ledger.nr_active(),
            path: path.shared.nr_active(),
            queue_pairs: self.workers.iter().map(WorkerLedger::queue_active).sum(),
            workers: self.workers.iter().map(WorkerLedger::worker_active).sum(),
            bytes: self.ledger.in_flight_bytes(),
            work: path.shared.in_flight_work(),
        }
    }

    /// Commands in flight that `queue-depth` counts in the ledger of `scope`, for a path through
    /// this controller. What one worker compares under a scope per queue pair or worker is its own
    /// part; this is the sum over all of them.
    #[must_use]
    pub fn queue_depth(&self, scope: Scope, path: &PathLoad) -> u32 {
        let charged = self.charged(path);
        match scope {
            Scope::Controller => charged.controller,
            Scope::Namespace => charged.path,
            Scope::QueuePair | Scope::Sum => charged.queue_pairs,
            Scope::Worker => charged.workers,
        }
    }
}

/// Everything that the commands of one path are charged to, under whatever policy, as of now. When
/// its controller is idle all of it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Commands on the controller.
    pub controller: u32,
    /// Commands on the path.
    pub path: u32,
    /// Commands on the controller's queue pairs.
    pub queue_pairs: u32,
    /// Commands on the controller, by worker.
    pub workers: u32,
    /// Bytes on the controller.
    pub bytes: u64,
    /// Bytes on the path under `finish-time`, 4 KiB more for each command; probes included.
    pub work: u64,
}

/// The counters and measurements of one path. Most policies need none of them: then it has no own.
#[derive(Debug)]
pub struct PathLoad {
    /// All workers.
    pub shared: Shared,
    /// One per data worker, in order.
    pub lanes: Box<[Arc<Lane>]>,
    /// One more than the number of the association in which it was last usable; 0: in none yet.
    association: AtomicU64,
}

impl PathLoad {
    pub(crate) fn new(data_workers: u16) -> PathLoad {
        PathLoad {
            shared: Shared::new(),
            lanes: (0..data_workers).map(|_| Arc::new(Lane::new())).collect(),
            association: AtomicU64::new(0),
        }
    }

    /// Notes that the path is usable in this association; whether it is the first to do so after
    /// an earlier one.
    pub(crate) fn is_new(&self, association: Association) -> bool {
        let number = u64::from(association.0) + 1;
        let before = self.association.fetch_max(number, Ordering::Relaxed);
        before != 0 && before < number
    }
}
