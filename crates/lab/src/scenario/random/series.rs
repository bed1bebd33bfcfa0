//! Ways to draw.

use crate::rng::Rng;

/// The series E24: 24 values per decade.
const E24: [u64; 24] = [
    10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30, 33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91,
];

/// A value of the series from `low` (10 or more) to `high`, both included: each equally often.
pub(super) fn series(rng: &mut Rng, low: u64, high: u64) -> u64 {
    let decades = std::iter::successors(Some(1u64), |scale| scale.checked_mul(10));
    let all = decades.flat_map(|scale| E24.iter().map(move |value| value.saturating_mul(scale)));
    let values: Vec<u64> =
        all.skip_while(|value| *value < low).take_while(|value| *value <= high).collect();
    match values.len() {
        0 => low,
        count => values[rng.below(count as u64) as usize],
    }
}

/// From `low` to `high`, both included: each equally often.
pub(super) fn between(rng: &mut Rng, low: u64, high: u64) -> u64 {
    low + rng.below(high - low + 1)
}

/// One of these: each equally often.
pub(super) fn one_of<T: Copy>(rng: &mut Rng, values: &[T]) -> T {
    values[rng.below(values.len() as u64) as usize]
}

/// One of these, by weight.
pub(super) fn weighted<T: Copy>(rng: &mut Rng, values: &[(u64, T)]) -> T {
    let mut at = rng.below(values.iter().map(|(weight, _)| weight).sum());
    for (weight, value) in values {
        if at < *weight {
            return *value;
        }
        at -= weight;
    }
    unreachable!("the draw lies below the sum of weights")
}
