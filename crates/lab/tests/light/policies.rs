//! What is known of the policies on unequal links.

use super::rig::*;
use anabranch_lab::light::{Cell, limit_of_window};
use anabranch_lab::scenario::{AnaState, Scenario, Variant};
use anabranch_policy::Policy;
use std::time::Duration;

/// Four to one, and enough load.
fn four_to_one() -> Scenario {
    let delay = Duration::from_micros(50);
    let paths = vec![path("fast", 2000 * MBIT, delay), path("slow", 500 * MBIT, delay)];
    scenario(paths, vec![reads(65_536, 32, 4)])
}

/// Of a thousand parts of the limit.
fn per_mille(scenario: &Scenario, variant: &Variant) -> u64 {
    let limit = limit_of_window(Cell { scenario, variant, seed: 1 });
    run_variant(scenario, variant, 1).bytes_per_second() * 1000 / limit.bytes_per_second
}

#[test]
fn round_robin_gets_no_more_than_twice_the_slow_path() {
    let found = per_mille(&four_to_one(), &plain(Policy::RoundRobin, 2));
    // Twice 500 of 2500.
    assert!((380..=405).contains(&found), "{found} of 1000");
}

#[test]
fn service_time_with_true_weights_fills_both_paths() {
    let variant = Variant { weights: vec![4, 1], ..plain(Policy::ServiceTime, 2) };
    let found = per_mille(&four_to_one(), &variant);
    assert!((970..=1000).contains(&found), "{found} of 1000");
}

#[test]
fn queue_depth_fills_both_paths_when_there_is_enough_load() {
    let found = per_mille(&four_to_one(), &plain(Policy::QueueDepth, 2));
    assert!((970..=1000).contains(&found), "{found} of 1000");
    // But it keeps as many commands on the slow path, so that they take four times as long there.
    let figures = run_policy(&four_to_one(), Policy::QueueDepth);
    let [fast, slow] = [0, 1].map(|path| figures.paths[path].in_flight_milli);
    assert!(fast.abs_diff(slow) < 1500, "{fast} and {slow} thousandths in flight");
}

#[test]
fn service_time_with_equal_weights_counts_bytes_not_commands() {
    // One path gets the large ones while the other works off small ones: bytes are even.
    let delay = Duration::from_micros(50);
    let paths = vec![path("a", 1000 * MBIT, delay), path("b", 1000 * MBIT, delay)];
    let scenario = scenario(paths, vec![mixed(16, 4)]);
    let found = run_policy(&scenario, Policy::ServiceTime);
    let [a, b] = [0, 1].map(|path| found.paths[path].bytes);
    assert!(a.abs_diff(b) * 50 < a + b, "{a} and {b} bytes");
}

#[test]
fn numa_and_latency_see_what_they_look_at() {
    let delay = |ms| Duration::from_millis(ms);
    let mut paths = vec![path("far", 1000 * MBIT, delay(8)), path("near", 1000 * MBIT, delay(1))];
    paths[0].node = 1;
    let mut scenario = scenario(paths, vec![reads(4096, 4, 4)]);
    let share = |figures: &anabranch_lab::light::Figures| {
        figures.paths[1].commands * 100 / figures.requests
    };
    assert_eq!(share(&run_policy(&scenario, Policy::Numa)), 100);
    // Weights go by 1/latency: 8 to 1, and bursts of them.
    let latency = share(&run_policy(&scenario, Policy::Latency));
    assert!((80..=95).contains(&latency), "{latency} % on the near path");
    // ANA stands above all of them, but io-affinity has a worker per path: it stays with its own
    // only within the class.
    scenario.paths[1].ana = AnaState::NonOptimized;
    for policy in Policy::ALL {
        assert_eq!(share(&run_policy(&scenario, policy)), 0, "{policy}");
    }
}

#[test]
fn the_tags_of_a_queue_pair_bound_what_is_under_way() {
    let only = path("only", 2000 * MBIT, Duration::from_millis(1));
    let mut scenario = scenario(vec![only], vec![reads(4096, 64, 1)]);
    scenario.hosts.queue_depth = 3;
    let figures = run_policy(&scenario, Policy::QueueDepth);
    // All 64 are given to the path; two at a time are on the way, for a little over 1.08 ms.
    assert_eq!(figures.paths[0].in_flight_milli, 64_000);
    let iops = figures.iops();
    assert!((1700..1852).contains(&iops), "{iops} a second");
}

#[test]
fn device_mappers_selectors_count_what_they_have_chosen_kernel_exact_or_not() {
    let mut scenario = four_to_one();
    // Most of what has been chosen waits for a tag.
    scenario.hosts.queue_depth = 4;
    for policy in [Policy::QueueLength, Policy::HistoricalServiceTime] {
        let [as_it_comes, kernel_exact] =
            [plain(policy, 2), exact(policy, 2)].map(|it| run_variant(&scenario, &it, 1).hash());
        assert_eq!(as_it_comes, kernel_exact, "{policy}");
    }
}
