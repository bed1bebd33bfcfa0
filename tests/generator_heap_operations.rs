//! The load generator allocates nothing per I/O: a long run has no more heap operations than a
//! short one.

#[path = "support/heap.rs"]
mod heap;

#[allow(dead_code)]
#[path = "../crates/lab/tests/generator/fake.rs"]
mod fake;

use anabranch_lab::generator::{Payload, Plan};
use anabranch_lab::scenario::{Arrival, Job, Mix, Order, PerOp, Sizes};
use fake::{BEGIN, Device, Fake, MS, SECOND, US};
use std::sync::Arc;

/// Heap operations and I/Os of a run of some jobs.
fn count(jobs: &Arc<[Job]>, window_ns: u64) -> (u64, u64) {
    let plan = Plan {
        jobs: Arc::clone(jobs),
        device: "nvme0n1".to_owned(),
        host: 0,
        paths: 2,
        seed: 1,
        begin: BEGIN,
        ramp_ns: 100 * MS,
        window_ns,
        clock: None,
        payload: Payload::Stamped,
    };
    let before = heap::operations();
    let mut fake = Fake::new(2, Device { room: 24, ..Device::small(100 * US, 1 << 12) });
    fake.taken = None;
    let figures = fake.run(plan);
    assert_eq!(figures.errors, 0);
    let ios = figures.books.requests_ended;
    drop((fake, figures));
    (heap::operations() - before, ios)
}

#[test]
fn nothing_is_allocated_per_io() {
    let job = Job {
        mix: Mix { read: 50, write: 40, trim: 10 },
        order: Order::Random,
        sizes: PerOp::all(Sizes::Range { min: 512, max: 8192 }),
        depth: 16,
        clones: 4,
        ..Job::default()
    };
    let paced = Job { rate_iops: PerOp::all(Some(2000)), ..job.clone() };
    let thinks = Job { thinktime_ns: 50 * US, ..job.clone() };
    // More than the device serves: requests wait for room.
    let closed: Arc<[Job]> = Arc::from([job.clone(), paced, thinks]);
    // Operations of all threads are counted: while this runs, the test harness comes to rest.
    count(&closed, SECOND / 5);
    let ((few, some), (same, many)) = (count(&closed, SECOND / 5), count(&closed, 3 * SECOND));
    assert!(few > 0 && many > 8 * some, "{some} and {many} I/Os");
    assert_eq!(few, same, "heap operations in {some} and {many} I/Os");
    // An open loop takes a buffer for each request more than were ever open before.
    let open: Arc<[Job]> = Arc::from([Job { arrival: Arrival::Poisson { iops: 100_000 }, ..job }]);
    let ((few, some), (more, many)) = (count(&open, SECOND / 5), count(&open, 3 * SECOND));
    assert!(many > 8 * some, "{some} and {many} I/Os");
    assert!((more - few) * 1000 < many - some, "{few} and {more} in {some} and {many} I/Os");
}
