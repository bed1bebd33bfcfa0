//! Statistics that assume no distribution, with integers.
//!
//! Two variants are compared run by run: the same seed asked the same of both (live: the same turn
//! met the same machine). What is stated is the median of the ratios and a 95 % interval of that
//! median, from ranks: between the k-th smallest and the k-th largest of n ratios the true median
//! lies with the probability 1 − 2·P(Binomial(n, ½) < k), whatever their distribution. Fewer than
//! six ratios give no such interval.

use crate::scenario::MAX_RUNS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A ratio of one, in millionths.
pub const ONE_PPM: u64 = 1_000_000;
/// Ratios end here: a million to one.
pub const MAX_RATIO_PPM: u64 = ONE_PPM * ONE_PPM;
/// The probability that an interval has at least, in millionths.
pub const CONFIDENCE_PPM: u64 = 950_000;
/// Fewer pairs have no interval.
pub const LEAST_PAIRS: usize = 6;

/// The middle value; of an even number the mean of the two in the middle, rounded down. 0 of none.
#[must_use]
pub fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (low, high) = (sorted.len().saturating_sub(1) / 2, sorted.len() / 2);
    match (sorted.get(low), sorted.get(high)) {
        (Some(low), Some(high)) => low.midpoint(*high),
        _ => 0,
    }
}

/// `value` over `base`, in millionths, rounded to the nearest; 1 when both are 0.
#[must_use]
pub fn ratio_ppm(value: u64, base: u64) -> u64 {
    if value == base {
        return ONE_PPM;
    }
    let scaled = u128::from(value) * u128::from(ONE_PPM) + u128::from(base / 2);
    let ratio = scaled.checked_div(u128::from(base)).unwrap_or(u128::MAX);
    u64::try_from(ratio).unwrap_or(u64::MAX).min(MAX_RATIO_PPM)
}

/// Where a median lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// From here.
    pub low_ppm: u64,
    /// To here, both included.
    pub high_ppm: u64,
    /// With at least this probability, in millionths: 95 % or more.
    pub confidence_ppm: u64,
}

/// Ratios of pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paired {
    /// How many.
    pub pairs: u32,
    /// Their median; 1 when there are none.
    pub median_ppm: u64,
    /// The smallest.
    pub min_ppm: u64,
    /// The largest.
    pub max_ppm: u64,
    /// Where the true median lies; nothing with fewer than [`LEAST_PAIRS`].
    pub interval: Option<Interval>,
    /// Every run gave the same figures: no spread was measured, and that interval says nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alike: bool,
}

impl Paired {
    /// Of pairs: value, base. No more than a thousand are looked at, as many as runs can be.
    #[must_use]
    pub fn new(pairs: &[(u64, u64)]) -> Paired {
        let mut ratios: Vec<u64> =
            pairs.iter().take(MAX_RUNS as usize).map(|(v, base)| ratio_ppm(*v, *base)).collect();
        ratios.sort_unstable();
        let edge = |at: Option<&u64>| at.copied().unwrap_or(ONE_PPM);
        Paired {
            pairs: u32::try_from(ratios.len()).unwrap_or(u32::MAX),
            median_ppm: if ratios.is_empty() { ONE_PPM } else { median(&ratios) },
            min_ppm: edge(ratios.first()),
            max_ppm: edge(ratios.last()),
            interval: interval(&ratios),
            alike: false,
        }
    }

    /// How sure it is, in short: the interval as `show` puts it, or that runs were alike; nothing
    /// with too few of them.
    pub fn sure(&self, show: impl Fn(Interval) -> String) -> Option<String> {
        self.interval.map(|found| if self.alike { "runs alike".to_owned() } else { show(found) })
    }

    /// What can be said of the values against their bases.
    #[must_use]
    pub fn difference(&self) -> Difference {
        self.beyond(0)
    }

    /// The same, where ratios this near to 1, in millionths, count as 1.
    #[must_use]
    pub fn beyond(&self, tolerance_ppm: u64) -> Difference {
        let (low, high) =
            (ONE_PPM.saturating_sub(tolerance_ppm), ONE_PPM.saturating_add(tolerance_ppm));
        let within = |ratio: u64| low <= ratio && ratio <= high;
        match self.interval {
            _ if self.pairs > 0 && within(self.min_ppm) && within(self.max_ppm) => Difference::None,
            None => Difference::Unknown,
            Some(interval) if interval.low_ppm > high => Difference::More,
            Some(interval) if interval.high_ppm < low => Difference::Less,
            Some(_) => Difference::None,
        }
    }
}

/// What pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// The values are larger than their bases.
    More,
    /// They are smaller.
    Less,
    /// The interval contains 1, or all pairs are equal.
    None,
    /// Too few pairs for an interval.
    Unknown,
}

/// The interval of the median of sorted values.
fn interval(sorted: &[u64]) -> Option<Interval> {
    let (rank, confidence_ppm) = rank(sorted.len())?;
    let (low, high) = (sorted.get(rank - 1)?, sorted.get(sorted.len() - rank)?);
    Some(Interval { low_ppm: *low, high_ppm: *high, confidence_ppm })
}

/// For n values the largest k such that the k-th smallest and the k-th largest enclose the median
/// with 95 %, and the probability with which they do, rounded down.
#[must_use]
pub fn rank(n: usize) -> Option<(usize, u64)> {
    /// One, as a fixed-point number. The sum of a row never exceeds it by more than n halves.
    const ONE: u128 = 1 << 120;
    // The lower half of the binomial distribution, row by row. Halves are rounded up, so that what
    // lies outside the interval is never taken for less than it is.
    let mut row = vec![0u128; n / 2 + 2];
    row[0] = ONE;
    for _ in 0..n {
        for place in (0..row.len()).rev() {
            let before = if place == 0 { 0 } else { row[place - 1] };
            row[place] = (row[place] + before).div_ceil(2);
        }
    }
    let (mut outside, mut found) = (0u128, None);
    for k in 1..=n / 2 {
        outside += 2 * row[k - 1];
        let inside = ONE.saturating_sub(outside);
        let ppm = ((inside >> 20) * u128::from(ONE_PPM)) >> 100;
        // No probability of this kind is exactly 95 %: rounding decides nothing.
        if ppm < u128::from(CONFIDENCE_PPM) {
            break;
        }
        // Below a million.
        found = Some((k, ppm as u64));
    }
    found
}

/// Latencies of several runs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    buckets: BTreeMap<u64, u64>,
    count: u128,
    sum: u128,
    /// Requests, mean and standard deviation of each run.
    runs: Vec<[u64; 3]>,
    min: Option<u64>,
    max: u64,
}

impl Merged {
    /// Adds the latencies of so many requests.
    pub fn add(&mut self, requests: u64, latency: &super::Latency) {
        if requests == 0 {
            return;
        }
        for (value, count) in &latency.buckets {
            let sum = self.buckets.entry(*value).or_default();
            *sum = sum.saturating_add(*count);
        }
        let (n, mean) = (u128::from(requests), u128::from(latency.mean_ns));
        self.runs.push([requests, latency.mean_ns, latency.stdev_ns]);
        self.count += n;
        self.sum = self.sum.saturating_add(n.saturating_mul(mean));
        self.min = Some(self.min.map_or(latency.min_ns, |min| min.min(latency.min_ns)));
        self.max = self.max.max(latency.max_ns);
    }

    /// The value at or below which so many thousandths of all lie.
    #[must_use]
    pub fn per_mille(&self, per_mille: u32) -> u64 {
        let total: u128 = self.buckets.values().map(|count| u128::from(*count)).sum();
        let rank = (total * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0u128;
        for (value, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= rank {
                return *value;
            }
        }
        self.max
    }

    /// The mean of the runs' means, each weighed by its requests.
    #[must_use]
    pub fn mean(&self) -> u64 {
        narrow(self.sum.checked_div(self.count).unwrap_or(0))
    }

    /// The standard deviation of all together.
    #[must_use]
    pub fn stdev(&self) -> u64 {
        // Around the mean: a difference of large squares shows how the mean was rounded.
        let mean = self.mean();
        let square = |value: u64| u128::from(value).saturating_mul(u128::from(value));
        let sum = self.runs.iter().fold(0u128, |sum, &[requests, of_run, stdev]| {
            let around = square(stdev).saturating_add(square(of_run.abs_diff(mean)));
            sum.saturating_add(u128::from(requests).saturating_mul(around))
        });
        narrow(sum.checked_div(self.count).unwrap_or(0).isqrt())
    }

    /// The smallest; 0 of none.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.min.unwrap_or(0)
    }

    /// The largest; 0 of none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u64 {
        narrow(self.count)
    }

    /// The buckets, by value.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets.iter().map(|(value, count)| (*value, *count))
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
