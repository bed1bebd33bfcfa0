//! What holds for `latency` whatever happened before: random interleavings of commands, completions
//! and everything a host does in between.

use crate::measured;

use crate::measured::{Head, MS, READ, SECOND, WRITE, mode, scale};
use crate::support::{Path, Random};
use anabranch_policy::{
    AnaRank, BatchTimeout, EwmaShift, Groups, LatencyParameters, OpClass, Parameters, Policy,
    Reason, SizeBucket, compute_weights, reset_statistics,
};

const ROUNDS: usize = if cfg!(miri) { 3 } else { 400 };
const STEPS: usize = if cfg!(miri) { 40 } else { 400 };

fn any_parameters(random: &mut Random) -> Parameters {
    let timeout = ["0", "1us", "20ms", "15"][random.below(4)];
    let latency = LatencyParameters {
        batch_timeout: timeout.parse().unwrap(),
        ewma_shift: EwmaShift::new(random.below(9) as u8).unwrap(),
        size_buckets: random.below(2) == 0,
        per_node: random.below(2) == 0,
        compete: random.below(2) == 0,
    };
    Parameters { latency, ..mode(random.below(2) == 0) }
}

fn any_path(random: &mut Random) -> Path {
    let rank = [AnaRank::Optimized, AnaRank::NonOptimized][random.below(2)];
    Path::new(random.below(3) > 0, rank)
}

/// One thing that a host, a target or an operator does.
fn disturb(random: &mut Random, head: &mut Head) {
    let index = random.below(head.paths.len());
    match random.below(12) {
        0 => head.paths[index].usable = !head.paths[index].usable,
        1 => head.paths[index].rank = AnaRank::Optimized,
        2 => head.paths[index].rank = AnaRank::NonOptimized,
        3 => head.parameters = any_parameters(random),
        4 => reset_statistics(head.paths[index].load()),
        5 if head.paths.len() > 1 => {
            head.paths.remove(index);
            // Sometimes nobody says so.
            if random.below(4) > 0 {
                head.selector.path_removed(index);
            }
        }
        6 if head.paths.len() < 9 => head.paths.push(any_path(random)),
        7 => head.parameters.policy = Policy::ALL[random.below(Policy::ALL.len())],
        8 => head.selector.forget_path(index),
        _ => head.now_ns += random.next() % (40 * MS),
    }
}

fn any_command(random: &mut Random) -> (OpClass, u32) {
    (OpClass::ALL[random.below(3)], 512 << random.below(12))
}

/// The choice is as the ANA rule has it, and so is its reason.
fn check(head: &mut Head, op: OpClass, bytes: u32) {
    let best = head.paths.iter().filter(|path| path.usable).map(|path| path.rank).min();
    let Some(choice) = head.select(op, bytes) else {
        assert_eq!(best, None, "no choice, but a usable path");
        return;
    };
    let path = &head.paths[choice.index];
    assert!(path.usable, "an unusable path was chosen");
    let Parameters { kernel_exact, latency, .. } = head.parameters;
    if kernel_exact || latency.compete {
        assert!(matches!(choice.reason, Reason::Credit | Reason::Unmeasured));
    } else {
        assert_eq!(Some(path.rank), best, "an optimized path was passed over");
        let no_optimized = choice.reason == Reason::NoOptimized;
        assert_eq!(no_optimized, path.rank == AnaRank::NonOptimized);
    }
}

#[test]
fn a_choice_is_usable_and_of_the_class_the_rule_names_whatever_happened_before() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut head = Head::new("o", any_parameters(&mut random));
        head.paths = (0..=random.below(6)).map(|_| any_path(&mut random)).collect();
        for _ in 0..STEPS {
            match random.below(10) {
                0 => disturb(&mut random, &mut head),
                1 => head.compute(),
                2..5 => {
                    let (op, bytes) = any_command(&mut random);
                    let path = random.below(head.paths.len());
                    let longest = if random.below(9) == 0 { 2 * SECOND } else { 20 * MS };
                    let latency_ns = random.next() % longest;
                    head.complete_sized(path, op, bytes, latency_ns);
                }
                _ => {
                    let (op, bytes) = any_command(&mut random);
                    if head.parameters.policy == Policy::Latency {
                        check(&mut head, op, bytes);
                    } else {
                        let choice = head.select(op, bytes);
                        assert!(choice.is_none_or(|choice| head.paths[choice.index].usable));
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_known_stays_in_its_bounds_whatever_happens() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS {
        let mut head = Head::new("ono", any_parameters(&mut random));
        let exact = head.parameters.kernel_exact;
        for _ in 0..STEPS / 2 {
            let (op, bytes) = any_command(&mut random);
            let latency_ns = random.next() % (SECOND + SECOND / 9);
            head.complete_sized(random.below(3), op, bytes, latency_ns);
            head.now_ns += random.next() % (9 * SECOND);
            if random.below(3) == 0 {
                head.compute();
            }
            head.select(op, bytes);
            for path in 0..3 {
                for bucket in SizeBucket::all() {
                    let stat = head.stat_of(path, op, bucket);
                    assert!(u64::from(stat.smoothed_ns) <= SECOND);
                    assert!(stat.weight <= scale(exact) && stat.credit <= scale(exact));
                    assert!((stat.smoothed_ns == 0) >= (stat.samples == 0));
                }
            }
        }
    }
}

#[test]
fn l8_each_path_gets_exactly_its_weight_in_every_credit_cycle() {
    let mut random = Random::seeded();
    for _ in 0..ROUNDS / 4 {
        let count = 2 + random.below(5);
        let latencies: Vec<u64> = (0..count).map(|_| random.next() % (90 * MS) + 1).collect();
        let exact = random.below(2) == 0;
        let mut head = Head::measured(&"o".repeat(count), mode(exact), &latencies);
        let usable: Vec<bool> = (0..count).map(|_| random.below(4) > 0).collect();
        for (path, &usable) in head.paths.iter_mut().zip(&usable) {
            path.usable = usable;
        }
        if !usable.contains(&true) {
            assert_eq!(head.select(READ, 4096), None);
            continue;
        }
        let weight = |(weight, usable)| if usable { weight } else { 0 };
        let expected: Vec<u32> = head.weights().into_iter().zip(usable).map(weight).collect();
        // A cycle may begin anywhere, once each path has had its first turn.
        head.reads(1 + random.below(200) as u32);
        for _ in 0..2 {
            assert_eq!(head.shares(expected.iter().sum()), expected);
        }
    }
}

#[test]
fn l8_commands_go_in_bursts_of_the_weight_around_the_list() {
    for exact in [false, true] {
        let mut head = Head::measured("ooo", mode(exact), &[MS, 2 * MS, 4 * MS]);
        let weights = head.weights();
        // The first command begins the first burst: everybody had a turn to be given credit.
        let mut expected = Vec::new();
        for path in [0, 1, 2, 0, 1, 2] {
            expected.extend((0..weights[path]).map(|_| path));
        }
        assert_eq!(head.reads(expected.len() as u32), expected);
    }
}

#[test]
fn new_weights_take_effect_with_the_next_burst() {
    let mut head = Head::measured("oo", mode(false), &[MS, MS]);
    assert_eq!(head.shares(10), [10, 0]);
    head.parameters.latency.batch_timeout = BatchTimeout::from_secs(0);
    head.parameters.latency.ewma_shift = EwmaShift::new(0).unwrap();
    head.complete(0, READ, 7 * MS);
    head.compute();
    // 54 are left of the burst under the old weights (64 : 64), then 16 : 112 hold.
    let weights = head.weights();
    assert_eq!(weights, [15, 112]);
    assert_eq!(head.shares(54), [54, 0]);
    assert_eq!(head.shares(64), [0, 64], "the other's credit is of the same time");
    assert_eq!(head.shares(15), [15, 0]);
    assert_eq!(head.shares(112), [0, 112]);
}

#[test]
fn a_path_that_joins_or_leaves_does_not_change_what_is_known_of_the_others() {
    let mut head = Head::measured("oo", mode(false), &[MS, 3 * MS]);
    let before = [head.stat(0), head.stat(1)];
    head.paths.push(Path::new(true, AnaRank::Optimized));
    compute_weights(&head.parameters, &head.paths, measured::reads_group());
    assert_eq!([head.stat(0), head.stat(1)], before, "what is not measured is worth nothing");
    assert_eq!(head.stat(2).weight, 1, "but tried");
    head.paths.remove(0);
    head.selector.path_removed(0);
    assert_eq!(head.stat(0), before[1]);
    compute_weights(&head.parameters, &head.paths, measured::reads_group());
    assert_eq!(head.weights(), [128, 1]);
    let mut due = Groups::NONE;
    due.insert(measured::reads_group());
    assert_eq!(due.take().collect::<Vec<_>>(), [measured::reads_group()]);
}

#[test]
fn a_path_that_joins_among_others_and_can_not_be_used_changes_nothing_for_them() {
    for exact in [false, true] {
        for place in 0..=3 {
            let [mut head, mut joined] = [(); 2].map(|()| {
                let mut head = Head::measured("ooo", mode(exact), &[MS; 3]);
                // In the middle of a burst.
                head.reads(42 + 10);
                head
            });
            joined.paths.insert(place, Path::new(false, AnaRank::Optimized));
            joined.selector.path_added(place);
            let moved = head.reads(90).into_iter().map(|path| path + usize::from(path >= place));
            assert_eq!(joined.reads(90), Vec::from_iter(moved), "{exact} {place}");
        }
    }
}

#[test]
fn a_burst_goes_on_when_a_path_before_it_leaves() {
    let mut head = Head::measured("oooo", mode(false), &[MS; 4]);
    for path in 0..4 {
        head.complete(path, WRITE, MS);
    }
    head.compute();
    // 32 each: reads are in the middle of the burst on path 3, writes on path 1.
    head.reads(3 * 32 + 16);
    (0..32 + 16).for_each(|_| _ = head.select(WRITE, 4096));
    head.paths.remove(0);
    head.selector.path_removed(0);
    let used = |head: &mut Head, op| {
        let next = |_| head.select(op, 4096).expect("a path").index;
        (0..16 + 32).map(next).collect::<Vec<_>>()
    };
    assert_eq!(used(&mut head, READ), [[2; 16].as_slice(), &[0; 32]].concat());
    assert_eq!(used(&mut head, WRITE), [[0; 16].as_slice(), &[1; 32]].concat());
    // The path in use itself leaves: the list goes on in order, nobody is skipped.
    let mut head = Head::measured("ooo", mode(false), &[MS; 3]);
    head.reads(42 + 10);
    head.paths.remove(1);
    head.selector.path_removed(1);
    let mut seen = head.reads(42 + 42);
    seen.dedup();
    assert_eq!(seen, [0, 1]);
    // The first one leaves, in use.
    let mut head = Head::measured("ooo", mode(false), &[MS; 3]);
    head.reads(10);
    head.paths.remove(0);
    head.selector.path_removed(0);
    assert_eq!(head.reads(42 + 42), [[0; 42], [1; 42]].concat());
}

#[test]
fn a_burst_goes_on_when_the_list_changes_around_it() {
    for exact in [false, true] {
        // In the middle of the burst on the second path.
        let [mut behind, mut before, mut joined] = [(); 3].map(|()| {
            let mut head = Head::measured("ooo", mode(exact), &[MS; 3]);
            head.reads(head.weights()[0] * 3 / 2);
            head
        });
        let left = behind.weights()[0].div_ceil(2);
        behind.paths.remove(2);
        behind.selector.path_removed(2);
        assert_eq!(behind.reads(left), vec![1; left as usize], "{exact}");
        assert_eq!(behind.read(), 0, "{exact}");
        before.paths.remove(0);
        before.selector.path_removed(0);
        assert_eq!(before.reads(left), vec![0; left as usize], "{exact}");
        assert_eq!(before.read(), 1, "{exact}");
        // One that may be used at once takes its place.
        joined.paths.insert(1, Path::new(true, AnaRank::Optimized));
        joined.selector.path_added(1);
        assert_eq!(joined.reads(left), vec![2; left as usize], "{exact}");
    }
}

#[test]
fn kernel_exact_begins_at_the_head_of_the_list_when_the_path_in_use_has_left() {
    let mut head = Head::measured("ooo", mode(true), &[MS; 3]);
    head.reads(21 + 10);
    head.paths.remove(1);
    head.selector.path_removed(1);
    assert_eq!(head.read(), 0);
}
