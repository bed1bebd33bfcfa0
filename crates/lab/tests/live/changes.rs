//! Paths that change while a cell runs: no request fails, and the next cell finds them as they
//! were.

use super::rig::{MS, scenario, session, turn};
use anabranch_lab::figures::SERIES_NS;
use anabranch_lab::scenario::{Alteration, AnaState, Brownout, Change, PathState, Run, Scenario};
use anabranch_target::link::Shape;
use std::time::Duration;

fn changing(changes: &[(u64, usize, Alteration)]) -> Scenario {
    let mut scenario = scenario();
    scenario.run = Run { ramp_ns: 50 * MS, window_ns: 450 * MS, runs: 1 };
    let change = |(at, path, what): &(u64, usize, Alteration)| Change {
        at_ns: at * MS,
        path: *path,
        what: what.clone(),
    };
    scenario.changes = changes.iter().map(change).collect();
    scenario
}

/// Runs it twice; payload per path of each run.
fn run_twice(scenario: &Scenario) -> [Vec<u64>; 2] {
    let mut session = session(scenario);
    let runs = [1, 2].map(|run| {
        let ran = session.run(&scenario.variants[1], run);
        let figures = ran.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(figures.errors, 0);
        figures.books.check().unwrap_or_else(|text| panic!("{text}"));
        assert_eq!(figures.series.len() as u64, 500 * MS / SERIES_NS);
        figures.paths.iter().map(|path| path.bytes).collect()
    });
    session.end().unwrap_or_else(|error| panic!("{error}"));
    runs
}

#[test]
fn a_path_that_is_cut_and_returns_costs_no_request() {
    let _turn = turn();
    let state = Alteration::State;
    let cut = changing(&[(100, 0, state(PathState::Cut)), (250, 0, state(PathState::Up))]);
    for paths in run_twice(&cut) {
        assert!(paths.iter().all(|bytes| *bytes > 0), "{paths:?}");
    }
}

#[test]
fn a_path_that_is_silent_until_the_end_is_back_in_the_next_cell() {
    let _turn = turn();
    let mut silent = changing(&[(100, 0, Alteration::State(PathState::Silent))]);
    silent.hosts.detect_ns = 100 * MS;
    for paths in run_twice(&silent) {
        assert!(paths.iter().all(|bytes| *bytes > 0), "{paths:?}");
    }
}

#[test]
fn links_brownouts_and_ana_states_change_and_are_back_in_the_next_cell() {
    let _turn = turn();
    let slower = Shape { rate_out: Some(10_000_000), ..Shape::default() };
    let brownout = Brownout { percent: 50, delay: Duration::from_millis(5) };
    let changed = changing(&[
        (50, 0, Alteration::Shape(slower)),
        (100, 0, Alteration::Brownout(Some(brownout))),
        (150, 1, Alteration::Ana(AnaState::Inaccessible)),
        (300, 0, Alteration::Ana(AnaState::NonOptimized)),
    ]);
    for paths in run_twice(&changed) {
        assert!(paths.iter().all(|bytes| *bytes > 0), "{paths:?}");
    }
}
