//! `historical-service-time`: the path that is expected to be done first.
//!
//! Source: device-mapper multipath, `drivers/md/dm-ps-historical-service-time.c` (Khazhismel
//! Kumykov, 2020).
//!
//! # State, per path, shared by all workers ([`History`])
//!
//! 1. The service time of a command that ended well is `now - max(its start, the finish before it
//!    on this path)`: as if the path did one thing at a time.
//! 2. Its *history* (10-bit fixed point) becomes `history * w + service * (1 - w)`, rounded to the
//!    nearest. `w` is `base_weight^(n+1)` for a service time in the n-th bucket of 2^24 ns (17 ms),
//!    and 0 in the last of the 64 (over a second). So short samples are smoothed, and the longer
//!    one is, the more it replaces what was known. A path starts with a history of 1 ns.
//! 3. The history is *stale* after `finish + paths * history`; `paths` is how many of its class
//!    were usable when it was chosen last. A path that was never measured is stale.
//! 4. Outstanding: the commands of all workers on the path (`Shared::nr_active`).
//!
//! # Selection
//!
//! Optimized paths before all others (path groups of device-mapper are ANA classes here). Within a
//! class two paths are compared like this, from the least recently used one on:
//!
//! 5. When the longer history is at most `threshold_multiplier` times the shorter one: the one with
//!    fewer outstanding. (0, the default: histories are always compared, unless both are 0.)
//! 6. An idle path that is stale is preferred to a loaded one, so that what stalled once gets a
//!    probe when its time is over, without any other trigger. Of two idle ones the one that is
//!    stale first, stale or not.
//! 7. The smaller `(1 + outstanding) * history`. From 1024 outstanding, histories are cut to whole
//!    nanoseconds for that.
//! 8. But when the winner of 7 is stale (and then loaded), it gets no more than its share: the one
//!    with fewer outstanding.
//!
//! Of equal paths the one used least recently by this worker wins: it is where the original has it,
//! at the head of a list to whose tail each chosen path goes.
//!
//! What decided is what told the chosen path from the last one that it was compared with.
//!
//! # Default and kernel-exact
//!
//! The same. Both differ from the original in this: commands that failed teach nothing (there a
//! quick error makes a path look fast); the order of use is kept per worker (there under a lock of
//! all CPUs); of equal expected times the path used least recently wins (there the one compared
//! last, which was used most recently); an idle path beats a loaded one that has never finished
//! anything (there that path counts as stale as the idle one); products that do not fit in 64 bits
//! count as the largest number instead of wrapping; a service time over 2.4 hours counts as that.
//! No lock: when two workers finish commands of a path in the same instant, one of the two samples
//! may be lost, and the other counts; a reader may see a history and a stale time of two
//! neighbouring samples.

use crate::{
    AnaRank, AsCandidate, Candidate, Charge, Choice, HistoricalParameters, Load, Reason, Sampled,
    Selector,
};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Fraction bits of histories and weights.
const FIXED_SHIFT: u32 = 10;
const FIXED_ONE: u64 = 1 << FIXED_SHIFT;
/// Service times of one bucket share a weight; ns.
const BUCKET_SHIFT: u32 = 24;
/// The last bucket: history counts nothing.
const LAST_BUCKET: u32 = 63;
/// From so many outstanding on, rule 7 is cut to whole nanoseconds.
const MANY: u64 = 1024;
/// The longest service time; ns. Its fixed-point products stay below 2^64.
const LONGEST_NS: u64 = 1 << 43;

/// What is known about the service times of one path, on cache lines of its own. Written only by
/// completions (and, when the number of usable paths changes, by selection) under this policy.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct History {
    /// Fixed point, ns.
    service: AtomicU64,
    /// The time of the last completion, ns.
    finished_ns: AtomicU64,
    stale_after_ns: AtomicU64,
    /// Usable paths of its class when it was chosen last.
    paths: AtomicU32,
}

impl History {
    pub(crate) const fn new() -> History {
        History {
            service: AtomicU64::new(FIXED_ONE),
            finished_ns: AtomicU64::new(0),
            stale_after_ns: AtomicU64::new(0),
            paths: AtomicU32::new(1),
        }
    }

    pub(crate) fn reset(&self) {
        self.service.store(FIXED_ONE, Relaxed);
        self.finished_ns.store(0, Relaxed);
        self.stale_after_ns.store(0, Relaxed);
    }

    /// The history in whole nanoseconds, and when it is stale.
    pub(crate) fn report_ns(&self) -> (u64, u64) {
        (self.service.load(Relaxed) >> FIXED_SHIFT, self.stale_after_ns.load(Relaxed))
    }

    /// Rules 1 to 3.
    fn finish(&self, base_weight: u64, start_ns: u64, now_ns: u64) {
        let before_ns = self.finished_ns.load(Relaxed);
        let service_ns = now_ns.saturating_sub(start_ns.max(before_ns)).min(LONGEST_NS);
        let weight = weight(base_weight, service_ns);
        let sum = self.service.load(Relaxed) * weight
            + (service_ns << FIXED_SHIFT) * (FIXED_ONE - weight);
        let service = (sum + FIXED_ONE / 2) >> FIXED_SHIFT;
        self.service.store(service, Relaxed);
        // The clock of another worker may have been read a little later.
        let finished_ns = now_ns.max(before_ns);
        self.finished_ns.store(finished_ns, Relaxed);
        let fresh_ns = u64::from(self.paths.load(Relaxed)).saturating_mul(service >> FIXED_SHIFT);
        self.stale_after_ns.store(finished_ns.saturating_add(fresh_ns), Relaxed);
    }
}

impl Default for History {
    fn default() -> Self {
        History::new()
    }
}

/// How much of the history stays after a service time: `base^(bucket + 1)`, each product rounded to
/// the nearest; nothing in the last bucket.
fn weight(base: u64, service_ns: u64) -> u64 {
    let bucket = (service_ns >> BUCKET_SHIFT).min(u64::from(LAST_BUCKET)) as u32;
    if bucket == LAST_BUCKET {
        return 0;
    }
    let product = |a: u64, b: u64| (a * b + FIXED_ONE / 2) >> FIXED_SHIFT;
    // Square and multiply, from the lowest bit of the exponent.
    let (mut result, mut square, mut left) = (FIXED_ONE, base, bucket + 1);
    while left > 0 {
        if left & 1 == 1 {
            result = product(result, square);
        }
        square = product(square, square);
        left >>= 1;
    }
    result
}

/// What is compared.
#[derive(Clone, Copy)]
struct View {
    rank: AnaRank,
    outstanding: u64,
    service: u64,
    stale_after_ns: u64,
}

pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: HistoricalParameters,
    paths: &[P],
    now_ns: u64,
) -> Option<Choice> {
    // Usable paths per class, and what decided last.
    let counts = [Cell::new(0_u32), Cell::new(0)];
    let reason = Cell::new(Reason::LeastHistoricalTime);
    let key = |path: &Candidate<'_>| {
        let count = &counts[path.rank as usize];
        count.set(count.get() + 1);
        let history = path.load.shared.history();
        View {
            rank: path.rank,
            outstanding: u64::from(path.load.shared.nr_active()),
            service: history.service.load(Relaxed),
            stale_after_ns: history.stale_after_ns.load(Relaxed),
        }
    };
    let better = |a: View, b: View| {
        if a.rank != b.rank {
            if a.rank < b.rank {
                // What decided among those of the other class says nothing of this path.
                reason.set(Reason::LeastHistoricalTime);
            }
            return a.rank < b.rank;
        }
        let (better, why) = better(a, b, parameters.threshold_multiplier, now_ns);
        reason.set(why);
        better
    };
    let (index, chosen) = selector.recency.choose(paths, key, better)?;
    let history = paths[index].candidate().load.shared.history();
    let usable = counts[chosen.rank as usize].get();
    if history.paths.load(Relaxed) != usable {
        history.paths.store(usable, Relaxed);
    }
    let reason = match chosen.rank {
        AnaRank::Optimized => reason.get(),
        AnaRank::NonOptimized => Reason::NoOptimized,
    };
    Some(Choice { index, reason })
}

/// Rules 5 to 8: whether `a` is better than `b`, and what decided.
fn better(a: View, b: View, threshold_multiplier: u32, now_ns: u64) -> (bool, Reason) {
    let fewer = (a.outstanding < b.outstanding, Reason::FewestCommands);
    let threshold = u64::from(threshold_multiplier).saturating_mul(a.service.min(b.service));
    if a.service.max(b.service) <= threshold {
        return fewer;
    }
    let idle = |path: View| path.outstanding == 0;
    let stale = |path: View| path.stale_after_ns < now_ns;
    if idle(a) && idle(b) {
        return (a.stale_after_ns < b.stale_after_ns, Reason::Stale);
    }
    if idle(a) && stale(a) || idle(b) && stale(b) {
        return (idle(a), Reason::Stale);
    }
    let (expected_a, expected_b) = if a.outstanding.max(b.outstanding) < MANY {
        ((1 + a.outstanding) * a.service, (1 + b.outstanding) * b.service)
    } else {
        let expected =
            |path: View| (1 + path.outstanding).saturating_mul(path.service >> FIXED_SHIFT);
        (expected(a), expected(b))
    };
    let winner = if expected_a < expected_b { a } else { b };
    if stale(winner) {
        return fewer;
    }
    (expected_a < expected_b, Reason::LeastHistoricalTime)
}

/// A command ended well.
#[inline]
pub(crate) fn sample(
    parameters: HistoricalParameters,
    charge: Charge,
    load: Load<'_>,
    now_ns: u64,
) -> Sampled {
    let base_weight = u64::from(parameters.base_weight.get());
    load.shared.history().finish(base_weight, charge.start_ns(), now_ns);
    Sampled::Taken
}
