//! What the load generator itself costs per I/O: on a host that takes everything and answers it at
//! once. `cargo run --release -p anabranch-lab --example generator_speed`

#[path = "support/eager.rs"]
mod eager;

use anabranch_lab::generator::Payload;
use anabranch_lab::scenario::{Arrival, BlockSize, Job, Mix, Order, PerOp, Sizes};
use std::sync::Arc;
use std::time::Instant;

/// Nanoseconds per I/O of one second, and how many there were.
fn measure(jobs: &Arc<[Job]>, payload: Payload) -> (u64, u64) {
    let began = Instant::now();
    let ios = eager::run(jobs, payload, 1_000_000_000, 1 << 17);
    let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    (ns / ios.max(1), ios)
}

fn main() {
    let plain = Job { order: Order::Random, depth: 32, clones: 4, ..Job::default() };
    let split = [4096, 65_536].map(|bytes| BlockSize { bytes, weight: 50 });
    let mixed = Job {
        mix: Mix { read: 70, write: 29, trim: 1 },
        sizes: PerOp::all(Sizes::Split(split.to_vec())),
        ..plain.clone()
    };
    let writes = Job { mix: Mix { read: 0, write: 100, trim: 0 }, ..plain.clone() };
    let paced = Job { rate_iops: PerOp::all(Some(500_000)), ..plain.clone() };
    let open = Job { arrival: Arrival::Poisson { iops: 2_000_000 }, ..plain.clone() };
    println!("{:<24} {:>10} {:>12}", "job", "I/Os", "ns per I/O");
    for (name, job, payload) in [
        ("random 4k reads", &plain, Payload::Plain),
        ("writes, stamped", &writes, Payload::Stamped),
        ("mixed", &mixed, Payload::Plain),
        ("rate_iops", &paced, Payload::Plain),
        ("Poisson", &open, Payload::Plain),
    ] {
        let jobs: Arc<[Job]> = Arc::from([job.clone()]);
        let runs = (0..5).map(|_| measure(&jobs, payload));
        let (each, ios) = runs.min().unwrap_or_default();
        println!("{name:<24} {ios:>10} {each:>12}");
    }
}
