//! When more than the limit is possible: it takes the jobs, and the requests, of a load as one.

use super::demand::{Demand, is_paced};
use super::{Bound, Load, MILLION, Part, Reach, Room, SECOND_NS, Spell, parts, reach, spans};
use crate::cell::Cell;
use crate::light::kinds;
use crate::light::{bytes_in, bytes_out};
use crate::scenario::{Alteration, AnaState, Arrival, Job};
use anabranch_policy::OpClass;

/// A class and a size, with its share in millionths.
type Kind = (OpClass, u32, u128);

/// More than this, in percent, is more than the noise of a run.
const NOISE_PERCENT: u128 = 1;

/// Jobs that ask for different requests go on at a pace of their own each, not in the proportion
/// that the limit takes them in; but what a load asks for in a second is never exceeded. Those with
/// a pace come first in the limit, and get less than that where they keep a few requests open that
/// stand behind those of the others.
pub(crate) fn where_jobs_differ(cell: Cell<'_>) -> bool {
    let waits = |job: &Job| is_paced(job) && job.arrival == Arrival::Closed;
    let may_wait = cell.scenario.jobs.iter().any(waits);
    let of = |parts: Vec<Part<'_>>, _: &[&Spell]| {
        let queued = |part: &Part<'_>| {
            !part.paced && !matches!(part.bound, Bound::Offered | Bound::OpenRequests)
        };
        let short = parts.iter().any(|part| part.paced && part.bound != Bound::Offered)
            || may_wait && parts.iter().any(queued);
        let jobs = cell.scenario.jobs.iter().filter(|job| short || !is_paced(job));
        let jobs: Vec<&Job> = jobs.collect();
        let bounds = parts.iter().filter(|part| part.bound != Bound::Offered);
        bounds.into_iter().any(|part| differ(&jobs, part.bound))
    };
    in_window(cell, of)
}

/// Whether jobs share what binds in different ways: links count bytes, each way its own, all else
/// requests.
fn differ(jobs: &[&Job], bound: Bound) -> bool {
    let links = matches!(bound, Bound::LinksIn | Bound::LinksOut);
    let alike = |a: &Job, b: &Job| a.mix == b.mix && (links || kinds(a) == kinds(b));
    jobs.windows(2).any(|pair| !alike(pair[0], pair[1]))
}

/// Where some requests are nearest on one path and some on another, a policy that sends each where
/// it is nearest needs fewer open ones than the mean request.
pub(crate) fn where_requests_are_sorted(cell: Cell<'_>) -> bool {
    in_window(cell, |parts, paths| {
        let open = |part: &&Part<'_>| matches!(part.bound, Bound::OpenRequests | Bound::Tags);
        parts.iter().filter(open).any(|part| gains(cell, part.load, paths))
    })
}

fn gains(cell: Cell<'_>, load: &Load, paths: &[&Spell]) -> bool {
    let weighed =
        |path: &Spell, &(op, bytes, share): &Kind| share * alone_ns(cell, path, op, bytes);
    let of_path = |path: &&Spell| load.kinds.iter().map(|kind| weighed(path, kind)).sum::<u128>();
    let of_kind = |kind| paths.iter().map(|path| weighed(path, kind)).min().unwrap_or(0);
    let together = paths.iter().map(of_path).min().unwrap_or(0);
    let sorted: u128 = load.kinds.iter().map(of_kind).sum();
    together * 100 > sorted * (100 + NOISE_PERCENT)
}

/// Where the nearest paths are full, a policy needs fewer open requests that sends there what takes
/// least of their links, and all else further; where tags bind, one that sends each where it takes
/// less than others do.
pub(crate) fn where_requests_take_unlike_room(cell: Cell<'_>) -> bool {
    in_window(cell, |parts, paths| {
        parts.iter().any(|part| match part.bound {
            Bound::OpenRequests => {
                let used = used(part, paths);
                let Some((far, full)) = used.split_last() else { return false };
                full.iter().any(|near| take_unlike_links(cell, part.load, near, far))
            }
            Bound::Tags => take_unlike_times(cell, part.load, paths),
            _ => false,
        })
    })
}

/// The paths that the limit fills with a load, the nearest first: all but the last are full.
fn used<'a>(part: &Part<'_>, paths: &[&'a Spell]) -> Vec<&'a Spell> {
    let of = |path: &&'a Spell| (*path, reach(path, part.load, &Room::ALL));
    let mut nearest: Vec<(&Spell, Reach)> = paths.iter().map(of).collect();
    nearest.sort_by_key(|(_, reach)| reach.base_ns);
    let mut nearer = 0u128;
    nearest.retain(|(_, reach)| {
        let is_used = nearer < part.iops;
        nearer = nearer.saturating_add(reach.iops);
        is_used
    });
    nearest.into_iter().map(|(path, _)| path).collect()
}

/// Whether some requests gain more than others for what they take of the links of a path that is
/// full. Headers are not counted.
fn take_unlike_links(cell: Cell<'_>, load: &Load, near: &Spell, far: &Spell) -> bool {
    let gain = |&(op, bytes, _): &Kind| {
        alone_ns(cell, far, op, bytes).saturating_sub(alone_ns(cell, near, op, bytes))
    };
    let kinds = || load.kinds.iter().filter(|(_, _, share)| *share > 0);
    let takes = |class: OpClass| {
        let rate = match class {
            OpClass::Read => near.rate_of(near.path.shape.rate_out),
            OpClass::Write => near.rate_of(near.path.shape.rate_in),
            OpClass::Other => return 0,
        };
        let all = kinds().filter(|(op, _, _)| *op == class);
        let bytes: u128 = all.map(|(_, bytes, share)| u128::from(*bytes) * share).sum();
        bytes * SECOND_NS / rate.max(1)
    };
    let most = takes(OpClass::Read).max(takes(OpClass::Write));
    let is_full = |op: OpClass| takes(op) > 0 && takes(op) * (100 + NOISE_PERCENT) >= most * 100;
    let (taking, free): (Vec<&Kind>, Vec<&Kind>) = kinds().partition(|(op, _, _)| is_full(*op));
    let unlike = |class: OpClass| {
        let all = taking.iter().filter(|(op, _, _)| *op == class);
        differ_much(all.map(|kind| gain(kind) * MILLION / u128::from(kind.1.max(1))))
    };
    unlike(OpClass::Read)
        || unlike(OpClass::Write)
        || !taking.is_empty() && free.iter().any(|kind| gain(kind) > 0)
}

/// Whether one path takes longer than another for some requests than it does for others.
fn take_unlike_times(cell: Cell<'_>, load: &Load, paths: &[&Spell]) -> bool {
    let Some((first, others)) = paths.split_first() else { return false };
    let kinds = || load.kinds.iter().filter(|(_, _, share)| *share > 0);
    others.iter().any(|other| {
        differ_much(kinds().map(|&(op, bytes, _)| {
            let alone = |path: &Spell| alone_ns(cell, path, op, bytes).max(1);
            alone(other) * MILLION / alone(first)
        }))
    })
}

fn differ_much(values: impl Iterator<Item = u128>) -> bool {
    let (least, most) =
        values.fold((u128::MAX, 0), |(least, most), one| (one.min(least), one.max(most)));
    most > 0 && most * 100 > least.saturating_mul(100 + NOISE_PERCENT)
}

/// What a path carries when its links change, or when it is not to be used any more, comes out
/// beside what is sent from then on. Where that happens often, it is a part of all.
pub(crate) fn where_paths_drain(cell: Cell<'_>) -> bool {
    let load = Load::of(cell);
    let mut paths: Vec<Spell> = cell.paths().iter().map(Spell::new).collect();
    let mut drained_ns = 0;
    for (index, change) in cell.scenario.changes.iter().enumerate() {
        let (path, at_ns) = (&mut paths[change.path], cell.change_ns(index));
        let drains = match change.what {
            Alteration::Shape(_) => true,
            Alteration::Ana(to) => to != AnaState::Optimized && to != path.path.ana,
            Alteration::Brownout(_) | Alteration::State(_) => false,
        };
        let counts = at_ns >= cell.scenario.run.ramp_ns && at_ns < cell.end_ns();
        if drains && counts && path.up {
            drained_ns += reach(path, &load, &Room::ALL).base_ns;
        }
        path.change(&change.what, at_ns);
    }
    drained_ns * 100 > u128::from(cell.scenario.run.window_ns) * NOISE_PERCENT
}

/// How long a request takes on a path when nothing else is there.
fn alone_ns(cell: Cell<'_>, spell: &Spell, op: OpClass, bytes: u32) -> u128 {
    let shape = &spell.path.shape;
    let link = |rate: Option<u64>, bytes: u64| {
        rate.map_or(0, |rate| u128::from(bytes) * 8 * SECOND_NS / u128::from(rate.max(1)))
    };
    let late = spell
        .path
        .brownout
        .map_or(0, |brownout| u128::from(brownout.percent) * u128::from(brownout.delay_ns()) / 100);
    (shape.delay + shape.large_delay(bytes.into())).as_nanos()
        + u128::from(cell.service_ns(op))
        + link(shape.rate_in, bytes_in(op, bytes))
        + link(shape.rate_out, bytes_out(op, bytes))
        + late
}

/// What waited while the paths carried less than jobs with a rate ask for is caught up when they
/// carry more: then more ends in that time than its own limit.
pub(crate) fn where_a_load_catches_up(cell: Cell<'_>) -> bool {
    let demand = Demand::of(cell);
    let asks = |paths: &[&Spell]| {
        let parts = parts(cell, &demand, paths);
        let kept = parts.iter().filter(|part| part.has_a_rate && part.bound == Bound::Offered);
        kept.count() == demand.with_a_rate()
    };
    let all = spans(cell, 0, asks);
    demand.with_a_rate() > 0
        && all.iter().any(|(.., asks)| *asks)
        && all.iter().any(|(.., asks)| !asks)
}

/// Whether the load asks for no more than the paths carry at any time of the window: whoever
/// carries more works off what it had fallen behind before.
pub(crate) fn is_all_asked_for(cell: Cell<'_>) -> bool {
    let lacks = |parts: Vec<Part<'_>>, _: &[&Spell]| {
        parts.is_empty() || parts.iter().any(|part| part.bound != Bound::Offered)
    };
    !in_window(cell, lacks)
}

/// Whether something is true at any time of the window.
fn in_window(cell: Cell<'_>, of: impl Fn(Vec<Part<'_>>, &[&Spell]) -> bool) -> bool {
    let demand = Demand::of(cell);
    let of = |paths: &[&Spell]| of(parts(cell, &demand, paths), paths);
    spans(cell, cell.scenario.run.ramp_ns, of).into_iter().any(|(.., is)| is)
}
