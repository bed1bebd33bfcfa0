use super::*;
use crate::cell::Cell;
use crate::light;
use crate::live::fit::fit;
use crate::scenario::{Hosts, Path, Run, Target, Variant, file, find};
use anabranch_policy::Policy;
use std::time::Duration;

/// The same part of everything.
fn alike(part: u32) -> Parts {
    Parts { rates: part, open: part }
}

fn scenario() -> Scenario {
    let mut path = Path::new("a");
    path.shape.rate_out = Some(8_000_000_000);
    path.shape.delay = Duration::from_millis(3);
    Scenario {
        name: "scale".into(),
        title: "scale".into(),
        source: String::new(),
        run: Run::default(),
        hosts: Hosts::default(),
        target: Target::default(),
        paths: vec![path],
        changes: Vec::new(),
        jobs: vec![Job::default()],
        burners: Vec::new(),
        variants: vec![Variant::plain(Policy::default(), 1)],
        published: Vec::new(),
    }
}

#[test]
fn rates_are_scaled_and_delays_are_not() {
    let scaled = scale(&scenario(), Parts::deep(50));
    let shape = &scaled.paths[0].shape;
    assert_eq!((shape.rate_out, shape.rate_in), (Some(400_000_000), None));
    assert_eq!(shape.delay, scenario().paths[0].shape.delay);
    assert_eq!(scaled.target.read_ns, 80_000, "servers are no limit");
    let mut served = scenario();
    served.target.servers = Some(3);
    served.jobs[0].arrival = Arrival::Poisson { iops: 1000 };
    let scaled = scale(&served, alike(50));
    assert_eq!(scaled.target.read_ns, 1_600_000);
    assert_eq!(scaled.jobs[0].arrival, Arrival::Poisson { iops: 50 });
    assert_eq!(scaled.hosts.queue_depth, QUEUE_SIZES.0);
    assert_eq!(scale(&served, alike(WHOLE)), served);
}

#[test]
fn fewer_requests_keep_their_part_and_what_clones_allow_themselves() {
    // All of the ways to come near: the one with the most clones.
    assert_eq!(fewer(4, 64, 100), (2, 13));
    assert_eq!(fewer(12, 32, 25), (10, 1));
    assert_eq!(fewer(4, 64, 500), (4, 32));
    assert_eq!(fewer(1, 1, 1), (1, 1));
    assert_eq!(fewer(1, 2048, 50), (1, 102));
    let mut asked = scenario();
    asked.jobs[0] = Job { clones: 8, depth: 1, thinktime_ns: 500, ..Job::default() };
    asked.jobs[0].rate_iops = PerOp::all(Some(1000));
    let job = scale(&asked, alike(250)).jobs.remove(0);
    // Two clones of 1000: a quarter of eight.
    assert_eq!((job.clones, job.depth, job.rate_iops.read), (2, 1, Some(1000)));
    assert_eq!(job.thinktime_ns, 500);
    let job = scale(&asked, Parts::deep(250)).jobs.remove(0);
    assert_eq!((job.clones, job.rate_iops.read, job.thinktime_ns), (8, Some(250), 2000));
}

/// The scenario of the tutorial, as it stands there.
fn tutorial() -> Scenario {
    let page = include_str!("../../../../../docs/LAB.md");
    let text = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    let loaded = file::parse(text.expect("a first scenario"), "tutorial.toml");
    loaded.unwrap_or_else(|mistake| panic!("{mistake}")).scenario
}

fn library(name: &str) -> Scenario {
    let found = find(name, &[]).unwrap_or_else(|mistake| panic!("{mistake}"));
    found.read().unwrap_or_else(|mistake| panic!("{mistake}")).scenario
}

/// Throughput of a variant over the limit, in points, in the mean of three seeds.
fn of_limit(scenario: &Scenario, variant: &Variant) -> f64 {
    let run = |seed| {
        let cell = Cell { scenario, variant, seed };
        let figures = light::run(cell).unwrap_or_else(|problem| panic!("{problem}"));
        let limit = limit_of_window(cell).bytes_per_second;
        100.0 * figures.bytes_per_second() as f64 / limit as f64
    };
    (1..=3).map(run).sum::<f64>() / 3.0
}

#[test]
fn scaled_scenarios_fill_their_links_as_whole_ones_do() {
    // The parts that live runs use on two processors, and a tenth.
    let all = [
        (tutorial(), 50),
        (library("service-time-mixed"), 100),
        (library("twenty-to-one"), 25),
        (library("eight-unequal"), 20),
    ];
    for (asked, rates) in all {
        let mut whole = fit(&asked, 2).scenario;
        whole.set_run(Run { ramp_ns: 400_000_000, window_ns: 800_000_000, runs: 1 });
        let scaled = scale(&whole, Parts { rates, open: open_part(&whole, rates) });
        // What `latency` and `finish-time` have learned hangs on single requests when few are open:
        // on eight paths the latter does better with the fewer ones.
        let steady = |one: &&Variant| {
            let policy = one.parameters.policy;
            policy != Policy::Latency && (policy != Policy::FinishTime || whole.paths.len() < 8)
        };
        for variant in whole.variants.iter().filter(steady) {
            let (before, after) = (of_limit(&whole, variant), of_limit(&scaled, variant));
            let place = format!("{}, {}: {before:.1} and {after:.1}", whole.name, variant.name);
            assert!((before - after).abs() <= 5.0, "{place}");
        }
    }
}

#[test]
fn the_floor_binds_only_where_links_would_run_dry() {
    let left = |name: &str, rates| {
        let whole = library(name);
        let open = open_part(&whole, rates);
        (open > rates, open_requests(&scale(&whole, Parts { rates, open })))
    };
    assert_eq!(left("service-time-4k", 100), (false, 26));
    assert_eq!(left("two-hosts-read", 25), (false, 52));
    // 3 of 128 would be left for two paths.
    assert!(left("twenty-to-one", 25).0);
    assert!(!left("twenty-to-one", 1000).0);
    // The scenario itself leaves its links idle, and the same part does as much so.
    assert_eq!(left("delay-30ms-read", 50), (false, 20));
    // An open loop has no queue to keep.
    assert!(!left("open-loop-90", 100).0);
}

#[test]
fn the_floor_never_asks_for_more_than_there_was() {
    for (depth, least) in [(32, 20), (8, 7), (1, 1)] {
        let mut whole = tutorial();
        whole.jobs[0].depth = depth;
        for rates in [1, 5, 50, 500] {
            let open = open_part(&whole, rates);
            assert!((rates..=WHOLE).contains(&open), "{depth}, {rates}: {open}");
            let left = open_requests(&scale(&whole, Parts { rates, open }));
            assert!((least..=4 * u64::from(depth)).contains(&left), "{depth}, {rates}: {left}");
        }
    }
}
