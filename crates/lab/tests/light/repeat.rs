//! One seed, one result, on every machine.

use super::rig::*;
use anabranch_lab::light::{Cell, Figures, run, run_all};
use anabranch_lab::scenario::{Brownout, Distribution, Scenario, Target};
use anabranch_policy::Policy;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn small() -> Scenario {
    let us = Duration::from_micros;
    let mut fast = path("fast", 2000 * MBIT, us(100));
    fast.shape.jitter = us(20);
    let mut slow = path("slow", 500 * MBIT, us(100));
    slow.brownout = Some(Brownout { percent: 1, delay: us(5000) });
    let target =
        Target { servers: Some(16), distribution: Distribution::Exponential, ..Target::default() };
    let jobs = vec![mixed(8, 4), arrivals(2000)];
    Scenario { target, ..scenario(vec![fast, slow], jobs) }
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_one_others() {
    let scenario = small();
    for policy in Policy::ALL {
        let hash = |seed| run_variant(&scenario, &plain(policy, 2), seed).hash();
        assert_eq!(hash(5), hash(5), "{policy}");
        assert_ne!(hash(5), hash(6), "{policy}");
    }
}

#[test]
fn a_small_cell_has_the_figures_it_always_had() {
    // A change of the model or of `queue-depth` changes them: then these are written anew.
    let figures = run_policy(&small(), Policy::QueueDepth);
    let found = (figures.requests, figures.latency.mean(), figures.hash());
    assert_eq!(found, (9170, 4_063_013, 0x55a2_6013_ecf7_87a9));
}

#[test]
fn jobs_ask_for_the_same_under_every_policy() {
    let scenario = Scenario { jobs: vec![arrivals(5000)], ..small() };
    let started = |policy| run_policy(&scenario, policy).books.requests_started;
    assert_eq!(started(Policy::Numa), started(Policy::HistoricalServiceTime));
}

#[test]
fn commands_that_take_no_time_are_refused_with_a_remedy() {
    let mut scenario = small();
    scenario.target = Target { read_ns: 0, write_ns: 0, other_ns: 0, ..Target::default() };
    scenario.paths[0].shape = Default::default();
    let cell = Cell { scenario: &scenario, variant: &plain(Policy::Numa, 2), seed: 1 };
    let problem = run(cell).expect_err("virtual time would stand still");
    assert!(problem.to_string().contains("give it a rate"), "{problem}");
    let wrong = plain(Policy::Numa, 3);
    assert!(run(Cell { scenario: &scenario, variant: &wrong, seed: 1 }).is_err());
}

#[test]
fn cells_give_the_same_on_any_number_of_threads() {
    let scenario = small();
    let variants: Vec<_> = Policy::ALL.into_iter().map(|policy| plain(policy, 2)).collect();
    let cells: Vec<_> =
        variants.iter().map(|variant| Cell { scenario: &scenario, variant, seed: 9 }).collect();
    let hashes = |threads| {
        let told = AtomicU64::new(0);
        let done = |place: usize, _: &Figures| {
            told.fetch_or(1 << place, Ordering::Relaxed);
        };
        let figures = run_all(&cells, threads, &done).expect("cells that can be run");
        assert_eq!(told.into_inner(), (1 << cells.len()) - 1);
        figures.iter().map(|figures| figures.hash()).collect::<Vec<_>>()
    };
    let one = hashes(1);
    assert_eq!(one.len(), Policy::ALL.len());
    assert_eq!(one, hashes(3));
    assert_eq!(one[2], run(cells[2]).expect("a cell that can be run").hash());
    let wrong = plain(Policy::Numa, 3);
    let cells = [cells[0], Cell { variant: &wrong, ..cells[0] }];
    assert!(run_all(&cells, 2, &|_, _| ()).is_err());
}
