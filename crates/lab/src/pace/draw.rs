//! Draws in integers: the same on every machine.

use crate::rng::Rng;
pub use anabranch_target::exponential::FRACTION;

/// A draw from the exponential distribution with mean 1, with [`FRACTION`] fraction bits: at most
/// 45.
#[must_use]
pub fn exponential(rng: &mut Rng) -> u64 {
    anabranch_target::exponential::exponential(rng.next_u64())
}

/// An exponential draw with this mean, in nanoseconds.
#[must_use]
pub fn exponential_ns(rng: &mut Rng, mean_ns: u64) -> u64 {
    anabranch_target::exponential::exponential_ns(rng.next_u64(), mean_ns)
}
