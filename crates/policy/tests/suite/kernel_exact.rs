//! Where the default and `kernel_exact` differ, and only there: each test fixes both.

use crate::support::{Path, begin, load, one_at_a_time, parameters, paths, read};
use anabranch_policy::{
    AnaRank, AsCandidate, Group, OpClass, Policy, Selector, SizeBucket, compute_weights,
    failed_over, inputs, sample, start,
};

#[test]
fn equal_depth_goes_to_the_first_in_the_list_or_rotates() {
    let table = paths("ooo");
    for path in &table {
        load(path, 3);
    }
    let mut exact = Selector::new();
    assert_eq!(one_at_a_time(&mut exact, Policy::QueueDepth, true, &table, 4), [0, 0, 0, 0]);
    let mut default = Selector::new();
    assert_eq!(one_at_a_time(&mut default, Policy::QueueDepth, false, &table, 4), [0, 1, 2, 0]);
}

#[test]
fn unequal_depth_is_the_same_in_both() {
    let table = paths("onoo");
    for (path, depth) in table.iter().zip([5, 0, 2, 9]) {
        load(path, depth);
    }
    for exact in [false, true] {
        let mut selector = Selector::new();
        let chosen = one_at_a_time(&mut selector, Policy::QueueDepth, exact, &table, 5);
        assert_eq!(chosen, [2; 5]);
    }
}

#[test]
fn queue_depth_under_load_levels_both_ways() {
    for exact in [false, true] {
        let table = paths("ooo");
        load(&table[1], 4);
        let mut selector = Selector::new();
        for _ in 0..11 {
            let chosen = read(&mut selector, Policy::QueueDepth, exact, &table).expect("a path");
            let _ = begin(&table[chosen], Policy::QueueDepth);
        }
        let depths: Vec<u32> = table.iter().map(|path| path.controller.nr_active()).collect();
        assert_eq!(depths, [5, 5, 5]);
    }
}

#[test]
fn round_robin_after_a_failover_starts_over_or_goes_on() {
    let mut table = paths("oooo");
    for (exact, expected) in [(true, 0), (false, 2)] {
        let mut selector = Selector::new();
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &table, 2);
        assert_eq!(chosen, [0, 1]);
        selector.forget_path(1);
        table[1].usable = false;
        assert_eq!(read(&mut selector, Policy::RoundRobin, exact, &table), Some(expected));
        table[1].usable = true;
    }
}

#[test]
fn round_robin_after_a_policy_switch_starts_over_or_goes_on() {
    let table = paths("ooo");
    for (exact, expected) in [(true, 0), (false, 1)] {
        let mut selector = Selector::new();
        assert_eq!(read(&mut selector, Policy::RoundRobin, exact, &table), Some(0));
        assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(0));
        assert_eq!(read(&mut selector, Policy::RoundRobin, exact, &table), Some(expected));
    }
}

#[test]
fn round_robin_goes_on_behind_the_first_or_where_it_was_when_a_path_goes_live() {
    let mut table = paths("-ooo");
    table[1].rank = AnaRank::NonOptimized;
    for (exact, expected) in [(true, [3, 2]), (false, [2, 3])] {
        let mut selector = Selector::new();
        // Before it has chosen anything, too, and under another policy there is nothing to go by.
        for policy in [Policy::QueueDepth, Policy::RoundRobin] {
            selector.path_live(&parameters(policy, exact), &table);
        }
        let chosen = one_at_a_time(&mut selector, Policy::RoundRobin, exact, &table, 2);
        assert_eq!(chosen, expected, "kernel_exact {exact}");
        selector.path_live(&parameters(Policy::RoundRobin, exact), &table);
        let next = read(&mut selector, Policy::RoundRobin, exact, &table);
        assert_eq!(next, Some(if exact { 3 } else { 2 }), "kernel_exact {exact}");
    }
}

#[test]
fn numa_is_the_same_in_both() {
    let table = paths("ooo");
    for exact in [false, true] {
        for _worker in 0..3 {
            let mut selector = Selector::new();
            for _ in 0..3 {
                assert_eq!(read(&mut selector, Policy::Numa, exact, &table), Some(0));
                selector.forget_path(0);
            }
        }
    }
}

#[test]
fn a_failover_forgets_latencies_when_kernel_exact_and_under_that_policy_alone() {
    let path = &paths("o")[0];
    let latency_ns = |exact| {
        let parameters = parameters(Policy::Latency, exact);
        inputs(&parameters, path.candidate(), OpClass::Read, 4096, 0).latency_ns
    };
    let measured = parameters(Policy::Latency, true);
    let charge = start(&measured, path.load(), OpClass::Read, 4096, 0);
    sample(&measured, charge, path.load(), 2, 5_000);
    failed_over(&parameters(Policy::Latency, false), path.load());
    failed_over(&parameters(Policy::QueueDepth, true), path.load());
    assert_eq!(latency_ns(true), Some(5_000));
    failed_over(&measured, path.load());
    assert_eq!(latency_ns(true), Some(0));
}

/// Three measured paths of equal latency: where reads go before and after something happens while
/// the second one has its turn.
fn latency_turns(exact: bool, happens: impl FnOnce(&mut Selector, &[Path])) -> [usize; 2] {
    let table = paths("ooo");
    let measured = parameters(Policy::Latency, exact);
    for path in &table {
        let charge = start(&measured, path.load(), OpClass::Read, 4096, 0);
        sample(&measured, charge, path.load(), 3, 5_000);
    }
    compute_weights(&measured, &table, Group { op: OpClass::Read, bucket: SizeBucket::FIRST });
    let mut selector = Selector::new();
    let next =
        |selector: &mut Selector| read(selector, Policy::Latency, exact, &table).expect("a path");
    while next(&mut selector) != 1 {}
    let before = next(&mut selector);
    happens(&mut selector, &table);
    [before, next(&mut selector)]
}

#[test]
fn latency_goes_on_where_it_was_or_starts_over_after_a_failover() {
    for (exact, expected) in [(true, 0), (false, 1)] {
        let found = latency_turns(exact, |selector, _| selector.forget_path(1));
        assert_eq!(found, [1, expected], "kernel_exact {exact}");
    }
}

#[test]
fn latency_goes_on_where_it_was_or_starts_over_after_another_policy() {
    for (exact, expected) in [(true, 0), (false, 1)] {
        let found = latency_turns(exact, |selector, table| {
            table[..2].iter().for_each(|path| load(path, 1));
            assert_eq!(read(selector, Policy::QueueDepth, exact, table), Some(2));
        });
        assert_eq!(found, [1, expected], "kernel_exact {exact}");
    }
}

/// As where it is set and set back in one go.
#[test]
fn latency_goes_on_or_starts_over_after_another_policy_under_which_nothing_was_selected() {
    for (exact, expected) in [(true, 0), (false, 1)] {
        let found = latency_turns(exact, |selector, _| selector.policy_changed());
        assert_eq!(found, [1, expected], "kernel_exact {exact}");
    }
}

#[test]
fn round_robin_goes_on_or_starts_over_after_another_policy_under_which_nothing_was_selected() {
    let table = paths("ooo");
    for (exact, expected) in [(true, 0), (false, 1)] {
        let mut selector = Selector::new();
        assert_eq!(read(&mut selector, Policy::RoundRobin, exact, &table), Some(0));
        selector.policy_changed();
        assert_eq!(read(&mut selector, Policy::RoundRobin, exact, &table), Some(expected));
    }
}
