//! What one worker keeps about one path.

use super::group::GROUPS;
use core::cell::Cell;

/// What one worker measures and remembers about one path: `latency`, per op class and size bucket.
///
/// A fixed size (1.4 KiB) and a single owner: it can be sent to the worker that it belongs to, but
/// not be shared. Keep it as long as the worker knows the path; when a list of paths is built anew,
/// it goes along.
#[derive(Debug, Default)]
// Two lines: processors fetch them in adjacent pairs.
#[repr(align(128))]
pub struct Local {
    /// All that selection touches. The three groups in use without size buckets are at the front,
    /// in one cache line.
    turns: [Turn; GROUPS],
    /// All that only completions and the computation of weights touch.
    samples: [Samples; GROUPS],
}

/// What selection needs of one group.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) selected: Cell<u64>,
    /// 0 until the first computation. Not in use when averaging per node.
    pub(super) weight: Cell<u32>,
    /// Commands left of the present burst.
    pub(super) credit: Cell<u32>,
}

/// What was measured of one group.
#[derive(Debug)]
pub(super) struct Samples {
    /// Taken into account, ever.
    pub(super) taken: Cell<u64>,
    /// Longer than a second, ever.
    pub(super) ignored: Cell<u64>,
    /// Of the open batch.
    pub(super) sum_ns: Cell<u64>,
    /// Of the open batch.
    pub(super) count: Cell<u64>,
    /// When the last batch was closed; [`NEVER`] before the first. Not in use per node.
    pub(super) closed_ns: Cell<u64>,
    /// 0 until the first batch was closed; at most a second. Not in use per node.
    pub(super) smoothed_ns: Cell<u32>,
    /// As of the last computation of weights. Not in use per node.
    pub(super) score: Cell<u32>,
}

/// The time of something that has not happened.
pub(super) const NEVER: u64 = u64::MAX;

impl Local {
    /// Nothing measured.
    #[must_use]
    pub const fn new() -> Self {
        Local {
            turns: [const { Turn::new() }; GROUPS],
            samples: [const { Samples::new() }; GROUPS],
        }
    }

    #[inline]
    pub(super) fn turn(&self, slot: usize) -> &Turn {
        &self.turns[slot]
    }

    #[inline]
    pub(super) fn samples(&self, slot: usize) -> &Samples {
        &self.samples[slot]
    }

    pub(super) fn reset(&self) {
        for turn in &self.turns {
            turn.selected.set(0);
            turn.weight.set(0);
            turn.credit.set(0);
        }
        for samples in &self.samples {
            samples.reset();
        }
    }
}

impl Turn {
    const fn new() -> Self {
        Turn { selected: Cell::new(0), weight: Cell::new(0), credit: Cell::new(0) }
    }
}

impl Default for Turn {
    fn default() -> Self {
        Turn::new()
    }
}

impl Samples {
    const fn new() -> Self {
        Samples {
            taken: Cell::new(0),
            ignored: Cell::new(0),
            sum_ns: Cell::new(0),
            count: Cell::new(0),
            closed_ns: Cell::new(NEVER),
            smoothed_ns: Cell::new(0),
            score: Cell::new(0),
        }
    }

    fn reset(&self) {
        self.taken.set(0);
        self.ignored.set(0);
        self.sum_ns.set(0);
        self.count.set(0);
        self.closed_ns.set(NEVER);
        self.smoothed_ns.set(0);
        self.score.set(0);
    }

    /// Adds a latency to the open batch.
    #[inline]
    pub(super) fn add(&self, latency_ns: u64) {
        self.taken.set(self.taken.get() + 1);
        // Full after 18 billion samples of one second each.
        self.sum_ns.set(self.sum_ns.get().saturating_add(latency_ns));
        self.count.set(self.count.get() + 1);
    }

    /// The sum and the number of latencies in the open batch, which is empty then.
    #[inline]
    pub(super) fn take_batch(&self) -> (u64, u64) {
        (self.sum_ns.replace(0), self.count.replace(0))
    }
}

impl Default for Samples {
    fn default() -> Self {
        Samples::new()
    }
}
