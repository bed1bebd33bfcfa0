//! The load generator in virtual time: what it asks for and when, and what it writes down.

mod books;
mod draws;
mod fake;
mod figures;
mod open_loop;
mod pacing;
mod rejections;
mod stamps;
mod whole_host;

use anabranch_lab::generator::{Payload, Plan};
use anabranch_lab::scenario::{
    BlockSize, Hosts, Job, Mix, Order, Path, PerOp, Run, Scenario, Sizes, Target, Variant,
};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;
use fake::{BEGIN, MS};

/// One host with so many workers, two fast paths, 100 ms of ramp and 900 ms of window.
pub(crate) fn scenario(workers: u32, jobs: Vec<Job>) -> Scenario {
    let path = |name: &str| {
        let rate = Some(100_000_000_000);
        Path {
            shape: Shape { rate_in: rate, rate_out: rate, ..Shape::default() },
            ..Path::new(name)
        }
    };
    Scenario {
        name: "test".to_owned(),
        title: "a test".to_owned(),
        source: String::new(),
        run: Run { ramp_ns: 100 * MS, window_ns: 900 * MS, runs: 1 },
        hosts: Hosts { workers, nodes: vec![0; workers as usize], ..Hosts::default() },
        target: Target::default(),
        paths: vec![path("one"), path("two")],
        changes: Vec::new(),
        jobs,
        burners: Vec::new(),
        variants: vec![Variant::plain(Policy::QueueDepth, 2)],
        published: Vec::new(),
    }
}

/// The plan of the first host, with seed 1.
pub(crate) fn plan(scenario: &Scenario) -> Plan {
    let cell = anabranch_lab::cell::Cell { scenario, variant: &scenario.variants[0], seed: 1 };
    Plan::of(cell, 0, "nvme0n1", BEGIN)
}

/// The plan of one host with one worker and stamps.
pub(crate) fn stamped(jobs: Vec<Job>) -> Plan {
    Plan { payload: Payload::Stamped, ..plan(&scenario(1, jobs)) }
}

/// Reads of 4 KiB anywhere, closed loop.
pub(crate) fn reads(depth: u32, clones: u32) -> Job {
    Job { order: Order::Random, depth, clones, ..Job::default() }
}

/// Reads, writes and trims of several sizes anywhere.
pub(crate) fn mixed(depth: u32, clones: u32) -> Job {
    let split = [4096, 16_384, 65_536].map(|bytes| BlockSize { bytes, weight: 10 });
    Job {
        mix: Mix { read: 60, write: 30, trim: 10 },
        sizes: PerOp {
            read: Sizes::Split(split.to_vec()),
            write: Sizes::Range { min: 4096, max: 32_768 },
            trim: Sizes::fixed(8192),
        },
        ..reads(depth, clones)
    }
}
