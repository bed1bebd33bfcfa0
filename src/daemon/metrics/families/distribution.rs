//! Latencies in the few buckets that Prometheus takes.

use super::super::exposition::Distribution;
use super::seconds;
use anabranch_policy::Histogram;

/// The bounds are 2^k ns and halfway to the next: edges of the histogram's own buckets, so that
/// each bucket here holds some of those as a whole, and nothing is shared out. The first is
/// 32.8 µs.
const FIRST_OCTAVE: u32 = 15;
/// From here on (268 ms) a bound for each doubling does.
const COARSE_OCTAVE: u32 = 28;
/// The last bound is 34.4 s: the default time limit of a command, and what comes after it.
const LAST_OCTAVE: u32 = 35;

/// The bounds in nanoseconds.
fn bounds() -> impl Iterator<Item = u64> {
    (FIRST_OCTAVE..=LAST_OCTAVE).flat_map(|octave| {
        let bound = 1_u64 << octave;
        let half = (octave < COARSE_OCTAVE).then_some(bound + bound / 2);
        [Some(bound), half].into_iter().flatten()
    })
}

/// A histogram as it is exposed.
pub(super) fn distribution(from: &Histogram) -> Distribution {
    let mut buckets: Vec<(u64, u64)> = bounds().map(|bound| (bound, 0)).collect();
    let mut beyond = 0;
    for (position, count) in from.positions() {
        // It lies within its bucket, and all of that on one side of each bound.
        let value = Histogram::value_at(position);
        let at = buckets.partition_point(|(bound, _)| *bound < value);
        *buckets.get_mut(at).map_or(&mut beyond, |(_, sum)| sum) += count;
    }
    let mut buckets: Vec<(f64, u64)> =
        buckets.into_iter().map(|(bound, count)| (seconds(bound), count)).collect();
    buckets.push((f64::INFINITY, beyond));
    Distribution { sum: from.sum() as f64 / 1e9, count: from.count(), buckets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_on_its_side_of_every_bound() {
        for bound in bounds() {
            for (value, within) in [(bound - 1, 1), (bound, 0), (bound / 37 * 36, 1)] {
                let mut histogram = Histogram::new();
                histogram.record(value);
                let found = distribution(&histogram);
                let upto = found.buckets.iter().filter(|(at, _)| *at <= seconds(bound));
                let count: u64 = upto.map(|(_, count)| count).sum();
                assert_eq!(count, within, "{value} of {bound}");
                assert_eq!(found.count, 1);
            }
        }
    }

    #[test]
    fn there_are_few_buckets() {
        let empty = distribution(&Histogram::new());
        assert_eq!(empty.buckets.len(), 35);
        assert_eq!((empty.buckets[0].0, empty.count), (0.000_032_768, 0));
    }
}
