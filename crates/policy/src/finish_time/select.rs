//! Which path is done first.

use super::forecast::Forecast;
use super::probe;
use super::unit::{ms, time_ns, units};
use super::{FinishTimeParameters, STALE_MS};
use crate::{AnaRank, AsCandidate, Candidate, Choice, OpClass, Reason, Selector, SizeClass};

/// Predictions that differ by less than this part are equal, as a shift.
const BAND_SHIFT: u32 = 3;
/// A path may be preferred to the best one for what it adds, when it takes less than this many
/// times as long.
const SPILL_FACTOR: u64 = 32;
/// What comes on top of twice the longest base latency until a path counts as silent, ns.
const SILENCE_NS: u64 = 200_000;
/// What is not known comes behind everything that is.
const UNKNOWN: u64 = 1 << 62;
/// A write goes to a path that nobody has heard of lately behind everything else that is known.
const UNHEARD: u64 = 1 << 61;

/// The command that is to be placed.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    pub(super) op: OpClass,
    pub(super) class: SizeClass,
    pub(super) bytes: u32,
    pub(super) units: u64,
    pub(super) now_ns: u64,
}

impl Incoming {
    pub(super) fn new(op: OpClass, bytes: u32, now_ns: u64) -> Incoming {
        let class = SizeClass::of(bytes);
        Incoming { op, class, bytes, units: u64::from(units(bytes)), now_ns }
    }
}

/// The best path so far.
#[derive(Clone, Copy)]
struct Best {
    index: usize,
    rank: AnaRank,
    cost: u64,
    /// Of this worker in flight there.
    own: u32,
}

impl Best {
    /// Times that hardly differ are equal: then the one with less in flight. (What limits several
    /// paths together gives each of them the rate of its share, and any share would stay.)
    #[inline]
    fn is_before(self, other: Best) -> bool {
        let band = self.cost.min(other.cost) >> BAND_SHIFT;
        if self.own != other.own && self.cost.abs_diff(other.cost) <= band {
            return self.own < other.own;
        }
        self.cost < other.cost
    }
}

pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: FinishTimeParameters,
    paths: &[P],
    op: OpClass,
    bytes: u32,
    now_ns: u64,
) -> Option<Choice> {
    let incoming = Incoming::new(op, bytes, now_ns);
    let start = selector.rotation_start(paths);
    let best = scan(parameters, paths, start, incoming)?;
    let mut choice = Choice { index: best.index, reason: Reason::EarliestFinish };
    if best.cost == 0 || best.cost >= UNKNOWN {
        choice.reason = Reason::Unmeasured;
    } else if !parameters.tail
        && let Some(index) = spill(parameters, paths, best, incoming)
    {
        choice = Choice { index, reason: Reason::Spill };
    }
    if parameters.probes && paths.len() > 1 {
        let rank = if parameters.compete { None } else { Some(best.rank) };
        selector.probing.earn(bytes);
        choice = probe::look(selector, paths, rank, choice, incoming);
    }
    // The rotation goes on one further with each call: equal paths come in turn.
    selector.last = Some(start as u32);
    if best.rank == AnaRank::NonOptimized && !parameters.compete {
        choice.reason = Reason::NoOptimized;
    }
    Some(choice)
}

/// The path with the least cost, from `start` on.
#[inline]
fn scan<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    start: usize,
    incoming: Incoming,
) -> Option<Best> {
    let (before, from) = paths.split_at(start);
    let mut best: Option<Best> = None;
    for (first, stretch) in [(start, from), (0, before)] {
        for (offset, path) in stretch.iter().enumerate() {
            let path = path.candidate();
            if !path.usable {
                continue;
            }
            let rank = if parameters.compete { AnaRank::Optimized } else { path.rank };
            if best.is_some_and(|best| best.rank < rank) {
                continue;
            }
            let forecast = path.load.shared.forecast();
            let cost = cost(parameters, forecast, forecast.work(), incoming);
            let own = path.load.workers[usize::from(path.load.worker)].worker_active();
            let found = Best { index: first + offset, rank, cost, own };
            if best.is_none_or(|best| rank < best.rank || found.is_before(best)) {
                best = Some(found);
            }
        }
    }
    best
}

/// When the command would be finished there, ns from now.
#[inline]
fn cost(
    parameters: FinishTimeParameters,
    forecast: &Forecast,
    work: u64,
    incoming: Incoming,
) -> u64 {
    let finish = finish_ns(forecast, work, incoming);
    if finish == UNKNOWN {
        return if work == 0 && !parameters.probes { 0 } else { UNKNOWN + work };
    }
    if work == 0 {
        if incoming.op == OpClass::Write && parameters.probes {
            let heard_ms = ms(incoming.now_ns).wrapping_sub(ms(forecast.busy_ns.get()));
            if heard_ms > STALE_MS {
                return UNHEARD + finish;
            }
        }
        return finish;
    }
    finish.max(silence_ns(forecast, incoming.now_ns))
}

/// The predicted finish, ns from now; [`UNKNOWN`].
#[inline]
pub(super) fn finish_ns(forecast: &Forecast, work: u64, incoming: Incoming) -> u64 {
    let pace = forecast.pace.get();
    if pace == 0 {
        return UNKNOWN;
    }
    let base = u64::from(forecast.base_ns(incoming.op, incoming.class));
    if work == 0 { base } else { base.max(time_ns(work + incoming.units, pace)) }
}

/// For how long a path with work in flight has been silent, ns; 0 when that is nothing unusual.
#[inline]
pub(super) fn silence_ns(forecast: &Forecast, now_ns: u64) -> u64 {
    let quiet_ns = forecast.busy_ns.age_ns(now_ns);
    let usual_ns = 2 * u64::from(forecast.longest.get()) + SILENCE_NS;
    if quiet_ns > usual_ns { quiet_ns } else { 0 }
}

/// When the best path is saturated: the cheapest of the others that has room and is not too far.
fn spill<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    best: Best,
    incoming: Incoming,
) -> Option<usize> {
    let chosen = paths[best.index].candidate();
    if !stands(chosen.load.shared.forecast()) {
        return None;
    }
    let mut least = best.cost.saturating_mul(SPILL_FACTOR);
    let mut found = None;
    for (index, path) in paths.iter().enumerate() {
        let path: Candidate<'_> = path.candidate();
        let same = parameters.compete || path.rank == best.rank;
        if index == best.index || !path.usable || !same {
            continue;
        }
        let forecast = path.load.shared.forecast();
        let cost = cost(parameters, forecast, forecast.work(), incoming);
        if cost < least && has_room(forecast, incoming) {
            (least, found) = (cost, Some(index));
        }
    }
    found
}

/// A queue stands there that never drained for a while, and more in flight only made it longer.
fn stands(forecast: &Forecast) -> bool {
    standing_ns(forecast) > 2 * u64::from(forecast.base.get()) && is_elastic(forecast)
}

/// How long the work takes that was always there during the last two windows, ns.
pub(super) fn standing_ns(forecast: &Forecast) -> u64 {
    let [last, present] = &forecast.least_work;
    let least = forecast.work().min(last.get().into()).min(present.get().into());
    time_ns(least, forecast.pace.get())
}

/// Whether latency grows by more than half as much as the work in flight: then more in flight buys
/// nothing. Compared are the row of the present work and the nearest one below with at most two
/// thirds of it.
fn is_elastic(forecast: &Forecast) -> bool {
    let rows = forecast.rows();
    let here = forecast.row(forecast.work());
    let known = |row: usize| {
        let row = &rows[row];
        let (latency, work) = (u64::from(row.latency.get()), u64::from(row.work.get()));
        (latency != 0).then_some((latency, work))
    };
    let Some((latency, work)) = known(here) else { return false };
    let less = (0..here).rev().filter_map(known).find(|(_, less)| 3 * less <= 2 * work);
    let Some((latency_less, work_less)) = less else { return false };
    // (latency - latency_less) / latency > (work - work_less) / work / 2
    let grown = u128::from(latency.saturating_sub(latency_less)) * u128::from(work) * 2;
    grown > u128::from(latency) * u128::from(work - work_less)
}

/// No queue of ours stands there, and none of others.
fn has_room(forecast: &Forecast, incoming: Incoming) -> bool {
    let work = forecast.work();
    let base = forecast.of(incoming.op, incoming.class);
    let (latency, least) = (base.latency.get(), base.least_ns());
    let ours = work <= 3 * incoming.units
        || 4 * time_ns(work + incoming.units, forecast.pace.get())
            <= 5 * u64::from(forecast.base.get());
    ours && (least == 0 || latency <= least.saturating_mul(2))
}
