//! Which path is done first.

use super::directions;
use super::forecast::Forecast;
use super::in_flight::{Ahead, apart};
use super::overflow::overflow;
use super::probe;
use super::rescue::patience_ns;
use super::spill::spill;
use super::unit::{ms, since_ms, units};
use super::{FinishTimeParameters, Lane, STALE_MS};
use crate::{AnaRank, AsCandidate, Choice, OpClass, Reason, Selector, SizeClass};

/// Predictions that differ by less than this part are equal, as a shift.
const BAND_SHIFT: u32 = 6;
/// The same for paths whose rates differ by less than this part.
const BAND_OF_EQUALS_SHIFT: u32 = 3;
/// What comes on top of twice the longest base latency until a path counts as silent, ns.
const SILENCE_NS: u64 = 200_000;
/// What is not known comes behind everything that is.
const UNKNOWN: u64 = 1 << 62;
/// A write goes to a path that nobody has heard of lately, or that is overdue, behind everything
/// else that is known.
pub(super) const UNHEARD: u64 = 1 << 61;

/// The command that is to be placed.
#[derive(Clone, Copy)]
pub(super) struct Incoming {
    pub(super) op: OpClass,
    pub(super) class: SizeClass,
    pub(super) bytes: u32,
    pub(super) units: u64,
    pub(super) now_ns: u64,
    /// It comes of a closed load, and the path that would be first is known.
    pub(super) closed: bool,
}

impl Incoming {
    pub(super) fn new(op: OpClass, bytes: u32, now_ns: u64) -> Incoming {
        let class = SizeClass::of(bytes);
        Incoming { op, class, bytes, units: u64::from(units(bytes)), now_ns, closed: false }
    }
}

/// The best path so far.
#[derive(Clone, Copy)]
pub(super) struct Best {
    pub(super) index: usize,
    pub(super) rank: AnaRank,
    pub(super) cost: u64,
    /// The path's.
    pace: u32,
    /// Of this worker in flight there.
    own: u32,
    /// Units of all workers.
    work: u64,
}

impl Best {
    /// Times that hardly differ are equal: then the one with less in flight. (What limits several
    /// paths together gives each of them the rate of its share, and any share would stay. And where
    /// each worker has a command or two, what others have on the way makes a command wait now and
    /// then, long before it makes a queue.)
    #[inline]
    fn is_before(self, other: Best) -> bool {
        if self.own != other.own {
            if self.is_near(other, self.is_similar(other)) {
                return self.own < other.own;
            }
        } else if self.work != other.work && self.is_similar(other) && self.is_near(other, true) {
            return self.work < other.work;
        }
        self.cost < other.cost
    }

    /// Whether their rates are about the same.
    #[inline]
    fn is_similar(self, other: Best) -> bool {
        self.pace.abs_diff(other.pace) <= self.pace.min(other.pace) >> BAND_OF_EQUALS_SHIFT
    }

    #[inline]
    fn is_near(self, other: Best, similar: bool) -> bool {
        let shift = if similar { BAND_OF_EQUALS_SHIFT } else { BAND_SHIFT };
        // What puts an unheard path behind others is no time.
        let band = (self.cost.min(other.cost) & !UNHEARD) >> shift;
        self.cost.abs_diff(other.cost) <= band
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
    let (best, own) = scan(parameters, paths, start, incoming)?;
    let closed = selector.recent.is_closed(own);
    let mut choice = Choice { index: best.index, reason: Reason::EarliestFinish };
    if best.cost == 0 || best.cost >= UNKNOWN {
        choice.reason = Reason::Unmeasured;
    } else if let Some(farther) = farther(parameters, closed, paths, best, incoming) {
        choice = farther;
    }
    if parameters.probes && paths.len() > 1 {
        let rank = if parameters.compete { None } else { Some(best.rank) };
        selector.recent.earn(bytes);
        choice = probe::look(selector, paths, rank, choice, incoming);
    }
    // The rotation goes on one further with each call: equal paths come in turn.
    selector.last = Some(start as u32);
    if best.rank == AnaRank::NonOptimized && !parameters.compete {
        choice.reason = Reason::NoOptimized;
    }
    Some(choice)
}

/// Another path than the best one, when it makes others wait less.
#[inline]
fn farther<P: AsCandidate>(
    parameters: FinishTimeParameters,
    closed: bool,
    paths: &[P],
    best: Best,
    incoming: Incoming,
) -> Option<Choice> {
    let incoming = Incoming { closed, ..incoming };
    let (found, reason) = match (closed, parameters.tail) {
        (false, _) => (overflow(parameters, paths, best, incoming), Reason::Overflow),
        (true, false) => (spill(parameters, paths, best, incoming), Reason::Spill),
        (true, true) => return None,
    };
    found.map(|index| Choice { index, reason })
}

/// The path with the least cost, from `start` on.
#[inline]
fn scan<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    start: usize,
    incoming: Incoming,
) -> Option<(Best, u32)> {
    let mut total = 0_u32;
    let (before, from) = paths.split_at(start);
    let mut best: Option<Best> = None;
    for (first, stretch) in [(start, from), (0, before)] {
        for (offset, path) in stretch.iter().enumerate() {
            let path = path.candidate();
            let own = path.load.workers[usize::from(path.load.worker)].worker_active();
            total += own;
            if !path.usable {
                continue;
            }
            let rank = if parameters.compete { AnaRank::Optimized } else { path.rank };
            if best.is_some_and(|best| best.rank < rank) {
                continue;
            }
            let forecast = path.load.shared.forecast();
            let ahead = Ahead::of(path.load.lane, forecast);
            let cost = cost(parameters, forecast, ahead, incoming);
            let (index, pace, work) = (first + offset, forecast.pace.get(), ahead.units);
            let found = Best { index, rank, cost, pace, own, work };
            if best.is_none_or(|best| rank < best.rank || found.is_before(best)) {
                best = Some(found);
            }
        }
    }
    best.map(|best| (best, total))
}

/// When the command would be finished there, ns from now.
#[inline(always)]
pub(super) fn cost(
    parameters: FinishTimeParameters,
    forecast: &Forecast,
    ahead: Ahead<'_>,
    incoming: Incoming,
) -> u64 {
    let finish = finish_ns(forecast, ahead, incoming);
    if finish == UNKNOWN {
        let work = ahead.work(incoming.units);
        return if work == 0 && !parameters.probes { 0 } else { UNKNOWN + work };
    }
    let silent_ns = if ahead.units == 0 { 0 } else { silence_ns(forecast, incoming.now_ns) };
    let time_ns = finish.max(silent_ns);
    if incoming.op == OpClass::Write
        && parameters.probes
        && (unheard_ms(forecast, incoming.now_ns) > STALE_MS
            || silent_ns != 0 && silent_ns > patience_ns(forecast, ahead.units))
    {
        return UNHEARD + time_ns.min(UNHEARD - 1);
    }
    time_ns
}

/// For how long nothing has ended there, ms.
#[inline]
pub(super) fn unheard_ms(forecast: &Forecast, now_ns: u64) -> u32 {
    since_ms(ms(now_ns), forecast.heard_ms.get())
}

/// The predicted finish, ns from now; [`UNKNOWN`].
#[inline(always)]
pub(super) fn finish_ns(forecast: &Forecast, ahead: Ahead<'_>, incoming: Incoming) -> u64 {
    let pace = forecast.pace.get();
    if pace == 0 {
        return UNKNOWN;
    }
    let base = u64::from(forecast.base_ns(incoming.op, incoming.class));
    let queued = if ahead.units == 0 {
        0
    } else {
        let apart = forecast.is_apart().then(|| apart_ns(forecast, ahead.lane, incoming)).flatten();
        apart.unwrap_or_else(|| until_done_ns(forecast, ahead.work(incoming.units), incoming))
    };
    base.max(queued) + u64::from(forecast.outliers.get())
}

/// The same, where each direction has a queue of its own.
#[inline(always)]
fn apart_ns(forecast: &Forecast, lane: &Lane, incoming: Incoming) -> Option<u64> {
    let paces = forecast.paces_apart(incoming.op)?;
    let ahead = apart(lane, forecast, incoming.op, incoming.units);
    Some(directions::until_done_ns(forecast, paces, ahead, incoming))
}

/// When all that is in flight and the command itself will be done, ns from now. Behind one command
/// like it, it matters how far that is: what the path has been at since its last completion,
/// against half a command on average.
#[inline(always)]
fn until_done_ns(forecast: &Forecast, work: u64, incoming: Incoming) -> u64 {
    let all_ns = queued_ns(forecast, work + incoming.units);
    if work > incoming.units {
        return all_ns;
    }
    let own_ns = queued_ns(forecast, incoming.units);
    let progress_ns = forecast.busy_ns.age_ns(incoming.now_ns).min(own_ns);
    (all_ns + own_ns / 2).saturating_sub(progress_ns)
}

/// How long so much work takes, ns.
#[inline]
pub(super) fn queued_ns(forecast: &Forecast, work: u64) -> u64 {
    forecast.queued_at_ns(forecast.pace.get(), work)
}

/// For how long a path with work in flight has been silent, ns; 0 when that is nothing unusual.
#[inline]
pub(super) fn silence_ns(forecast: &Forecast, now_ns: u64) -> u64 {
    let quiet_ns = forecast.busy_ns.age_ns(now_ns);
    let usual_ns = 2 * u64::from(forecast.longest.get()) + SILENCE_NS;
    if quiet_ns > usual_ns { quiet_ns } else { 0 }
}

/// Whether it has work in flight and has not answered for longer than is usual.
#[inline]
pub(super) fn is_silent(forecast: &Forecast, work: u64, now_ns: u64) -> bool {
    work != 0 && silence_ns(forecast, now_ns) != 0
}
