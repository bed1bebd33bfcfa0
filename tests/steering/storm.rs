//! Policies, weights and tunables change all the time under verifying load, and paths are cut now
//! and then: nothing is lost, nothing fails, every counter is back at 0 afterwards.
//!
//! `ANABRANCH_SEED=S` repeats a course. `ANABRANCH_STORM=N` makes N changes, a hundred a second;
//! without it there are fewer, each as soon as the load has moved on.

use crate::stand::{HEAD, SUBSYSTEM, Stand, WORKERS};
use crate::tunables::{Change, counters};
use anabranch::daemon::identity::random_seed;
use anabranch::daemon::path::PathSpec;

use anabranch_lab::load::{BlockSize, Job};
use anabranch_lab::rng::Rng;
use std::time::{Duration, Instant};

/// Changes of the ordinary run.
const CHANGES: u64 = 300;
/// Requests that end between two changes, at least.
const BETWEEN: u64 = 8;
/// A port is cut, or the one that is cut comes back, every so many changes.
const CUTS: u64 = 25;
/// Time between two changes when their number was given.
const TICK: Duration = Duration::from_millis(10);
/// One path is as fast as loopback, the others have commands in flight for a while.
const SHAPES: [&str; 3] = ["none", "delay=1ms,jitter=500us", "rate=400mbit"];

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Reads and writes of mixed sizes, every block stamped and checked.
fn job(seed: u64) -> Job {
    let size = |kib: u32, weight: u32| BlockSize { bytes: kib << 10, weight };
    Job {
        device: HEAD.to_owned(),
        read_percent: 50,
        random: true,
        sizes: vec![size(4, 6), size(16, 3), size(128, 1)],
        depth: 16,
        jobs: u32::try_from(WORKERS).expect("a few workers"),
        offset: 0,
        size: Some(16 << 20),
        number_ios: None,
        thinktime: Duration::ZERO,
        verify: true,
        seed,
    }
}

/// The workers share one queue pair of the last path, and have to wait for its tags.
fn options(port: usize) -> PathSpec {
    let shared = port == SHAPES.len() - 1;
    PathSpec {
        queue_size: Some(if shared { 16 } else { 32 }),
        nr_io_queues: shared.then_some(1),
        ..PathSpec::default()
    }
}

/// Cuts a port whose path has commands in flight, or restores the one that is cut.
fn cut_or_restore(stand: &Stand, cut: &mut Option<usize>, rng: &mut Rng) {
    if let Some(port) = cut.take() {
        return stand.restore(port);
    }
    let busy = stand.wait("commands in flight", |stand| {
        let paths = stand.paths().into_iter().enumerate();
        let busy: Vec<usize> = paths.filter(|(_, p)| p.in_flight > 0).map(|(at, _)| at).collect();
        (!busy.is_empty()).then_some(busy)
    });
    let port = busy[rng.below(busy.len() as u64) as usize];
    stand.cut(port);
    *cut = Some(port);
}

fn set(stand: &Stand, change: &Change) {
    stand.set(&change.object, change.attribute, &change.value);
}

/// Every counter that any policy reads says that nothing is in flight.
fn counters_are_zero(stand: &Stand) {
    for (changes, attribute) in counters(SUBSYSTEM) {
        changes.iter().for_each(|change| set(stand, change));
        for path in stand.paths() {
            assert_eq!(path.in_flight, 0, "{}", path.name);
            assert_eq!(stand.get(&path.name, attribute), "0", "{} {changes:?}", path.name);
        }
    }
}

#[test]
fn a_storm_of_changes_under_load_loses_nothing() {
    let seed = number("ANABRANCH_SEED").unwrap_or_else(|| random_seed().expect("chance"));
    let given = number("ANABRANCH_STORM");
    let changes = given.unwrap_or(CHANGES);
    println!("ANABRANCH_SEED={seed} ANABRANCH_STORM={changes}");
    let mut rng = Rng::new(seed);
    let stand = Stand::connected(&SHAPES, options);
    for path in stand.paths() {
        // From the first mask on, a path without one is used by nobody.
        stand.set(&path.name, "io_affinity", "3");
    }
    stand.start(&job(rng.next_u64()));
    let begin = Instant::now();
    let mut cut = None;
    let mut cuts = 0;
    for index in 1..=changes {
        let tick = given.map_or(begin, |_| begin + TICK * u32::try_from(index).expect("few"));
        let count = stand.report().total_requests() + BETWEEN;
        stand.wait("progress of the load", |stand| {
            (Instant::now() >= tick && stand.moved_on(count)).then_some(())
        });
        set(&stand, &Change::draw(&mut rng, SHAPES.len() as u64));
        if index % CUTS == 0 {
            cut_or_restore(&stand, &mut cut, &mut rng);
            cuts += u64::from(cut.is_some());
        }
    }
    cut.into_iter().for_each(|port| stand.restore(port));
    stand.await_live();
    let report = stand.stop();
    let failovers: u64 = stand.paths().iter().map(|path| path.failovers).sum();
    println!(
        "{} requests, {} blocks verified, {cuts} cuts, {failovers} failovers",
        report.total_requests(),
        report.blocks_verified
    );
    assert!(report.blocks_verified > 0, "reads were checked");
    assert!(failovers > 0, "cuts met commands in flight");
    counters_are_zero(&stand);
    stand.finish();
}
