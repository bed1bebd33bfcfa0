//! Smoothed latencies and weights of `latency`, against exact fractions.

use crate::measured::{Head, MS, READ, SECOND, mode, prompt, scale};
use crate::support::Random;
use anabranch_policy::{BatchTimeout, EwmaShift, Sampled};

const ROUNDS: usize = if cfg!(miri) { 10 } else { 2000 };

/// A latency of 1 ns to 1 s, each magnitude as likely as the others.
fn latency(random: &mut Random) -> u64 {
    let bits = 1 + random.below(30) as u32;
    (random.next() % (1 << bits) + 1).min(SECOND)
}

/// `floor(numerator / denominator)`: what each stated rounding is.
fn floor(numerator: u128, denominator: u128) -> u128 {
    numerator / denominator
}

#[test]
fn a_batch_moves_the_smoothed_latency_by_its_exact_average_rounded_down_once() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut head = Head::new("oo", mode(random.below(2) == 0));
        let shift = random.below(9) as u8;
        head.parameters.latency.ewma_shift = EwmaShift::new(shift).unwrap();
        head.parameters.latency.batch_timeout = BatchTimeout::from_secs(1);
        head.parameters.latency.per_node = random.below(2) == 0;
        for batch in 0..4 {
            let old = u128::from(head.stat(0).smoothed_ns);
            let (mut sum, mut count) = (0, 0);
            let window = if batch == 0 { 0 } else { random.below(20) };
            for _ in 0..window {
                let latency_ns = latency(&mut random);
                assert_eq!(head.complete(0, READ, latency_ns), Sampled::Taken);
                sum += u128::from(latency_ns);
                count += 1;
            }
            head.now_ns += SECOND;
            let latency_ns = latency(&mut random);
            assert!(matches!(head.complete(0, READ, latency_ns), Sampled::BatchClosed(_)));
            sum += u128::from(latency_ns);
            count += 1;
            // (old * (2^s - 1) + sum / count) / 2^s, as one fraction.
            let weight = 1_u128 << shift;
            let expected = match old {
                0 => floor(sum, count),
                old => floor(old * (weight - 1) * count + sum, weight * count),
            };
            assert_eq!(u128::from(head.stat(0).smoothed_ns), expected);
        }
    }
}

#[test]
fn over_any_number_of_batches_rounding_takes_less_than_two_to_the_shift() {
    // The exact value lies in [low, low + error] * 2^-64: rounded down at every step, by less than
    // one each.
    let mut random = Random::seeded();
    for _ in 0..ROUNDS / 10 {
        let shift = random.below(9) as u8;
        let mut head = Head::new("oo", prompt(false));
        head.parameters.latency.ewma_shift = EwmaShift::new(shift).unwrap();
        let first = latency(&mut random);
        head.complete(0, READ, first);
        let (mut low, mut error) = (u128::from(first) << 64, 0_u128);
        for _ in 0..200 {
            let latency_ns = latency(&mut random);
            head.complete(0, READ, latency_ns);
            low = (low * ((1 << shift) - 1) + (u128::from(latency_ns) << 64)) >> shift;
            error += 1;
            let smoothed = u128::from(head.stat(0).smoothed_ns) << 64;
            assert!(smoothed <= low + error, "never above the exact value");
            assert!(smoothed + (1_u128 << (64 + shift)) > low, "less than 2^{shift} below it");
        }
    }
}

#[test]
fn the_smoothed_latency_follows_a_step_by_an_eighth_per_batch() {
    // 1 - (7/8)^8 = 65.6 % of a step after eight batches.
    let mut head = Head::measured("oo", prompt(true), &[MS, MS]);
    head.parameters.latency.ewma_shift = EwmaShift::default();
    (0..8).for_each(|_| assert_ne!(head.complete(0, READ, 2 * MS), Sampled::Nothing));
    let (seven, eight) = (7_u64.pow(8), 8_u64.pow(8));
    let exact = MS + MS * (eight - seven) / eight;
    let smoothed = u64::from(head.stat(0).smoothed_ns);
    assert!(smoothed <= exact && exact - smoothed < 8, "{smoothed} for {exact}");
}

#[test]
fn weights_are_the_exact_shares_of_the_scores_rounded_down_but_never_zero() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let exact = random.below(2) == 0;
        let count = 2 + random.below(7);
        let mut parameters = prompt(exact);
        parameters.latency.per_node = random.below(2) == 0;
        let mut head = Head::new(&"o".repeat(count), parameters);
        // Some paths are not measured, some not usable: neither changes the rule.
        let mut scores = vec![0_u128; count];
        for (path, score) in scores.iter_mut().enumerate() {
            head.paths[path].usable = random.below(4) > 0;
            if random.below(5) > 0 {
                let latency_ns = latency(&mut random);
                head.complete(path, READ, latency_ns);
                *score = floor(u128::from(SECOND), latency_ns.into());
            }
        }
        head.compute();
        let total: u128 = scores.iter().sum();
        for (path, &score) in scores.iter().enumerate() {
            let expected = match total {
                0 => 0,
                total => floor(score * u128::from(scale(exact)), total).max(1),
            };
            let stat = head.stat(path);
            assert_eq!(u128::from(stat.weight), expected);
            assert_eq!(u128::from(stat.score), score);
        }
    }
}

#[test]
fn weights_are_the_exact_shares_of_the_reciprocal_latencies_within_the_rounding_of_scores() {
    // Against 10^9 / latency as a fraction, x. Each score is in (x - 1, x], so before it is rounded
    // down itself a weight is between scale * (x - 1) / X and scale * x / (X - n), X the sum.
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let exact = random.below(2) == 0;
        let latencies = [(); 3].map(|()| latency(&mut random));
        let head = Head::measured("ooo", prompt(exact), &latencies);
        let [a, b, c] = latencies.map(u128::from);
        // All over the common denominator a * b * c.
        let unit = u128::from(SECOND);
        let x = [unit * b * c, unit * a * c, unit * a * b];
        let (one, sum) = (a * b * c, x.iter().sum::<u128>());
        let scale = u128::from(scale(exact));
        for (x, weight) in x.into_iter().zip(head.weights()) {
            let weight = u128::from(weight);
            let least = floor(scale * x.saturating_sub(one), sum).max(1);
            assert!(weight >= least, "{weight} < {least} for {latencies:?}");
            if sum > 3 * one {
                let most = floor(scale * x, sum - 3 * one).max(1);
                assert!(weight <= most, "{weight} > {most} for {latencies:?}");
            }
        }
    }
}

#[test]
fn where_the_resolution_of_scores_ends() {
    // Up to 10 ms one per cent shows; near a second nothing does.
    let score = |latency_ns| Head::measured("oo", prompt(false), &[latency_ns, MS]).stat(0).score;
    assert!((1..=10).all(|ms| score(ms * MS) > score(ms * MS * 102 / 100)));
    assert_eq!([score(SECOND / 2), score(SECOND / 2 + 1), score(SECOND)], [2, 1, 1]);
    assert_eq!(score(1), 1_000_000_000);
    // The extremes together.
    for exact in [false, true] {
        let head = Head::measured("oo", prompt(exact), &[1, SECOND]);
        assert_eq!(head.weights(), [scale(exact) - 1, 1]);
    }
}
