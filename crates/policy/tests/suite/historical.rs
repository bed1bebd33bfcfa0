//! `historical-service-time`: what is learned, and what is chosen.

use crate::support::{Path, Random, load, paths};
use anabranch_policy::{
    AnaRank, BaseWeight, Charge, Choice, HistoricalParameters, Inputs, OpClass, Parameters, Policy,
    Reason, Sampled, Selector, finish, inputs, sample, start,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn hst() -> Parameters {
    Parameters::of(Policy::HistoricalServiceTime)
}

fn begin_at(path: &Path, now_ns: u64) -> Charge {
    start(&hst(), path.load(), OpClass::Read, 4096, now_ns)
}

/// Ends a command well.
fn end_at(parameters: &Parameters, path: &Path, charge: Charge, now_ns: u64) {
    finish(charge, path.load());
    assert_eq!(sample(parameters, charge, path.load(), 2, now_ns), Sampled::Taken);
}

fn choose(selector: &mut Selector, parameters: &Parameters, table: &[Path], now_ns: u64) -> Choice {
    selector.select(parameters, table, OpClass::Read, 4096, now_ns).expect("a path")
}

fn seen(path: &Path, now_ns: u64) -> Inputs {
    use anabranch_policy::AsCandidate;
    inputs(&hst(), path.candidate(), OpClass::Read, 4096, now_ns)
}

fn history_ns(path: &Path) -> u64 {
    seen(path, 0).latency_ns.expect("is known under this policy")
}

/// Gives a path this history (in whole ns) and leaves it fresh for so long.
fn teach(path: &Path, history_ns: u64, now_ns: u64) {
    let at_once = Parameters {
        historical: HistoricalParameters {
            base_weight: BaseWeight::new(0).unwrap(),
            ..HistoricalParameters::default()
        },
        ..hst()
    };
    end_at(&at_once, path, begin_at(path, now_ns - history_ns), now_ns);
}

#[test]
fn a_path_starts_with_one_nanosecond_and_follows_its_samples() {
    let path = &paths("o")[0];
    assert_eq!(history_ns(path), 1);
    // 5 % of 100 µs at 10 bits: (1024 * 972 + 102_400_000 * 52 + 512) / 1024 = 5_200_972.
    end_at(&hst(), path, begin_at(path, 0), 100 * US);
    assert_eq!(history_ns(path), 5_200_972 >> 10);
    // The fraction counts: (5_200_972 * 972 + 102_400_000 * 52 + 512) / 1024 = 10_136_860.
    end_at(&hst(), path, begin_at(path, 100 * US), 200 * US);
    assert_eq!(history_ns(path), 10_136_860 >> 10);
    for i in 2..400 {
        end_at(&hst(), path, begin_at(path, i * 100 * US), (i + 1) * 100 * US);
    }
    // Rounding to the nearest stops within 512/52 units, a hundredth of a nanosecond.
    assert_eq!(history_ns(path), 100 * US - 1);
}

#[test]
fn the_history_is_rounded_to_the_nearest() {
    let path = &paths("o")[0];
    let mut at_ns = 0;
    for _ in 0..8 {
        end_at(&hst(), path, begin_at(path, at_ns), at_ns + 45);
        at_ns += 45;
    }
    // 16386/1024; rounded down each time it would be 16381/1024.
    assert_eq!(history_ns(path), 16);
}

#[test]
fn commands_at_the_same_time_count_one_after_the_other() {
    let at_once = Parameters {
        historical: HistoricalParameters {
            base_weight: BaseWeight::new(0).unwrap(),
            ..HistoricalParameters::default()
        },
        ..hst()
    };
    let path = &paths("o")[0];
    let charges = [begin_at(path, 0), begin_at(path, 0), begin_at(path, 150 * US)];
    end_at(&at_once, path, charges[0], 100 * US);
    assert_eq!(history_ns(path), 100 * US);
    // Started at 0, but the path was busy with the other one up to 100 µs.
    end_at(&at_once, path, charges[1], 120 * US);
    assert_eq!(history_ns(path), 20 * US);
    // Started after the last finish.
    end_at(&at_once, path, charges[2], 190 * US);
    assert_eq!(history_ns(path), 40 * US);
    // Another worker's clock was read earlier: no time has passed, and none is taken back.
    end_at(&at_once, path, begin_at(path, 180 * US), 185 * US);
    assert_eq!(history_ns(path), 0);
    end_at(&at_once, path, begin_at(path, 180 * US), 200 * US);
    assert_eq!(history_ns(path), 10 * US);
}

#[test]
fn the_weight_of_the_history_is_a_power_that_falls_with_the_service_time() {
    let mut random = Random::seeded();
    for base in [0, 1, 511, 512, 900, 972, 1000, 1023] {
        let parameters = Parameters {
            historical: HistoricalParameters {
                base_weight: BaseWeight::new(base).unwrap(),
                ..HistoricalParameters::default()
            },
            ..hst()
        };
        for bucket in 0..70_u64 {
            let service_ns = (bucket << 24) + random.below(1 << 24) as u64;
            let path = &paths("o")[0];
            let before_ns = 40_000 * MS;
            teach(path, before_ns, before_ns);
            end_at(&parameters, path, begin_at(path, before_ns), before_ns + service_ns);
            // The exact weight, in real numbers.
            let weight =
                if bucket < 63 { (f64::from(base) / 1024.0).powi(bucket as i32 + 1) } else { 0.0 };
            let exact = before_ns as f64 * weight + service_ns as f64 * (1.0 - weight);
            // Squared up to six times, each time rounded by half a unit: the error of a square is
            // twice that of its root.
            let error = before_ns as f64 * 8.0 / 1024.0;
            let history = history_ns(path) as f64;
            assert!((history - exact).abs() <= error, "{base} {bucket}: {history} for {exact}");
            if bucket >= 63 {
                assert_eq!(history_ns(path), service_ns, "the history is replaced");
            }
        }
    }
}

#[test]
fn the_longest_service_times_do_not_overflow() {
    for end_ns in [1 << 43, 1 << 60, u64::MAX] {
        let path = &paths("oo")[0];
        end_at(&hst(), path, begin_at(path, 0), end_ns);
        end_at(&hst(), path, begin_at(path, end_ns), end_ns);
        assert!(history_ns(path) <= 1 << 43);
        load(path, 2000);
        let two = paths("oo");
        teach(&two[0], 1 << 43, 1 << 43);
        load(&two[0], 5);
        teach(&two[1], 1 << 42, 1 << 43);
        load(&two[1], 5);
        assert_eq!(choose(&mut Selector::new(), &hst(), &two, 1 << 43).index, 1);
    }
}

#[test]
fn the_path_with_the_least_expected_time_is_chosen() {
    let table = paths("oo");
    teach(&table[0], 100 * US, MS);
    teach(&table[1], 300 * US, MS);
    let mut selector = Selector::new();
    let mut counts = [0; 2];
    for _ in 0..40 {
        let choice = choose(&mut selector, &hst(), &table, MS);
        let _: Charge = begin_at(&table[choice.index], MS);
        counts[choice.index] += 1;
    }
    // (1 + n0) * 100 is about (1 + n1) * 300.
    assert_eq!(counts, [30, 10]);
}

#[test]
fn equal_paths_take_turns() {
    for parameters in [hst(), Parameters::exact(Policy::HistoricalServiceTime)] {
        let table = paths("ooo");
        let mut selector = Selector::new();
        let chosen: Vec<usize> =
            (0..6).map(|_| choose(&mut selector, &parameters, &table, 0).index).collect();
        assert_eq!(chosen, [0, 1, 2, 0, 1, 2]);
    }
}

#[test]
fn a_deep_path_is_compared_in_whole_nanoseconds() {
    let table = paths("oo");
    teach(&table[0], 100, 1000);
    teach(&table[1], 50, 1000);
    load(&table[0], 400);
    load(&table[1], 1600);
    let depth = |path: &Path| u64::from(path.shared.nr_active());
    let expected = (1 + depth(&table[0])) * 100 < (1 + depth(&table[1])) * 50;
    assert!(expected && depth(&table[1]) >= 1024);
    assert_eq!(choose(&mut Selector::new(), &hst(), &table, 1000).index, 0);
    // 1 ns and 1.9 ns, 1500 and 1400 commands: the fraction counts for nothing.
    let table = paths("oo");
    teach(&table[0], 1, 1000);
    let mut parameters = hst();
    parameters.historical.base_weight = BaseWeight::new(563).unwrap();
    end_at(&parameters, &table[1], begin_at(&table[1], 997), 1000);
    for (path, commands) in table.iter().zip([1500, 1400]) {
        for _ in 0..commands {
            let _: Charge = begin_at(path, 1000);
        }
    }
    assert_eq!(choose(&mut Selector::new(), &hst(), &table, 1000).index, 1);
}

#[test]
fn d3_a_path_that_stalled_gets_one_probe_after_its_stale_time() {
    let table = paths("oo");
    let mut selector = Selector::new();
    // Both are used once, so that both know that there are two paths.
    for now_ns in 1..3 {
        choose(&mut selector, &hst(), &table, now_ns);
    }
    // The first stalled for two seconds, the second answers in 100 µs.
    let stalled_until = 2_000 * MS;
    teach(&table[1], 100 * US, stalled_until);
    teach(&table[0], 2_000 * MS, stalled_until);
    let stale_after = stalled_until + 2 * 2_000 * MS;
    let mut now_ns = stalled_until;
    let mut probes = Vec::new();
    while now_ns < stale_after + 1_000 * MS {
        // Two at a time: the good path is never idle.
        let held = begin_at(&table[1], now_ns);
        let choice = choose(&mut selector, &hst(), &table, now_ns);
        let charge = begin_at(&table[choice.index], now_ns);
        if choice.index == 0 {
            probes.push((now_ns, choice.reason, charge));
        } else {
            assert_eq!(choice.reason, Reason::LeastHistoricalTime);
            end_at(&hst(), &table[1], charge, now_ns + 100 * US);
        }
        now_ns += 100 * US;
        finish(held, table[1].load());
    }
    // One, and no other as long as it is not answered.
    let [(at, reason, probe)] = probes[..] else { panic!("{} probes", probes.len()) };
    assert!(at > stale_after && at <= stale_after + 100 * US, "{at}");
    assert_eq!(reason, Reason::Stale);
    assert_eq!(seen(&table[0], at).stale_ns, Some(at - stale_after));
    // It is answered at once: some more probes and the path is as good as the other.
    end_at(&hst(), &table[0], probe, at + 100 * US);
    assert_eq!(seen(&table[0], at + 100 * US).stale_ns, Some(0));
}

#[test]
fn a_stale_path_that_is_loaded_gets_no_more_than_its_share() {
    let table = paths("oo");
    let mut selector = Selector::new();
    teach(&table[0], 10 * US, MS);
    teach(&table[1], 1_000 * US, 2 * MS);
    // The first is a hundred times faster, but was not heard of for long; each has one command.
    let now_ns = 2 * MS;
    for path in &table {
        let _: Charge = begin_at(path, now_ns);
    }
    let mut counts = [1; 2];
    for _ in 0..20 {
        let choice = choose(&mut selector, &hst(), &table, now_ns);
        let _: Charge = begin_at(&table[choice.index], now_ns);
        counts[choice.index] += 1;
        assert!(counts[0] <= counts[1] + 1);
        assert_eq!(choice.reason, Reason::FewestCommands);
    }
    assert_eq!(counts, [11, 11]);
}

#[test]
fn of_two_idle_paths_the_one_that_is_stale_first_is_chosen() {
    let table = paths("oo");
    teach(&table[0], 10 * US, 2 * MS);
    teach(&table[1], 500 * US, MS);
    let choice = choose(&mut Selector::new(), &hst(), &table, 2 * MS);
    assert_eq!(choice, Choice { index: 1, reason: Reason::Stale });
}

#[test]
fn d4_paths_within_the_threshold_are_told_apart_by_their_commands_alone() {
    let threshold = |threshold_multiplier| Parameters {
        historical: HistoricalParameters { threshold_multiplier, ..Default::default() },
        ..hst()
    };
    let table = paths("oo");
    teach(&table[0], 100 * US, MS);
    teach(&table[1], 250 * US, MS);
    for (path, commands) in [(&table[0], 2), (&table[1], 1)] {
        for _ in 0..commands {
            let _: Charge = begin_at(path, MS);
        }
    }
    // 3 * 100 < 2 * 250, but 1 < 2.
    for (multiplier, index, reason) in [
        (0, 0, Reason::LeastHistoricalTime),
        (1, 0, Reason::LeastHistoricalTime),
        (2, 0, Reason::LeastHistoricalTime),
        (3, 1, Reason::FewestCommands),
        (u32::MAX, 1, Reason::FewestCommands),
    ] {
        let choice = choose(&mut Selector::new(), &threshold(multiplier), &table, MS);
        assert_eq!(choice, Choice { index, reason }, "{multiplier}");
    }
}

#[test]
fn classes_come_first_and_only_usable_paths_of_the_class_count() {
    let mut table = paths("no-o");
    let mut selector = Selector::new();
    teach(&table[1], 900 * US, MS);
    load(&table[1], 50);
    load(&table[3], 50);
    let choice = choose(&mut selector, &hst(), &table, MS);
    assert_ne!(table[choice.index].rank, AnaRank::NonOptimized);
    // Two optimized paths are usable: twice the history after the finish.
    let path = &table[choice.index];
    teach(path, 100 * US, 2 * MS);
    assert_eq!(seen(path, 2 * MS + 200 * US).stale_ns, Some(0));
    assert_eq!(seen(path, 2 * MS + 200 * US + 1).stale_ns, Some(1));
    table[1].usable = false;
    table[3].usable = false;
    let choice = choose(&mut selector, &hst(), &table, 3 * MS);
    assert_eq!(choice, Choice { index: 0, reason: Reason::NoOptimized });
}

/// What decided among paths that are only compared since they come first says nothing.
#[test]
fn the_reason_is_one_of_the_class_that_is_chosen_from() {
    let table = paths("nno");
    for (path, at) in table.iter().zip([1, 2, 3]) {
        teach(path, 100 * US, at * MS);
    }
    load(&table[2], 3);
    let choice = choose(&mut Selector::new(), &hst(), &table, 9 * MS);
    assert_eq!(choice, Choice { index: 2, reason: Reason::LeastHistoricalTime });
}

#[test]
fn a_reset_forgets_the_history() {
    let path = &paths("o")[0];
    teach(path, 100 * US, MS);
    anabranch_policy::reset_statistics(path.load());
    assert_eq!((history_ns(path), seen(path, 7).stale_ns), (1, None));
    // A failover is none, in either mode.
    teach(path, 100 * US, MS);
    for parameters in [hst(), Parameters::exact(Policy::HistoricalServiceTime)] {
        anabranch_policy::failed_over(&parameters, path.load());
        assert_eq!(history_ns(path), 100 * US);
    }
}

#[test]
fn base_weights_as_text() {
    for (text, weight) in [("0", 0), ("1023\n", 1023), ("0x3ff", 1023), ("972", 972)] {
        assert_eq!(text.parse(), BaseWeight::new(weight), "{text:?}");
    }
    for text in ["", "1024", "-1", "5 ", "65536", "4294967296", "1\n\n"] {
        let error = text.parse::<BaseWeight>().unwrap_err();
        assert_eq!(error.to_string(), "no base weight: use 0 (no history) to 1023");
    }
    assert!(BaseWeight::new(1024).is_err());
    assert_eq!(BaseWeight::default().to_string(), "972");
}

#[test]
fn a_history_is_fresh_for_as_long_as_each_usable_path_of_its_class_takes() {
    const SERVICE_NS: u64 = 1_000;
    let mut parameters = hst();
    parameters.historical.base_weight = BaseWeight::new(0).unwrap();
    for (letters, of_class) in [("oo", 2), ("oon", 2), ("o-o", 2), ("on", 1), ("nn", 2), ("-n", 1)]
    {
        let table = paths(letters);
        let path = &table[choose(&mut Selector::new(), &parameters, &table, 0).index];
        end_at(&parameters, path, begin_at(path, 5_000), 5_000 + SERVICE_NS);
        let stale_at_ns = 5_000 + SERVICE_NS + of_class * SERVICE_NS;
        assert_eq!(seen(path, stale_at_ns).stale_ns, Some(0), "{letters}");
        assert_eq!(seen(path, stale_at_ns + 7).stale_ns, Some(7), "{letters}");
    }
}
