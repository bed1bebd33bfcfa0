//! Host (control and two shards) and target in virtual time, with faults drawn from a seed: each
//! request is answered exactly once, every read is legal, nothing is left over, and the same seed
//! gives the same run.
//!
//! `ANABRANCH_SEEDS=N` runs N seeds (from `ANABRANCH_FIRST_SEED` on), `ANABRANCH_SEED=S` runs one
//! and prints what it did.

mod pair_world;

use pair_world::{Faults, Outcome, run_seed};
use std::sync::atomic::{AtomicU64, Ordering};

fn run_all(kind: Faults, seeds: std::ops::Range<u64>) -> Outcome {
    let next = AtomicU64::new(seeds.start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<Outcome> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut sum = Outcome::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return sum;
                        }
                        let run = std::panic::catch_unwind(|| run_seed(seed, kind, false));
                        let Ok(outcome) = run else {
                            panic!("seed {seed} failed: ANABRANCH_SEED={seed} replays it");
                        };
                        sum.add(&outcome);
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("every seed holds")).collect()
    });
    let mut sum = Outcome::default();
    parts.iter().for_each(|part| sum.add(part));
    sum
}

#[test]
fn every_request_is_answered_once_and_every_read_is_legal_under_faults() {
    if let Some(seed) = number("ANABRANCH_SEED") {
        println!("{:?}", run_seed(seed, Faults::Paths, true));
        return;
    }
    let seeds = number("ANABRANCH_SEEDS").unwrap_or(10_000);
    let sum = run_all(Faults::Paths, range(seeds));
    println!("{seeds} seeds: {sum:?}");
    // Each of these must have happened somewhere, or the run proves less than it says.
    assert!(sum.requests > seeds * 10, "the load did something");
    assert!(sum.failovers > 0, "commands moved between paths");
    assert!(sum.reconnects > 0, "controllers came back");
    assert!(sum.requeued > 0, "commands waited for a path");
    assert!(sum.uncertain_writes_resent > 0, "writes were sent again with unknown outcome");
    assert!(sum.blocks_verified > seeds, "reads were checked");
}

#[test]
fn every_request_is_answered_once_whatever_administrators_do() {
    if let Some(seed) = number("ANABRANCH_SEED") {
        println!("{:?}", run_seed(seed, Faults::Administration, true));
        return;
    }
    let seeds = number("ANABRANCH_SEEDS").unwrap_or(4_000);
    let sum = run_all(Faults::Administration, range(seeds));
    println!("{seeds} seeds: {sum:?}");
    assert!(sum.requests > seeds * 10, "the load did something");
    assert!(sum.errors > 0, "devices went away under requests");
    assert!(sum.reconnects > 0, "controllers were reset");
    assert!(sum.blocks_verified > seeds, "reads were checked");
}

#[test]
fn every_request_is_answered_once_whatever_arrives() {
    if let Some(seed) = number("ANABRANCH_SEED") {
        println!("{:?}", run_seed(seed, Faults::Garbage, true));
        return;
    }
    let seeds = number("ANABRANCH_SEEDS").unwrap_or(500);
    let sum = run_all(Faults::Garbage, range(seeds));
    println!("{seeds} seeds: {sum:?}");
    assert!(sum.requests > seeds * 10, "the load did something");
    assert!(sum.errors > 0 && sum.reconnects > 0, "there was garbage");
}

#[test]
fn the_same_seed_gives_the_same_trace_twice() {
    for seed in (0..1_000_000).step_by(9_973).take(40) {
        for kind in [Faults::Paths, Faults::Administration] {
            let (first, second) = (run_seed(seed, kind, false), run_seed(seed, kind, false));
            assert_eq!(first.trace_hash, second.trace_hash, "seed {seed}");
            assert_eq!(first, second, "seed {seed}");
        }
    }
    let hash = |seed| run_seed(seed, Faults::Paths, false).trace_hash;
    assert_ne!(hash(1), hash(2));
}

fn range(seeds: u64) -> std::ops::Range<u64> {
    let first = number("ANABRANCH_FIRST_SEED").unwrap_or(0);
    first..first + seeds
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} must be a number, is {text:?}")))
}
