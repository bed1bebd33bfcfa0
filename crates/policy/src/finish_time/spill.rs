//! When the path that would be first is busy anyway, and another has room.

use super::FinishTimeParameters;
use super::elasticity::INELASTIC;
use super::forecast::{Forecast, Word};
use super::in_flight::Ahead;
use super::regular::{is_nearly_full, regular};
use super::select::{Best, Incoming, UNHEARD, cost, queued_ns};
use crate::{AsCandidate, Candidate};

/// A path may be preferred to the best one for what it adds, when it takes less than this many
/// times as long.
const FACTOR: u64 = 16;
/// … or this many times, when nothing is in flight on the best one: commands have waited there of
/// late, but the next one would not.
const FACTOR_OF_IDLE: u64 = 4;
/// … or this many, when it was seen there that waits are due to what is in flight: nothing is.
const FACTOR_OF_REGULAR: u64 = 2;
/// … or this many times, when it is only what is in flight there that tells that it is full.
const FACTOR_OF_FULL: u64 = 3;
/// From this elasticity on a wait is one for other commands of the path …
pub(super) const QUARTER: u64 = INELASTIC / 4;
/// … and that all commands wait is due to what is in flight.
pub(super) const HALF: u64 = INELASTIC / 2;
/// More is not believed of a mean: the farther path would be taken for next to nothing.
const BELIEVED: u64 = INELASTIC - INELASTIC / 8;
/// Nothing stands where some command waited for less than this part of the base latency.
const SCATTER: u64 = 4;
/// So many commands show how much there is of what binds; of fewer each one makes a difference.
pub(super) const MANY: u64 = 8;
/// Latencies that differ by this factor are of another queue than ours, or of another way.
const ANOTHER_WAY: u32 = 4;
/// As good as all.
const NEARLY_ALL: u64 = INELASTIC - INELASTIC / 32;

/// What speaks for another path than the best one.
enum Busy {
    /// Every command of late has waited: more in flight buys nothing.
    Always,
    /// One per cent more in flight makes latencies so many 256ths of a per cent longer.
    Mostly(u64),
}

/// The cheapest of the other paths that has room and makes more be done than the best one would.
pub(super) fn spill<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    best: Best,
    incoming: Incoming,
) -> Option<usize> {
    let load = paths[best.index].candidate().load;
    let (forecast, work) = (load.shared.forecast(), load.work());
    let many = work >= MANY * incoming.units;
    // Never to a path of which nothing is known, nor, for a write, was heard of lately.
    let below = |factor: u64| best.cost.saturating_mul(factor).min(UNHEARD);
    let any = |_: &Forecast, _| true;
    // Whatever it does with what it has: it gets no more.
    if !load.has_tag() {
        let farther = below(FACTOR);
        let found = with_room(parameters, paths, best, incoming, farther, any, |_, _, _| true);
        return found.map(|(index, _)| index);
    }
    // What comes in bursts waits there, and leaves it time: elsewhere it would be done later.
    if forecast.rested(incoming.now_ns) {
        return None;
    }
    let regular = regular(forecast, work, incoming);
    if regular.is_some_and(|it| it.full) {
        // From one that is full to another one nothing is won.
        let holds_more = |other: &Forecast, work| !is_nearly_full(other, work, incoming);
        let nearer = below(FACTOR_OF_FULL);
        let found =
            with_room(parameters, paths, best, incoming, nearer, holds_more, |_, _, _| true);
        if let Some((index, _)) = found {
            return Some(index);
        }
    }
    let busy = how_busy(forecast, many, incoming)?;
    if many && is_drained(forecast, work, incoming) {
        return None;
    }
    let factor = match regular {
        _ if work != 0 => FACTOR,
        Some(it) if it.seen => FACTOR_OF_REGULAR,
        _ => FACTOR_OF_IDLE,
    };
    let gains = |other: &Forecast, work: u64, cost: u64| {
        gains(&busy, best.cost, other, work, cost, incoming)
    };
    let found = with_room(parameters, paths, best, incoming, below(factor), any, gains);
    found.map(|(index, _)| index)
}

/// The earliest of the other paths that have room, may be used as the best one may, are `fit` (by
/// what is known of them, and what is in flight), and `worth` it (also by when the command would be
/// done), and would be done in less than `below_ns`; and when that is.
#[inline]
pub(super) fn with_room<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    best: Best,
    incoming: Incoming,
    below_ns: u64,
    fit: impl Fn(&Forecast, u64) -> bool,
    worth: impl Fn(&Forecast, u64, u64) -> bool,
) -> Option<(usize, u64)> {
    let mut least = below_ns;
    let mut found = None;
    for (index, path) in paths.iter().enumerate() {
        let path: Candidate<'_> = path.candidate();
        let same = parameters.compete || path.rank == best.rank;
        if index == best.index || !path.usable || !same || !path.load.has_tag() {
            continue;
        }
        let forecast = path.load.shared.forecast();
        let work = path.load.work();
        if !fit(forecast, work) {
            continue;
        }
        let cost = cost(parameters, forecast, Ahead::of(path.load.lane, forecast), incoming);
        if cost < least && has_room(forecast, work, incoming) && worth(forecast, work, cost) {
            (least, found) = (cost, Some((index, cost)));
        }
    }
    found
}

/// Whether the way holds what is in flight, but for a quarter of it. That commands wait is told
/// only by those that have ended: until they do, all that come would go farther, and then none.
fn is_drained(forecast: &Forecast, work: u64, incoming: Incoming) -> bool {
    4 * queued_ns(forecast, work + incoming.units) <= 5 * u64::from(forecast.base.get())
}

/// Whether the path has about as much in flight as it can use. Of `many`, all of which wait without
/// it being known why, it is held to be so: what goes elsewhere will show it.
fn how_busy(forecast: &Forecast, many: bool, incoming: Incoming) -> Option<Busy> {
    let base_ns = forecast.base.get();
    let stands = stands(forecast, incoming.now_ns);
    let waits = 4 * forecast.elasticity.wait_ns() >= u64::from(base_ns);
    if !stands && !waits {
        return None;
    }
    let quiet = forecast.busy_ns.age_ns(incoming.now_ns) > 2 * forecast.window();
    let elasticity = if quiet { Some(0) } else { forecast.elasticity.of(incoming.units, base_ns) };
    match elasticity {
        None => (stands || many && waits).then_some(Busy::Always),
        Some(e) if stands && e >= NEARLY_ALL => Some(Busy::Always),
        // That all have waited says so, too: half of what is missing is noise.
        Some(e) if stands && e >= HALF => Some(Busy::Mostly((e + INELASTIC) / 2)),
        Some(e) if waits && e >= QUARTER => Some(Busy::Mostly(e.min(BELIEVED))),
        Some(_) => None,
    }
}

/// Whether a command adds half more there than on the best path: what it adds is one over its
/// latency, less what it makes others wait.
fn gains(
    busy: &Busy,
    best_ns: u64,
    other: &Forecast,
    work: u64,
    other_ns: u64,
    incoming: Incoming,
) -> bool {
    let Busy::Mostly(elasticity) = *busy else { return true };
    // Where nothing is in flight nobody waits.
    let others =
        if work == 0 { None } else { other.elasticity.of(incoming.units, other.base.get()) };
    let here = u128::from(INELASTIC - elasticity) * u128::from(other_ns);
    let there = u128::from(INELASTIC - others.unwrap_or(0)) * u128::from(best_ns);
    3 * here < 2 * there
}

/// Every command of late has waited there for more than half of a base latency. What is old says
/// nothing any more: then the path is to be given something. (Half a window is old. Believed for
/// two windows, it loses more tuning rows than it wins.)
fn stands(forecast: &Forecast, now_ns: u64) -> bool {
    let fresh = forecast.window_ns.age_ns(now_ns).saturating_mul(2) <= forecast.window();
    fresh && 2 * standing_ns(forecast) > u64::from(forecast.base.get())
}

/// The least that a command waited beyond its base latency in the last two windows, ns.
pub(super) fn standing_ns(forecast: &Forecast) -> u64 {
    let [last, present] = &forecast.least_wait;
    match last.get().min(present.get()) {
        Word::MAX => 0,
        least => u64::from(least),
    }
}

/// No queue of ours stands there, and none of others.
fn has_room(forecast: &Forecast, work: u64, incoming: Incoming) -> bool {
    let base = forecast.of(incoming.op, incoming.class);
    let (latency, least) = (base.latency.get(), base.least_ns());
    // One more than it was ever seen to use is a way to see more.
    let ahead_ns = queued_ns(forecast, work).saturating_mul(16);
    let holds = |unqueued_ns: u64| ahead_ns <= unqueued_ns.saturating_mul(17);
    let base_ns = u64::from(forecast.base.get());
    if least != 0 && latency > least.saturating_mul(ANOTHER_WAY) {
        // Another queue, unless it is the way that scatters so much.
        let scatter_ns = if incoming.closed { scatter_ns(forecast, incoming) } else { 0 };
        return scatter_ns != 0 && (work <= incoming.units || holds(base_ns + scatter_ns));
    }
    work <= incoming.units
        || holds(base_ns)
        || holds(base_ns + scatter_ns(forecast, incoming))
        || has_become_longer(forecast, latency, least, incoming) && holds(least.into())
}

/// Even the shortest command of late took far longer than the base latency, and not because of what
/// was in flight: the way is longer than it was. No command finds it almost idle, so that its base
/// latency would be learned anew; and where it is held to be full with what the shorter way held,
/// it is left with so little that it looks slow, for good.
fn has_become_longer(forecast: &Forecast, latency: u32, least: u32, incoming: Incoming) -> bool {
    let unqueued = latency.max(forecast.base.get());
    latency != 0
        && least > unqueued.saturating_mul(ANOTHER_WAY)
        && forecast.elasticity.is_flat(incoming.units, forecast.base.get())
}

/// What the way or the device makes commands longer by on average, ns: what they wait while that
/// differs from one to the next, or nothing of ours stands there, and waits do not hang together
/// with what is in flight. (In an open load it is not worth a longer tail to know better.)
fn scatter_ns(forecast: &Forecast, incoming: Incoming) -> u64 {
    let (elasticity, base) = (&forecast.elasticity, forecast.base.get());
    let scatters = SCATTER * standing_ns(forecast) <= u64::from(base)
        && elasticity.of(incoming.units, base).is_some_and(|e| e < QUARTER)
        || incoming.closed && elasticity.scatters(incoming.units, base);
    if scatters { elasticity.wait_ns() } else { 0 }
}
