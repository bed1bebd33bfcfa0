//! The light simulation and the engine simulation say the same about a policy.
//!
//! Each scenario of the list runs in both, every variant, for a short time; what they reach of the
//! physical limit must not differ by more than two points. Left out are
//!
//! - the variants of `latency`: each of its windows follows from the one before, so that runs part
//!   for good at the first sample that differs by a nanosecond. Their means over many seeds agree
//!   (see the example `light_against_engine`), which takes too long here;
//! - brownouts at low depth: a few commands out of a hundred decide, and each simulation draws its
//!   own.

use super::rig::*;
use anabranch_lab::cell::Cell;
use anabranch_lab::figures::Figures;
use anabranch_lab::light;
use anabranch_lab::limit::limit_of_window;
use anabranch_lab::scenario::{Scenario, Variant, file};
use anabranch_policy::Policy;
use std::path::Path;

/// Scenarios with their windows in milliseconds.
const SCENARIOS: [(&str, u64); 16] = [
    ("accounting-512k", 400),
    ("biased-congested-write", 600),
    ("biased-write", 150),
    ("delay-30ms-read", 300),
    ("delay-30ms-rw", 300),
    ("eight-unequal", 40),
    ("exponential-service", 100),
    ("grid-2013-1x1", 30),
    ("grid-2013-4x128", 20),
    ("low-queue-depth", 100),
    ("open-loop-90", 100),
    ("service-time-4k", 150),
    ("service-time-mixed", 300),
    ("size-delay-read", 200),
    ("symmetric-read", 100),
    ("twenty-to-one", 50),
];

/// Points of percent of the limit.
const TOLERANCE: f64 = 2.0;

fn percent(figures: &Figures, cell: Cell<'_>) -> f64 {
    let limit = limit_of_window(cell);
    figures.bytes_per_second() as f64 * 100.0 / limit.bytes_per_second as f64
}

/// Everything that has a time takes place in a shorter window, in proportion.
fn shortened(name: &str, window_ms: u64) -> Scenario {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let loaded = file::read(&root.join(format!("{name}.toml")));
    let mut scenario = loaded.unwrap_or_else(|mistake| panic!("{mistake}")).scenario;
    let (was_ns, is_ns) = (scenario.run.window_ns, window_ms * 1_000_000);
    scenario.run.window_ns = is_ns;
    scenario.run.ramp_ns = is_ns / 3;
    let scale = |ns: u64| (u128::from(ns) * u128::from(is_ns) / u128::from(was_ns)) as u64;
    scenario.changes.iter_mut().for_each(|change| change.at_ns = scale(change.at_ns));
    scenario.hosts.detect_ns = scale(scenario.hosts.detect_ns);
    scenario
}

/// Runs a variant in both; what they reach, when that is too far apart.
fn apart(scenario: &Scenario, variant: &Variant) -> Option<String> {
    let cell = Cell { scenario, variant, seed: 1 };
    let in_light = percent(&light::run(cell).expect("the light simulation runs"), cell);
    let in_engine = percent(&run(scenario, &variant.name, 1), cell);
    let differ = in_engine - in_light;
    let row = format!(
        "{:<25} {:<26} {in_light:>7.2} {in_engine:>7.2} {differ:>7.2}",
        scenario.name, variant.name
    );
    println!("{row}");
    // `finish-time` spills by what single requests show: a few more or less on eight paths.
    let learns = variant.parameters.policy == Policy::FinishTime;
    (differ.abs() > if learns { 2.0 * TOLERANCE } else { TOLERANCE }).then_some(row)
}

#[test]
fn both_simulations_agree_within_two_points() {
    println!("{:<25} {:<26} {:>7} {:>7} {:>7}", "scenario", "variant", "light", "engine", "differ");
    let mut found = Vec::new();
    for (name, window_ms) in SCENARIOS {
        let scenario = shortened(name, window_ms);
        let variants = scenario.variants.iter().filter(|v| !v.name.starts_with("latency"));
        found.extend(variants.filter_map(|variant| apart(&scenario, variant)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn both_simulations_agree_on_paths_that_slow_down_fail_fall_silent_and_return() {
    let mut found = Vec::new();
    for name in ["path-delay-rises", "path-returns", "path-silent", "path-slows"] {
        let scenario = shortened(name, 400);
        let names = ["round-robin", "queue-depth", "finish-time"];
        let variants = names.map(|name| variant(&scenario, name));
        found.extend(variants.into_iter().filter_map(|variant| apart(&scenario, variant)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// They move no payload, but a range each, which a host counts and links carry.
#[test]
fn both_simulations_agree_on_trims() {
    let scenario = scenario(
        r#"
[run]
ramp = "20ms"
window = "200ms"
[[path]]
name = "near"
rate = "100mbit"
[[path]]
name = "far"
rate = "100mbit"
delay = "1ms"
[[job]]
rw = "randtrim"
bs = "4k"
iodepth = 8
"#,
    );
    for name in ["round-robin", "queue-depth", "service-time", "queue-length"] {
        let cell = Cell { scenario: &scenario, variant: variant(&scenario, name), seed: 1 };
        let in_light = light::run(cell).expect("the light simulation runs").iops() as f64;
        let in_engine = run(&scenario, name, 1).iops() as f64;
        println!("{name}: {in_light} and {in_engine}");
        assert!((in_engine / in_light - 1.0).abs() * 100.0 <= TOLERANCE, "{name}");
    }
}

/// Not only how much is done: the target's shaper makes no heaps of latencies that the policy does
/// not make. In the light simulation a port serves first come, first served; in the target its
/// connections take turns.
#[test]
fn both_simulations_agree_on_the_spread_of_latencies() {
    let scenario = shortened("service-time-4k", 150);
    for (name, percent) in [("queue-depth", 5.0), ("service-time tuned", 60.0)] {
        let variant = variant(&scenario, name);
        let in_light = light::run(Cell { scenario: &scenario, variant, seed: 1 });
        let in_light = in_light.expect("the light simulation runs").latency.stdev() as f64;
        let in_engine = run(&scenario, name, 1).latency.stdev() as f64;
        println!("{name}: {in_light} and {in_engine} ns");
        assert!((in_engine / in_light - 1.0).abs() * 100.0 <= percent, "{name}");
    }
}

/// Two workers with few requests each on two paths of 4:1: what one has more than the other on a
/// path ends later, for their connections take turns. `finish-time` levels that out.
#[test]
fn finish_time_spreads_latencies_by_less_than_a_tenth_of_queue_depth() {
    for depth in [6, 64] {
        let mut scenario = shortened("service-time-4k", 1500);
        for path in &mut scenario.paths {
            path.shape.rate_out = path.shape.rate_out.map(|rate| rate / 10);
        }
        scenario.jobs[0].depth = depth;
        let stdev = |name: &str| run(&scenario, name, 1).latency.stdev();
        let (own, other) = (stdev("finish-time"), stdev("queue-depth"));
        println!("depth {depth}: {own} and {other} ns");
        assert!(own * 10 <= other, "depth {depth}: {own} and {other} ns");
    }
}
