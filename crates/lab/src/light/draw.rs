//! Draws in integers: the same on every machine.

use crate::rng::Rng;
use crate::scenario::{Job, Sizes};
use anabranch_policy::OpClass;
use std::sync::LazyLock;

/// Intervals of the table between 1/2 and 1.
const STEPS: usize = 512;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Fraction bits of a draw.
pub const FRACTION: u32 = 32;
/// Fraction bits while the table is made.
const FINE: u32 = 60;

/// `-ln(x)` for `x = 1/2 + i / (2 * STEPS)`, with 32 fraction bits.
static TABLE: LazyLock<[u64; STEPS + 1]> =
    LazyLock::new(|| core::array::from_fn(|i| minus_ln(STEPS + i, 2 * STEPS) >> (FINE - FRACTION)));

/// `-ln(a / b)` with [`FINE`] fraction bits, for `b / 2 <= a <= b`: twice the area tangent of
/// `(b - a) / (b + a)`, which is at most 1/3, as a series.
fn minus_ln(a: usize, b: usize) -> u64 {
    let z = (((b - a) as u128) << FINE) / (a + b) as u128;
    let square = (z * z) >> FINE;
    let (mut power, mut sum) = (z, 0u128);
    let mut n = 1;
    while power > 0 {
        sum += power / n;
        power = (power * square) >> FINE;
        n += 2;
    }
    // At most ln 2.
    (2 * sum) as u64
}

/// A draw from the exponential distribution with mean 1, with [`FRACTION`] fraction bits: at most
/// 45. The interpolation is too long by less than 10^-6.
#[must_use]
pub fn exponential(rng: &mut Rng) -> u64 {
    let table = &*TABLE;
    // The lowest bit is set, so that the logarithm exists: a number between 2^-64 and 1.
    let bits = rng.next_u64() | 1;
    let halvings = u64::from(bits.leading_zeros());
    let mantissa = bits << halvings;
    // The leading one says 1/2; then come the bits of the step, the rest is between two steps.
    let index = ((mantissa << 1) >> (64 - STEP_BITS)) as usize;
    let between = (mantissa << (1 + STEP_BITS)) >> 32;
    let (upper, lower) = (table[index], table[index + 1]);
    let fall = ((upper - lower) * between) >> 32;
    // `-ln(2^-halvings * m)`, where `m` lies between 1/2 and 1.
    halvings * table[0] + upper - fall
}

/// An exponential draw with this mean, in nanoseconds.
#[must_use]
pub fn exponential_ns(rng: &mut Rng, mean_ns: u64) -> u64 {
    ((u128::from(exponential(rng)) * u128::from(mean_ns)) >> FRACTION) as u64
}

/// A request of this job: its class and its payload. Trims move no data.
#[inline]
pub(super) fn request(job: &Job, rng: &mut Rng) -> (OpClass, u32) {
    let op = job.mix.draw(rng);
    match op {
        OpClass::Other => (op, 0),
        OpClass::Read | OpClass::Write => (op, job.sizes.of(op).draw(rng)),
    }
}

/// Every class and size that [`request`] draws for a job, with its share in millionths.
pub(crate) fn kinds(job: &Job) -> Vec<(OpClass, u32, u64)> {
    let mut all = Vec::new();
    for op in OpClass::ALL {
        // Of 100; ten thousand times that are millionths.
        let share = u64::from(*job.mix.of(op)) * 10_000;
        match job.sizes.of(op) {
            _ if share == 0 => {}
            _ if op == OpClass::Other => all.push((op, 0, share)),
            Sizes::Split(sizes) => {
                let total: u64 = sizes.iter().map(|size| u64::from(size.weight)).sum();
                for size in sizes {
                    all.push((op, size.bytes, share * u64::from(size.weight) / total.max(1)));
                }
            }
            sizes @ Sizes::Range { .. } => {
                // All are equally often: as good as always their mean, but for delays by size.
                all.push((op, (sizes.mean_milli() / 1000) as u32, share));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_logarithms() {
        // ln 2 and -ln(3/4), with 60 fraction bits.
        let ln_2 = 799_144_290_325_165_978_u64;
        assert!(minus_ln(1, 2).abs_diff(ln_2) < 64, "{}", minus_ln(1, 2));
        let ln_4_3 = 331_674_847_819_523_230_u64;
        assert!(minus_ln(3, 4).abs_diff(ln_4_3) < 64, "{}", minus_ln(3, 4));
        assert_eq!((TABLE[STEPS], TABLE[0]), (0, ln_2 >> 28));
        assert!(TABLE.windows(2).all(|pair| pair[0] > pair[1]));
    }

    #[test]
    fn exponential_draws_have_the_mean_and_the_quantiles() {
        let mut rng = Rng::new(11);
        let mut draws: Vec<u64> = (0..1_000_000).map(|_| exponential(&mut rng)).collect();
        let one = 1u64 << FRACTION;
        let mean = draws.iter().sum::<u64>() / draws.len() as u64;
        // The standard error of the mean is 1/1000.
        assert!(mean.abs_diff(one) < one / 250, "{mean} of {one}");
        draws.sort_unstable();
        // -ln(1 - q) in millionths; the standard error of a quantile is below 1/1000 of it up to
        // the median, and 0.01 (absolute) at 99 %.
        for (per_mille, expected, tolerance) in
            [(100, 105_361, 1500), (500, 693_147, 4000), (900, 2_302_585, 12_000)]
        {
            let found = (draws[draws.len() / 1000 * per_mille] * 1_000_000) >> FRACTION;
            assert!(found.abs_diff(expected) < tolerance, "{per_mille}: {found}, not {expected}");
        }
        assert!(draws[0] < one / 1000 && draws[draws.len() - 1] > 10 * one);
    }
}
