//! Draws from the exponential distribution in integers: the same on every machine.

/// Intervals of the table between 1/2 and 1.
const STEPS: usize = 512;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Fraction bits of a draw.
pub const FRACTION: u32 = 32;
/// Fraction bits while the table is made.
const FINE: u32 = 60;

/// `-ln(x)` for `x = 1/2 + i / (2 * STEPS)`, with [`FRACTION`] fraction bits.
static TABLE: [u64; STEPS + 1] = table();

const fn table() -> [u64; STEPS + 1] {
    let mut table = [0; STEPS + 1];
    let mut i = 0;
    while i <= STEPS {
        table[i] = minus_ln(STEPS + i, 2 * STEPS) >> (FINE - FRACTION);
        i += 1;
    }
    table
}

/// `-ln(a / b)` with [`FINE`] fraction bits, for `b / 2 <= a <= b`: twice the area tangent of
/// `(b - a) / (b + a)`, which is at most 1/3, as a series.
const fn minus_ln(a: usize, b: usize) -> u64 {
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

/// A draw with mean 1 and [`FRACTION`] fraction bits, from 64 random bits: at most 45. The
/// interpolation is too long by less than 10^-6.
#[must_use]
pub fn exponential(bits: u64) -> u64 {
    // The lowest bit is set, so that the logarithm exists: a number between 2^-64 and 1.
    let bits = bits | 1;
    let halvings = u64::from(bits.leading_zeros());
    let mantissa = bits << halvings;
    // The leading one says 1/2; then come the bits of the step, the rest is between two steps.
    let index = ((mantissa << 1) >> (64 - STEP_BITS)) as usize;
    let between = (mantissa << (1 + STEP_BITS)) >> 32;
    let (upper, lower) = (TABLE[index], TABLE[index + 1]);
    let fall = ((upper - lower) * between) >> 32;
    // `-ln(2^-halvings * m)`, where `m` lies between 1/2 and 1.
    halvings * TABLE[0] + upper - fall
}

/// A draw with this mean, in nanoseconds, from 64 random bits.
#[must_use]
pub fn exponential_ns(bits: u64, mean_ns: u64) -> u64 {
    let ns = (u128::from(exponential(bits)) * u128::from(mean_ns)) >> FRACTION;
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::vec::Vec;

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
    fn draws_have_the_mean_and_the_quantiles() {
        let mut rng = Rng::new(11);
        let mut draws: Vec<u64> = (0..1_000_000).map(|_| exponential(rng.next_u64())).collect();
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
