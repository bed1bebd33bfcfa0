//! A histogram of latencies: fixed size, no heap, merged across workers.

use core::fmt;

/// Buckets per doubling. Eighteen keep the error of a percentile at 1/37, below 3 %.
const PER_OCTAVE: usize = 18;
/// Values below 2^6 = 64 ns share the first bucket: no I/O is that fast.
const LOWEST_OCTAVE: u32 = 6;
/// Doublings covered: up to 2^41 ns, 36 minutes. Longer values share the last bucket.
const OCTAVES: usize = 35;
const BUCKETS: usize = 1 + OCTAVES * PER_OCTAVE + 1;

/// Counts of values (nanoseconds, say) in buckets whose width grows with the value.
///
/// Percentiles are at most 3 % off for values between 64 ns and 36 minutes; count, mean, standard
/// deviation, minimum and maximum are exact. Recording costs a multiplication and two additions,
/// and never fails. A bucket never shrinks, so two looks can be subtracted however long they lie
/// apart: a host of a million commands a second fills 32 bits in an hour.
#[derive(Clone)]
pub struct Histogram {
    count: u64,
    sum: u128,
    sum_of_squares: u128,
    min: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

impl Histogram {
    /// Empty.
    #[must_use]
    pub const fn new() -> Self {
        Histogram {
            count: 0,
            sum: 0,
            sum_of_squares: 0,
            min: u64::MAX,
            max: 0,
            buckets: [0; BUCKETS],
        }
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        let square = u128::from(value) * u128::from(value);
        self.sum_of_squares = self.sum_of_squares.saturating_add(square);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.buckets[bucket_of(value)] += 1;
    }

    /// Adds everything that `other` has recorded.
    pub fn merge(&mut self, other: &Histogram) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += *theirs;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Histogram::new();
    }

    /// How many values.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Sum of all values.
    #[must_use]
    pub const fn sum(&self) -> u128 {
        self.sum
    }

    /// The smallest value, 0 when there is none.
    #[must_use]
    pub const fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest value, 0 when there is none.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The mean, rounded down; 0 when there is no value.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        match self.sum.checked_div(self.count as u128) {
            // No more than the largest of them.
            Some(mean) => mean as u64,
            None => 0,
        }
    }

    /// The standard deviation of the values (the population's), rounded down; 0 when there is none.
    #[must_use]
    pub fn stdev(&self) -> u64 {
        let count = u128::from(self.count);
        let Some(mean) = self.sum.checked_div(count) else { return 0 };
        // Its square by the count, exactly: the square itself may have more than 128 bits.
        let rest = (self.sum % count).saturating_mul(self.sum) / count;
        let square_of_mean_times_count = mean.saturating_mul(self.sum).saturating_add(rest);
        let variance = self.sum_of_squares.saturating_sub(square_of_mean_times_count) / count;
        // The root of a 128-bit number has 64 bits.
        variance.isqrt() as u64
    }

    /// The value below or at which `per_mille` thousandths of all values lie (500 is the median,
    /// 999 the 99.9th percentile; above 1000 counts as 1000); 0 when there is no value.
    #[must_use]
    pub fn per_mille(&self, per_mille: u32) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let per_mille = u128::from(per_mille.min(1000));
        // The rank of the value asked for, from 1. At most the count.
        let rank = ((u128::from(self.count) * per_mille).div_ceil(1000)).max(1) as u64;
        let mut seen = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle_of(bucket).clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// The buckets that are not empty, in order: the value that stands for one, and how many values
    /// it has.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        all.map(|(bucket, &count)| (middle_of(bucket).clamp(self.min(), self.max), count))
    }

    /// The same by position, so that two looks can be subtracted: the buckets that are not empty,
    /// in order. [`Histogram::value_at`] says what values a position stands for.
    pub fn positions(&self) -> impl Iterator<Item = (u16, u64)> {
        let all = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        // There are fewer than 2^16 buckets.
        all.map(|(bucket, &count)| (bucket as u16, count))
    }

    /// The value that stands for the bucket at a position: 0 for the first, the largest number for
    /// the last (and for what is none).
    #[must_use]
    pub fn value_at(position: u16) -> u64 {
        middle_of(usize::from(position).min(BUCKETS - 1))
    }

    /// The value below or at which `percent` hundredths of all values lie. See
    /// [`Histogram::per_mille`].
    #[must_use]
    pub fn percentile(&self, percent: u32) -> u64 {
        self.per_mille(percent.saturating_mul(10))
    }
}

/// The bucket of a value.
#[inline]
fn bucket_of(value: u64) -> usize {
    let Some(octave) = value.checked_ilog2().and_then(|log| log.checked_sub(LOWEST_OCTAVE)) else {
        return 0;
    };
    let octave = octave as usize;
    if octave >= OCTAVES {
        return BUCKETS - 1;
    }
    // The value without its leading one, as a 32-bit fraction of the octave.
    let fraction = (value << value.leading_zeros() << 1) >> 32;
    let step = (fraction * PER_OCTAVE as u64) >> 32;
    // `step` is below PER_OCTAVE.
    1 + octave * PER_OCTAVE + step as usize
}

/// The value that stands for a bucket: equally far, in proportion, from its two ends.
fn middle_of(bucket: usize) -> u64 {
    if bucket == 0 {
        return 0;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let (low, high) = (lower_end(bucket), lower_end(bucket + 1));
    // 2·low·high / (low + high); both lie below 2^42.
    let middle = 2 * u128::from(low) * u128::from(high) / u128::from(low + high);
    middle as u64
}

/// The smallest value of a bucket in the graded range (or of the one behind it).
fn lower_end(bucket: usize) -> u64 {
    let (octave, step) = ((bucket - 1) / PER_OCTAVE, (bucket - 1) % PER_OCTAVE);
    let base = 1u64 << (octave + LOWEST_OCTAVE as usize);
    base + (base * step as u64).div_ceil(PER_OCTAVE as u64)
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count)
            .field("mean", &self.mean())
            .field("stdev", &self.stdev())
            .field("min", &self.min())
            .field("p50", &self.percentile(50))
            .field("p99", &self.percentile(99))
            .field("max", &self.max)
            .finish()
    }
}
