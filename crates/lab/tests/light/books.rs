//! What must balance in every run, whatever happens in it.

use super::rig::*;
use anabranch_lab::scenario::{
    Alteration, AnaState, Brownout, Distribution, Hosts, Job, Path, PathState, Scenario, Target,
};
use anabranch_policy::{Parameters, Policy, Scope};
use anabranch_target::link::{Large, OnOff, Shape};
use std::time::Duration;

/// Three paths on which everything happens that can happen.
pub(crate) fn eventful() -> Scenario {
    let us = Duration::from_micros;
    let fast = path("fast", 2000 * MBIT, us(100));
    let mut slow = path("slow", 500 * MBIT, us(300));
    slow.shape.jitter = us(200);
    slow.shape.large = Some(Large { bytes: 32_768, delay: us(2000) });
    let mut odd = path("odd", 1000 * MBIT, us(50));
    odd.shape.on_off = Some(OnOff { on: us(20_000), off: us(5000) });
    odd.brownout = Some(Brownout { percent: 1, delay: us(3000) });
    odd.node = 1;
    let narrow = Shape { rate_out: Some(100 * MBIT), ..fast.shape.clone() };
    let wide = fast.shape.clone();
    let state = Alteration::State;
    let changes = vec![
        change(100, 0, Alteration::Shape(narrow)),
        change(150, 1, state(PathState::Cut)),
        change(200, 0, Alteration::Shape(wide)),
        change(250, 1, state(PathState::Up)),
        change(300, 2, state(PathState::Silent)),
        change(330, 0, state(PathState::Silent)),
        change(340, 0, state(PathState::Up)),
        change(400, 0, state(PathState::Cut)),
        change(400, 1, state(PathState::Cut)),
        change(450, 2, state(PathState::Up)),
        change(460, 1, state(PathState::Up)),
        change(470, 0, state(PathState::Up)),
        change(500, 1, Alteration::Ana(AnaState::NonOptimized)),
        change(550, 0, Alteration::Ana(AnaState::Inaccessible)),
        change(600, 2, Alteration::Brownout(None)),
        change(650, 0, Alteration::Ana(AnaState::Optimized)),
        change(700, 2, state(PathState::Silent)),
    ];
    let hosts = Hosts {
        count: 2,
        workers: 3,
        nodes: vec![0, 0, 1],
        io_queues: None,
        queue_depth: 8,
        detect_ns: 60 * MS,
    };
    let target =
        Target { servers: Some(24), distribution: Distribution::Exponential, ..Target::default() };
    let jobs = vec![mixed(16, 4), arrivals(3000)];
    Scenario { hosts, target, changes, ..scenario(vec![fast, slow, odd], jobs) }
}

#[test]
fn the_books_balance_for_every_policy_whatever_happens() {
    let scenario = eventful();
    for policy in Policy::ALL {
        for variant in [plain(policy, 3), exact(policy, 3)] {
            for seed in [1, 2] {
                let figures = run_variant(&scenario, &variant, seed);
                let books = &figures.books;
                assert!(books.requests_ended > 1000, "{policy}: {books:?}");
                assert!(books.commands_lost > 0, "{policy}: nothing was lost by cuts");
            }
        }
    }
}

#[test]
fn the_books_balance_for_every_scope_and_way_to_measure() {
    let scenario = eventful();
    let mut variants = Vec::new();
    for scope in Scope::ALL {
        let mut variant = plain(Policy::QueueDepth, 3);
        variant.parameters = Parameters { scope, ..variant.parameters };
        variants.push(variant);
    }
    for (size_buckets, per_node) in [(true, false), (false, true), (true, true)] {
        let mut variant = plain(Policy::Latency, 3);
        variant.parameters.latency.size_buckets = size_buckets;
        variant.parameters.latency.per_node = per_node;
        variants.push(variant);
    }
    for target in [
        Target { servers: Some(8), per_path: true, ..scenario.target },
        Target { servers: None, ..scenario.target },
    ] {
        let scenario = Scenario { target, ..scenario.clone() };
        for variant in &variants {
            run_variant(&scenario, variant, 3);
        }
    }
}

#[test]
fn a_link_is_busy_for_exactly_what_it_carries_and_never_idle_while_something_waits() {
    // 125 bytes per microsecond: whole nanoseconds for every size.
    let rate = 1000 * MBIT;
    let scenario = scenario(
        vec![path("a", rate, Duration::ZERO), path("b", rate, Duration::ZERO)],
        vec![reads(65_536, 32, 4)],
    );
    let figures = run_policy(&scenario, Policy::RoundRobin);
    let end = scenario.run.ramp_ns + scenario.run.window_ns;
    for path in &figures.paths {
        for link in path.links {
            assert_eq!(link.busy_ns * rate, link.bytes * 8 * 1_000_000_000);
        }
        // 64 KiB at 80 µs each, 32 or more deep: after the first answer there is always one more.
        let idle = end.saturating_sub(path.links[1].busy_ns);
        assert!(idle < MS, "the link to the host was idle for {idle} ns");
    }
    // The wire has what the users have, headers, and what is still on its way.
    let carried: u64 = figures.paths.iter().map(|path| path.links[1].bytes).sum();
    let (ended, most) = (figures.books.commands_ended, figures.books.commands_started);
    assert!((ended * (65_536 + 48)..=most * (65_536 + 48)).contains(&carried));
}

#[test]
fn what_is_measured_adds_up_over_paths_and_hosts() {
    let figures = run_policy(&eventful(), Policy::ServiceTime);
    let paths =
        figures.paths.iter().fold((0, 0), |sum, path| (sum.0 + path.commands, sum.1 + path.bytes));
    assert_eq!(paths, (figures.requests, figures.bytes));
    let classes = figures.classes.each_ref().map(|class| (class.requests(), class.bytes));
    assert_eq!(classes.iter().fold((0, 0), |sum, (n, bytes)| (sum.0 + n, sum.1 + bytes)), paths);
    assert!(classes.iter().all(|(requests, _)| *requests > 0), "{classes:?}");
    assert_eq!(classes[2].1, 0, "trims move nothing");
    assert_eq!(figures.hosts.iter().sum::<u64>(), figures.bytes);
    assert_eq!(figures.latency.count(), figures.requests);
    let series = &figures.series;
    assert_eq!(series.len(), 20);
    assert_eq!(series.requests.iter().sum::<u64>(), figures.books.requests_ended);
    assert_eq!(series.bytes.iter().sum::<u64>(), figures.books.bytes_ended);
}

#[test]
fn a_connection_is_first_come_first_served() {
    // Alike commands that overtook each other would differ in time.
    let only = Path { ..path("only", 1000 * MBIT, Duration::from_micros(500)) };
    let base = scenario(vec![only], vec![reads(65_536, 32, 1)]);
    let servers = Target { servers: Some(1), read_ns: 20_000, ..Target::default() };
    for target in [Target::default(), servers] {
        let scenario = Scenario { target, ..base.clone() };
        let figures = run_policy(&scenario, Policy::QueueDepth);
        let latency = &figures.latency;
        assert!(figures.requests > 1000);
        assert_eq!(latency.min(), latency.max(), "{latency:?}");
        // Little's law, by hand: 32 open, one every 80 µs * (64 Ki + 48) / 64 Ki ...
        assert_eq!(latency.min(), 32 * (65_536 + 48) * 8);
    }
}

#[test]
fn connections_of_a_port_take_turns() {
    // One worker has 32 open, the other one: on one link, 8 µs for a reply of 4 KiB.
    let only = path("only", 4144 * MBIT, Duration::ZERO);
    let on = |worker, depth| Job { workers: vec![worker], ..reads(4096, depth, 1) };
    let hosts = Hosts { workers: 2, nodes: vec![0; 2], ..Hosts::default() };
    let target = Target { read_ns: 0, ..Target::default() };
    let base = Scenario { target, ..scenario(vec![only], vec![on(0, 32), on(1, 1)]) };
    let longest = |io_queues| {
        let hosts = Hosts { io_queues, ..hosts.clone() };
        let figures = run_policy(&Scenario { hosts, ..base.clone() }, Policy::QueueDepth);
        figures.jobs[1][0].latency.max() / 8000
    };
    // Behind a few turns of the other connection, not behind all that it has open …
    let alone = longest(None);
    assert!((1..=4).contains(&alone), "{alone} replies");
    // … but in one connection those that came before come first.
    let shared = longest(Some(1));
    assert!((30..=33).contains(&shared), "{shared} replies");
}
