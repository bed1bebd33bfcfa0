//! What the workers of one NUMA node keep about one path together.
//!
//! The variant that the review of the series asks for (Sagi Grimberg: "weights calculation averaged
//! out on all numa-node cores and then set percpu, such that the datapath does not introduce
//! serialization"). Latencies go into one batch per node; credits stay with each worker.
//!
//! **How a worker's weights follow.** They are not copied to the workers: the weight lies here, on
//! a cache line that changes once per batch window and is read when a credit has run out, once per
//! burst. Nothing is written by selection, nothing has to be told to a worker that sleeps, and no
//! worker can go on with weights of its own that are out of date.
//!
//! **How samples meet.** Each worker first counts a sample in its own batch. Then it tries to take
//! the *seat* of the group, a compare-exchange that never waits. Who gets it moves its own batch
//! into the node's, sum and count together, and closes the node's batch if that is due: so exactly
//! one worker closes it, and an average is never made of a sum without its count. Who finds the
//! seat taken keeps its batch and brings it along next time. No sample is lost.

use super::batch::{self, Open};
use super::group::GROUPS;
use super::local::{NEVER, Samples};
use super::parameters::LatencyParameters;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the workers of one NUMA node measure together about one path, when `latency` averages per
/// node. A fixed size (1 KiB).
#[derive(Debug, Default)]
pub struct NodeLatency {
    weights: Weights,
    batches: Batches,
}

/// Read by selection, hardly ever written.
#[derive(Debug)]
#[repr(align(128))]
struct Weights([AtomicU32; GROUPS]);

/// Written with every completion.
#[derive(Debug)]
#[repr(align(128))]
struct Batches([Batch; GROUPS]);

#[derive(Debug)]
struct Batch {
    seat: AtomicU32,
    /// Zero until the first batch was closed; at most a second.
    smoothed_ns: AtomicU32,
    /// As of the last computation of weights.
    score: AtomicU32,
    // The rest belongs to whoever has the seat.
    sum_ns: AtomicU64,
    count: AtomicU64,
    closed_ns: AtomicU64,
}

/// Somebody has the seat.
const TAKEN: u32 = 1;
/// Whoever has the seat must empty the batch before leaving it.
const RESET: u32 = 2;

impl NodeLatency {
    /// Nothing measured.
    #[must_use]
    pub const fn new() -> Self {
        NodeLatency {
            weights: Weights([const { AtomicU32::new(0) }; GROUPS]),
            batches: Batches([const { Batch::new() }; GROUPS]),
        }
    }

    #[inline]
    pub(super) fn weight(&self, slot: usize) -> u32 {
        self.weights.0[slot].load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn smoothed_ns(&self, slot: usize) -> u32 {
        self.batches.0[slot].smoothed_ns.load(Ordering::Relaxed)
    }

    pub(super) fn score(&self, slot: usize) -> u32 {
        self.batches.0[slot].score.load(Ordering::Relaxed)
    }

    pub(super) fn set_score(&self, slot: usize, score: u32) {
        self.batches.0[slot].score.store(score, Ordering::Relaxed);
    }

    pub(super) fn set_weight(&self, slot: usize, weight: u32) {
        // A line that is shared by all readers stays shared when nothing changes.
        if self.weight(slot) != weight {
            self.weights.0[slot].store(weight, Ordering::Relaxed);
        }
    }

    /// Brings a worker's batch to the node, unless another worker is at it. Whether that closed
    /// the node's batch.
    #[inline]
    pub(super) fn bring(
        &self,
        slot: usize,
        own: &Samples,
        parameters: &LatencyParameters,
        now_ns: u64,
    ) -> bool {
        let batch = &self.batches.0[slot];
        // Acquire: what the last holder wrote is seen. (Release is in `leave`.)
        let seat = batch.seat.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if seat.is_err() {
            return false;
        }
        let (sum_ns, count) = own.take_batch();
        let open = Open {
            sum_ns: batch.sum_ns.load(Ordering::Relaxed).saturating_add(sum_ns),
            count: batch.count.load(Ordering::Relaxed) + count,
            closed_ns: batch.closed_ns.load(Ordering::Relaxed),
            smoothed_ns: batch.smoothed_ns.load(Ordering::Relaxed),
        };
        let closed = batch::close_if_due(open, parameters, now_ns);
        match closed {
            Some(smoothed_ns) => {
                batch.set(0, 0, now_ns);
                batch.smoothed_ns.store(smoothed_ns, Ordering::Relaxed);
            }
            None => batch.set(open.sum_ns, open.count, open.closed_ns),
        }
        batch.leave();
        closed.is_some()
    }

    /// Forgets everything. Each worker of the node does so when it learns of a change, and the last
    /// one leaves a clean state: what a slower one had added before is gone then.
    pub(super) fn reset(&self) {
        for batch in &self.batches.0 {
            let before = batch.seat.fetch_or(TAKEN | RESET, Ordering::Acquire);
            if before & TAKEN == 0 {
                batch.leave();
            }
            // Else whoever has the seat empties the batch.
        }
        for slot in 0..GROUPS {
            self.set_weight(slot, 0);
        }
    }
}

impl Batch {
    const fn new() -> Self {
        Batch {
            seat: AtomicU32::new(0),
            smoothed_ns: AtomicU32::new(0),
            score: AtomicU32::new(0),
            sum_ns: AtomicU64::new(0),
            count: AtomicU64::new(0),
            closed_ns: AtomicU64::new(NEVER),
        }
    }

    #[inline]
    fn set(&self, sum_ns: u64, count: u64, closed_ns: u64) {
        self.sum_ns.store(sum_ns, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.closed_ns.store(closed_ns, Ordering::Relaxed);
    }

    /// Leaves the seat, after emptying the batch if somebody asked for that.
    #[inline]
    fn leave(&self) {
        let mut seat = TAKEN;
        // A second turn if a reset came in the meantime.
        while let Err(found) =
            self.seat.compare_exchange(seat, 0, Ordering::Release, Ordering::Relaxed)
        {
            self.set(0, 0, NEVER);
            self.smoothed_ns.store(0, Ordering::Relaxed);
            self.score.store(0, Ordering::Relaxed);
            seat = found;
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Default for Weights {
    fn default() -> Self {
        Weights([const { AtomicU32::new(0) }; GROUPS])
    }
}

impl Default for Batches {
    fn default() -> Self {
        Batches([const { Batch::new() }; GROUPS])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchTimeout, Local};

    const SLOT: usize = 0;

    /// Each batch that is brought is closed, and replaces what was known.
    fn prompt() -> LatencyParameters {
        LatencyParameters {
            batch_timeout: BatchTimeout::from_secs(0),
            ewma_shift: crate::EwmaShift::new(0).unwrap(),
            ..LatencyParameters::default()
        }
    }

    #[test]
    fn who_finds_the_seat_taken_brings_its_samples_next_time() {
        let (node, local) = (NodeLatency::new(), Local::new());
        let own = local.samples(SLOT);
        let seat = &node.batches.0[SLOT].seat;
        seat.store(TAKEN, Ordering::Relaxed);
        for latency_ns in [100, 200] {
            own.add(latency_ns);
            assert!(!node.bring(SLOT, own, &prompt(), 5));
        }
        assert_eq!(node.smoothed_ns(SLOT), 0);
        seat.store(0, Ordering::Relaxed);
        own.add(600);
        assert!(node.bring(SLOT, own, &prompt(), 6));
        assert_eq!(node.smoothed_ns(SLOT), 300, "the mean of all three");
        own.add(50);
        assert!(node.bring(SLOT, own, &prompt(), 6));
        assert_eq!(node.smoothed_ns(SLOT), 50, "nothing is brought twice");
    }

    #[test]
    fn who_has_the_seat_empties_the_batch_for_a_reset() {
        let (node, local) = (NodeLatency::new(), Local::new());
        local.samples(SLOT).add(100);
        assert!(node.bring(SLOT, local.samples(SLOT), &prompt(), 5));
        let batch = &node.batches.0[SLOT];
        batch.seat.store(TAKEN, Ordering::Relaxed);
        node.reset();
        node.reset();
        batch.set(700, 7, 5);
        batch.leave();
        assert_eq!(batch.seat.load(Ordering::Relaxed), 0);
        assert_eq!((batch.sum_ns.load(Ordering::Relaxed), node.smoothed_ns(SLOT)), (0, 0));
        assert_eq!(batch.closed_ns.load(Ordering::Relaxed), NEVER);
    }
}
