//! Amounts and rates.

/// What a command costs a path, in units of 512 bytes: its payload, and 4 KiB for itself. Without
/// the latter commands of an IOPS-bound path would be the cheaper the smaller they are.
#[inline]
pub(crate) const fn units(bytes: u32) -> u32 {
    // At most 2^23 + 8.
    bytes.div_ceil(UNIT_BYTES) + OVERHEAD_UNITS
}

pub(super) const UNIT_BYTES: u32 = 512;
const OVERHEAD_UNITS: u32 = 8;

/// Fraction bits of nanoseconds per unit.
pub(super) const RATE_SHIFT: u32 = 8;

/// Our milliseconds have 2^20 ns.
const MS_SHIFT: u32 = 20;

/// The least window of the standing work, ns.
pub(super) const SHORTEST_WINDOW_NS: u64 = 250_000;

/// So many units in bytes.
pub(crate) const fn in_flight_bytes(units: u64) -> u64 {
    units.saturating_mul(UNIT_BYTES as u64)
}

/// How long so much work takes at this pace, ns.
#[inline]
pub(super) const fn time_ns(work: u64, pace: u32) -> u64 {
    work.saturating_mul(pace as u64) >> RATE_SHIFT
}

/// A time cut to what a word holds: 4.3 s.
#[inline]
pub(super) const fn word(ns: u64) -> u32 {
    if ns < u32::MAX as u64 { ns as u32 } else { u32::MAX }
}

/// Milliseconds from then to now; 0 when the clock of another worker was read a little later. (Not
/// split in halves: 0 stands for never.)
#[inline]
pub(super) const fn since_ms(now_ms: u32, then_ms: u32) -> u32 {
    const LATER_MS: u32 = 1024;
    if then_ms.wrapping_sub(now_ms) < LATER_MS { 0 } else { now_ms.wrapping_sub(then_ms) }
}

/// Milliseconds (of 2^20 ns), modulo 2^32: differences are right up to 52 days.
#[inline]
pub(super) const fn ms(now_ns: u64) -> u32 {
    (now_ns >> MS_SHIFT) as u32
}

/// So many of them.
pub(super) const fn ns(ms: u32) -> u64 {
    (ms as u64) << MS_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_of_a_clock_that_was_read_a_little_later_is_no_age_and_never_is_long_ago() {
        assert_eq!(since_ms(7, 5), 2);
        assert_eq!(since_ms(5, 7), 0, "another worker's clock was read later");
        assert_eq!(since_ms(1, u32::MAX), 2, "over the end of the numbers");
        assert_eq!(since_ms(u32::MAX, 1), 0, "and back");
        assert_eq!(since_ms(1_000_000, 0), 1_000_000, "0 is never");
    }
}
