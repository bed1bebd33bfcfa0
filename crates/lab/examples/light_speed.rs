//! How many I/Os the light simulation gets through in a second of one core: the best of some runs,
//! for each policy. `cargo run --release -p anabranch-lab --example light_speed`

use anabranch_lab::light::{Cell, run};
use anabranch_lab::scenario::{Hosts, Job, Path, Run, Scenario, Target, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;
use std::time::{Duration, Instant};

/// 4 KiB reads at depth 32 from four workers, on links of 10 and 2.5 Gbit/s.
fn scenario() -> Scenario {
    let path = |name: &str, rate: u64| {
        let delay = Duration::from_micros(50);
        let shape = Shape { rate_in: Some(rate), rate_out: Some(rate), delay, ..Shape::default() };
        Path { shape, ..Path::new(name) }
    };
    Scenario {
        name: "speed".to_owned(),
        title: "Speed of the light simulation".to_owned(),
        source: String::new(),
        run: Run::default(),
        hosts: Hosts::default(),
        target: Target::default(),
        paths: vec![path("fast", 10_000_000_000), path("slow", 2_500_000_000)],
        changes: Vec::new(),
        jobs: vec![Job { depth: 32, clones: 4, ..Job::default() }],
        burners: Vec::new(),
        variants: Policy::ALL.into_iter().map(|policy| Variant::plain(policy, 2)).collect(),
        published: Vec::new(),
    }
}

fn main() {
    let scenario = scenario();
    println!("{:<24} {:>10} {:>12} {:>12}", "policy", "I/Os", "I/Os per s", "ns per I/O");
    for variant in &scenario.variants {
        let mut best = Duration::MAX;
        let mut ios = 0;
        for seed in 1..=8 {
            let began = Instant::now();
            match run(Cell { scenario: &scenario, variant, seed }) {
                Ok(figures) => ios = figures.books.requests_ended,
                Err(problem) => return eprintln!("{problem}"),
            }
            best = best.min(began.elapsed());
        }
        let ns = u64::try_from(best.as_nanos()).unwrap_or(u64::MAX);
        let (rate, each) = (ios * 1_000_000_000 / ns.max(1), ns / ios.max(1));
        println!("{:<24} {ios:>10} {rate:>12} {each:>12}", variant.name);
    }
}
