//! The statements M1 to M8 of the kernel's behaviour, as far as selection decides them.

use crate::support;

use crate::support::{begin, load, one_at_a_time, paths, read};
use anabranch_policy::{AnaRank, Charge, Policy, Selector, finish};

const MODES: [bool; 2] = [false, true];

#[test]
fn m1_only_usable_paths_are_selectable() {
    for policy in Policy::ALL {
        for exact in MODES {
            let mut selector = Selector::new();
            assert_eq!(read(&mut selector, policy, exact, &[]), None);
            assert_eq!(read(&mut selector, policy, exact, &paths("---")), None);
            // A single path is no exception (the kernel's round-robin makes one).
            assert_eq!(read(&mut selector, policy, exact, &paths("-")), None);
            assert_eq!(read(&mut selector, policy, exact, &paths("--o")), Some(2));
            // A remembered path that has become unusable is not used again.
            assert_eq!(read(&mut selector, policy, exact, &paths("-n-")), Some(1));
            assert_eq!(read(&mut selector, policy, exact, &paths("---")), None);
        }
    }
}

#[test]
fn m2_optimized_always_beats_non_optimized() {
    for policy in Policy::ALL {
        for exact in MODES {
            if exact && policy == Policy::Latency {
                // Classes do not count there: statement L11.
                continue;
            }
            let mut selector = Selector::new();
            let mut table = paths("nno");
            table[2].distance = 90;
            load(&table[2], 1000);
            let chosen = one_at_a_time(&mut selector, policy, exact, &table, 10);
            assert_eq!(chosen, [2; 10], "{policy}, exact {exact}");
        }
    }
}

#[test]
fn m3_numa_takes_the_nearest_and_ties_go_to_list_order() {
    for exact in MODES {
        let mut selector = Selector::new();
        let mut table = paths("oooo");
        table[0].distance = 20;
        assert_eq!(one_at_a_time(&mut selector, Policy::Numa, exact, &table, 5), [1; 5]);
        assert_eq!(selector.numa_path(), Some(1));
    }
}

#[test]
fn m3_numa_keeps_its_path_until_failover_clear_or_state_loss() {
    for exact in MODES {
        let mut selector = Selector::new();
        let mut table = paths("-oo");
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        // A better path alone does not move it, and neither does a failover of another path.
        table[0].usable = true;
        selector.forget_path(0);
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        // State loss.
        table[1].rank = AnaRank::NonOptimized;
        table[0].usable = false;
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(2));
        // Failover.
        table[1].rank = AnaRank::Optimized;
        selector.forget_path(2);
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        // A path became live: everything is forgotten.
        table[0].usable = true;
        selector.clear_cache();
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(0));
    }
}

#[test]
fn m3_numa_fails_back_with_the_very_next_command() {
    for exact in MODES {
        let mut selector = Selector::new();
        let mut table = paths("-n");
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        table[0].usable = true;
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(0));
    }
}

#[test]
fn m4_round_robin_visits_k_optimized_paths_in_any_k_commands() {
    for exact in MODES {
        let mut selector = Selector::new();
        let table = paths("ono-oo");
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &table, 40);
        for window in chosen.windows(4) {
            let mut window = window.to_vec();
            window.sort_unstable();
            assert_eq!(window, [0, 2, 4, 5], "exact {exact}");
        }
    }
}

#[test]
fn m5_round_robin_stays_on_the_only_optimized_path() {
    for exact in MODES {
        let mut selector = Selector::new();
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &paths("nonn"), 20);
        assert_eq!(chosen, [1; 20]);
    }
}

#[test]
fn m5_round_robin_without_optimized_paths_visits_all_others() {
    for exact in MODES {
        let mut selector = Selector::new();
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &paths("nnn"), 6);
        // The last one seen on the walk is the predecessor: backwards, but every one.
        assert_eq!(chosen, [0, 2, 1, 0, 2, 1]);
        // One of them left: stay with it.
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &paths("-n-"), 3);
        assert_eq!(chosen, [1; 3]);
    }
}

#[test]
fn m6_queue_depth_counts_per_controller_and_returns_to_zero() {
    let table = paths("oo");
    let mut heads = [Selector::new(), Selector::new()];
    let mut in_flight: Vec<(usize, Charge)> = Vec::new();
    for i in 0..40 {
        // Two namespaces on the same two controllers; the policy is switched in the middle.
        let policy = if (10..20).contains(&i) { Policy::RoundRobin } else { Policy::QueueDepth };
        let chosen = read(&mut heads[i % 2], policy, false, &table).expect("a path");
        in_flight.push((chosen, begin(&table[chosen], policy)));
    }
    let counted = in_flight.iter().filter(|(_, charge)| charge.counts()).count();
    assert_eq!(counted, 30, "commands under another policy are not counted");
    // Both heads saw each other's commands: the depth is level.
    assert_eq!(table[0].controller.nr_active(), 15);
    assert_eq!(table[1].controller.nr_active(), 15);
    for (chosen, charge) in in_flight {
        finish(charge, table[chosen].load());
    }
    assert_eq!(table[0].controller.nr_active(), 0);
    assert_eq!(table[1].controller.nr_active(), 0);
}

#[test]
fn m7_queue_depth_at_depth_one_uses_the_first_optimized_path_when_kernel_exact() {
    let mut selector = Selector::new();
    let chosen = one_at_a_time(&mut selector, Policy::QueueDepth, true, &paths("noo"), 10);
    assert_eq!(chosen, [1; 10]);
}

#[test]
fn m7_twin_queue_depth_at_depth_one_rotates_by_default() {
    let mut selector = Selector::new();
    let chosen = one_at_a_time(&mut selector, Policy::QueueDepth, false, &paths("noo"), 6);
    assert_eq!(chosen, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn m8_an_unknown_policy_is_refused_and_the_same_policy_changes_nothing() {
    assert!("round".parse::<Policy>().is_err());
    for exact in MODES {
        // Selecting under the same policy again keeps the cache (a rewrite of the same policy is
        // invisible here), under another one drops it.
        let mut selector = Selector::new();
        let mut table = paths("-o");
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        table[0].usable = true;
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(1));
        assert!(read(&mut selector, Policy::QueueDepth, exact, &table).is_some());
        assert_eq!(selector.numa_path(), None);
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(0));
    }
}

#[test]
fn m9_a_switch_drops_the_cache_and_leaves_charges_alone() {
    for exact in MODES {
        for (from, to) in Policy::ALL.into_iter().flat_map(|from| Policy::ALL.map(|to| (from, to)))
        {
            let table = paths("oo");
            let mut selector = Selector::new();
            let chosen = read(&mut selector, from, exact, &table).expect("a path");
            let charge = begin(&table[chosen], from);
            let under_to = read(&mut selector, to, exact, &table).expect("a path");
            let other = begin(&table[under_to], to);
            finish(charge, table[chosen].load());
            finish(other, table[under_to].load());
            assert!(table.iter().all(support::Path::is_idle), "{from} to {to}");
        }
    }
}

#[test]
fn m9_the_order_of_use_starts_over_with_a_switch() {
    for policy in [Policy::QueueLength, Policy::HistoricalServiceTime, Policy::ServiceTime] {
        let table = paths("ooo");
        let mut selector = Selector::new();
        assert_eq!(one_at_a_time(&mut selector, policy, false, &table, 2), [0, 1]);
        read(&mut selector, Policy::Numa, false, &table);
        assert_eq!(one_at_a_time(&mut selector, policy, false, &table, 2), [0, 1]);
    }
}

#[test]
fn m21_the_path_of_numa_is_known_under_numa_alone() {
    for exact in MODES {
        for policy in Policy::ALL {
            let mut selector = Selector::new();
            assert_eq!(selector.numa_path(), None);
            let chosen = read(&mut selector, policy, exact, &paths("-o"));
            assert_eq!(chosen, Some(1));
            let shown = (policy == Policy::Numa).then_some(1);
            assert_eq!(selector.numa_path(), shown, "{policy}");
        }
    }
}
