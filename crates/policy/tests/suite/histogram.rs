//! The histogram against exact arithmetic.

use crate::support::Random;
use anabranch_policy::Histogram;

/// Whether `got` is `exact`, 3 % more or 3 % less.
fn close(got: u64, exact: u64) -> bool {
    u128::from(got.abs_diff(exact)) * 100 <= u128::from(exact) * 3
}

#[test]
fn an_empty_one_answers_zero() {
    let empty = Histogram::new();
    assert_eq!((empty.count(), empty.mean(), empty.stdev()), (0, 0, 0));
    assert_eq!((empty.min(), empty.max(), empty.percentile(99)), (0, 0, 0));
}

#[test]
fn one_value_is_given_back_exactly() {
    for value in [0, 1, 63, 64, 65, 1000, 123_456_789, 1 << 41, u64::MAX] {
        let mut histogram = Histogram::new();
        histogram.record(value);
        assert_eq!((histogram.min(), histogram.max()), (value, value));
        for percent in [0, 1, 50, 99, 100, 5000] {
            assert_eq!(histogram.percentile(percent), value);
        }
    }
}

#[test]
fn each_value_from_64_ns_to_36_minutes_is_at_most_three_percent_off() {
    let mut random = Random::seeded();
    let every: Vec<u64> = (64..if cfg!(miri) { 100 } else { 20_000 }).collect();
    let around_powers = (6..41).flat_map(|log| [(1_u64 << log), (1 << log) + 1, (2 << log) - 1]);
    let anywhere = (0..if cfg!(miri) { 50 } else { 20_000 })
        .map(|_| 64 + (random.next() >> (24 + random.below(34))))
        .collect::<Vec<u64>>();
    for value in every.into_iter().chain(around_powers).chain(anywhere) {
        if value >= 1 << 41 {
            continue;
        }
        // Two far neighbours keep minimum and maximum from giving the value away.
        let mut histogram = Histogram::new();
        for value in [1, value, u64::MAX] {
            histogram.record(value);
        }
        let got = histogram.percentile(50);
        assert!(close(got, value), "{value} came back as {got}");
    }
}

#[test]
fn percentiles_mean_and_deviation_match_a_sorted_list() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 1 } else { 30 };
    for _ in 0..rounds {
        let mut histogram = Histogram::new();
        let count = 1 + random.below(5000);
        let mut values: Vec<u64> =
            (0..count).map(|_| 10_000 + random.next() % (1 << (14 + random.below(16)))).collect();
        values.iter().for_each(|&value| histogram.record(value));
        values.sort_unstable();
        for per_mille in [0_u32, 10, 500, 900, 990, 999, 1000] {
            let rank = (count * per_mille as usize).div_ceil(1000).max(1);
            let (got, exact) = (histogram.per_mille(per_mille), values[rank - 1]);
            assert!(close(got, exact), "{per_mille}: {got} instead of {exact} of {count}");
        }
        let mean = values.iter().sum::<u64>() / count as u64;
        assert_eq!(histogram.mean(), mean);
        assert_eq!(histogram.count(), count as u64);
        assert_eq!((histogram.min(), histogram.max()), (values[0], values[count - 1]));
        let exact_mean = values.iter().sum::<u64>() as f64 / count as f64;
        let squares: f64 = values.iter().map(|&v| (v as f64 - exact_mean).powi(2)).sum();
        let stdev = (squares / count as f64).sqrt();
        assert!((histogram.stdev() as f64 - stdev).abs() <= 1.0 + stdev * 1e-6);
    }
}

#[test]
fn merging_is_recording_everything_in_one() {
    let mut random = Random::seeded();
    let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
    // Small enough that the sum of their squares is exact.
    for i in 0..2000 {
        let value = 2 + (random.next() >> (20 + random.below(44)));
        if i % 3 == 0 { &mut left } else { &mut right }.record(value);
        both.record(value);
    }
    // The least is on the other side, as the largest is.
    for value in [1, 1 << 50] {
        right.record(value);
        both.record(value);
    }
    left.merge(&right);
    assert_eq!(format!("{left:?}"), format!("{both:?}"));
    left.merge(&Histogram::new());
    assert_eq!(format!("{left:?}"), format!("{both:?}"));
    left.clear();
    assert_eq!(left.count(), 0);
}

#[test]
fn more_values_than_32_bits_count_are_counted() {
    // 2^35 values by doubling.
    let mut histogram = Histogram::new();
    histogram.record(1000);
    histogram.record(1000);
    histogram.record(1000);
    histogram.record(9000);
    for _ in 0..33 {
        histogram.merge(&histogram.clone());
    }
    assert_eq!(histogram.count(), 4 << 33);
    assert_eq!(histogram.mean(), 3000);
    assert!(close(histogram.percentile(74), 1000));
    assert!(close(histogram.percentile(76), 9000));
    let counts: Vec<u64> = histogram.positions().map(|(_, count)| count).collect();
    assert_eq!(counts, [3 << 33, 1 << 33]);
    for _ in 0..10 {
        histogram.record(1000);
    }
    assert_eq!(histogram.count(), (4 << 33) + 10);
    assert_eq!(histogram.positions().next().map(|(_, count)| count), Some((3 << 33) + 10));
}

#[test]
fn figures_of_more_nanoseconds_than_64_bits_hold_are_right() {
    let mut histogram = Histogram::new();
    for value in [(1 << 60) - 1000, (1 << 60) + 1000] {
        (0..50).for_each(|_| histogram.record(value));
    }
    let mut twice = histogram.clone();
    twice.merge(&histogram);
    assert_eq!((histogram.sum(), twice.sum()), (100 << 60, 200 << 60));
    assert_eq!((histogram.mean(), histogram.stdev()), (1 << 60, 1000));
    assert_eq!((twice.mean(), twice.stdev()), (1 << 60, 1000));
}

#[test]
fn sums_stop_at_their_limit_instead_of_wrapping() {
    let mut histogram = Histogram::new();
    for _ in 0..3 {
        histogram.record(u64::MAX);
    }
    assert_eq!((histogram.mean(), histogram.max()), (u64::MAX, u64::MAX));
    assert_eq!(histogram.percentile(50), u64::MAX);
    // What it is taken from has stopped.
    assert!(histogram.stdev() < u64::MAX);
}

#[test]
fn it_is_small() {
    assert!(size_of::<Histogram>() <= 5152);
}

#[test]
fn positions_are_the_buckets_and_can_be_subtracted() {
    let mut random = Random::seeded();
    let mut before = Histogram::new();
    (0..1000).for_each(|_| before.record(100_000 + random.below(1 << 20) as u64));
    let mut now = before.clone();
    (0..100).for_each(|_| now.record(50_000_000));
    let then: Vec<(u16, u64)> = before.positions().collect();
    let added: Vec<(u16, u64)> = now.positions().filter(|p| !then.contains(p)).collect();
    assert_eq!(added.len(), 1, "{added:?}");
    assert_eq!(added[0].1, 100);
    assert!(close(Histogram::value_at(added[0].0), 50_000_000));
    // In order, and all of them.
    let positions: Vec<(u16, u64)> = now.positions().collect();
    assert!(positions.is_sorted());
    assert_eq!(positions.iter().map(|p| p.1).sum::<u64>(), now.count());
    for (value, at) in [(0, 0), (u64::MAX, u64::MAX)] {
        let mut one = Histogram::new();
        one.record(value);
        let (position, count) = one.positions().next().expect("a bucket");
        assert_eq!((Histogram::value_at(position), count), (at, 1));
    }
    assert_eq!(Histogram::value_at(u16::MAX), u64::MAX);
}
