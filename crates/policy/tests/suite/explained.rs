//! What explain shows: the reason of a choice, what was compared, the size class.

use crate::support::{Path, parameters, paths};
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Inputs, OpClass, Parameters, Policy, Reason, Scope, Selector,
    SizeClass, finish, finish_time_report, inputs, rejoined, sample, start,
};
use std::collections::HashSet;

const NOTHING: Inputs = Inputs {
    usable: true,
    rank: AnaRank::Optimized,
    commands: None,
    bytes: None,
    weight: None,
    credit: None,
    latency_ns: None,
    stale_ns: None,
    finish_ns: None,
    rate_kib_per_s: None,
    distance: None,
    affinity: None,
};

fn seen(parameters: &Parameters, path: &Path) -> Inputs {
    inputs(parameters, path.candidate(), OpClass::Read, 4096, 1_000)
}

#[test]
fn inputs_are_what_the_policy_compares_and_nothing_else() {
    for exact in [false, true] {
        let mut path = Path::new(true, AnaRank::Optimized);
        path.distance = 21;
        path.affinity = Affinity::Node;
        path.controller.set_relative_throughput(7);
        for (policy, commands) in
            [(Policy::QueueDepth, 1), (Policy::ServiceTime, 2), (Policy::QueueLength, 3)]
        {
            for _ in 0..commands {
                let parameters = parameters(policy, exact);
                let _: anabranch_policy::Charge =
                    start(&parameters, path.load(), OpClass::Read, 1000, 0);
            }
        }
        for (policy, expected) in [
            (Policy::Numa, Inputs { distance: Some(21), ..NOTHING }),
            (Policy::RoundRobin, NOTHING),
            (Policy::QueueDepth, Inputs { commands: Some(1), ..NOTHING }),
            (
                Policy::ServiceTime,
                Inputs {
                    // The command's own 4 KiB count by default.
                    bytes: Some(if exact { 2000 } else { 6096 }),
                    weight: Some(7),
                    ..NOTHING
                },
            ),
            (
                Policy::Latency,
                Inputs { weight: Some(0), credit: Some(0), latency_ns: Some(0), ..NOTHING },
            ),
            (Policy::QueueLength, Inputs { commands: Some(3), ..NOTHING }),
            (
                Policy::HistoricalServiceTime,
                Inputs { commands: Some(3), latency_ns: Some(1), ..NOTHING },
            ),
            (Policy::IoAffinity, Inputs { affinity: Some(Affinity::Node), ..NOTHING }),
            (
                Policy::FinishTime,
                Inputs {
                    bytes: Some(0),
                    finish_ns: Some(0),
                    latency_ns: Some(0),
                    rate_kib_per_s: Some(0),
                    ..NOTHING
                },
            ),
        ] {
            assert_eq!(seen(&parameters(policy, exact), &path), expected, "{policy}");
        }
    }
}

#[test]
fn inputs_of_queue_depth_follow_its_scope() {
    let mut path = Path::new(false, AnaRank::NonOptimized);
    path.queue = 1;
    for (commands, scope) in (1..).zip(Scope::ALL) {
        for _ in 0..commands {
            let parameters = Parameters { scope, ..Parameters::of(Policy::QueueDepth) };
            let _: anabranch_policy::Charge = start(&parameters, path.load(), OpClass::Read, 0, 0);
        }
    }
    // The sum and the queue pair share their counters; the first worker's queue has none.
    for (scope, commands) in Scope::ALL.into_iter().zip([1, 2, 8, 4, 8]) {
        let parameters = Parameters { scope, ..Parameters::of(Policy::QueueDepth) };
        let expected = Inputs {
            usable: false,
            rank: AnaRank::NonOptimized,
            commands: Some(commands),
            ..NOTHING
        };
        assert_eq!(seen(&parameters, &path), expected, "{scope}");
    }
}

#[test]
fn each_policy_says_why() {
    for exact in [false, true] {
        for (policy, first, second) in [
            (Policy::Numa, Reason::Nearest, Reason::Remembered),
            (Policy::RoundRobin, Reason::Turn, Reason::Turn),
            (Policy::QueueDepth, Reason::FewestCommands, Reason::FewestCommands),
            (Policy::ServiceTime, Reason::LeastServiceTime, Reason::LeastServiceTime),
            (Policy::Latency, Reason::Unmeasured, Reason::Unmeasured),
            (Policy::QueueLength, Reason::FewestCommands, Reason::FewestCommands),
            (Policy::HistoricalServiceTime, Reason::Stale, Reason::Stale),
            (Policy::IoAffinity, Reason::OwnWorker, Reason::OwnWorker),
            (Policy::FinishTime, Reason::Unmeasured, Reason::Unmeasured),
        ] {
            let parameters = parameters(policy, exact);
            let reason = |selector: &mut Selector, table: &[Path]| {
                let choice = selector.select(&parameters, table, OpClass::Read, 4096, 1);
                choice.expect("a path").reason
            };
            let mut selector = Selector::new();
            let table = paths("noo");
            assert_eq!(reason(&mut selector, &table), first, "{policy}");
            assert_eq!(reason(&mut selector, &table), second, "{policy}");
            // Kernel-exact, latency knows no classes.
            let expected = match policy {
                Policy::Latency if exact => Reason::Unmeasured,
                _ => Reason::NoOptimized,
            };
            let mut selector = Selector::new();
            let table = paths("n-n");
            for _ in 0..3 {
                assert_eq!(reason(&mut selector, &table), expected, "{policy}");
            }
        }
    }
}

#[test]
fn reasons_are_numbered_in_order_and_have_names_of_their_own() {
    let names: HashSet<&str> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for (index, reason) in Reason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
        assert_eq!(format!("[{reason:>22}]"), format!("[{:>22}]", reason.name()));
    }
}

#[test]
fn size_classes_are_powers_of_two_from_4_to_256_kib() {
    let bounds = [4, 8, 16, 32, 64, 128, 256_u32];
    for (class, kib) in bounds.into_iter().enumerate() {
        let most = kib << 10;
        assert_eq!(SizeClass::of(most).index(), class);
        assert_eq!(SizeClass::of(most - 1).index(), class);
        assert_eq!(SizeClass::of(most + 1).index(), class + 1);
    }
    assert_eq!(SizeClass::of(0).index(), 0);
    assert_eq!(SizeClass::of(1).index(), 0);
    assert_eq!(SizeClass::of(u32::MAX).index(), SizeClass::COUNT - 1);
    let names: Vec<&str> = SizeClass::all().map(SizeClass::name).collect();
    assert_eq!(names, ["<=4k", "8k", "16k", "32k", "64k", "128k", "256k", ">256k"]);
    assert!(SizeClass::all().map(SizeClass::index).eq(0..SizeClass::COUNT));
}

/// One command there, which takes so long.
fn done(parameters: &Parameters, path: &Path, op: OpClass, now_ns: u64, took_ns: u64) {
    let charge = start(parameters, path.load(), op, 4096, now_ns);
    finish(charge, path.load());
    let _: anabranch_policy::Sampled = sample(parameters, charge, path.load(), 1, now_ns + took_ns);
}

#[test]
fn what_keeps_a_write_from_a_nearer_path_under_finish_time_is_shown() {
    const SECOND: u64 = 1_000_000_000;
    let mut parameters = Parameters::of(Policy::FinishTime);
    let table = paths("oo");
    for op in [OpClass::Read, OpClass::Write] {
        done(&parameters, &table[0], op, SECOND, 1_000_000);
        done(&parameters, &table[1], op, SECOND, 500_000);
    }
    // Only the far one was heard of since.
    done(&parameters, &table[0], OpClass::Write, 4 * SECOND, 1_000_000);
    let now_ns = 4 * SECOND + 2_000_000;
    let seen = |parameters: &Parameters, op| {
        [0, 1].map(|at: usize| inputs(parameters, table[at].candidate(), op, 4096, now_ns))
    };
    let chosen = |parameters: &Parameters, op| {
        let choice = Selector::new().select(parameters, &table, op, 4096, now_ns);
        choice.expect("a path").index
    };
    let writes = seen(&parameters, OpClass::Write);
    assert!(writes[1].finish_ns < writes[0].finish_ns, "{writes:?}");
    assert_eq!(chosen(&parameters, OpClass::Write), 0);
    assert_eq!(writes[0].stale_ns, None);
    assert_eq!(writes[1].stale_ns.map(|ns| ns / 10_000_000), Some(300), "{writes:?}");
    // What does not keep anything away is not shown.
    assert_eq!(chosen(&parameters, OpClass::Read), 1);
    assert_eq!(seen(&parameters, OpClass::Read).map(|inputs| inputs.stale_ns), [None; 2]);
    parameters.finish_time.probes = false;
    assert_eq!(chosen(&parameters, OpClass::Write), 1);
    assert_eq!(seen(&parameters, OpClass::Write).map(|inputs| inputs.stale_ns), [None; 2]);
}

#[test]
fn a_rate_is_the_least_until_there_was_a_queue() {
    let parameters = Parameters::of(Policy::FinishTime);
    let path = Path::new(true, AnaRank::Optimized);
    let report = |now_ns| finish_time_report(path.load(), now_ns);
    assert!(!report(0).rate_is_least, "nothing is known");
    for round in 1..10 {
        done(&parameters, &path, OpClass::Read, round * 1_000_000, 100_000);
    }
    assert!(report(10_000_000).rate_is_least);
    // Many at once, one after the other.
    let charges =
        [(); 16].map(|()| start(&parameters, path.load(), OpClass::Read, 4096, 10_000_000));
    for (charge, ended) in charges.into_iter().zip(1..) {
        finish(charge, path.load());
        let now_ns = 10_000_000 + 100_000 * ended;
        let _: anabranch_policy::Sampled = sample(&parameters, charge, path.load(), 1, now_ns);
    }
    assert!(!report(12_000_000).rate_is_least);
}

#[test]
fn a_path_is_shown_as_silent_only_when_all_that_it_has_should_have_been_done() {
    const MS: u64 = 1_000_000;
    let parameters = Parameters::of(Policy::FinishTime);
    let path = Path::new(true, AnaRank::Optimized);
    let begin = |now_ns| start(&parameters, path.load(), OpClass::Read, 4096, now_ns);
    for round in 1..10 {
        done(&parameters, &path, OpClass::Read, round * 10 * MS, MS);
    }
    // Eight are always in flight, and one ends every 10 ms.
    let mut now_ns = 100 * MS;
    let mut flying: std::collections::VecDeque<_> = (0..8).map(|_| begin(now_ns)).collect();
    for _ in 0..100 {
        now_ns += 10 * MS;
        let charge = flying.pop_front().expect("eight are in flight");
        finish(charge, path.load());
        let _: anabranch_policy::Sampled = sample(&parameters, charge, path.load(), 1, now_ns);
        flying.push_back(begin(now_ns));
    }
    let seen = finish_time_report(path.load(), now_ns + 30 * MS);
    assert!(seen.finish_ns > 50 * MS, "a queue: {seen:?}");
    assert_eq!(seen.silent_ns, 0, "it is the queue that takes so long");
    let seen = finish_time_report(path.load(), now_ns + 400 * MS);
    assert_eq!((seen.silent_ns, seen.finish_ns), (400 * MS, 400 * MS));
    flying.into_iter().for_each(|charge| finish(charge, path.load()));
    assert_eq!(finish_time_report(path.load(), now_ns + 400 * MS).silent_ns, 0, "it owes nothing");
}

#[test]
fn what_is_too_much_for_the_near_path_is_an_overflow_and_its_toll_is_shown() {
    const FAR_NS: u64 = 1_000_000;
    let parameters = Parameters::of(Policy::FinishTime);
    let table = paths("oo");
    let begin = |now_ns| start(&parameters, table[0].load(), OpClass::Read, 4096, now_ns);
    let end = |charge, now_ns| {
        finish(charge, table[0].load());
        let _: anabranch_policy::Sampled = sample(&parameters, charge, table[0].load(), 1, now_ns);
    };
    for round in 1..10 {
        done(&parameters, &table[0], OpClass::Read, round * 2_000_000, 100_000);
        done(&parameters, &table[1], OpClass::Read, round * 2_000_000, FAR_NS);
    }
    let near = |now_ns| finish_time_report(table[0].load(), now_ns);
    // Always 50 in flight on the near path, which ends one in 10 µs. One that looks anew each time
    // has seen no closed load.
    let began_ns = 20_000_000;
    let mut flying: std::collections::VecDeque<_> = (0..50).map(|_| begin(began_ns)).collect();
    let mut turns = (1..10_000).map(|step| {
        let now_ns = began_ns + step * 10_000;
        end(flying.pop_front().expect("50 in flight"), now_ns);
        flying.push_back(begin(now_ns));
        now_ns
    });
    // Its rate becomes known before anything is chosen.
    let now_ns = turns.by_ref().nth(500).expect("more turns");
    assert_eq!(near(now_ns).toll_ns, 0);
    let mut choices = turns.map(|now_ns| {
        let choice = Selector::new().select(&parameters, &table, OpClass::Read, 4096, now_ns);
        (now_ns, choice.expect("a path"))
    });
    let (now_ns, choice) =
        choices.find(|(_, choice)| choice.index == 1).expect("at last one goes farther");
    assert_eq!(choice.reason, Reason::Overflow);
    let seen = near(now_ns);
    assert!(seen.finish_ns < FAR_NS, "it would have been done first there: {seen:?}");
    assert!(seen.finish_ns + seen.toll_ns > FAR_NS, "and made others wait: {seen:?}");
    drop(choices);
    flying.into_iter().for_each(|charge| end(charge, now_ns + 500_000));
    assert!(near(now_ns + 500_000).toll_ns < seen.toll_ns, "it falls when no queue stands");
    assert_eq!(near(now_ns + 500_000 + FAR_NS).toll_ns, 0);
}

#[test]
fn how_latencies_hang_together_with_what_is_in_flight_is_shown_in_per_cent() {
    let parameters = Parameters::of(Policy::FinishTime);
    // Rounds of some reads at once: each takes `delay_ns`, and `each_ns` for all before it.
    let elasticity = |delay_ns: u64, each_ns: u64, at_once: fn(u64) -> usize| {
        let path = Path::new(true, AnaRank::Optimized);
        let shown = |now_ns| finish_time_report(path.load(), now_ns).elasticity_percent;
        let mut now_ns = 1_000_000_000;
        for round in 0..400 {
            let count = at_once(round);
            let begin = |_| start(&parameters, path.load(), OpClass::Read, 4096, now_ns);
            let charges: Vec<_> = (0..count).map(begin).collect();
            for (charge, place) in charges.into_iter().zip(1..) {
                finish(charge, path.load());
                let end_ns = now_ns + delay_ns + place * each_ns;
                let _: anabranch_policy::Sampled =
                    sample(&parameters, charge, path.load(), 1, end_ns);
            }
            now_ns += delay_ns + count as u64 * each_ns;
        }
        let known = shown(now_ns);
        rejoined(&parameters, path.load());
        assert_eq!(shown(now_ns), None, "it is forgotten with all else");
        known
    };
    let some = |round: u64| 1 + (round * 7 % 32) as usize;
    assert_eq!(elasticity(1_000_000, 0, some), Some(0), "a cable");
    let queue = elasticity(0, 10_000, some).expect("what is in flight varies");
    assert!((90..=100).contains(&queue), "{queue} %");
    let both = elasticity(160_000, 10_000, some).expect("what is in flight varies");
    assert!((30..=70).contains(&both), "{both} %: as long a way as the queue");
    assert_eq!(elasticity(0, 10_000, |_| 1), None, "always the same");
}

#[test]
fn what_stands_is_the_least_that_commands_of_late_have_waited() {
    const US: u64 = 1_000;
    const SECOND: u64 = 1_000_000 * US;
    let parameters = Parameters::of(Policy::FinishTime);
    let path = Path::new(true, AnaRank::Optimized);
    let standing_ns = |now_ns| finish_time_report(path.load(), now_ns).standing_ns;
    let begin = |now_ns| start(&parameters, path.load(), OpClass::Read, 4096, now_ns);
    let end = |charge, now_ns| {
        finish(charge, path.load());
        let _: anabranch_policy::Sampled = sample(&parameters, charge, path.load(), 1, now_ns);
    };
    let two = [begin(SECOND), begin(SECOND)];
    two.into_iter().zip(1..).for_each(|(charge, n)| end(charge, SECOND + n * 100 * US));
    assert_eq!(standing_ns(SECOND + 200 * US), 0, "the first has not waited");
    // From here on there is always one before it.
    let mut now_ns = SECOND + 200 * US;
    let mut first = begin(now_ns);
    for _ in 0..20 {
        let next = begin(now_ns);
        now_ns += 100 * US;
        end(first, now_ns);
        first = next;
        now_ns += 100 * US;
    }
    end(first, now_ns);
    let waited_ns = standing_ns(now_ns);
    assert!(waited_ns > 50 * US, "{waited_ns}");
    // A moment without anything to do changes nothing, two windows do.
    let next = begin(now_ns + 50 * US);
    assert!(standing_ns(now_ns + 50 * US) > 50 * US);
    finish(next, path.load());
    assert!(standing_ns(now_ns + 100 * US) > 50 * US);
    assert_eq!(standing_ns(now_ns + 5_000 * US), 0, "seen without any command");
    finish(begin(now_ns + 5_000 * US), path.load());
    assert_eq!(standing_ns(now_ns + 5_000 * US), 0);
}

#[test]
fn what_is_not_known_of_a_size_is_taken_from_the_nearest_and_then_from_the_other_direction() {
    let parameters = Parameters::of(Policy::FinishTime);
    let path = Path::new(true, AnaRank::Optimized);
    let (read, write) = (OpClass::Read, OpClass::Write);
    let known_us = |op, kib: u32| {
        let seen = inputs(&parameters, path.candidate(), op, kib << 10, 1_000_000);
        seen.latency_ns.expect("is shown") / 1_000
    };
    assert_eq!(known_us(read, 4), 0, "nothing is known");
    for (turn, (op, kib, took_us)) in
        [(write, 128, 900), (read, 8, 100), (read, 64, 300)].into_iter().enumerate()
    {
        let at_ns = 1_000_000_000 + 10_000_000 * turn as u64;
        let charge = start(&parameters, path.load(), op, kib << 10, at_ns);
        finish(charge, path.load());
        let _: anabranch_policy::Sampled =
            sample(&parameters, charge, path.load(), 1, at_ns + took_us * 1_000);
        if turn == 0 {
            assert_eq!([known_us(read, 4), known_us(write, 256)], [900; 2], "writes alone");
        }
    }
    // A smaller size comes before a larger one, however near that is.
    let reads = [4, 8, 16, 32, 64, 256].map(|kib| known_us(read, kib));
    assert_eq!(reads, [100, 100, 100, 100, 300, 300]);
    assert_eq!([4, 128, 256].map(|kib| known_us(write, kib)), [900; 3]);
}
