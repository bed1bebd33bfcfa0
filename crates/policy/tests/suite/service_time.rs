//! The statements T1 to T5: kernel-exact, and by default where that differs.

use crate::support::{Path, Random, load, one_at_a_time, parameters, paths, read};
use anabranch_policy::{
    Affinity, AnaRank, AsCandidate, Candidate, Charge, Choice, ControllerLedger, LOCAL_DISTANCE,
    Lane, Load, Local, MAX_RELATIVE_THROUGHPUT, NodeLatency, OpClass, Parameters, Policy, Reason,
    Selector, Shared, WorkerLedger, finish, start,
};

const MODES: [bool; 2] = [false, true];

/// Starts reads of these sizes, ending the oldest when more than `depth` are in flight, and adds up
/// what is in flight on each path at each selection.
fn saturate(
    parameters: &Parameters,
    table: &[Path],
    depth: usize,
    commands: usize,
    mut bytes: impl FnMut() -> u32,
) -> Vec<u64> {
    let mut selector = Selector::new();
    let mut in_flight = std::collections::VecDeque::new();
    let mut sums = vec![0; table.len()];
    for _ in 0..commands {
        if in_flight.len() == depth {
            let (index, charge): (usize, Charge) = in_flight.pop_front().unwrap();
            finish(charge, table[index].load());
        }
        for (sum, path) in sums.iter_mut().zip(table) {
            *sum += path.controller.in_flight_bytes();
        }
        let bytes = bytes();
        let choice = selector.select(parameters, table, OpClass::Read, bytes, 0).unwrap();
        let charge = start(parameters, table[choice.index].load(), OpClass::Read, bytes, 0);
        in_flight.push_back((choice.index, charge));
    }
    for (index, charge) in in_flight {
        finish(charge, table[index].load());
    }
    assert!(table.iter().all(Path::is_idle));
    sums
}

#[test]
fn t1_bytes_in_flight_are_held_in_the_ratio_of_the_weights() {
    let commands = if cfg!(miri) { 300 } else { 20_000 };
    for exact in MODES {
        for weights in [[4, 1], [1, 1], [3, 2], [10, 1]] {
            for mixed in [false, true] {
                let table = paths("oo");
                for (path, weight) in table.iter().zip(weights) {
                    path.controller.set_relative_throughput(weight);
                }
                let mut random = Random::seeded();
                let parameters = parameters(Policy::ServiceTime, exact);
                let sums = saturate(&parameters, &table, 512, commands, || {
                    if mixed && random.below(2) == 0 { 128 << 10 } else { 4 << 10 }
                });
                let ratio = sums[0] as f64 / sums[1] as f64;
                let expected = f64::from(weights[0]) / f64::from(weights[1]);
                let tolerance = if cfg!(miri) { 0.5 } else { 0.05 };
                assert!((ratio / expected - 1.0).abs() < tolerance, "{weights:?}: {ratio}");
            }
        }
    }
}

#[test]
fn t2_weight_zero_is_unused_while_any_weighted_path_is_usable_and_used_when_none_is() {
    for exact in MODES {
        // Optimized of weight 0, non-optimized of weight 0, non-optimized, optimized.
        let mut table = paths("onno");
        for (path, weight) in table.iter().zip([0, 0, 1, 1]) {
            path.controller.set_relative_throughput(weight);
        }
        load(&table[3], 100);
        load(&table[2], 1000);
        let mut selector = Selector::new();
        for (index, reason) in [
            (3, Reason::LeastServiceTime),
            (2, Reason::NoOptimized),
            (0, Reason::Standby),
            (1, Reason::Standby),
        ] {
            let parameters = parameters(Policy::ServiceTime, exact);
            for _ in 0..3 {
                let choice = selector.select(&parameters, &table, OpClass::Read, 4096, 0);
                assert_eq!(choice, Some(Choice { index, reason }), "exact {exact}");
            }
            table[index].usable = false;
        }
        assert_eq!(read(&mut selector, Policy::ServiceTime, exact, &table), None);
    }
}

#[test]
fn t2_standby_paths_take_the_first_when_kernel_exact_and_share_by_default() {
    let table = paths("ooo");
    table.iter().for_each(|path| path.controller.set_relative_throughput(0));
    let mut exact = Selector::new();
    load(&table[0], 9);
    assert_eq!(one_at_a_time(&mut exact, Policy::ServiceTime, true, &table, 3), [0; 3]);
    let mut default = Selector::new();
    let chosen = one_at_a_time(&mut default, Policy::ServiceTime, false, &table, 4);
    assert_eq!(chosen, [1, 2, 1, 2], "the first has more to do");
}

#[test]
fn t3_bytes_in_flight_are_zero_at_idle_whatever_happened() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 5 } else { 200 };
    for _ in 0..rounds {
        let mut table = paths("oo");
        let mut selector = Selector::new();
        let mut in_flight: Vec<(usize, Charge)> = Vec::new();
        let mut counted = [0_u64; 2];
        for _ in 0..100 {
            let policy = Policy::ALL[random.below(Policy::ALL.len())];
            let policy = [policy, Policy::ServiceTime][random.below(2)];
            match random.below(4) {
                // An error, or the end of the association: all the same to the charge.
                0 if !in_flight.is_empty() => {
                    let (index, charge) = in_flight.swap_remove(random.below(in_flight.len()));
                    finish(charge, table[index].load());
                }
                // A reconnect: this worker has another queue pair from now on.
                1 => table[random.below(2)].queue ^= 1,
                _ => {
                    let bytes = random.next() as u32;
                    let parameters = parameters(policy, random.below(2) == 0);
                    let choice =
                        selector.select(&parameters, &table, OpClass::Write, bytes, 0).unwrap();
                    let load = table[choice.index].load();
                    let charge = start(&parameters, load, OpClass::Write, bytes, 0);
                    in_flight.push((choice.index, charge));
                    if policy == Policy::ServiceTime {
                        counted[choice.index] += u64::from(bytes);
                    }
                }
            }
            let on = |at: usize| in_flight.iter().filter(move |(index, _)| *index == at);
            for (at, path) in table.iter().enumerate() {
                assert!(path.controller.in_flight_bytes() <= counted[at]);
                assert!(on(at).count() > 0 || path.is_idle(), "nothing in flight, all at zero");
            }
        }
        for (index, charge) in in_flight {
            finish(charge, table[index].load());
        }
        assert!(table.iter().all(Path::is_idle));
    }
}

#[test]
fn t4_weights_are_zero_to_a_hundred_and_one_unless_set() {
    let controller = ControllerLedger::new();
    assert_eq!(controller.relative_throughput(), 1);
    assert_eq!(MAX_RELATIVE_THROUGHPUT, 100);
    for (set, read) in [(0, 0), (1, 1), (100, 100), (101, 100), (u32::MAX, 100)] {
        controller.set_relative_throughput(set);
        assert_eq!(controller.relative_throughput(), read);
    }
}

/// Two namespaces on two controllers, one worker.
#[derive(Default)]
struct TwoNamespaces {
    controllers: [ControllerLedger; 2],
    workers: [[WorkerLedger; 1]; 2],
    paths: [[(Shared, Lane, NodeLatency, Local); 2]; 2],
}

impl TwoNamespaces {
    fn head(&self, namespace: usize) -> [Candidate<'_>; 2] {
        [0, 1].map(|at| {
            let (shared, lane, node, local) = &self.paths[namespace][at];
            Candidate {
                usable: true,
                rank: AnaRank::Optimized,
                numa_distance: LOCAL_DISTANCE,
                affinity: Affinity::Own,
                load: Load {
                    controller: &self.controllers[at],
                    workers: &self.workers[at],
                    worker: 0,
                    queue: 0,
                    tags: 0,
                    shared,
                    lane,
                    node: Some(node),
                    local: Some(local),
                },
            }
        })
    }
}

#[test]
fn t4_weight_and_bytes_belong_to_the_controller() {
    for exact in MODES {
        let table = TwoNamespaces::default();
        let (one, other) = (table.head(0), table.head(1));
        let parameters = parameters(Policy::ServiceTime, exact);
        let select =
            |paths: &[_]| Selector::new().select(&parameters, paths, OpClass::Read, 4096, 0);
        // In flight on the first path of one namespace: the other avoids that controller.
        let charge = start(&parameters, one[0].load, OpClass::Read, 4096, 0);
        assert_eq!(select(&other).map(|choice| choice.index), Some(1));
        finish(charge, one[0].load);
        // A weight set through one namespace is seen through the other.
        one[1].load.controller.set_relative_throughput(9);
        assert_eq!(select(&other).map(|choice| choice.index), Some(1));
        assert_eq!(other[1].candidate().load.controller.relative_throughput(), 9);
    }
}

#[test]
fn t5_weight_zero_and_bytes_in_flight_outlive_a_reconnect() {
    // A controller that reconnects keeps its ledger; nothing in here sets anything back.
    let mut table = paths("oo");
    let parameters = Parameters::of(Policy::ServiceTime);
    table[0].controller.set_relative_throughput(0);
    let charge = start(&parameters, table[0].load(), OpClass::Read, 4096, 0);
    table[0].usable = false;
    table[0].queue = 1;
    table[0].usable = true;
    assert_eq!(table[0].controller.relative_throughput(), 0);
    assert_eq!(table[0].controller.in_flight_bytes(), 4096);
    finish(charge, table[0].load());
    assert!(table[0].is_idle());
}

#[test]
fn t5_differences_of_gigabytes_keep_their_sign() {
    // As an int, 3 GiB is negative and 4 GiB is nothing.
    for gibibytes in [1, 2, 3, 4, 5, 8] {
        for exact in MODES {
            let table = paths("oo");
            let parameters = parameters(Policy::ServiceTime, exact);
            for _ in 0..gibibytes {
                let _: Charge = start(&parameters, table[0].load(), OpClass::Read, 1 << 30, 0);
            }
            for weight in [1, 2] {
                table[1].controller.set_relative_throughput(weight);
                let chosen = read(&mut Selector::new(), Policy::ServiceTime, exact, &table);
                assert_eq!(chosen, Some(1), "{gibibytes} GiB");
            }
        }
    }
}

#[test]
fn t5_the_commands_own_bytes_count_by_default_and_not_when_kernel_exact() {
    // Weights 4 and 1, one command on the first. By what is in flight the second is better, by when
    // the command would be done the first is: 2/4 against 1/1.
    for (exact, expected) in [(true, 1), (false, 0)] {
        let table = paths("oo");
        table[0].controller.set_relative_throughput(4);
        let parameters = parameters(Policy::ServiceTime, exact);
        let _: Charge = start(&parameters, table[0].load(), OpClass::Read, 4096, 0);
        assert_eq!(read(&mut Selector::new(), Policy::ServiceTime, exact, &table), Some(expected));
    }
    // Idle paths: the higher weight in either mode, wherever it stands, with or without payload.
    for exact in MODES {
        for bytes in [0, 512, u32::MAX] {
            let table = paths("oooo");
            for (path, weight) in table.iter().zip([1, 4, 2, 4]) {
                path.controller.set_relative_throughput(weight);
            }
            let parameters = parameters(Policy::ServiceTime, exact);
            let choice = Selector::new().select(&parameters, &table, OpClass::Read, bytes, 0);
            assert_eq!(choice.map(|choice| choice.index), Some(1));
        }
    }
}

#[test]
fn weights_change_under_load_and_the_next_command_knows() {
    for exact in MODES {
        let table = paths("oo");
        let mut selector = Selector::new();
        load(&table[0], 4);
        load(&table[1], 2);
        assert_eq!(read(&mut selector, Policy::ServiceTime, exact, &table), Some(1));
        table[0].controller.set_relative_throughput(10);
        assert_eq!(read(&mut selector, Policy::ServiceTime, exact, &table), Some(0));
        table[0].controller.set_relative_throughput(0);
        assert_eq!(read(&mut selector, Policy::ServiceTime, exact, &table), Some(1));
    }
}

#[test]
fn the_four_classes_hold_for_all_tables() {
    let mut random = Random::seeded();
    let rounds = if cfg!(miri) { 40 } else { 4000 };
    for _ in 0..rounds {
        let table = random.paths(8);
        for path in &table {
            path.controller.set_relative_throughput(random.below(3) as u32);
        }
        let class = |path: &&Path| (path.controller.relative_throughput() == 0, path.rank);
        let best = table.iter().filter(|path| path.usable).map(|path| class(&path)).min();
        let mut selector = Selector::new();
        for exact in MODES {
            let chosen = read(&mut selector, Policy::ServiceTime, exact, &table);
            assert_eq!(chosen.map(|index| class(&&table[index])), best);
            assert!(chosen.is_none_or(|index| table[index].usable));
        }
    }
}
