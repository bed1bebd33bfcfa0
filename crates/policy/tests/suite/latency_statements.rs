//! The statements L1 to L14 about the latency series, kernel-exact, and by default where that
//! differs: a statement's twin.

use crate::support;

use crate::measured::{Head, MS, READ, SECOND, WRITE, mode, prompt, reads_group, scale};
use anabranch_policy::{
    AsCandidate, BatchTimeout, Candidate, EwmaShift, Groups, InvalidShift, LatencyParameters,
    LatencyReport, LatencyStat, LatencySummary, Local, NodeLatency, OpClass, Parameters, Policy,
    Reason, Sampled, Selector, SizeBucket, finish, latency_inputs, latency_report,
    reset_statistics, sample, start,
};

const MODES: [bool; 2] = [false, true];

/// Miri is slow.
const LONG: bool = !cfg!(miri);

#[test]
fn l1_selections_follow_the_weights_within_one_credit_cycle() {
    // Latencies 1 : 3, so three quarters against one; scores 300 and 100.
    for (exact, weights) in [(true, [48, 16]), (false, [96, 32])] {
        let mut head = Head::measured("oo", mode(exact), &[3_333_333, 10 * MS]);
        assert_eq!(head.weights(), weights);
        head.reads(7);
        for _ in 0..3 {
            assert_eq!(head.shares(weights.iter().sum()), weights);
        }
    }
}

#[test]
fn l1_the_ratio_of_the_weights_is_that_of_the_latencies() {
    for exact in MODES {
        for ratio in (1..200_u64).step_by(if LONG { 1 } else { 37 }) {
            let head = Head::measured("oo", mode(exact), &[10_000, 10_000 * ratio]);
            let scale = u64::from(scale(exact));
            // scale * r / (1 + r), rounded down; scores of 10^5 and 10^5 / r.
            let total = 100_000 + 100_000 / ratio;
            let expected = [scale * 100_000 / total, scale * (100_000 / ratio) / total];
            assert_eq!(head.weights(), expected.map(|weight| weight.max(1) as u32), "{ratio}");
        }
    }
}

#[test]
fn l2_the_first_completion_yields_a_weight_at_once() {
    for exact in MODES {
        let mut head = Head::new("oo", mode(exact));
        // Before that the path takes I/O without credit.
        assert_eq!(head.reason(), Reason::Unmeasured);
        assert_eq!((head.stat(0).weight, head.stat(0).credit), (0, 0));
        assert_eq!(head.complete(0, READ, MS), Sampled::BatchClosed(reads_group()));
        head.compute();
        assert_eq!(head.weights(), [scale(exact), 1]);
    }
}

#[test]
fn l2_the_first_sample_closes_a_batch_even_when_the_clock_has_just_begun() {
    let mut head = Head::new("oo", mode(false));
    head.now_ns = 5;
    assert_eq!(head.complete(0, READ, 5), Sampled::BatchClosed(reads_group()));
}

#[test]
fn l2_kernel_exact_stays_with_a_path_until_it_has_a_weight() {
    let mut head = Head::new("ooo", mode(true));
    assert_eq!(head.reads(5), [0; 5]);
    assert_eq!(head.stat(0).selected, 5);
    head.complete(0, READ, MS);
    head.compute();
    // Its first turn gives it credit; so does that of the others, then it is used.
    assert_eq!(head.shares(64 + 1 + 1), [64, 1, 1]);
}

#[test]
fn l2_twin_paths_without_a_weight_rotate_by_default() {
    let mut head = Head::new("ooo", mode(false));
    assert_eq!(head.reads(7), [0, 1, 2, 0, 1, 2, 0]);
    // One that joins later has its turn between the bursts of the others.
    let mut head = Head::measured("oo", prompt(false), &[MS, MS]);
    head.paths.push(support::Path::new(true, anabranch_policy::AnaRank::Optimized));
    let reads = head.reads(3 * (64 + 64 + 1));
    assert_eq!(reads.iter().filter(|&&path| path == 2).count(), 3);
    assert!(reads.windows(2).all(|pair| pair != [2, 2]));
}

#[test]
fn l3_samples_over_a_second_are_ignored_and_counted() {
    for exact in MODES {
        let mut head = Head::measured("oo", prompt(exact), &[MS, MS]);
        for ignored in 1..4 {
            assert_eq!(head.complete(0, READ, SECOND + ignored), Sampled::TooLong);
            let stat = head.stat(0);
            assert_eq!((stat.ignored, stat.samples), (ignored, 1));
            assert_eq!(u64::from(stat.smoothed_ns), MS, "it did not move");
        }
        // A second itself still counts, and no time at all does not exist.
        assert!(matches!(head.complete(0, READ, SECOND), Sampled::BatchClosed(_)));
        assert_eq!(u64::from(head.stat(0).smoothed_ns), SECOND);
        let before = head.stat(0);
        assert_eq!(head.complete(0, READ, 0), Sampled::Nothing);
        assert_eq!(head.stat(0), before);
    }
}

#[test]
fn l3_a_clock_that_steps_back_gives_no_sample() {
    let head = Head::new("oo", mode(false));
    let load = head.paths[0].load();
    let charge = start(&head.parameters, load, READ, 4096, 500);
    assert_eq!(sample(&head.parameters, charge, load, 2, 400), Sampled::Nothing);
    assert_eq!(head.stat(0), LatencyStat::default());
}

#[test]
fn l4_a_batch_is_closed_at_most_once_per_timeout_and_by_a_completion() {
    for exact in MODES {
        let mut head = Head::measured("oo", mode(exact), &[MS, MS]);
        let closed_ns = head.now_ns;
        // Fifteen seconds, less one nanosecond: the samples wait.
        for now_ns in [1, SECOND, 14 * SECOND, 15 * SECOND - 1] {
            head.now_ns = closed_ns + now_ns;
            assert_eq!(head.complete(0, READ, 9 * MS), Sampled::Taken);
            assert_eq!(u64::from(head.stat(0).smoothed_ns), MS);
        }
        // Time alone changes nothing, the next completion does: (7 * 1 + 9) / 8.
        head.now_ns = closed_ns + 40 * SECOND;
        assert_eq!(u64::from(head.stat(0).smoothed_ns), MS);
        assert_eq!(head.complete(0, READ, 9 * MS), Sampled::BatchClosed(reads_group()));
        assert_eq!(u64::from(head.stat(0).smoothed_ns), 2 * MS);
        // The next window begins there.
        head.now_ns += 15 * SECOND - 1;
        assert_eq!(head.complete(0, READ, 9 * MS), Sampled::Taken);
        // Each path and op class has windows of its own.
        assert_eq!(head.complete(1, READ, 9 * MS), Sampled::BatchClosed(reads_group()));
        assert!(matches!(head.complete(0, WRITE, 9 * MS), Sampled::BatchClosed(_)));
    }
}

#[test]
fn l4_a_timeout_of_zero_closes_at_each_completion() {
    for exact in MODES {
        let mut head = Head::new("oo", prompt(exact));
        for latency_ns in [3, 7, 5] {
            assert!(matches!(head.complete(0, READ, latency_ns), Sampled::BatchClosed(_)));
            assert_eq!(u64::from(head.stat(0).smoothed_ns), latency_ns);
        }
    }
}

#[test]
fn l5_the_shift_says_how_much_a_batch_counts() {
    for (shift, expected) in
        [(0, 9000), (1, 5000), (2, 3000), (3, 2000), (8, (1000 * 255 + 9000) / 256)]
    {
        let mut head = Head::new("oo", prompt(true));
        head.parameters.latency.ewma_shift = EwmaShift::new(shift).unwrap();
        head.complete(0, READ, 1000);
        assert_eq!(head.stat(0).smoothed_ns, 1000, "the first one is taken as it is");
        head.complete(0, READ, 9000);
        assert_eq!(head.stat(0).smoothed_ns, expected);
    }
    assert_eq!(EwmaShift::new(9), Err(InvalidShift));
    assert_eq!(EwmaShift::default().get(), 3);
}

#[test]
fn l6_reads_do_not_change_the_weights_of_writes() {
    for exact in MODES {
        for [op, other] in [[READ, WRITE], [WRITE, READ], [OpClass::Other, READ]] {
            let mut head = Head::new("oo", prompt(exact));
            for (path, latency_ns) in [(0, MS), (1, 3 * MS)] {
                head.complete(path, other, latency_ns);
            }
            head.compute();
            let stats = |head: &Head| [0, 1].map(|i| head.stat_of(i, other, SizeBucket::FIRST));
            let before = stats(&head);
            for round in 1..if LONG { 50 } else { 5 } {
                head.complete(0, op, round * MS);
                head.complete(1, op, MS);
                head.compute();
                head.select(op, 4096);
            }
            assert_eq!(stats(&head), before);
            assert_ne!(head.stat_of(0, op, SizeBucket::FIRST).weight, before[0].weight);
        }
    }
}

#[test]
fn l7_a_sample_counts_on_the_submitting_worker() {
    // Two workers, one path; the charge made through one worker's load is sampled there.
    let head = Head::new("oo", mode(true));
    let locals = [Local::new(), Local::new()];
    let load = |worker: usize| anabranch_policy::Load {
        local: Some(&locals[worker]),
        worker: worker as u16,
        ..head.paths[0].load()
    };
    let charge = start(&head.parameters, load(1), READ, 4096, 0);
    assert!(matches!(sample(&head.parameters, charge, load(1), 2, MS), Sampled::BatchClosed(_)));
    let samples = [0, 1].map(|worker| {
        latency_report(&head.parameters, load(worker)).stat(READ, SizeBucket::FIRST).samples
    });
    assert_eq!(samples, [0, 1]);
}

#[test]
fn without_a_place_for_measurements_paths_rotate_and_nothing_is_measured() {
    let head = Head::new("oo", mode(false));
    let loads = [0, 1].map(|path: usize| anabranch_policy::Load {
        node: None,
        local: None,
        ..head.paths[path].load()
    });
    let paths = loads.map(|load| Candidate { load, ..head.paths[0].candidate() });
    let mut selector = Selector::new();
    let mut chosen = [0; 2];
    for now_ms in 0..10 {
        let now_ns = now_ms * MS;
        let choice = selector
            .select(&head.parameters, &paths, READ, 4096, now_ns)
            .expect("both paths are usable");
        chosen[choice.index] += 1;
        let load = loads[choice.index];
        let charge = start(&head.parameters, load, READ, 4096, now_ns);
        assert_eq!(sample(&head.parameters, charge, load, 2, now_ns + MS), Sampled::Nothing);
        finish(charge, load);
        reset_statistics(load);
        assert_eq!(latency_report(&head.parameters, load), LatencyReport::default());
    }
    assert_eq!(chosen, [5, 5]);
}

#[test]
fn l8_every_usable_path_keeps_a_weight_and_gets_a_command_per_credit_cycle() {
    for exact in MODES {
        let mut head = Head::measured("oooo", mode(exact), &[1000, SECOND, SECOND, 700 * MS]);
        assert_eq!(head.weights(), [scale(exact) - 1, 1, 1, 1]);
        assert_eq!(head.shares(scale(exact) + 2), head.weights());
        // One of them fails for a while: the others go on, it comes back with what it had.
        head.paths[0].usable = false;
        assert_eq!(head.shares(9), [0, 3, 3, 3]);
        head.paths[0].usable = true;
        assert_eq!(head.shares(scale(exact) + 2), head.weights());
    }
}

#[test]
fn l9_a_head_with_one_path_measures_nothing() {
    for exact in MODES {
        let mut head = Head::new("o", prompt(exact));
        for _ in 0..10 {
            assert_eq!((head.read(), head.reason()), (0, Reason::Unmeasured));
            assert_eq!(head.complete(0, READ, MS), Sampled::Nothing);
            assert_eq!(head.complete(0, READ, 2 * SECOND), Sampled::Nothing);
        }
        assert_eq!(head.stat(0), LatencyStat { selected: 20, ..LatencyStat::default() });
        // It does when a second one joins, even if that can not be used.
        head.paths.push(support::Path::new(false, anabranch_policy::AnaRank::Optimized));
        assert_eq!(head.complete(0, READ, MS), Sampled::BatchClosed(reads_group()));
    }
}

#[test]
fn l10_a_reset_forgets_everything_and_the_next_sample_is_the_first() {
    for exact in MODES {
        for per_node in [false, true] {
            let mut head = Head::new("oo", mode(exact));
            head.parameters.latency.per_node = per_node;
            head.complete(0, READ, MS);
            head.complete(1, READ, MS);
            head.compute();
            head.reads(20);
            head.complete(0, READ, 7 * MS);
            head.complete(0, READ, 2 * SECOND);
            reset_statistics(head.paths[0].load());
            assert_eq!(head.stat(0), LatencyStat::default());
            assert_ne!(head.stat(1), LatencyStat::default(), "each path has its own");
            // No time passes: but for the reset, the batch would stay open.
            assert_eq!(head.complete(0, READ, 4 * MS), Sampled::BatchClosed(reads_group()));
            assert_eq!(u64::from(head.stat(0).smoothed_ns), 4 * MS);
            head.compute();
            assert_eq!(head.stat(0).weight, scale(exact) / 5);
        }
    }
}

#[test]
fn l10_weights_that_are_due_from_before_a_reset_do_nothing() {
    let mut head = Head::new("oo", mode(false));
    head.complete(0, READ, MS);
    head.paths.iter().for_each(|path| reset_statistics(path.load()));
    head.compute();
    assert_eq!(head.weights(), [0, 0]);
}

#[test]
fn l10_other_policies_neither_sample_nor_touch_what_latency_knows() {
    let mut head = Head::measured("oo", mode(false), &[MS, 2 * MS]);
    let before = [head.stat(0), head.stat(1)];
    for policy in Policy::ALL.into_iter().filter(|&policy| policy != Policy::Latency) {
        head.parameters.policy = policy;
        head.read();
        let sampled = head.complete(0, READ, MS);
        assert!(!matches!(sampled, Sampled::BatchClosed(_)), "{policy}");
    }
    assert_eq!([head.stat(0), head.stat(1)], before);
}

#[test]
fn l11_optimized_and_non_optimized_compete_by_weight_when_kernel_exact() {
    let mut head = Head::measured("on", mode(true), &[3 * MS, MS]);
    assert_eq!(head.weights(), [15, 48]);
    assert_eq!(head.shares(63), [15, 48]);
    assert_eq!(head.reason(), Reason::Credit);
}

#[test]
fn l11_twin_optimized_paths_come_first_by_default_unless_they_compete() {
    let mut head = Head::measured("ono", mode(false), &[30 * MS, MS, 60 * MS]);
    assert_eq!(head.shares(50)[1], 0);
    assert_eq!(head.reason(), Reason::Credit);
    head.paths[0].usable = false;
    assert_eq!(head.shares(50), [0, 0, 50]);
    head.paths[2].usable = false;
    assert_eq!((head.shares(50), head.reason()), (vec![0, 50, 0], Reason::NoOptimized));
    head.paths[0].usable = true;
    assert_eq!((head.read(), head.reason()), (0, Reason::Credit), "with the very next command");

    let mut head = Head::measured("ono", mode(false), &[30 * MS, MS, 60 * MS]);
    head.parameters.latency.compete = true;
    let weights = head.weights();
    assert!(weights[1] > 100);
    head.reads(5);
    assert_eq!(head.shares(weights.iter().sum()), weights);
}

#[test]
fn l11_twin_paths_without_a_weight_rotate_within_their_class_by_default() {
    let mut head = Head::new("nono", mode(false));
    assert_eq!(head.reads(4), [1, 3, 1, 3]);
    head.paths[1].usable = false;
    head.paths[3].usable = false;
    assert_eq!(head.reads(4), [0, 2, 0, 2]);
    assert_eq!(head.reason(), Reason::NoOptimized);
}

#[test]
fn l12_statistics_as_text_in_the_order_of_the_columns() {
    let stat = LatencyStat {
        weight: 1,
        credit: 2,
        score: 3,
        smoothed_ns: 4,
        selected: 5,
        samples: 6,
        ignored: 7,
    };
    assert_eq!(stat.to_string(), "1 2 3 4 5 6 7");
    let of = |weight| LatencyStat { weight, ..stat };
    let text = |weights: &[u32]| {
        weights.iter().map(|&weight| of(weight)).collect::<LatencySummary>().to_string()
    };
    // Weight: the rounded mean over those that have one; then the sums.
    assert_eq!(text(&[3, 0, 4]), "4 15 18 21");
    assert_eq!(text(&[3, 3, 4]), "3 15 18 21");
    assert_eq!(text(&[1, 3]), "2 10 12 14");
    assert_eq!(text(&[0, 0]), "0 10 12 14");
    assert_eq!(text(&[]), "0 0 0 0");
}

#[test]
fn l12_statistics_are_those_of_the_group() {
    let mut head = Head::measured("oo", mode(true), &[MS, 3 * MS]);
    head.reads(3);
    let expected = LatencyStat {
        weight: 48,
        credit: 45,
        score: 1000,
        smoothed_ns: 1_000_000,
        selected: 3,
        samples: 1,
        ignored: 0,
    };
    // First turns only hand out credit; the next round spends the first path's.
    assert_eq!(head.stat(0), expected);
    assert_eq!((head.stat(1).weight, head.stat(1).credit, head.stat(1).score), (15, 15, 333));
    assert_eq!(head.stat_of(0, WRITE, SizeBucket::FIRST), LatencyStat::default());
    let inputs = latency_inputs(&head.parameters, head.paths[0].load(), READ, 1 << 20);
    assert_eq!((inputs.weight, inputs.credit, inputs.smoothed_ns), (48, 45, MS));
}

#[test]
fn l13_selection_writes_nothing_that_is_shared_and_computes_no_weight() {
    // What others can see of a path: NodeLatency, Shared, ledgers. Debug shows every counter.
    for exact in MODES {
        for per_node in [false, true] {
            let mut head = Head::new("oo", mode(exact));
            head.parameters.latency.per_node = per_node;
            head.complete(0, READ, MS);
            head.complete(1, READ, 5 * MS);
            assert_eq!(head.weights(), [0, 0], "due, not computed");
            head.compute();
            let shared = |head: &Head| {
                let all =
                    head.paths.iter().map(|p| (&p.node, &p.shared, &p.controller, &p.workers));
                format!("{:?}", all.collect::<Vec<_>>())
            };
            let (before, weights) = (shared(&head), head.weights());
            head.reads(200);
            assert_eq!(shared(&head), before);
            assert_eq!(head.weights(), weights);
        }
    }
    // And without averaging per node, neither does sampling.
    let mut head = Head::new("oo", mode(false));
    let node = format!("{:?}", NodeLatency::new());
    head.complete(0, READ, MS);
    head.compute();
    assert_eq!(format!("{:?}", head.paths[0].node), node);
}

#[test]
fn l13_what_selection_touches_without_size_buckets_is_one_cache_line() {
    assert_eq!(align_of::<Local>(), 128);
    assert_eq!(size_of::<Local>(), 1408);
    // Weights that selection reads are not on the lines that completions write.
    assert_eq!(align_of::<NodeLatency>(), 128);
    assert_eq!(size_of::<NodeLatency>(), 1024);
}

#[test]
fn l14_size_buckets_have_seven_bounds() {
    let bounds = [16, 32, 64, 128, 256, 512].map(|kib| kib << 10);
    for (bucket, bound) in bounds.into_iter().enumerate() {
        assert_eq!(SizeBucket::of(bound).index(), bucket);
        assert_eq!(SizeBucket::of(bound + 1).index(), bucket + 1);
    }
    assert_eq!(SizeBucket::of(0), SizeBucket::FIRST);
    assert_eq!(SizeBucket::of(u32::MAX).index(), 6);
    let names: Vec<&str> = SizeBucket::all().map(SizeBucket::name).collect();
    assert_eq!(names, ["<=16k", "32k", "64k", "128k", "256k", "512k", ">512k"]);
}

/// The mail's second case: one path is good up to 16 KiB, the other beyond.
fn opposites(size_buckets: bool, exact: bool) -> Head {
    let mut head = Head::new("oo", mode(exact));
    let latency = LatencyParameters {
        size_buckets,
        batch_timeout: BatchTimeout::from_secs(0),
        ..LatencyParameters::default()
    };
    head.parameters = Parameters { latency, ..head.parameters };
    for _ in 0..if LONG { 200 } else { 50 } {
        for (path, bytes, latency_ns) in
            [(0, 16 << 10, MS), (0, 64 << 10, 9 * MS), (1, 16 << 10, 9 * MS), (1, 64 << 10, MS)]
        {
            head.complete_sized(path, READ, bytes, latency_ns);
        }
    }
    head.compute();
    head
}

/// The weights of the two paths for reads of that size.
fn weights_of(head: &Head, bytes: u32) -> [u32; 2] {
    [0, 1].map(|path| head.stat_of(path, READ, SizeBucket::of(bytes)).weight)
}

/// Small and large reads in turn: how many of each size go to each path.
fn alternate(head: &mut Head, rounds: u32) -> [[u32; 2]; 2] {
    let mut used = [[0; 2]; 2];
    for _ in 0..rounds {
        for (size, bytes) in [(0, 4 << 10), (1, 64 << 10)] {
            used[size][head.select(READ, bytes).expect("a path").index] += 1;
        }
    }
    used
}

#[test]
fn l14_size_buckets_tell_opposite_paths_apart() {
    for exact in MODES {
        let head = opposites(true, exact);
        let (good, bad) = (scale(exact) * 9 / 10, scale(exact) / 10);
        assert_eq!(weights_of(&head, 16 << 10), [good, bad]);
        assert_eq!(weights_of(&head, 64 << 10), [bad, good]);
    }
}

#[test]
fn l14_twin_by_default_each_group_follows_its_weights_whatever_the_others_do() {
    let mut head = opposites(true, false);
    let [small, large] = [weights_of(&head, 4096), weights_of(&head, 64 << 10)];
    head.select(READ, 64 << 10);
    for _ in 0..3 {
        assert_eq!(alternate(&mut head, small.iter().sum()), [small, large]);
    }
}

#[test]
fn l14_kernel_exact_groups_share_a_pointer_and_so_disturb_each_other() {
    // Weights of 57 : 6 and 6 : 57, and yet neither group gets three quarters of what it likes.
    let mut head = opposites(true, true);
    let rounds = if LONG { 20 } else { 4 } * weights_of(&head, 4096).iter().sum::<u32>();
    let used = alternate(&mut head, rounds);
    assert!(used[0][0] < rounds * 3 / 4 && used[1][1] < rounds * 3 / 4, "{used:?}");
    // Alone, each follows its weights.
    for (bytes, expected) in [(4096, [57, 6]), (64 << 10, [6, 57])] {
        let mut head = opposites(true, true);
        head.select(READ, bytes);
        let mut used = [0; 2];
        (0..63).for_each(|_| used[head.select(READ, bytes).expect("a path").index] += 1);
        assert_eq!(used, expected);
    }
}

#[test]
fn l14_without_size_buckets_opposite_paths_look_alike() {
    for exact in MODES {
        let head = opposites(false, exact);
        let weights = head.weights();
        // The batch that was last differs a little between the two.
        assert!(weights[0].abs_diff(weights[1]) <= scale(exact) / 4, "{weights:?}");
        assert_eq!(head.stat_of(0, READ, SizeBucket::of(64 << 10)), LatencyStat::default());
    }
}

#[test]
fn l14_per_node_the_workers_share_weights_but_not_credit() {
    for exact in MODES {
        let mut parameters = mode(exact);
        parameters.latency.per_node = true;
        let mut head = Head::measured("oo", parameters, &[MS, MS]);
        let half = scale(exact) / 2;
        assert_eq!(head.weights(), [half, half]);
        head.reads(3);
        // Another worker of the node, who never did anything, has the weights and no credit.
        let idle = [Local::new(), Local::new()];
        let stats = |head: &Head| {
            [0, 1].map(|path| {
                let local = Some(&idle[path]);
                let load = anabranch_policy::Load { local, ..head.paths[path].load() };
                latency_report(&head.parameters, load).stat(READ, SizeBucket::FIRST)
            })
        };
        let expected =
            LatencyStat { weight: half, score: 1000, smoothed_ns: 1_000_000, ..Default::default() };
        assert_eq!(stats(&head), [expected; 2]);
        // The same worker when the averages are its own: nothing known.
        head.parameters.latency.per_node = false;
        assert_eq!(stats(&head), [LatencyStat::default(); 2]);
    }
}

#[test]
fn l14_groups_that_are_due_are_a_set() {
    let mut due = Groups::NONE;
    assert!(due.is_empty());
    let group = |op, bytes| anabranch_policy::Group { op, bucket: SizeBucket::of(bytes) };
    let groups = [group(READ, 0), group(OpClass::Other, 0), group(WRITE, u32::MAX)];
    for group in [groups[1], groups[0], groups[2], groups[0]] {
        due.insert(group);
    }
    assert_eq!(due.take().collect::<Vec<_>>(), groups);
    assert!(due.is_empty() && due.take().next().is_none());
    // All 21 are told apart.
    for op in OpClass::ALL {
        for bucket in SizeBucket::all() {
            due.insert(anabranch_policy::Group { op, bucket });
        }
    }
    assert_eq!(due.take().count(), 21);
}
