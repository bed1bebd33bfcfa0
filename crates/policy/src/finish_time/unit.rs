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

/// The least window of the standing work, ns.
pub(super) const SHORTEST_WINDOW_NS: u64 = 250_000;

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

/// Milliseconds (of 2^20 ns), modulo 2^32: differences are right up to 52 days.
#[inline]
pub(super) const fn ms(now_ns: u64) -> u32 {
    (now_ns >> 20) as u32
}
