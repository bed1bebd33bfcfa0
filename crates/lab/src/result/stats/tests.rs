use super::{CONFIDENCE_PPM, Difference, Interval, MAX_RATIO_PPM, Merged, Paired};
use super::{median, rank, ratio_ppm};
use crate::result::Latency;
use crate::rng::Rng;
use anabranch_policy::Histogram;

#[test]
fn medians_of_odd_even_and_no_values() {
    assert_eq!(median(&[]), 0);
    assert_eq!(median(&[9]), 9);
    assert_eq!(median(&[9, 1, 4]), 4);
    assert_eq!(median(&[9, 1, 4, 7]), 5);
    assert_eq!(median(&[u64::MAX, u64::MAX]), u64::MAX);
}

#[test]
fn ratios_are_rounded_and_bounded() {
    assert_eq!(ratio_ppm(0, 0), 1_000_000);
    assert_eq!(ratio_ppm(1, 3), 333_333);
    assert_eq!(ratio_ppm(2, 3), 666_667);
    assert_eq!(ratio_ppm(0, 3), 0);
    assert_eq!(ratio_ppm(3, 0), MAX_RATIO_PPM);
    assert_eq!(ratio_ppm(u64::MAX, 1), MAX_RATIO_PPM);
    assert_eq!(ratio_ppm(u64::MAX, u64::MAX - 1), 1_000_000);
}

/// The ranks of the tables in textbooks (95 %, sign test), and their exact probabilities by hand: 1
/// − 2/64 for six, 1 − 2·(1 + 9)/512 for nine, 1 − 2·(1 + 20 + 190 + 1140 + 4845 + 15504)/2^20 for
/// twenty.
#[test]
fn ranks_are_those_of_the_tables() {
    let expected = [
        (6, 1),
        (7, 1),
        (8, 1),
        (9, 2),
        (10, 2),
        (11, 2),
        (12, 3),
        (15, 4),
        (17, 5),
        (20, 6),
        (25, 8),
        (30, 10),
        (50, 18),
        (100, 40),
    ];
    for n in 0..6 {
        assert_eq!(rank(n), None, "{n}");
    }
    for (n, k) in expected {
        assert_eq!(rank(n).map(|(k, _)| k), Some(k), "{n}");
    }
    assert_eq!(rank(6), Some((1, 968_750)));
    assert_eq!(rank(9), Some((2, 960_937)));
    assert_eq!(rank(20), Some((6, 958_610)));
    // By the normal distribution (1000 − 1.96·√1000)/2 = 469.
    let (k, ppm) = rank(1000).expect("many");
    assert!((468..=470).contains(&k) && ppm >= CONFIDENCE_PPM, "{k} {ppm}");
}

#[test]
fn six_pairs_span_from_the_smallest_to_the_largest_ratio() {
    let pairs = [(104, 100), (105, 100), (103, 100), (108, 100), (101, 100), (106, 100)];
    let paired = Paired::new(&pairs);
    assert_eq!(paired.median_ppm, 1_045_000);
    let interval = Interval { low_ppm: 1_010_000, high_ppm: 1_080_000, confidence_ppm: 968_750 };
    assert_eq!(paired.interval, Some(interval));
    assert_eq!(paired.difference(), Difference::More);
    let turned = Paired::new(&pairs.map(|(value, base)| (base, value)));
    assert_eq!(turned.difference(), Difference::Less);
    let mut mixed = pairs;
    mixed[0] = (99, 100);
    assert_eq!(Paired::new(&mixed).difference(), Difference::None);
}

#[test]
fn few_pairs_say_nothing_unless_all_are_equal() {
    let few = Paired::new(&[(2, 1); 5]);
    assert_eq!((few.interval, few.difference()), (None, Difference::Unknown));
    assert_eq!(Paired::new(&[(7, 7)]).difference(), Difference::None);
    assert_eq!(Paired::new(&[]).difference(), Difference::Unknown);
}

/// Of skewed ratios with a known median, at least 95 of 100 intervals hold it, for small and larger
/// n.
#[test]
fn intervals_cover_the_median_as_often_as_they_say() {
    let mut rng = Rng::new(0x5eed);
    for n in [6usize, 9, 12, 20, 41] {
        let (_, stated) = rank(n).expect("enough");
        let tries = 20_000u64;
        let mut held = 0;
        for _ in 0..tries {
            let mut draw = || {
                // Below 1 in half of the cases, by little; above it in the other, by a lot.
                let x = rng.below(1_000_000);
                let value =
                    if x < 500_000 { 900_000 + x / 5 } else { 1_000_000 + (x - 500_000) * 9 };
                (value, 1_000_000)
            };
            let pairs: Vec<(u64, u64)> = (0..n).map(|_| draw()).collect();
            let interval = Paired::new(&pairs).interval.expect("an interval");
            held += u64::from(interval.low_ppm <= 1_000_000 && 1_000_000 <= interval.high_ppm);
        }
        let covered = held * 1_000_000 / tries;
        // Five standard deviations of the estimate.
        assert!(covered.abs_diff(stated) < 8_000, "seed 0x5eed, n {n}: {covered} of {stated}");
    }
}

/// Merging the files of two runs is the same as one histogram over both, as far as files go.
#[test]
fn merged_latencies_are_those_of_one_histogram() {
    let mut rng = Rng::new(7);
    let (mut all, mut merged) = (Histogram::new(), Merged::default());
    for run in 0..3u64 {
        let mut one = Histogram::new();
        for _ in 0..10_000 {
            let value = 1_000 + rng.below(1 << (14 + run));
            one.record(value);
            all.record(value);
        }
        merged.add(one.count(), &Latency::of(&one));
    }
    merged.add(0, &Latency::default());
    assert_eq!(merged.count(), all.count());
    assert_eq!((merged.min(), merged.max()), (all.min(), all.max()));
    for part in [1, 10, 500, 900, 990, 999, 1000] {
        // A bucket at the edge of a run stands for that run's smallest or largest value.
        let (ours, one) = (merged.per_mille(part), all.per_mille(part));
        assert!(ours.abs_diff(one) * 100 <= one * 6, "{part}: {ours} {one}");
    }
    assert!(merged.mean().abs_diff(all.mean()) <= 1, "{} {}", merged.mean(), all.mean());
    assert!(merged.stdev().abs_diff(all.stdev()) <= 2, "{} {}", merged.stdev(), all.stdev());
    assert_eq!(Merged::default().per_mille(990), 0);
}

#[test]
fn small_deviations_around_a_large_mean_are_not_made_of_rounding() {
    let mut merged = Merged::default();
    // The mean of all lies half a nanosecond above a whole one.
    for mean_ns in [200_000_000, 200_000_001] {
        merged.add(10, &Latency { mean_ns, stdev_ns: 559, ..Latency::default() });
    }
    assert_eq!(merged.stdev(), 559);
    merged.add(20, &Latency { mean_ns: 200_010_000, stdev_ns: 0, ..Latency::default() });
    // Two groups, each 5000 away from the middle, and a deviation in one of them.
    assert!((5000..5030).contains(&merged.stdev()), "{}", merged.stdev());
}
