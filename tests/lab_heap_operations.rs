//! The light simulation allocates nothing per I/O: a long run has no more heap operations than a
//! short one.

#[path = "support/heap.rs"]
mod heap;

use anabranch_lab::light::{Cell, run};
use anabranch_lab::scenario::{Hosts, Job, Path, Run, Scenario, Target, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;

fn scenario(window_ms: u64) -> Scenario {
    let path = |name: &str, rate: u64| {
        let shape = Shape { rate_in: Some(rate), rate_out: Some(rate), ..Shape::default() };
        Path { shape, ..Path::new(name) }
    };
    Scenario {
        name: "heap".to_owned(),
        title: "Heap operations of the light simulation".to_owned(),
        source: String::new(),
        run: Run { ramp_ns: 100_000_000, window_ns: window_ms * 1_000_000, runs: 1 },
        hosts: Hosts { queue_depth: 16, ..Hosts::default() },
        target: Target { servers: Some(16), ..Target::default() },
        paths: vec![path("fast", 4_000_000_000), path("slow", 1_000_000_000)],
        changes: Vec::new(),
        jobs: vec![Job { depth: 32, clones: 4, ..Job::default() }],
        burners: Vec::new(),
        variants: Policy::ALL.into_iter().map(|policy| Variant::plain(policy, 2)).collect(),
        published: Vec::new(),
    }
}

/// Heap operations and I/Os of a run.
fn count(scenario: &Scenario, variant: &Variant) -> (u64, u64) {
    let before = heap::operations();
    let figures = run(Cell { scenario, variant, seed: 1 }).expect("a cell that can be run");
    let ios = figures.books.requests_ended;
    drop(figures);
    (heap::operations() - before, ios)
}

#[test]
fn nothing_is_allocated_per_io() {
    let (short, long) = (scenario(100), scenario(1900));
    // What the process does only once, and the harness while the test begins.
    count(&short, &short.variants[0]);
    for variant in &short.variants {
        let ((few, some), (same, many)) = (count(&short, variant), count(&long, variant));
        assert!(few > 0 && many > 5 * some, "{}: {some} and {many} I/Os", variant.name);
        assert_eq!(few, same, "{}: heap operations in {some} and {many} I/Os", variant.name);
    }
}
