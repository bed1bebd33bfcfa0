//! Cells: order, bytes, books.

use super::rig::{MS, scenario, session, turn};
use anabranch_lab::figures::{Figures, SERIES_NS};
use anabranch_lab::live::{LiveError, order};
use anabranch_lab::scenario::{Burner, BurnerMode, Scenario};

/// What holds for every cell that went well.
#[track_caller]
fn check(figures: &Figures, scenario: &Scenario) {
    assert_eq!(figures.errors, 0);
    figures.books.check().unwrap_or_else(|text| panic!("{text}"));
    assert!(figures.requests > 0);
    let size = 4096;
    assert_eq!(figures.bytes, figures.requests * size);
    assert_eq!(figures.latency.count(), figures.requests);
    let classes: u64 = figures.classes.iter().map(|class| class.bytes).sum();
    assert_eq!(classes, figures.bytes);
    assert_eq!(figures.hosts.iter().sum::<u64>(), figures.bytes);
    assert_eq!(figures.hosts.len(), scenario.hosts.count as usize);
    assert_eq!(figures.paths.len(), scenario.paths.len());
    assert_eq!(figures.jobs.len(), scenario.jobs.len());
    assert!(figures.submission.count() > 0);
    let windows = (scenario.run.ramp_ns + scenario.run.window_ns) / SERIES_NS;
    assert_eq!(figures.series.len() as u64, windows);
    assert_eq!(figures.series.bytes.len(), figures.series.len() * scenario.paths.len());
    assert!(figures.series.bytes.iter().sum::<u64>() > 0);
    let cpu = figures.cpu.expect("live runs know the CPU's part");
    assert!(cpu.user_ns + cpu.system_ns > 0);
    assert!(cpu.idle_ppm <= 1_000_000);
}

#[test]
fn two_policies_take_turns_and_their_order_is_that_of_the_links() {
    let _turn = turn();
    let scenario = scenario();
    let mut session = session(&scenario);
    let mut bytes = [0; 2];
    for run in 1..=2 {
        for index in order(2, run) {
            let variant = &scenario.variants[index];
            let figures = session.run(variant, run).unwrap_or_else(|error| panic!("{error}"));
            check(&figures, &scenario);
            let slow = figures.paths[1].commands;
            assert!(figures.paths[0].commands > 0 && slow > 0, "both paths are used");
            bytes[index] += figures.bytes;
        }
    }
    session.end().unwrap_or_else(|error| panic!("{error}"));
    let [round_robin, queue_depth] = bytes;
    // The slow path holds a half of what is given out in turn: 40 Mbit/s against 100.
    assert!(queue_depth > round_robin, "{queue_depth} against {round_robin}");
}

#[test]
fn two_hosts_with_burners_share_the_paths() {
    let _turn = turn();
    let mut scenario = scenario();
    scenario.hosts.count = 2;
    scenario.burners = vec![Burner {
        name: "cpu".to_owned(),
        load_percent: 20,
        chunk_ns: MS,
        mode: BurnerMode::Qsort,
        clones: 1,
    }];
    let mut session = session(&scenario);
    let figures = session.run(&scenario.variants[1], 1).unwrap_or_else(|error| panic!("{error}"));
    check(&figures, &scenario);
    assert!(figures.hosts.iter().all(|bytes| *bytes > 0), "{:?}", figures.hosts);
    session.end().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_cell_that_cannot_be_is_named() {
    let _turn = turn();
    let scenario = scenario();
    let mut session = session(&scenario);
    let mut variant = scenario.variants[0].clone();
    variant.weights = vec![1];
    let error = session.run(&variant, 7).expect_err("a weight is missing");
    assert!(matches!(error, LiveError::Cell { run: 7, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("small, round-robin, run 7: weights"), "{text}");
    // The session is as good as before.
    let figures = session.run(&scenario.variants[0], 1).unwrap_or_else(|error| panic!("{error}"));
    check(&figures, &scenario);
    session.end().unwrap_or_else(|error| panic!("{error}"));
}
