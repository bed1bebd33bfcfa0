//! How often a large ANA log is read because something asks for it.
//!
//! Whoever tells of changes all the time, and has a log of megabytes, would keep the worker from
//! everything else. A few readings may follow each other at once: an array that moves its groups
//! tells of each step.

use anabranch_proto::machine::Time;
use core::time::Duration;

/// A log of no more bytes is read whenever something asks for it.
const AT_ONCE_BYTES: u64 = 64 << 10;

/// What a reading of a larger one costs, per so many bytes begun.
const COST: Duration = Duration::from_secs(1);
const BYTES_PER_COST: u64 = 1 << 20;

/// So many readings may follow each other at once.
const AT_ONCE: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// What the last reading cost.
    cost: Duration,
    /// When all that was read has been paid for: [`AT_ONCE`] readings ahead at most, so that after
    /// whatever was read without asking the next one is one cost away.
    paid_at: Time,
}

impl Pace {
    /// A log of so many bytes was read.
    pub(super) fn read(&mut self, now: Time, bytes: u64) {
        if bytes <= AT_ONCE_BYTES {
            self.cost = Duration::ZERO;
            return;
        }
        let times = u32::try_from(bytes.div_ceil(BYTES_PER_COST)).unwrap_or(u32::MAX);
        self.cost = COST.saturating_mul(times);
        let latest = now.after(self.cost.saturating_mul(AT_ONCE));
        self.paid_at = self.paid_at.max(now).after(self.cost).min(latest);
    }

    /// When the next reading may begin; `None` = at once.
    pub(super) fn next(&self, now: Time) -> Option<Time> {
        let ahead = self.paid_at.since(now);
        let wait = ahead.saturating_sub(self.cost.saturating_mul(AT_ONCE - 1));
        (!wait.is_zero() && !self.cost.is_zero()).then(|| now.after(wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// When so many readings begin, in milliseconds, where something asks for them all the time.
    fn begun(bytes: u64, count: usize) -> Vec<u64> {
        let (mut pace, mut now) = (Pace::default(), Time::from_ns(0));
        let mut next = || {
            now = pace.next(now).unwrap_or(now);
            pace.read(now, bytes);
            now.ns() / 1_000_000
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_large_log_is_read_four_times_at_once_and_then_at_a_pace_by_its_size() {
        assert_eq!(begun(AT_ONCE_BYTES, 6), [0; 6]);
        assert_eq!(begun(AT_ONCE_BYTES + 1, 7), [0, 0, 0, 0, 1000, 2000, 3000]);
        assert_eq!(begun(3 * BYTES_PER_COST, 6), [0, 0, 0, 0, 3000, 6000]);
    }

    #[test]
    fn whatever_was_read_the_next_reading_is_one_cost_away_at_most() {
        let (mut pace, now) = (Pace::default(), Time::from_ns(0));
        (0..100).for_each(|_| pace.read(now, 8 * BYTES_PER_COST));
        assert_eq!(pace.next(now), Some(now.after(8 * COST)));
        pace.read(now, BYTES_PER_COST);
        assert_eq!(pace.next(now), Some(now.after(COST)));
        pace.read(now, AT_ONCE_BYTES);
        assert_eq!(pace.next(now), None, "it is a small one now");
        pace.read(now, BYTES_PER_COST);
        assert_eq!(pace.next(now), Some(now.after(COST)), "a small one pays for no large one");
    }
}
