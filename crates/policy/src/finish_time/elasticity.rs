//! Whether more in flight makes more be done, or only makes everything wait longer.

use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How slowly the moments follow, as a shift: about so many commands count, at least …
const MEMORY_SHIFT: u32 = 7;
/// … and at most; in between about eight times as many as are in flight.
const LONGEST_MEMORY_SHIFT: u32 = 11;
/// Fraction bits of the mean work, of the mean wait, and of variance and covariance.
const WORK_BITS: u32 = 8;
const WAIT_BITS: u32 = 4;
const MOMENT_BITS: u32 = 8;
/// The work must differ by more than this part of a command, squared, from one time to the other.
const LEAST_VARIANCE: u64 = 16;

/// Waits are no queue's that differ from one command to the next by one part in this many of what
/// all wait, or more.
const STEP_PART: u64 = 2;

/// The elasticity at which more in flight changes nothing but the latency.
pub(super) const INELASTIC: u64 = 256;

/// How the wait of commands hangs together with the work that they found in flight: means, variance
/// and covariance, each of the last hundred commands or so, or of what eight round trips bring when
/// that is more. (Within a round trip all commands meet the same queue.)
///
/// Delivered is *work / latency*. When one per cent more work makes the latency *e* per cent
/// longer, it delivers *(1 - e)* per cent more: *e* is 0 on a cable, 1 behind a queue that never
/// ends, and what scatters latencies for other reasons (the device, other sizes) does not hang
/// together with the work and leaves it alone.
#[derive(Debug, Default)]
pub(super) struct Elasticity {
    work: AtomicI64,
    wait: AtomicI64,
    variance: AtomicI64,
    covariance: AtomicI64,
    /// What the command before waited, ns.
    before_ns: AtomicI64,
    /// By how much waits of commands that end one after another differ, a mean as that of the wait.
    steps: AtomicI64,
}

impl Elasticity {
    pub(super) const fn new() -> Elasticity {
        Elasticity {
            work: AtomicI64::new(0),
            wait: AtomicI64::new(0),
            variance: AtomicI64::new(0),
            covariance: AtomicI64::new(0),
            before_ns: AtomicI64::new(0),
            steps: AtomicI64::new(0),
        }
    }

    pub(super) fn reset(&self) {
        let moments = [&self.work, &self.wait, &self.variance, &self.covariance];
        for moment in moments.into_iter().chain([&self.before_ns, &self.steps]) {
            moment.store(0, Relaxed);
        }
    }

    /// A command that found `work` units in flight, 2^`depth` commands like it, took `wait_ns`
    /// longer than it would have alone (or shorter).
    #[inline]
    pub(super) fn learn(&self, work: u32, depth: u32, wait_ns: i64) {
        let memory_shift = (depth + 3).clamp(MEMORY_SHIFT, LONGEST_MEMORY_SHIFT);
        let moments = [&self.work, &self.wait, &self.variance, &self.covariance];
        if moments.into_iter().all(|moment| moment.load(Relaxed) == 0) {
            // The first is the mean. (From nothing on, it would be a deviation of all at once.)
            self.work.store(i64::from(work) << WORK_BITS, Relaxed);
            self.wait.store(wait_ns << WAIT_BITS, Relaxed);
            self.before_ns.store(wait_ns, Relaxed);
            return;
        }
        // Rounded: of what is cut off, so many small parts would add up.
        let part = |off: i64| off.saturating_add(1 << (memory_shift - 1)) >> memory_shift;
        let follow = |mean: &AtomicI64, value: i64, bits: u32| {
            let old = mean.load(Relaxed);
            let off = (value << bits) - old;
            mean.store(old + part(off), Relaxed);
            off >> bits
        };
        let step_ns = (wait_ns - self.before_ns.load(Relaxed)).abs();
        self.before_ns.store(wait_ns, Relaxed);
        follow(&self.steps, step_ns, WAIT_BITS);
        let work = follow(&self.work, work.into(), WORK_BITS);
        let wait = follow(&self.wait, wait_ns, WAIT_BITS);
        for (moment, other) in [(&self.variance, work), (&self.covariance, wait)] {
            let old = moment.load(Relaxed);
            let square = work.saturating_mul(other).saturating_mul(1 << MOMENT_BITS);
            moment.store(old + part(square.saturating_sub(old)), Relaxed);
        }
    }

    /// What commands wait on average beyond what they would take alone, ns.
    #[inline]
    pub(super) fn wait_ns(&self) -> u64 {
        (self.wait.load(Relaxed) >> WAIT_BITS).max(0).unsigned_abs()
    }

    /// By how much the latency grows with the work, of [`INELASTIC`], for commands of so many units
    /// that take `base_ns` alone. Not known when about the same was always in flight.
    pub(super) fn of(&self, units: u64, base_ns: u32) -> Option<u64> {
        let (grows, of) = self.either_way(units, base_ns)?;
        Some(if grows { of } else { 0 })
    }

    /// Waits do not hang together with the work, neither way. (Where a path has just become slower,
    /// they seem to shrink with it: those who found the most had left before.)
    pub(super) fn is_flat(&self, units: u64, base_ns: u32) -> bool {
        self.either_way(units, base_ns).is_some_and(|(_, of)| of < INELASTIC / 4)
    }

    /// Whether what commands wait is no queue, be it ours or that of other hosts: where those that
    /// end one after another stand in one they wait for about as long, and the longer the more was
    /// in flight. (Where waits shrink with it a path has become slower, or just gets more.)
    pub(super) fn scatters(&self, units: u64, base_ns: u32) -> bool {
        let steps_ns = (self.steps.load(Relaxed) >> WAIT_BITS).max(0).unsigned_abs();
        let differ = STEP_PART * steps_ns >= self.wait_ns();
        differ
            && self.either_way(units, base_ns).is_some_and(|(grows, of)| {
                of < if grows { INELASTIC / 4 } else { INELASTIC - INELASTIC / 4 }
            })
    }

    /// Whether the latency grows with the work or shrinks, and by how much, of [`INELASTIC`].
    fn either_way(&self, units: u64, base_ns: u32) -> Option<(bool, u64)> {
        let variance = self.variance.load(Relaxed).max(0).unsigned_abs();
        let least = units.saturating_mul(units).saturating_mul(1 << MOMENT_BITS) / LEAST_VARIANCE;
        if variance == 0 || variance < least {
            return None;
        }
        let covariance = self.covariance.load(Relaxed);
        // Nanoseconds per unit, in 256ths.
        let shift = 32_u32.saturating_sub(variance.leading_zeros());
        let part = (covariance.unsigned_abs() >> shift).min(u64::MAX >> 8) << 8;
        let slope = part / (variance >> shift).max(1);
        let work = (self.work.load(Relaxed) >> WORK_BITS).max(0).unsigned_abs();
        let longer = slope.saturating_mul(work.saturating_add(units));
        let latency_ns = self.wait_ns().saturating_add(base_ns.into()).max(1);
        Some((covariance > 0, (longer / latency_ns).min(INELASTIC)))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    /// Commands of 16 units that find 0 to 31 others in flight, in a scattered order, and wait as
    /// `wait` says.
    fn taught(wait: impl Fn(u32) -> i64) -> Elasticity {
        let elasticity = Elasticity::new();
        (0..4096).for_each(|turn: u32| {
            let found = turn.wrapping_mul(2_654_435_769) >> 27;
            elasticity.learn(16 * found, 4, wait(found));
        });
        elasticity
    }

    #[test]
    fn a_cable_is_elastic_a_queue_is_not() {
        assert_eq!(taught(|_| 0).of(16, 100_000), Some(0));
        // 10 µs for each in front.
        let queue = taught(|found| i64::from(found) * 10_000).of(16, 10_000).expect("it varies");
        assert!((250..=INELASTIC).contains(&queue), "{queue}");
        // As long a way as the queue: half.
        let both = taught(|found| i64::from(found) * 10_000).of(16, 165_000).expect("it varies");
        assert!((110..=146).contains(&both), "{both}");
    }

    #[test]
    fn only_what_does_not_hang_together_is_flat() {
        assert!(taught(|_| 2_000_000).is_flat(16, 100_000), "as long for all");
        assert!(!taught(|found| i64::from(found) * 10_000).is_flat(16, 100_000), "a queue");
        let shrinks = taught(|found| (31 - i64::from(found)) * 10_000);
        assert_eq!(shrinks.of(16, 100_000), Some(0), "it does not grow");
        assert!(!shrinks.is_flat(16, 100_000), "a path that has just become slower");
        assert!(!Elasticity::new().is_flat(16, 100_000), "nothing is known");
    }

    #[test]
    fn what_has_other_reasons_does_not_count() {
        // Every third command takes a millisecond longer, whatever is in flight.
        let turn = core::cell::Cell::new(0_u32);
        let noise = taught(|_| {
            turn.set(turn.get() + 1);
            if turn.get().is_multiple_of(3) { 1_000_000 } else { 0 }
        });
        let elasticity = noise.of(16, 100_000).expect("it varies");
        assert!(elasticity < 64, "{elasticity}");
        assert!((200_000..=460_000).contains(&noise.wait_ns()), "{}", noise.wait_ns());
    }

    #[test]
    fn what_differs_from_one_to_the_next_is_no_queue() {
        let scattered = |turn: u32| i64::from((turn ^ turn << 7).wrapping_mul(1_597_334_677) >> 12);
        let turn = core::cell::Cell::new(0_u32);
        let next = || turn.replace(turn.get() + 1);
        assert!(taught(|_| scattered(next())).scatters(16, 100_000), "each its own");
        let others = |_| scattered(next() / 256);
        assert!(!taught(others).scatters(16, 100_000), "256 in turn the same: a queue of others");
        let ours = |found| i64::from(found) * 30_000 + scattered(next()) / 8;
        assert!(!taught(ours).scatters(16, 100_000), "it grows with what is in flight");
        let shrinks = |found| i64::from(31 - found) * 30_000 + scattered(next()) / 8;
        assert!(!taught(shrinks).scatters(16, 100_000), "a path that has just become slower");
        assert!(!Elasticity::new().scatters(16, 100_000), "nothing is known");
    }

    /// 256 commands are in flight, and all of a round trip find the same: 192 or 320 of them, and a
    /// queue of 10 µs for each; in some round trips the device takes 2 ms longer.
    #[test]
    fn a_single_round_trip_does_not_make_a_rule() {
        const TRIP: u32 = 256;
        let elasticity = Elasticity::new();
        let known: std::vec::Vec<u64> = (0..64 * TRIP)
            .filter_map(|turn| {
                let trip = turn / TRIP;
                let found = [192, 320][(trip % 2) as usize];
                let longer_ns = if trip % 5 < 2 { 2_000_000 } else { 0 };
                elasticity.learn(16 * found, 8, i64::from(found) * 10_000 + longer_ns);
                let settled = trip >= 16;
                settled.then(|| elasticity.of(16, 100_000).expect("it varies"))
            })
            .collect();
        let (least, most) = (known.iter().min(), known.iter().max());
        // A queue of 2.6 ms and 0.8 ms of the device on average, 3.5 ms in all.
        std::println!("{least:?} to {most:?}, 190 in truth");
        assert!(least >= Some(&96), "{least:?}");
    }

    #[test]
    fn small_deviations_are_kept_however_long_the_memory() {
        let elasticity = Elasticity::new();
        // One command more or less, of 256 in flight: a variance of 64.
        (0..1 << 14).for_each(|turn: u32| elasticity.learn(4096 + 16 * (turn % 2), 8, 0));
        assert_eq!(elasticity.of(16, 100_000), Some(0));
        assert!(elasticity.variance.load(Relaxed).abs_diff(64 << MOMENT_BITS) < 8 << MOMENT_BITS);
        assert!(elasticity.work.load(Relaxed).abs_diff(4104 << WORK_BITS) < 4 << WORK_BITS);
    }

    #[test]
    fn nothing_is_known_where_nothing_varies() {
        let elasticity = Elasticity::new();
        assert_eq!(elasticity.of(16, 100_000), None);
        for _ in 0..4096 {
            elasticity.learn(64, 2, 50_000);
            assert_eq!(elasticity.of(16, 100_000), None);
        }
        // A unit more or less of commands that have sixteen: that is next to nothing.
        let elasticity = Elasticity::new();
        (0..4096).for_each(|turn| elasticity.learn(64 + turn % 2, 2, 50_000));
        assert!(elasticity.variance.load(Relaxed) > 0);
        assert_eq!(elasticity.of(16, 100_000), None);
    }

    #[test]
    fn the_largest_numbers_are_only_large() {
        let elasticity = Elasticity::new();
        for turn in 0..1000 {
            let (work, wait) = if turn % 2 == 0 { (u32::MAX, i64::from(u32::MAX)) } else { (0, 0) };
            elasticity.learn(work, turn, wait);
            elasticity.learn(work, turn, -wait);
            assert!(elasticity.of(u64::from(u32::MAX), 1).is_none_or(|e| e <= INELASTIC));
            assert!(elasticity.of(1, u32::MAX).is_none_or(|e| e <= INELASTIC));
        }
    }
}
