//! How many I/Os the engine simulation gets through in a second of one core's time (not of the wall
//! clock: others may use the core too): the best of eight runs, for each policy.
//! `cargo run --release -p anabranch-lab --example engine_speed`

use anabranch_lab::cell::Cell;
use anabranch_lab::engine::run;
use anabranch_lab::scenario::{Hosts, Job, Order, Path, Run, Scenario, Target, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;
use std::time::Duration;

/// 4 KiB random reads at depth 64 from four workers, on links of 237 and 56 MiB/s, as in the first
/// test of the service-time series; a window that is long enough for the setup not to matter.
fn scenario() -> Scenario {
    let path = |name: &str, mib: u64| {
        let shape = Shape { rate_out: Some(mib << 23), ..Shape::default() };
        Path { shape, ..Path::new(name) }
    };
    let job = Job { depth: 64, clones: 4, order: Order::Random, ..Job::default() };
    Scenario {
        name: "speed".to_owned(),
        title: "Speed of the engine simulation".to_owned(),
        source: String::new(),
        run: Run { ramp_ns: 1_000_000_000, window_ns: 4_000_000_000, runs: 1 },
        hosts: Hosts::default(),
        target: Target::default(),
        paths: vec![path("fast", 237), path("slow", 56)],
        changes: Vec::new(),
        jobs: vec![job],
        burners: Vec::new(),
        variants: Policy::ALL.into_iter().map(|policy| Variant::plain(policy, 2)).collect(),
        published: Vec::new(),
    }
}

/// Processor time of this thread so far.
fn on_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

fn main() {
    let scenario = scenario();
    let wanted = std::env::args().nth(1);
    println!("{:<24} {:>10} {:>12} {:>12}", "policy", "I/Os", "I/Os per s", "ns per I/O");
    for variant in &scenario.variants {
        if wanted.as_ref().is_some_and(|wanted| *wanted != variant.name) {
            continue;
        }
        let mut best = Duration::MAX;
        let mut ios = 0;
        for _ in 0..8 {
            let began = on_cpu();
            match run(Cell { scenario: &scenario, variant, seed: 1 }) {
                Ok(figures) => ios = figures.books.requests_ended,
                Err(problem) => return eprintln!("{problem}"),
            }
            best = best.min(on_cpu() - began);
        }
        let ns = u64::try_from(best.as_nanos()).unwrap_or(u64::MAX);
        let (rate, each) = (ios * 1_000_000_000 / ns.max(1), ns / ios.max(1));
        println!("{:<24} {ios:>10} {rate:>12} {each:>12}", variant.name);
    }
}
