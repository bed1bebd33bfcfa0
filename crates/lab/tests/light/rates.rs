//! `rate` and `rate_iops` of jobs that read and write: as fio 3.33 paces them, and their limit.
//! Expected figures are fio's, `ioengine=null` with these words.

use super::rig::*;
use anabranch_lab::light::{Bound, Cell, Figures, Limit, limit_of_window};
use anabranch_lab::scenario::{Job, Scenario, fio};
use anabranch_policy::Policy;
use std::time::Duration;

/// A job of these words beside `iodepth=4` and `rw=randrw`.
fn job(words: &str) -> Job {
    let text = format!("[a]\nioengine=libaio\ntime_based\niodepth=4\nrw=randrw\nbs=4k\n{words}\n");
    let mut file = fio::parse(&text, "rates.fio").unwrap_or_else(|mistake| panic!("{mistake}"));
    file.jobs.remove(0)
}

/// On two paths with so many bits a second each way.
fn on_two_paths(rate_in: u64, rate_out: u64, jobs: Vec<Job>) -> Scenario {
    let mut paths = ["a", "b"].map(|name| path(name, rate_out, Duration::from_micros(20)));
    for path in &mut paths {
        path.shape.rate_in = Some(rate_in);
    }
    let mut scenario = scenario(paths.into(), jobs);
    scenario.run.window_ns = 2000 * MS;
    scenario
}

fn fast(words: &str) -> Scenario {
    on_two_paths(10_000 * MBIT, 10_000 * MBIT, vec![job(words)])
}

/// Reads and writes of a job a second.
fn each(figures: &Figures, job: usize) -> [u64; 2] {
    let [reads, writes, _] = &figures.jobs[job];
    [reads, writes].map(|class| class.latency.count() * 1_000_000_000 / figures.window_ns)
}

fn limit(scenario: &Scenario) -> Limit {
    let variant = plain(Policy::QueueDepth, scenario.paths.len());
    limit_of_window(Cell { scenario, variant: &variant, seed: 1 })
}

/// Within a percent, and two for those that are about to end at the edges.
fn near(found: u64, expected: u64) -> bool {
    found.abs_diff(expected) <= expected / 100 + 2
}

#[test]
fn reads_and_writes_have_their_rates_each_for_itself() {
    for (words, expected) in [
        ("rate_iops=1000,100", [1000, 100]),
        ("rate_iops=1000,100\nrwmixread=1", [1000, 100]),
        ("rate_iops=1000,100\nrwmixread=99", [1000, 100]),
        ("rate_iops=500\nrwmixread=80", [500, 500]),
        ("rate_iops=500\nrwmixread=99", [500, 500]),
        ("rate_iops=500\nrwmixread=100", [500, 0]),
        ("rate_iops=500\nrwmixread=0", [0, 500]),
        ("rate=500k,1m", [125, 256]),
        ("rate=500k,1m\nrw=rw", [125, 256]),
        ("rate=10m,1m\nbssplit=4k/50:64k/50,16k/100", [301, 64]),
        ("rate_iops=1000,100\nbssplit=4k/50:64k/50,16k/100", [118, 100]),
        ("rate_iops=100,1000\nbssplit=4k/50:64k/50,16k/100", [12, 1000]),
        ("rate_iops=1000\nbssplit=4k/50:64k/50\nrw=randread", [118, 0]),
        ("rate_iops=1000\nbssplit=4k/0:8k/100\nrw=randread", [500, 0]),
    ] {
        let mut scenario = fast(words);
        // Which sizes come is drawn, and should have time to even out.
        scenario.run.window_ns = 20_000 * MS;
        let figures = run_policy(&scenario, Policy::QueueDepth);
        let found = each(&figures, 0);
        let percent = if words.contains("split") { 5 } else { 1 };
        let close = |(found, expected): (u64, u64)| {
            found.abs_diff(expected) <= expected * percent / 100 + 2
        };
        let both = [0, 1].map(|op| (found[op], expected[op]));
        assert!(both.into_iter().all(close), "{words}: {found:?}, not {expected:?}");
        let limit = limit(&scenario);
        assert_eq!(limit.bound, Bound::Offered, "{words}");
        assert!(near(limit.iops, expected.iter().sum()), "{words}: {limit}");
        let bytes = figures.bytes_per_second();
        assert!(bytes.abs_diff(limit.bytes_per_second) <= limit.bytes_per_second / 50, "{words}");
    }
}

#[test]
fn what_has_no_rate_goes_on_as_if_alone() {
    let alone = each(&run_policy(&fast("rwmixread=100"), Policy::QueueDepth), 0)[0];
    for (words, paced, expected) in [
        ("rate=,1m", 1, 256),
        ("rate=,1m\nrwmixread=80", 1, 256),
        ("rate_iops=100,", 0, 100),
        ("rate_iops=100,\nrwmixread=20", 0, 100),
    ] {
        let scenario = fast(words);
        let figures = run_policy(&scenario, Policy::QueueDepth);
        let found = each(&figures, 0);
        assert!(near(found[paced], expected), "{words}: {found:?}");
        assert!(found[1 - paced] * 10 > alone * 9, "{words}: {found:?} of {alone}");
        let limit = limit(&scenario);
        assert_ne!(limit.bound, Bound::Offered, "{words}");
        let iops = figures.iops();
        assert!(
            iops * 100 >= limit.iops * 97 && iops * 100 <= limit.iops * 101,
            "{words}: {limit}"
        );
    }
    // A class that the mix does not have is not drawn instead.
    assert_eq!(
        each(&run_policy(&fast("rate_iops=,100\nrwmixread=0"), Policy::QueueDepth), 0),
        [0, 100]
    );
}

/// Where the links carry less than the rates ask for, requests wait in the proportion of the mix.
#[test]
fn the_limit_fits_where_the_links_carry_less_than_the_rates() {
    for (words, rate_in, rate_out) in [
        // 100 reads and 1000 writes, but 60 writes a second fit: as many reads pass beside them.
        ("rate_iops=100,1000", MBIT, 10_000 * MBIT),
        // All of the writes, not all of the reads.
        ("rate_iops=10000,1000", 10_000 * MBIT, 50 * MBIT),
        // Writes have no rate, and fill their links beside a few reads.
        ("rate_iops=100,", 20 * MBIT, 10_000 * MBIT),
        // They have one that the links do not carry.
        ("rate=,1g\nrwmixread=30", 20 * MBIT, 10_000 * MBIT),
        ("rate=,1m\nrwmixread=99", 10_000 * MBIT, 20 * MBIT),
    ] {
        let mut deep = job(words);
        deep.depth = 64;
        let mut scenario = on_two_paths(rate_in, rate_out, vec![deep]);
        scenario.run.window_ns = 10_000 * MS;
        let found = run_policy(&scenario, Policy::QueueDepth);
        let limit = limit(&scenario);
        let (iops, most) = (found.iops(), limit.iops);
        let text = format!("{words}: {:?} a second, {limit}", each(&found, 0));
        assert!(iops * 100 >= most * 94 && iops * 100 <= most * 103 + 300, "{text}");
        assert!(matches!(limit.bound, Bound::LinksIn | Bound::LinksOut), "{text}");
    }
}

/// A job without a rate for its reads comes no sooner than others.
#[test]
fn a_rate_of_one_direction_does_not_put_the_other_first() {
    let mut both = job("rate_iops=,100");
    both.depth = 32;
    let plain = Job { name: "plain".to_owned(), ..reads(4096, 32, 1) };
    let scenario = on_two_paths(10_000 * MBIT, 100 * MBIT, vec![both, plain]);
    let figures = run_policy(&scenario, Policy::QueueDepth);
    let limit = limit(&scenario);
    assert_eq!(limit.bound, Bound::LinksOut);
    let expected = 200 * MBIT / (8 * (4096 + 48)) + 100;
    assert!(near(limit.iops, expected), "{limit}, not {expected}");
    assert!(near(figures.iops(), expected), "{}, not {expected}", figures.iops());
    let ([reads, writes], [others, _]) = (each(&figures, 0), each(&figures, 1));
    assert!(near(writes, 100), "{writes}");
    assert!(reads * 4 > others * 3 && reads * 4 < others * 5, "{reads} beside {others}");
}
