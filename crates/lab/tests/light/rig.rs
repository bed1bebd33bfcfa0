//! Scenarios in a line, and runs whose books are always checked.

use anabranch_lab::light::{Cell, Figures, run};
use anabranch_lab::scenario::{
    Alteration, Arrival, BlockSize, Change, Hosts, Job, Mix, Path, PerOp, Run, Scenario, Sizes,
    Target, Variant,
};
use anabranch_policy::{Parameters, Policy};
use anabranch_target::link::Shape;
use std::time::Duration;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const MBIT: u64 = 1_000_000;

/// A path with the same rate both ways.
pub(crate) fn path(name: &str, rate: u64, delay: Duration) -> Path {
    let shape = Shape { rate_in: Some(rate), rate_out: Some(rate), delay, ..Shape::default() };
    Path { shape, ..Path::new(name) }
}

/// Reads of one size, closed loop.
pub(crate) fn reads(bytes: u32, depth: u32, clones: u32) -> Job {
    Job { sizes: PerOp::all(Sizes::fixed(bytes)), depth, clones, ..Job::default() }
}

/// Reads and writes half and half, of two sizes.
pub(crate) fn mixed(depth: u32, clones: u32) -> Job {
    let sizes = [4096, 131_072].map(|bytes| BlockSize { bytes, weight: 50 });
    Job {
        mix: Mix { read: 50, write: 49, trim: 1 },
        sizes: PerOp::all(Sizes::Split(sizes.to_vec())),
        ..reads(4096, depth, clones)
    }
}

/// Poisson arrivals of 4 KiB reads.
pub(crate) fn arrivals(iops: u64) -> Job {
    Job { arrival: Arrival::Poisson { iops }, ..reads(4096, 1, 1) }
}

/// These paths and jobs, 100 ms of ramp and a window of 900 ms.
pub(crate) fn scenario(paths: Vec<Path>, jobs: Vec<Job>) -> Scenario {
    let variants = vec![Variant::plain(Policy::QueueDepth, paths.len())];
    Scenario {
        name: "test".to_owned(),
        title: "a test".to_owned(),
        source: String::new(),
        run: Run { ramp_ns: 100 * MS, window_ns: 900 * MS, runs: 1 },
        hosts: Hosts::default(),
        target: Target::default(),
        paths,
        changes: Vec::new(),
        jobs,
        burners: Vec::new(),
        variants,
        published: Vec::new(),
    }
}

/// A change, by time from the start of the window.
pub(crate) fn change(at_ms: u64, path: usize, what: Alteration) -> Change {
    Change { at_ns: at_ms * MS, path, what }
}

/// A policy as it comes, `latency` with a window that ends in short runs.
pub(crate) fn plain(policy: Policy, paths: usize) -> Variant {
    let mut variant = Variant::plain(policy, paths);
    variant.parameters.latency.batch_timeout = "20ms".parse().expect("a time");
    variant
}

/// The same, kernel-exact.
pub(crate) fn exact(policy: Policy, paths: usize) -> Variant {
    let parameters = Parameters { kernel_exact: true, ..plain(policy, paths).parameters };
    Variant { parameters, ..plain(policy, paths) }
}

/// Runs a cell; its books must balance.
pub(crate) fn run_variant(scenario: &Scenario, variant: &Variant, seed: u64) -> Figures {
    let cell = Cell { scenario, variant, seed };
    let figures = run(cell).unwrap_or_else(|problem| panic!("{problem}"));
    if let Err(what) = figures.books.check() {
        panic!("{} with seed {seed}: {what}", variant.name);
    }
    figures
}

/// Runs a policy as it comes, with seed 1.
pub(crate) fn run_policy(scenario: &Scenario, policy: Policy) -> Figures {
    run_variant(scenario, &plain(policy, scenario.paths.len()), 1)
}
