//! `finish-time` on links that are slow one way only: reads go where data comes from the target
//! fast, writes where it goes there fast, as far as both can.

use super::rig::*;
use anabranch_lab::engine;
use anabranch_lab::light::Cell;
use anabranch_lab::limit::limit_of_window;
use anabranch_lab::scenario::{Alteration, Change, Hosts, Job, Mix, Path, Scenario};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;
use std::time::Duration;

const MIB: u64 = 8 << 20;

/// MiB/s to the target, and from it.
fn shape((to_target, from_target): (u64, u64)) -> Shape {
    Shape {
        rate_in: Some(to_target * MIB),
        rate_out: Some(from_target * MIB),
        delay: Duration::from_micros(100),
        ..Shape::default()
    }
}

/// Reads and writes half and half on such links, of two workers.
fn both_ways(rates: &[(u64, u64)], bytes: u32, depth: u32) -> Scenario {
    both_ways_of(2, rates, bytes, depth)
}

/// Likewise, of so many workers with as many jobs, four at least.
fn both_ways_of(workers: u32, rates: &[(u64, u64)], bytes: u32, depth: u32) -> Scenario {
    let paths = rates.iter().enumerate().map(|(place, rates)| {
        let name = format!("p{place}");
        Path { shape: shape(*rates), ..Path::new(&name) }
    });
    let mix = Mix { read: 50, write: 50, trim: 0 };
    let job = Job { mix, ..reads(bytes, depth, workers.max(4)) };
    let hosts = Hosts { workers, nodes: vec![0; workers as usize], ..Hosts::default() };
    Scenario { hosts, ..scenario(paths.collect(), vec![job]) }
}

/// Per cent of what the links can do together, with both policies.
fn percent(scenario: &Scenario) -> [u64; 2] {
    [Policy::FinishTime, Policy::QueueDepth].map(|policy| {
        let variant = plain(policy, scenario.paths.len());
        let figures = run_variant(scenario, &variant, 1);
        let limit = limit_of_window(Cell { scenario, variant: &variant, seed: 1 });
        figures.bytes_per_second() * 100 / limit.bytes_per_second
    })
}

#[test]
fn links_that_are_slow_in_opposite_directions_get_what_they_are_fast_for() {
    let opposite = [(100, 1000), (1000, 100)];
    // By how much more than `queue-depth`, in tenths.
    let cases = [
        (both_ways(&opposite, 65_536, 4), 35),
        (both_ways(&opposite, 65_536, 16), 40),
        (both_ways(&[(300, 1000), (1000, 300)], 4096, 64), 14),
        (both_ways(&[(300, 1000), (1000, 500), (200, 200)], 16_384, 16), 12),
    ];
    for (scenario, times) in cases {
        let [own, other] = percent(&scenario);
        println!("{own} %, queue-depth {other} %");
        assert!(own * 10 >= other * times, "{own} %, queue-depth {other} %");
    }
}

/// Queue pairs take turns: what a worker has there in a direction itself tells how long it waits.
#[test]
fn many_workers_get_as_much_of_such_links_as_few() {
    let opposite = [(100, 1000), (1000, 100)];
    for (workers, depth) in [(4, 16), (8, 8), (16, 4)] {
        let [own, other] = percent(&both_ways_of(workers, &opposite, 65_536, depth));
        println!("{workers} workers: {own} %, queue-depth {other} %");
        assert!(own >= other * 4, "{workers} workers: {own} %, queue-depth {other} %");
    }
}

/// Nothing tells the rates from those of links that became slower both ways but which commands wait
/// for which.
#[test]
fn a_direction_that_becomes_slow_under_load_is_found() {
    let mut scenario = both_ways(&[(300, 300), (300, 300)], 16_384, 8);
    let slower = [(30, 300), (300, 30)].map(shape);
    scenario.changes = slower
        .into_iter()
        .enumerate()
        .map(|(path, shape)| change(50, path, Alteration::Shape(shape)))
        .collect::<Vec<Change>>();
    let [own, other] = percent(&scenario);
    assert!(own * 10 >= other * 13, "{own} %, queue-depth {other} %");
}

/// Writes of more than a few KiB wait for the target's word before they send their data.
#[test]
fn the_whole_host_does_the_same() {
    let scenario = both_ways(&[(100, 1000), (1000, 100)], 65_536, 4);
    let [light, _] = percent(&scenario);
    let variant = plain(Policy::FinishTime, 2);
    let cell = Cell { scenario: &scenario, variant: &variant, seed: 1 };
    let figures = engine::run(cell).expect("it can be run");
    let whole = figures.bytes_per_second() * 100 / limit_of_window(cell).bytes_per_second;
    assert!(whole * 10 >= light * 7, "{whole} %, light {light} %");
}
