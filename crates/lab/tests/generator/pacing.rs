//! Closed loops: exactly as often as `rate`, `rate_iops` and `thinktime` say.

use crate::fake::{Device, Fake, MS, SECOND, US};
use crate::{plan, reads, scenario};
use anabranch_lab::generator::HostFigures;
use anabranch_lab::scenario::{Job, Mix, PerOp, Sizes};

/// One worker's starts, and what it writes down.
fn run(job: Job, device: Device) -> (Vec<u64>, Box<HostFigures>) {
    let mut fake = Fake::new(1, device);
    let figures = fake.run(plan(&scenario(1, vec![job])));
    (fake.taken.iter().flatten().map(|taken| taken.at_ns).collect(), figures)
}

fn every(step: u64, end: u64) -> Vec<u64> {
    (0..).map(|n| n * step).take_while(|at| *at < end).collect()
}

#[test]
fn without_a_limit_the_next_request_follows_at_once() {
    let (starts, figures) = run(reads(1, 1), Device::new(100 * US));
    assert_eq!(starts, every(100 * US, SECOND));
    // What ends at the ramp's end counts, what ends at the window's end does not.
    assert_eq!(figures.jobs[0][0].requests(), 9_000);
    assert_eq!(figures.bytes, 9_000 * 4096);
    assert_eq!(figures.jobs[0][0].latency.max(), 100 * US);
    assert_eq!(figures.submission.max(), 0);
    assert_eq!(figures.submission.count(), 9_000);
}

#[test]
fn as_many_as_the_depth_are_open() {
    let (starts, figures) = run(reads(8, 2), Device::new(MS));
    let expected: Vec<u64> = every(MS, SECOND).into_iter().flat_map(|at| [at; 16]).collect();
    assert_eq!(starts, expected);
    // The last sixteen are open at the end.
    assert_eq!((figures.books.requests_open, figures.books.open_ns), (16, 16 * MS));
    assert_eq!(figures.books.in_flight_ns, 16 * SECOND);
}

#[test]
fn rate_iops_spaces_requests_evenly() {
    let job = Job { rate_iops: PerOp::all(Some(1000)), ..reads(4, 1) };
    let (starts, _) = run(job, Device::new(100 * US));
    assert_eq!(starts, every(MS, SECOND));
}

#[test]
fn rate_spaces_bytes_evenly() {
    let job = Job {
        rate_bytes: PerOp::all(Some(8192 * 1000)),
        sizes: PerOp::all(Sizes::fixed(8192)),
        ..reads(1, 1)
    };
    let (starts, _) = run(job, Device::new(100 * US));
    assert_eq!(starts, every(MS, SECOND));
}

#[test]
fn what_a_slow_device_missed_is_caught_up() {
    // 1000 per second asked for, one every 1.5 ms possible: the device is always busy.
    let job = Job { rate_iops: PerOp::all(Some(1000)), ..reads(1, 1) };
    let (starts, figures) = run(job, Device::new(1500 * US));
    assert_eq!(starts, every(1500 * US, SECOND));
    assert_eq!(figures.jobs[0][0].latency.max(), 1500 * US, "a closed loop waits, nobody is late");
}

#[test]
fn a_thread_thinks_after_each_completion() {
    let job = Job { thinktime_ns: 300 * US, ..reads(1, 1) };
    let (starts, figures) = run(job, Device::new(200 * US));
    assert_eq!(starts, every(500 * US, SECOND));
    let busy = figures.books.in_flight_ns;
    assert_eq!(busy, 2000 * 200 * US, "thinking is not in flight");
}

#[test]
fn reads_and_writes_have_limits_of_their_own() {
    let run = |mix: Mix, writes| {
        let rate_iops = PerOp { read: Some(400), write: writes, trim: None };
        let (_, figures) = run(Job { mix, rate_iops, ..reads(64, 1) }, Device::new(100 * US));
        let [reads, writes, _] = &figures.jobs[0];
        (reads.requests(), writes.requests())
    };
    for read in [20, 50, 95] {
        let mix = Mix { read, write: 100 - read, trim: 0 };
        assert_eq!(run(mix, Some(200)), (360, 180), "{read} of 100 are reads");
        // The device does 640,000 a second, whatever they are.
        let (reads, writes) = run(mix, None);
        assert_eq!(reads, 360, "{read} of 100 are reads");
        assert!((575_000..=576_000).contains(&(reads + writes)), "{writes}");
    }
    // What the mix does not have does not come instead.
    assert_eq!(run(Mix { read: 100, write: 0, trim: 0 }, None), (360, 0));
}

#[test]
fn a_full_host_counts_as_submission_latency() {
    let device = Device { room: 2, ..Device::new(MS) };
    let (starts, figures) = run(reads(6, 1), device);
    // Two at a time, each in its turn: four others are before it.
    assert_eq!(starts.len(), 2000);
    assert_eq!((figures.submission.max(), figures.jobs[0][0].latency.max()), (2 * MS, 3 * MS));
    assert_eq!(figures.books.requests_open, 6);
    assert_eq!(figures.books.in_flight_ns, 6 * SECOND);
}
