//! From records and samples to the figures of a cell.

use crate::fake::{BEGIN, Device, Fake, MS, US};
use crate::{plan, reads, scenario};
use anabranch_lab::cell::Cell;
use anabranch_lab::generator::{HostFigures, PathSample, assemble};
use anabranch_proto::machine::Time;

/// A path that carries steadily: so much per millisecond, sampled at these times.
fn steady(times_ms: &[u64], commands: u64, latency_ns: u64) -> Vec<PathSample> {
    let sample = |ms: &u64| PathSample {
        at: Time::from_ns(BEGIN.ns() + ms * MS),
        // A run before this one has counted already.
        commands: 1000 + ms * commands,
        bytes: 5000 + ms * commands * 4096,
        latency_ns: 77 + ms * commands * latency_ns,
        in_flight: 3,
    };
    times_ms.iter().map(sample).collect()
}

#[test]
fn hosts_add_up_and_samples_become_series() {
    let scenario = scenario(1, vec![reads(2, 1)]);
    let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
    let host = *Fake::new(1, Device::new(100 * US)).run(plan(&scenario));
    let all: Vec<u64> = (0..=20).map(|window| window * 50).collect();
    // The second path is sampled at other times: what lies between is even.
    let some = [0, 130, 333, 777, 1000];
    let paths = vec![steady(&all, 10, 200_000), steady(&some, 30, 100_000)];
    let figures = assemble(cell, BEGIN, &[host.clone(), host], &[paths.clone(), paths], None);
    assert_eq!(figures.requests, 2 * 2 * 9_000);
    assert_eq!((figures.bytes, &figures.hosts), (36_000 * 4096, &vec![18_000 * 4096; 2]));
    assert_eq!(figures.jobs[0][0].requests(), figures.requests);
    assert_eq!(figures.submission.count(), figures.requests);
    // 900 ms on two hosts: 10 and 30 commands per millisecond on each, 2 and 3 in flight.
    let [one, two] = &figures.paths[..] else { panic!("two paths") };
    assert_eq!((one.commands, one.bytes, one.in_flight_milli), (18_000, 18_000 * 4096, 4000));
    assert_eq!((two.commands, two.bytes, two.in_flight_milli), (54_000, 54_000 * 4096, 6000));
    let series = &figures.series;
    assert_eq!((series.len(), series.paths), (20, 2));
    for window in 0..20 {
        assert_eq!(series.bytes_of(window), &[1000 * 4096, 3000 * 4096]);
        assert_eq!(series.in_flight_milli[2 * window..][..2], [4000, 6000]);
        assert_eq!(series.path_mean_ns[2 * window..][..2], [200_000, 100_000]);
        let expected = if window == 0 { 2 * 2 * 499 } else { 2 * 2 * 500 };
        assert_eq!((series.requests[window], series.mean_ns[window]), (expected, 100 * US));
    }
    assert_eq!(figures.books.check(), Ok(()));
    assert_eq!(figures.books.commands_ended, 80_000);
    assert_eq!(figures.books.commands_open, 4 * 3);
}

#[test]
fn without_samples_paths_are_empty() {
    let scenario = scenario(1, vec![reads(1, 1)]);
    let cell = Cell { scenario: &scenario, variant: &scenario.variants[0], seed: 1 };
    let figures = assemble(cell, BEGIN, &[HostFigures::default()], &[vec![Vec::new(); 2]], None);
    assert_eq!((figures.paths.len(), figures.paths[1].commands, figures.requests), (2, 0, 0));
    assert_eq!((figures.series.len(), figures.series.bytes.len()), (20, 40));
}
