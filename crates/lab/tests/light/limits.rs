//! The physical limit, and what binds.

use super::rig::*;
use anabranch_lab::light::{Bound, Cell, Limit, base_delay, limit_of_window, limits};
use anabranch_lab::scenario::{
    Alteration, AnaState, Mix, PathState, PerOp, Scenario, Sizes, Target,
};
use anabranch_policy::Policy;
use anabranch_target::link::{Large, OnOff};
use std::time::Duration;

fn limit(scenario: &Scenario) -> Limit {
    let variant = plain(Policy::QueueDepth, scenario.paths.len());
    limit_of_window(Cell { scenario, variant: &variant, seed: 1 })
}

fn base() -> Scenario {
    let us = Duration::from_micros;
    let paths = vec![path("a", 2000 * MBIT, us(100)), path("b", 500 * MBIT, us(100))];
    scenario(paths, vec![reads(4096, 128, 4)])
}

#[test]
fn links_bind_in_the_direction_of_the_load_with_their_headers() {
    let mut scenario = base();
    let found = limit(&scenario);
    assert_eq!(found.bound, Bound::LinksOut);
    assert_eq!(found.iops, 2500 * MBIT / (8 * (4096 + 48)));
    assert_eq!(found.bytes_per_second / 4096, found.iops);
    assert!(found.to_string().ends_with("the sum of the links to the hosts"), "{found}");
    scenario.jobs[0].mix = Mix { read: 0, write: 100, trim: 0 };
    let found = limit(&scenario);
    assert_eq!((found.bound, found.iops), (Bound::LinksIn, 2500 * MBIT / (8 * (4096 + 72))));
    // Congestion takes away its share: of the window, which is 100 to 1000 ms.
    for (on, off, of_900) in [(30, 20, 540), (200, 10_000, 100), (50, 500, 50)] {
        let (on, off) = (Duration::from_millis(on), Duration::from_millis(off));
        for path in &mut scenario.paths {
            path.shape.on_off = Some(OnOff { on, off });
        }
        let expected = 2500 * MBIT * of_900 / 900 / (8 * (4096 + 72));
        let found = limit(&scenario).iops;
        assert!(found.abs_diff(expected) <= 1, "{on:?}, {off:?}: {found}, not {expected}");
    }
}

#[test]
fn the_target_binds() {
    let mut scenario = base();
    scenario.target = Target { servers: Some(2), read_ns: 100_000, ..Target::default() };
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (20_000, Bound::Target));
    scenario.target.per_path = true;
    assert_eq!(limit(&scenario).iops, 40_000);
}

#[test]
fn far_paths_are_bound_by_what_is_open() {
    let ms = Duration::from_millis;
    // 12,065 a second each. The near path holds 12 in flight, the rest of 32 goes to the far one.
    let rate = 400 * MBIT;
    let paths = vec![path("far", rate, ms(10)), path("near", rate, ms(1))];
    let mut scenario = scenario(paths, vec![reads(4096, 32, 1)]);
    scenario.target.read_ns = 0;
    let found = limit(&scenario);
    assert_eq!(found.bound, Bound::OpenRequests);
    let full = rate / (8 * (4096 + 48));
    assert!((full + 1500..full + 2000).contains(&found.iops), "{found}");
    // And no policy gets past it, nor is it far away for the best one.
    let variant = plain(Policy::QueueDepth, 2);
    let best = Policy::ALL
        .into_iter()
        .map(|policy| run_policy(&scenario, policy).iops())
        .max()
        .expect("policies");
    assert!(best <= found.iops, "{best} of {found}");
    assert!(best * 100 >= found.iops * 90, "{best} of {found}");
    let near = base_delay(Cell { scenario: &scenario, variant: &variant, seed: 1 }, 1);
    // 1 ms, 72 bytes one way and 4144 the other at 50 bytes per microsecond.
    assert_eq!(near, Duration::from_nanos(1_000_000 + 1440 + 82_880));
    scenario.hosts.queue_depth = 4;
    scenario.jobs[0].depth = 512;
    assert_eq!(limit(&scenario).bound, Bound::Tags);
    scenario.hosts.queue_depth = 1;
    let cell = Cell { scenario: &scenario, variant: &variant, seed: 1 };
    assert_eq!(cell.check().expect_err("no entry to use").key, "queue_depth");
}

#[test]
fn loads_that_ask_for_less_bind() {
    let mut scenario = base();
    scenario.jobs = vec![arrivals(1000), arrivals(500)];
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (1500, Bound::Offered));
    scenario.jobs = vec![reads(4096, 8, 4)];
    scenario.jobs[0].rate_iops = PerOp::all(Some(100));
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (400, Bound::Offered));
    let figures = run_policy(&scenario, Policy::QueueDepth);
    assert!((395..=404).contains(&figures.iops()), "{}", figures.iops());
    scenario.jobs[0].rate_iops = PerOp::default();
    scenario.jobs[0].rate_bytes = PerOp::all(Some(4096 * 250));
    assert_eq!(limit(&scenario).iops, 1000);
    assert!((990..=1004).contains(&run_policy(&scenario, Policy::RoundRobin).iops()));
}

#[test]
fn jobs_with_rates_of_their_own_weigh_by_them() {
    let mut scenario = base();
    let (mut small, mut large) = (reads(4096, 64, 1), reads(1 << 20, 1, 1));
    small.rate_iops = PerOp::all(Some(100));
    large.rate_bytes = PerOp::all(Some(100 << 20));
    scenario.jobs = vec![small, large];
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (200, Bound::Offered));
    assert_eq!(found.bytes_per_second, 100 * (4096 + (1 << 20)));
}

#[test]
fn what_jobs_with_a_rate_leave_is_there_for_the_others() {
    let mut scenario = base();
    scenario.target = Target { servers: Some(2), read_ns: 100_000, ..Target::default() };
    let mut large = reads(65_536, 8, 1);
    large.rate_iops = PerOp::all(Some(500));
    let open = arrivals(1000);
    let expected = 500 * 65_536 + 19_500 * 4096;
    scenario.jobs = vec![large, reads(4096, 16, 1)];
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (20_000, Bound::Target));
    assert_eq!(found.bytes_per_second, expected);
    let reached = run_policy(&scenario, Policy::QueueDepth).bytes_per_second();
    assert!(reached * 100 >= expected * 98 && reached <= expected + (8 << 16), "{reached}");
    // Links: what is left of them, headers included.
    scenario.target.servers = None;
    scenario.jobs = vec![open, reads(65_536, 128, 1)];
    let found = limit(&scenario);
    let left = 2500 * MBIT / 8 - 1000 * (4096 + 48);
    assert_eq!(found.bound, Bound::LinksOut);
    assert!(found.iops.abs_diff(1000 + left / (65_536 + 48)) <= 1, "{found}");
    // An open loop that takes all of them leaves nothing.
    scenario.jobs[0] = arrivals(100_000);
    let found = limit(&scenario);
    assert_eq!((found.iops, found.bound), (2500 * MBIT / (8 * (4096 + 48)), Bound::LinksOut));
}

/// In a second few requests are no whole number, nor are those that fill a path.
#[test]
fn a_limit_is_as_exact_for_few_long_requests() {
    let links = |rate, delay_us, job| {
        let mut scenario =
            scenario(vec![path("a", rate, Duration::from_micros(delay_us))], vec![job]);
        scenario.target.read_ns = 0;
        limit(&scenario)
    };
    let (mib, wire) = (1 << 20, 8 * ((1 << 20) + 48));
    // 1.9 and 0.12 a second.
    for rate in [16 * MBIT, MBIT] {
        let found = links(rate, 0, reads(mib, 4, 1));
        let expected = u128::from(rate) * (1 << 20) / wire;
        assert!(u128::from(found.bytes_per_second).abs_diff(expected) <= 1 << 11, "{found}");
        assert_eq!((found.iops, found.bound), (1, Bound::LinksOut));
    }
    let mut slow = reads(2 * mib, 4, 1);
    slow.rate_bytes = PerOp::all(Some(3 << 20));
    let found = links(10_000 * MBIT, 100, slow);
    assert_eq!((found.bytes_per_second, found.bound), (3 << 20, Bound::Offered));
    // 65536 + 48 and 72 bytes at 50 bytes per microsecond. Two would fill the path, one does not.
    let found = links(400 * MBIT, 1200, reads(65_536, 1, 1));
    let alone_ns = 1_200_000 + (65_536 + 48 + 72) * 20;
    assert_eq!((found.iops, found.bound), (1_000_000_000 / alone_ns, Bound::OpenRequests));
    // Nor does one that thinks.
    let mut thinks = reads(4096, 1, 4);
    thinks.thinktime_ns = 1_080_000;
    let found = links(100_000 * MBIT, 1000, thinks);
    assert_eq!(found.bound, Bound::OpenRequests);
    assert!((1900..1923).contains(&found.iops), "{found}");
}

/// A path may be late for large requests alone, and a range has some of those.
#[test]
fn a_range_of_sizes_has_small_and_large_ones() {
    let mut scenario =
        scenario(vec![path("a", 10_000 * MBIT, Duration::ZERO)], vec![reads(4096, 1, 1)]);
    let late = Large { bytes: 32 << 10, delay: Duration::from_millis(10) };
    scenario.paths[0].shape.large = Some(late);
    let sizes = Sizes::Range { min: 4096, max: 65_536 };
    scenario.jobs[0].sizes = PerOp::all(sizes);
    let found = limit(&scenario).bytes_per_second;
    let reached = run_policy(&scenario, Policy::RoundRobin).bytes_per_second();
    assert!(reached.abs_diff(found) * 100 <= found * 12, "{reached} of {found}");
    // Each size is one of as many as there are, whatever stands for it.
    scenario.paths[0].shape.large = None;
    scenario.jobs[0].sizes = PerOp::all(Sizes::Range { min: 512, max: 1 << 20 });
    scenario.jobs[0].depth = 64;
    let mean = (512 + (1 << 20)) / 2;
    let found = limit(&scenario);
    assert!((found.bytes_per_second / found.iops).abs_diff(mean) <= mean / 100, "{found}");
    // The largest is no multiple: four, four and three of eleven requests.
    scenario.jobs[0].sizes = PerOp::all(Sizes::Range { min: 4096, max: 11_264 });
    let mean = (4 * 4096 + 4 * 8192 + 3 * 11_264) / 11;
    let found = limit(&scenario);
    assert!((found.bytes_per_second / found.iops).abs_diff(mean) <= mean / 100, "{found}");
}

#[test]
fn limits_follow_changes() {
    let mut scenario = base();
    let state = |at, to| change(at, 0, Alteration::State(to));
    scenario.changes = vec![
        state(300, PathState::Silent),
        change(600, 1, Alteration::Ana(AnaState::Inaccessible)),
        change(600, 1, Alteration::Ana(AnaState::NonOptimized)),
        state(750, PathState::Up),
    ];
    let variant = plain(Policy::QueueDepth, 2);
    let cell = Cell { scenario: &scenario, variant: &variant, seed: 1 };
    let each = 8 * (4096 + 48);
    let (all, a, b) = (2500 * MBIT / each, 2000 * MBIT / each, 500 * MBIT / each);
    let found: Vec<_> = limits(cell).iter().map(|(at, limit)| (at / MS, limit.iops)).collect();
    assert_eq!(found, [(0, all), (400, b), (700, b), (850, a)]);
    let expected = (all * 300 + b * 450 + a * 150) / 900;
    assert_eq!(limit(&scenario).iops, expected);
    scenario.changes =
        vec![state(0, PathState::Cut), change(0, 1, Alteration::State(PathState::Cut))];
    assert_eq!(limit(&scenario).bound, Bound::NoPath);
}

#[test]
fn nobody_gets_past_the_limit() {
    for jobs in [vec![mixed(16, 4)], vec![reads(131_072, 4, 4)], vec![reads(4096, 1, 1)]] {
        let scenario = Scenario { jobs, ..base() };
        let most = limit(&scenario).bytes_per_second;
        for policy in Policy::ALL {
            let found = run_policy(&scenario, policy).bytes_per_second();
            // What was under way when the window began ends in it.
            let slack = 64 * 131_072;
            assert!(found <= most + slack, "{policy}: {found} of {most}");
        }
    }
}
