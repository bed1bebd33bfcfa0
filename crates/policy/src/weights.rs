//! From latencies to weights, in integers.

/// One second: the reciprocal of a latency in nanoseconds is taken against it.
pub(crate) const SCORE_UNIT: u64 = 1_000_000_000;

/// What a latency is worth: commands per second, one after the other. 0 for a latency that is not
/// known (0), else at least 1 up to a second.
///
/// Rounded down, so it tells latencies apart by 1 % up to 10 ms and by 10 % up to 100 ms; from half
/// a second on all are worth 1.
#[inline]
pub(crate) const fn score(latency_ns: u64) -> u64 {
    match latency_ns {
        0 => 0,
        latency_ns => SCORE_UNIT / latency_ns,
    }
}

/// The share of a score in `scale`, rounded down, at least 1 (so that something is always seen of a
/// slow path) and at most `scale`. `total` is the sum of all scores and not 0.
#[inline]
pub(crate) const fn share(score: u64, total: u64, scale: u32) -> u32 {
    // Scores are at most 10^9, so the product is far from full.
    let share = score * scale as u64 / total;
    // Only sums that are changed while they are read give more than the scale.
    if share == 0 {
        1
    } else if share < scale as u64 {
        share as u32
    } else {
        scale
    }
}
