//! Everything that commands of one path are counted in.

use crate::finish_time::in_flight_bytes;
use crate::{ControllerLedger, Lane, Local, NodeLatency, Shared, WorkerLedger};

/// Where the commands of one path are charged and measured, as one worker sees it.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Its controller: all namespaces, all workers.
    pub controller: &'a ControllerLedger,
    /// Its controller, per worker.
    pub workers: &'a [WorkerLedger],
    /// This worker's place in `workers`.
    pub worker: u16,
    /// The place in `workers` of the worker whose queue pair this worker submits through; its own
    /// unless the controller grants fewer queue pairs than there are workers.
    pub queue: u16,
    /// Commands of this worker that its queue pairs to the controller carry at once: others wait
    /// for a tag. 0 when that is not known, as where workers share them.
    pub tags: u16,
    /// The path itself, all workers.
    pub shared: &'a Shared,
    /// The path itself, this worker alone: what it has in flight.
    pub lane: &'a Lane,
    /// The path itself, the workers of this worker's NUMA node: what `latency` measures when it
    /// averages per node. Nothing else needs it.
    pub node: Option<&'a NodeLatency>,
    /// The path itself, this worker alone: what `latency` measures. Nothing else needs it.
    pub local: Option<&'a Local>,
}

/// The part of a [`Load`] that charges are returned to. It outlives the path: the owner of the
/// commands keeps it while some are in flight.
#[derive(Clone, Copy, Debug)]
pub struct Ledgers<'a> {
    /// Its controller: all namespaces, all workers.
    pub controller: &'a ControllerLedger,
    /// Its controller, per worker.
    pub workers: &'a [WorkerLedger],
    /// This worker's place in `workers`.
    pub worker: u16,
    /// The path itself, all workers.
    pub shared: &'a Shared,
    /// The path itself, this worker alone.
    pub lane: &'a Lane,
}

impl Load<'_> {
    /// What is in flight on the path under `finish-time` as far as this worker knows, probes
    /// included, in bytes; otherwise as [`Shared::in_flight_work`].
    #[must_use]
    pub fn in_flight_work(&self) -> u64 {
        in_flight_bytes(self.work())
    }

    /// Whether a command more would be sent at once, as far as is known, and not wait for a tag.
    #[inline]
    pub(crate) fn has_tag(&self) -> bool {
        self.tags == 0
            || self.workers[usize::from(self.worker)].worker_active() < u32::from(self.tags)
    }

    /// The same in units.
    #[inline]
    pub(crate) fn work(&self) -> u64 {
        self.lane.work(self.shared.forecast())
    }
}

impl<'a> From<Load<'a>> for Ledgers<'a> {
    #[inline]
    fn from(load: Load<'a>) -> Ledgers<'a> {
        let Load { controller, workers, worker, shared, lane, .. } = load;
        Ledgers { controller, workers, worker, shared, lane }
    }
}
