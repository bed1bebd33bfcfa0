//! A scenario with links as fast as this machine can carry, and as many open requests as these
//! take.
//!
//! Links and load are scaled by one factor: then queues, shares and latencies are those of the full
//! rates. Only delays and the time that one request spends on a link do not go with the factor,
//! which matters where few requests are left: see [`open_part`].

use super::fit::QUEUE_SIZES;
use crate::cell::Cell;
use crate::limit::{Bound, filling, limit_of_window};
use crate::scenario::{Alteration, Arrival, Job, PerOp, Scenario, Variant};
use anabranch_policy::Policy;
use anabranch_target::link::Shape;

/// The slowest link, bits per second (the limit of [`Shape::check`]).
const SLOWEST: u64 = 1000;
/// What is scaled to 1.
pub(super) const WHOLE: u32 = 1000;
/// Requests per path beyond what fills its link, in thousandths: at least half a one, as requests
/// are whole; at most so many of the largest size keep it busy wherever the next request goes.
const BEYOND_MILLI: (u128, u128) = (500, 4000);
/// Too few open requests are less than this part of enough.
const FEW: (u64, u64) = (2, 3);

/// Parts of a scenario that are used, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Of the rates of links, and of what is offered.
    pub(super) rates: u32,
    /// Of the requests that closed loops keep open.
    pub(super) open: u32,
}

impl Parts {
    /// So much of the rates, and as many open requests as before: latencies are longer.
    pub(super) fn deep(rates: u32) -> Parts {
        Parts { rates, open: WHOLE }
    }
}

/// The part of the open requests that goes with this part of the rates.
///
/// It is the same part, so that latencies stay what they are, unless links would run dry that do
/// not at the full rates: one request takes a slower link longer, so that fewer of them fill it
/// less. Then it is what [`enough`] says.
pub(super) fn open_part(asked: &Scenario, rates: u32) -> u32 {
    let scaled = |open| scale(asked, Parts { rates, open });
    let left = |open| open_requests(&scaled(open));
    let wanted = enough(asked, &scaled(WHOLE));
    let (few, whole) = FEW;
    if rates == WHOLE || !depth_matters(asked) || left(rates) * whole >= wanted * few {
        return rates;
    }
    (rates..WHOLE).find(|open| left(*open) >= wanted).unwrap_or(WHOLE)
}

/// How many open requests fill the scaled paths as the scenario's fill its own: what the paths
/// hold, as far as the scenario fills them, and for each path what the scenario has beyond that,
/// within [`BEYOND_MILLI`].
fn enough(asked: &Scenario, scaled: &Scenario) -> u64 {
    let variant = Variant::plain(Policy::RoundRobin, asked.paths.len());
    let of = |scenario| filling(Cell { scenario, variant: &variant, seed: 1 });
    let (asked_filling, scaled_filling) = (of(asked), of(scaled));
    let open = u128::from(open_requests(asked)) * 1000;
    let held = asked_filling.held_milli.max(1);
    let filled = scaled_filling.held_milli.saturating_mul(open.min(held)) / held;
    let paths = u128::from(scaled_filling.paths);
    let (least, most) = BEYOND_MILLI;
    let most = most * scaled_filling.largest_milli / 1000;
    let each = open.saturating_sub(held).checked_div(paths).unwrap_or(0).clamp(least, most);
    let enough = filled.saturating_add(each * paths).min(open) / 1000;
    u64::try_from(enough).unwrap_or(u64::MAX)
}

/// Whether open requests have to do with what the scenario's limit is.
fn depth_matters(scenario: &Scenario) -> bool {
    let variant = Variant::plain(Policy::RoundRobin, scenario.paths.len());
    let limit = limit_of_window(Cell { scenario, variant: &variant, seed: 1 });
    let bounds = [Bound::LinksIn, Bound::LinksOut, Bound::Target, Bound::OpenRequests];
    open_requests(scenario) > 0 && bounds.contains(&limit.bound)
}

/// What closed loops keep open, on all hosts.
pub(super) fn open_requests(scenario: &Scenario) -> u64 {
    let closed = scenario.jobs.iter().filter(|job| job.arrival == Arrival::Closed);
    let of_host: u64 = closed.map(|job| u64::from(job.clones) * u64::from(job.depth)).sum();
    of_host * u64::from(scenario.hosts.count)
}

/// Rates of links and of what is offered times `parts.rates` / 1000, open requests and tags times
/// `parts.open` / 1000; the target's service times are longer when its servers are a limit. Delays
/// and sizes stay.
pub(super) fn scale(asked: &Scenario, parts: Parts) -> Scenario {
    let mut scenario = asked.clone();
    if parts.rates == WHOLE {
        return scenario;
    }
    for path in &mut scenario.paths {
        scale_shape(&mut path.shape, parts.rates);
    }
    for change in &mut scenario.changes {
        if let Alteration::Shape(shape) = &mut change.what {
            scale_shape(shape, parts.rates);
        }
    }
    for job in &mut scenario.jobs {
        let clones = job.clones;
        (job.clones, job.depth) = fewer(clones, job.depth, parts.open);
        scale_clone(job, clones);
        // Of as many requests as before each pauses longer.
        job.thinktime_ns = part(job.thinktime_ns, parts.open, parts.rates);
        scale_job(job, parts.rates);
    }
    let tags = &mut scenario.hosts.queue_depth;
    if parts.open < WHOLE {
        *tags = less(u64::from(*tags), parts.open).max(u64::from(QUEUE_SIZES.0)) as u32;
    }
    let target = &mut scenario.target;
    if target.servers.is_some() {
        for time in [&mut target.read_ns, &mut target.write_ns, &mut target.other_ns] {
            *time = part(*time, WHOLE, parts.rates);
        }
    }
    scenario
}

fn scale_shape(shape: &mut Shape, permille: u32) {
    for rate in [&mut shape.rate_in, &mut shape.rate_out].into_iter().flatten() {
        *rate = less(*rate, permille).max(SLOWEST);
    }
}

fn scale_job(job: &mut Job, permille: u32) {
    if let Arrival::Poisson { iops } = &mut job.arrival {
        *iops = less(*iops, permille).max(1);
    }
    let each = |rates: &mut PerOp<Option<u64>>| {
        for rate in [&mut rates.read, &mut rates.write, &mut rates.trim].into_iter().flatten() {
            *rate = less(*rate, permille).max(1);
        }
    };
    each(&mut job.rate_bytes);
    each(&mut job.rate_iops);
}

/// Clones and depth whose product is nearest to `permille` / 1000 of what it was, with as many
/// clones as that allows.
fn fewer(clones: u32, depth: u32, permille: u32) -> (u32, u32) {
    let all = u64::from(clones) * u64::from(depth);
    let part = u128::from(all) * u128::from(permille) + u128::from(WHOLE / 2);
    // Not more than there were.
    let total = (part / u128::from(WHOLE)).max(1) as u64;
    let most = u64::from(clones).min(total);
    let shapes = (most.min(2)..=most).rev().map(|clones| {
        let each = ((total + clones / 2) / clones).clamp(1, u64::from(depth));
        (clones, each)
    });
    let best = shapes.min_by_key(|(clones, each)| (clones * each).abs_diff(total));
    best.map_or((1, 1), |(clones, each)| (clones as u32, each as u32))
}

/// What clones allow themselves, when there were so many.
fn scale_clone(job: &mut Job, before: u32) {
    for rates in [&mut job.rate_bytes, &mut job.rate_iops] {
        for rate in [&mut rates.read, &mut rates.write, &mut rates.trim].into_iter().flatten() {
            *rate = part(*rate, before, job.clones);
        }
    }
}

fn less(value: u64, permille: u32) -> u64 {
    part(value, permille, WHOLE)
}

/// `value` times `of` / `whole`.
fn part(value: u64, of: u32, whole: u32) -> u64 {
    let part = u128::from(value) * u128::from(of) / u128::from(whole.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
