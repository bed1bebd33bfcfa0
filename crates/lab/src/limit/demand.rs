//! What the jobs ask for, load after load.
//!
//! Reads and writes of one job are drawn in the proportion of its mix, until one of them has its
//! `rate` or `rate_iops`; what then goes on is the other alone, up to a rate of its own. So a job
//! with such rates is two loads, the second of which begins where the first has all that it asks
//! for.

use super::{ENDLESS, Load, MILLION, PARTS, SECOND_NS};
use crate::cell::Cell;
use crate::light::kinds;
use crate::scenario::{Arrival, Job};
use anabranch_policy::OpClass;

/// Classes and sizes with their shares in millionths.
type Kinds = Vec<(OpClass, u32, u64)>;

/// What the jobs want of the paths. A load gets nothing where one before it, in the same list,
/// lacks something.
pub(super) struct Demand {
    /// Of the jobs that ask for a number of requests a second: they come first.
    pub(super) paced: Vec<Load>,
    /// Of those that take what is left. All but the last have a rate for some of their requests.
    pub(super) rest: Vec<Load>,
}

impl Demand {
    pub(super) fn of(cell: Cell<'_>) -> Demand {
        let (paced, rest): (Vec<&Job>, Vec<&Job>) =
            cell.scenario.jobs.iter().partition(|job| is_paced(job));
        Demand { paced: paced_loads(cell, &paced), rest: other_loads(cell, &rest) }
    }

    /// How many of its loads have a rate: what they miss is caught up.
    pub(super) fn with_a_rate(&self) -> usize {
        self.paced.len() + self.rest.len().saturating_sub(1)
    }
}

/// Requests of a job in one proportion.
pub(super) struct Stream<'a> {
    pub(super) job: &'a Job,
    pub(super) kinds: Kinds,
    /// Among those of other jobs, in [`PARTS`]: of all hosts.
    pub(super) weight: u128,
}

/// All jobs at once: they weigh by the requests that they ask for where each of them does, else by
/// their open requests, open loops by their rate. What they ask for in a second, in [`PARTS`].
pub(super) fn together<'a>(cell: Cell<'a>, jobs: &[&'a Job]) -> (Vec<Stream<'a>>, u128) {
    let hosts = u128::from(cell.scenario.hosts.count);
    let asked = |job: &Job| (asks(job) * hosts).min(ENDLESS);
    let all_ask = jobs.iter().all(|job| asked(job) < ENDLESS);
    let weight = |job: &Job| match job.arrival {
        Arrival::Closed if !all_ask => {
            hosts * u128::from(job.clones) * u128::from(job.depth) * PARTS
        }
        _ => asked(job),
    };
    let stream = |job: &&'a Job| Stream { job, kinds: kinds_of(job), weight: weight(job) };
    let offered = jobs.iter().map(|job| asked(job)).fold(0, u128::saturating_add);
    (jobs.iter().map(stream).collect(), offered.min(ENDLESS))
}

/// First all of them by their mixes, then what is left of those that ask for more of one class.
fn paced_loads(cell: Cell<'_>, jobs: &[&Job]) -> Vec<Load> {
    let hosts = u128::from(cell.scenario.hosts.count);
    let mut loads = Vec::new();
    for index in 0..2 {
        let mut streams = Vec::new();
        for job in jobs {
            let mut phases = phases(job);
            if index < phases.len() {
                let before = if index == 0 { 0 } else { phases[index - 1].until };
                let Phase { kinds, until } = phases.swap_remove(index);
                let weight = (until - before).saturating_mul(clones(job) * hosts).min(ENDLESS);
                streams.push(Stream { job, kinds, weight });
            }
        }
        let offered = streams.iter().map(|stream| stream.weight).sum::<u128>().min(ENDLESS);
        if !streams.is_empty() {
            loads.push(Load::new(cell, &streams, offered));
        }
    }
    loads
}

/// All of them in the proportion of their open requests. Whenever one of them has the rate of one
/// class, a load ends, and that job goes on with the other.
fn other_loads(cell: Cell<'_>, jobs: &[&Job]) -> Vec<Load> {
    let hosts = u128::from(cell.scenario.hosts.count);
    let (mut streams, asked) = together(cell, jobs);
    if streams.is_empty() {
        return Vec::new();
    }
    let total: u128 = streams.iter().map(|stream| stream.weight).sum();
    // Where on the way: requests a second over weight, in millionths.
    let ends = |(index, job): (usize, &&Job)| {
        let first = phases(job).into_iter().rev().nth(1)?;
        let requests = first.until.saturating_mul(clones(job) * hosts);
        Some((requests.saturating_mul(MILLION).checked_div(streams[index].weight)?, index))
    };
    let mut ends: Vec<(u128, usize)> = jobs.iter().enumerate().filter_map(ends).collect();
    ends.sort_unstable();
    let (mut loads, mut before) = (Vec::new(), 0);
    for (end, index) in ends {
        if end > before {
            let offered = (end - before).saturating_mul(total) / MILLION;
            loads.push(Load::new(cell, &streams, offered.min(ENDLESS)));
            before = end;
        }
        streams[index].kinds = phases(jobs[index]).pop().map(|last| last.kinds).unwrap_or_default();
    }
    let taken = before.saturating_mul(total) / MILLION;
    let left = if asked < ENDLESS { asked.saturating_sub(taken) } else { ENDLESS };
    loads.push(Load::new(cell, &streams, left));
    loads
}

/// Whether a job asks for a number of requests a second, and catches up what it missed.
pub(crate) fn is_paced(job: &Job) -> bool {
    job.arrival != Arrival::Closed || paces(job).1 < ENDLESS
}

fn clones(job: &Job) -> u128 {
    match job.arrival {
        Arrival::Closed => job.clones.into(),
        Arrival::Poisson { .. } => 1,
    }
}

/// Requests a second that a job asks for on each host, in [`PARTS`].
fn asks(job: &Job) -> u128 {
    phases(job).last().map_or(0, |last| last.until.saturating_mul(clones(job)).min(ENDLESS))
}

/// A part of what a clone asks for.
struct Phase {
    kinds: Kinds,
    /// It ends at so many requests a second of this clone, with those before it, in [`PARTS`].
    until: u128,
}

/// What a clone asks for: all of its mix, and then the class that goes on, if one does. An open
/// loop is one clone.
fn phases(job: &Job) -> Vec<Phase> {
    let thought = (u128::from(job.depth) * SECOND_NS * PARTS)
        .checked_div(u128::from(job.thinktime_ns))
        .unwrap_or(ENDLESS);
    let (mix, all) = match job.arrival {
        Arrival::Poisson { iops } => (u128::from(iops) * PARTS, u128::from(iops) * PARTS),
        Arrival::Closed => paces(job),
    };
    let mut phases = vec![Phase { kinds: kinds(job), until: mix.min(thought) }];
    if mix < all.min(thought) {
        let rate = |op: OpClass| paced_at(job, op).saturating_mul(100) / share(job, op).max(1);
        let longer = if rate(OpClass::Read) > mix { OpClass::Read } else { OpClass::Write };
        let mut kinds = kinds(job);
        kinds.retain(|(op, _, _)| *op == longer);
        for (_, _, part) in &mut kinds {
            *part = *part * 100 / *job.mix.of(longer).max(&1) as u64;
        }
        phases.push(Phase { kinds, until: all.min(thought) });
    }
    phases
}

/// All requests of a job, as far as they have a proportion: by its rates, or by its mix.
fn kinds_of(job: &Job) -> Kinds {
    let mut phases = phases(job);
    match phases.as_slice() {
        [first, last] if last.until < ENDLESS => {
            let part = |of: u64, requests: u128| (u128::from(of) * requests / last.until) as u64;
            let mut all = first.kinds.clone();
            all.iter_mut().for_each(|(_, _, share)| *share = part(*share, first.until));
            let more = last.until - first.until;
            all.extend(last.kinds.iter().map(|(op, n, share)| (*op, *n, part(*share, more))));
            all
        }
        _ => phases.swap_remove(0).kinds,
    }
}

/// Requests a second that the rates allow a clone: as long as it draws its mix, and in all. Both in
/// [`PARTS`].
fn paces(job: &Job) -> (u128, u128) {
    let mut mix = ENDLESS;
    for op in OpClass::ALL.into_iter().filter(|op| share(job, *op) > 0) {
        let most = paced_at(job, op).saturating_mul(100) / share(job, op);
        mix = mix.min(most);
    }
    // Trims are not drawn instead of something else: they wait, and all else behind them.
    if mix >= ENDLESS || job.mix.trim > 0 {
        return (mix.min(ENDLESS), mix.min(ENDLESS));
    }
    let classes = [OpClass::Read, OpClass::Write].into_iter().filter(|op| share(job, *op) > 0);
    let all: u128 = classes.map(|op| paced_at(job, op)).sum();
    (mix, all.clamp(mix, ENDLESS))
}

/// Of 100.
fn share(job: &Job, op: OpClass) -> u128 {
    u128::from(*job.mix.of(op))
}

/// Requests a second of a class that a clone allows itself (`rate_iops`, `rate`), in [`PARTS`].
fn paced_at(job: &Job, op: OpClass) -> u128 {
    let all = kinds(job);
    let (mut requests, mut bytes) = (0u128, 0u128);
    for (_, size, part) in all.iter().filter(|(class, _, _)| *class == op) {
        requests += u128::from(*part);
        bytes += u128::from(*part) * u128::from(*size);
    }
    let smallest = u128::from(job.sizes.of(op).smallest());
    let (iops, rate) =
        (job.rate_iops.of(op).map(u128::from), job.rate_bytes.of(op).map(u128::from));
    let counted = match op {
        OpClass::Other => iops.map(|iops| iops * PARTS),
        OpClass::Read | OpClass::Write => iops
            .and_then(|iops| (iops * PARTS).saturating_mul(smallest * requests).checked_div(bytes)),
    };
    let moved = rate.and_then(|rate| (rate * PARTS * requests).checked_div(bytes));
    counted.into_iter().chain(moved).fold(ENDLESS, u128::min)
}
