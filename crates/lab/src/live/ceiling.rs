//! Each path alone: does it carry what the scenario says, as late as the scenario says?

use super::LiveError;
use super::stand::{DEEPEST, Stand};
use crate::cell::Cell;
use crate::limit::{Bound, Limit, base_delay, limit_of_window};
use crate::result::Ceiling;
use crate::scenario::{
    AnaState, Arrival, BlockSize, Job, Mix, Order, PerOp, Run, Scenario, Sizes, Variant,
};
use anabranch_policy::Policy;

/// What a rate may be off, in hundredths.
const RATE_PERCENT: u64 = 3;
/// What a delay may be off.
const DELAY_NS: u64 = 1_000_000;
/// How a capacity is measured at least, and at most.
const CAPACITY: Run = Run { ramp_ns: 200_000_000, window_ns: 600_000_000, runs: 1 };
const LONGEST_NS: u64 = 4_000_000_000;
/// So many open requests fill a path, unless its delay needs more.
const OPEN: u64 = 128;
/// Requests that should end in a measurement.
const ENOUGH: u64 = 300;
/// Requests, one after the other, of which the median delay is taken.
const DELAYS: u64 = 20;

/// Measures one path; sentences tell what is off.
pub(super) fn measure(
    stand: &mut Stand,
    scenario: &Scenario,
    path: usize,
) -> Result<(Ceiling, Vec<String>), LiveError> {
    let variant = Variant::plain(Policy::RoundRobin, scenario.paths.len());
    let alone = alone(scenario, path);
    let (loaded, limit) = capacity(&alone, path);
    stand.begin_as(&loaded, &variant)?;
    let carried = stand.run(Cell { scenario: &loaded, variant: &variant, seed: 1 })?.figures;
    let single = single(&alone, path);
    stand.begin_as(&single, &variant)?;
    let delayed = stand.run(Cell { scenario: &single, variant: &variant, seed: 1 })?.figures;
    let delay = base_delay(Cell { scenario: &single, variant: &variant, seed: 1 }, path);
    let ceiling = Ceiling {
        path: scenario.paths[path].name.clone(),
        asked_bytes_s: limit.bytes_per_second,
        bytes_s: carried.bytes_per_second(),
        asked_delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
        delay_ns: delayed.latency.per_mille(500),
    };
    let notes = verdict(&ceiling, limit.bound);
    Ok((ceiling, notes))
}

/// Only this path can be used; nothing changes, comes and goes or burns.
fn alone(scenario: &Scenario, path: usize) -> Scenario {
    let mut alone = scenario.clone();
    alone.changes.clear();
    alone.burners.clear();
    for (at, other) in alone.paths.iter_mut().enumerate() {
        other.ana = if at == path { AnaState::Optimized } else { AnaState::Inaccessible };
        other.brownout = None;
        other.shape.on_off = None;
    }
    alone
}

fn limit(scenario: &Scenario) -> Limit {
    let variant = Variant::plain(Policy::RoundRobin, scenario.paths.len());
    limit_of_window(Cell { scenario, variant: &variant, seed: 1 })
}

/// Closed loops of the scenario's own mix, as deep as the path needs to be full, and not much
/// deeper: a queue of seconds would be measured while it builds up.
fn capacity(alone: &Scenario, path: usize) -> (Scenario, Limit) {
    let mut loaded = alone.clone();
    loaded.run = CAPACITY;
    loaded.jobs.iter_mut().for_each(unbridled);
    let shape = &alone.paths[path].shape;
    if shape.rate_in.is_some() || shape.rate_out.is_some() {
        fill(&mut loaded);
    }
    let limit = limit(&loaded);
    loaded.run = steady(&loaded);
    (loaded, limit)
}

/// A ramp until what began at once has ended twice, and a window in which enough requests end.
pub(super) fn steady(scenario: &Scenario) -> Run {
    let time = |requests: u64| requests.saturating_mul(1_000_000_000) / limit(scenario).iops.max(1);
    Run {
        ramp_ns: time(open(scenario) * 2).clamp(CAPACITY.ramp_ns, LONGEST_NS / 2),
        window_ns: time(ENOUGH).clamp(CAPACITY.window_ns, LONGEST_NS),
        runs: 1,
    }
}

/// Requests of all closed loops together.
fn open(scenario: &Scenario) -> u64 {
    let of = scenario.jobs.iter().map(|job| u64::from(job.depth) * u64::from(job.clones));
    of.sum::<u64>().saturating_mul(u64::from(scenario.hosts.count))
}

/// Deepens jobs while their open requests bind, or makes them shallower while they do not.
pub(super) fn fill(loaded: &mut Scenario) {
    let binds = |scenario: &Scenario| limit(scenario).bound == Bound::OpenRequests;
    while binds(loaded) && loaded.jobs.iter().any(|job| job.depth < DEEPEST) {
        for job in &mut loaded.jobs {
            job.depth = (job.depth * 2).clamp(job.depth, DEEPEST.max(job.depth));
        }
    }
    while open(loaded) > OPEN {
        let mut less = loaded.clone();
        for job in &mut less.jobs {
            // One of the two shrinks, the longer one first.
            let longer = if job.depth >= job.clones { &mut job.depth } else { &mut job.clones };
            *longer = longer.div_ceil(2);
        }
        // All are at one.
        if less.jobs == loaded.jobs || binds(&less) {
            return;
        }
        *loaded = less;
    }
}

/// The same requests as fast as they are answered.
pub(super) fn unbridled(job: &mut Job) {
    if job.arrival != Arrival::Closed {
        (job.arrival, job.depth, job.clones) = (Arrival::Closed, 64, 4);
    }
    job.rate_bytes = PerOp::default();
    job.rate_iops = PerOp::default();
    job.thinktime_ns = 0;
}

/// One host, one small read at a time.
fn single(alone: &Scenario, path: usize) -> Scenario {
    let mut single = alone.clone();
    single.hosts.count = 1;
    let size = BlockSize { bytes: alone.target.block_bytes.max(4096), weight: 1 };
    single.jobs = vec![Job {
        name: "single".to_owned(),
        mix: Mix { read: 100, write: 0, trim: 0 },
        order: Order::Random,
        sizes: PerOp::all(Sizes::Split(vec![size])),
        ..Job::default()
    }];
    let variant = Variant::plain(Policy::RoundRobin, alone.paths.len());
    let delay = base_delay(Cell { scenario: &single, variant: &variant, seed: 1 }, path);
    let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
    let window_ns = delay.saturating_mul(DELAYS).clamp(CAPACITY.window_ns / 2, LONGEST_NS);
    single.run = Run { ramp_ns: CAPACITY.ramp_ns / 4, window_ns, runs: 1 };
    single
}

fn verdict(ceiling: &Ceiling, bound: Bound) -> Vec<String> {
    let Ceiling { path, asked_bytes_s, bytes_s, asked_delay_ns, delay_ns } = ceiling;
    let mut notes = Vec::new();
    let is_rate = matches!(bound, Bound::LinksIn | Bound::LinksOut | Bound::Target);
    let off = asked_bytes_s.abs_diff(*bytes_s);
    if is_rate && u128::from(off) * 100 > u128::from(*asked_bytes_s) * u128::from(RATE_PERCENT) {
        notes.push(format!(
            "path {path} alone carries {} instead of {} KiB/s: more than {RATE_PERCENT} % off",
            bytes_s >> 10,
            asked_bytes_s >> 10
        ));
    }
    if asked_delay_ns.abs_diff(*delay_ns) > DELAY_NS {
        notes.push(format!(
            "path {path} alone answers after {} instead of {} us: more than {} ms off",
            delay_ns / 1000,
            asked_delay_ns / 1000,
            DELAY_NS / 1_000_000
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Hosts, Path, Target};
    use std::time::Duration;

    fn ceiling(bytes_s: u64, delay_ns: u64) -> Ceiling {
        let path = "a".to_owned();
        Ceiling { path, asked_bytes_s: 100_000, bytes_s, asked_delay_ns: 2_000_000, delay_ns }
    }

    /// A path of 400 Mbit/s.
    fn scenario(delay: Duration, job: Job) -> Scenario {
        let mut path = Path::new("a");
        (path.shape.rate_out, path.shape.delay) = (Some(400_000_000), delay);
        Scenario {
            name: "ceiling".into(),
            title: "ceiling".into(),
            source: String::new(),
            run: CAPACITY,
            hosts: Hosts::default(),
            target: Target::default(),
            paths: vec![path],
            changes: Vec::new(),
            jobs: vec![job],
            burners: Vec::new(),
            variants: vec![Variant::plain(Policy::RoundRobin, 1)],
            published: Vec::new(),
        }
    }

    #[test]
    fn loads_are_as_deep_as_the_path_needs() {
        // Near: fewer requests are enough. Far: 30 ms of 400 Mbit/s are 366 requests of 4 KiB.
        let deep = Job { depth: 32, clones: 32, ..Job::default() };
        let (near, limit) = capacity(&scenario(Duration::ZERO, deep.clone()), 0);
        assert_eq!(limit.bound, Bound::LinksOut);
        assert!(near.jobs[0].depth * near.jobs[0].clones <= 128, "{:?}", near.jobs[0]);
        let (far, limit) = capacity(&scenario(Duration::from_millis(30), deep), 0);
        assert_eq!(limit.bound, Bound::LinksOut);
        assert!(far.jobs[0].depth * far.jobs[0].clones >= 366, "{:?}", far.jobs[0]);
        let shallow = Job { depth: 1, clones: 4, ..Job::default() };
        let (far, limit) = capacity(&scenario(Duration::from_millis(30), shallow), 0);
        assert_eq!((limit.bound, far.jobs[0].depth), (Bound::LinksOut, 128));
    }

    #[test]
    fn a_path_that_is_off_is_named() {
        assert!(verdict(&ceiling(103_000, 3_000_000), Bound::LinksOut).is_empty());
        assert_eq!(verdict(&ceiling(96_999, 3_000_001), Bound::LinksOut).len(), 2);
        // Without a rate there is nothing to keep to.
        assert!(verdict(&ceiling(1, 2_000_000), Bound::OpenRequests).is_empty());
    }
}
