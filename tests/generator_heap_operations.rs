//! The load generator allocates nothing per I/O: a long run has no more heap operations than a
//! short one.

#[path = "support/heap.rs"]
mod heap;

#[path = "../crates/lab/examples/support/eager.rs"]
mod eager;

use anabranch_lab::generator::Payload;
use anabranch_lab::scenario::{Arrival, Job, Mix, Order, PerOp, Sizes};
use std::sync::Arc;

const MS: u64 = 1_000_000;

/// Heap operations and I/Os of a run of some jobs; the host has room for 40 requests.
fn count(jobs: &Arc<[Job]>, payload: Payload, window_ms: u64) -> (u64, u64) {
    let before = heap::operations();
    let ios = eager::run(jobs, payload, window_ms * MS, 40);
    (heap::operations() - before, ios)
}

#[test]
fn nothing_is_allocated_per_io() {
    let job = Job {
        mix: Mix { read: 50, write: 40, trim: 10 },
        order: Order::Random,
        sizes: PerOp::all(Sizes::Range { min: 4096, max: 65_536 }),
        depth: 16,
        clones: 4,
        ..Job::default()
    };
    let paced = Job { rate_iops: PerOp::all(Some(2000)), ..job.clone() };
    let thinks = Job { thinktime_ns: 50_000, ..job.clone() };
    let writes = Job { mix: Mix { read: 0, write: 100, trim: 0 }, ..job.clone() };
    let mixed: Arc<[Job]> = Arc::from([job.clone(), paced, thinks]);
    // Operations of all threads are counted: while this runs, the test harness comes to rest.
    count(&mixed, Payload::Plain, 100);
    for (jobs, payload) in [(mixed, Payload::Plain), (Arc::from([writes]), Payload::Stamped)] {
        let (few, some) = count(&jobs, payload, 50);
        let (same, many) = count(&jobs, payload, 600);
        assert!(few > 0 && many > 10 * some, "{some} and {many} I/Os");
        assert_eq!(few, same, "heap operations in {some} and {many} I/Os");
    }
    // An open loop takes a buffer for each request more than were ever open before.
    let open: Arc<[Job]> =
        Arc::from([Job { arrival: Arrival::Poisson { iops: 2_000_000 }, ..job }]);
    let (few, some) = count(&open, Payload::Plain, 50);
    let (more, many) = count(&open, Payload::Plain, 600);
    assert!(many > 10 * some, "{some} and {many} I/Os");
    assert!((more - few) * 1000 < many - some, "{few} and {more} in {some} and {many} I/Os");
}
