//! What completions teach.

use super::flight::Flight;
use super::forecast::{Base, Forecast};
use super::outlier::Silence;
use super::rescue::{SILENCE_NS, patience_ns};
use super::spill::QUARTER;
use super::unit::{RATE_SHIFT, ms, since_ms, time_ns, units, word};
use super::{FIRST_GAP_MS, LAST_GAP_MS};
use super::{directions, outlier, regular};
use crate::{Charge, Load, OpClass, Sampled, SizeClass};

/// A command that finds the path unused for so long looks at it anew, ms.
const LOOK_MS: u32 = 5;
/// The windows of the least latency, ms.
const LEAST_WINDOW_MS: u32 = 100;
/// One sample counts as at most this many times what is known.
pub(super) const OUTLIER: u64 = 64;

/// A command ended well.
#[inline(never)]
pub(crate) fn sample(charge: Charge, load: Load<'_>, now_ns: u64) -> Sampled {
    let Some(flight) = charge.flight() else { return Sampled::Nothing };
    let forecast = load.shared.forecast();
    let units = units(charge.bytes());
    let latency_ns = charge.elapsed_ns(now_ns);
    let work = if charge.is_work() { units } else { 0 };
    let done = load.lane.done(forecast, charge.op(), work, charge.is_probe(), now_ns);
    let Some(delivered) = done else {
        return Sampled::Taken;
    };
    let left = load.work();
    let quiet_ns = forecast.busy_ns.age_ns(now_ns);
    forecast.busy_ns.set(now_ns);
    if charge.is_work() {
        forecast.directions.ended(charge.op(), now_ns);
    }
    forecast.heard_ms.set(ms(now_ns));
    if charge.is_probe() || charge.op() == OpClass::Read {
        forecast.answered_ms.set(ms(now_ns));
    }
    // How long a flush takes nobody has predicted.
    let predicted = charge.op() != OpClass::Other;
    if predicted && quiet_ns > SILENCE_NS && comes_back(forecast, left, units, quiet_ns) {
        let waited_ns = quiet_ns.min(latency_ns);
        if waited_ns > SILENCE_NS && comes_back(forecast, left, units, waited_ns) {
            if left == 0 || !outlier::others_tell(forecast) {
                forget(forecast, now_ns);
            }
            return Sampled::TooLong;
        }
        // It was sent during the silence: what had been sent before says nothing any more.
        forecast.reset_ns.set(forecast.reset_ns.get().max(charge.start_ns()));
    }
    if forecast.reset_ns.get() > now_ns {
        forecast.reset_ns.set(now_ns);
    }
    if charge.start_ns() < forecast.reset_ns.get() || !predicted {
        return Sampled::Nothing;
    }
    match outlier::silence(forecast, charge, quiet_ns, latency_ns, now_ns) {
        Silence::None => {}
        Silence::Over => return Sampled::Nothing,
        Silence::Changed => {
            forget(forecast, now_ns);
            return Sampled::TooLong;
        }
    }
    let span_ns = latency_ns.saturating_add(u64::from(flight.idle_ns()));
    let [own, other] = flight.since(delivered);
    let done = own.wrapping_add(other).max(1);
    let rate = (span_ns.min(u64::MAX >> RATE_SHIFT) << RATE_SHIFT) / u64::from(done);
    // What the path has done in the command's time, the command itself with it.
    let queued_ns = time_ns(done.into(), forecast.pace.get());
    let outlier = outlier::learn(forecast, charge, queued_ns, latency_ns, quiet_ns);
    let latency = word(latency_ns);
    let unqueued = learn_latency(forecast, charge, flight, units, latency, outlier, now_ns);
    let wait = latency.saturating_sub(unqueued);
    if wait < forecast.least_wait[1].get() {
        forecast.least_wait[1].set(wait);
    }
    let found = flight.work().saturating_sub(units);
    forecast.elasticity.learn(found, depth(found, units), i64::from(latency) - i64::from(unqueued));
    regular::learn(forecast, queued_ns, latency_ns, unqueued);
    directions::learn(forecast, charge, flight, own, latency_ns, unqueued, outlier);
    let queued = match queued(forecast, units, latency_ns, unqueued) {
        Queued::Yes if outlier => Queued::Perhaps,
        other => other,
    };
    learn_pace(forecast, rate, queued);
    Sampled::Taken
}

#[cold]
fn forget(forecast: &Forecast, now_ns: u64) {
    forecast.reset();
    forecast.reset_ns.set(now_ns);
}

/// After so long a silence what was known says nothing any more.
#[cold]
fn comes_back(forecast: &Forecast, left: u64, units: u32, quiet_ns: u64) -> bool {
    let work = left.saturating_add(units.into());
    forecast.pace.get() != 0 && quiet_ns > patience_ns(forecast, work)
}

/// How many commands of so many units are as much as `found`, as a power of two, about; 0 also for
/// less than one.
#[inline]
fn depth(found: u32, units: u32) -> u32 {
    let log = |units: u32| units.checked_ilog2().unwrap_or(0);
    log(found).saturating_sub(log(units))
}

/// What a latency says about a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    No,
    /// It was long, but latencies there do not hang together with what is in flight, or it is an
    /// outlier.
    Perhaps,
    Yes,
}

#[inline]
fn queued(forecast: &Forecast, units: u32, latency_ns: u64, unqueued: u32) -> Queued {
    let unqueued = u64::from(unqueued);
    if latency_ns.saturating_mul(2) <= 3 * unqueued {
        return Queued::No;
    }
    let elasticity = || forecast.elasticity.of(units.into(), forecast.base.get());
    if latency_ns > 16 * unqueued || elasticity().is_none_or(|e| e >= QUARTER) {
        return Queued::Yes;
    }
    Queued::Perhaps
}

/// The base latency and the least latency of the kind, and the path's mean and longest base
/// latency. Gives back the base latency of the kind. (An outlier says nothing of the way.)
#[inline]
fn learn_latency(
    forecast: &Forecast,
    charge: Charge,
    flight: Flight,
    units: u32,
    latency: u32,
    outlier: bool,
    now_ns: u64,
) -> u32 {
    let now_ms = ms(now_ns);
    if since_ms(now_ms, forecast.least_ms.get()) > LEAST_WINDOW_MS {
        next_least(forecast, now_ms);
    }
    let class = SizeClass::of(charge.bytes());
    let base = forecast.of(charge.op(), class);
    let near_alone = 2 * u64::from(flight.work()) <= 3 * u64::from(units);
    let unused_ms = since_ms(now_ms, base.seen_ms.get());
    let look = flight.work() <= units && (charge.is_probe() || unused_ms > LOOK_MS);
    let least = base.least[1].get();
    if least == 0 || latency < least {
        base.least[1].set(latency.max(1));
    }
    let known = base.latency.get();
    pace_of_looks(base, charge, known, latency);
    base.seen_ms.set(now_ms);
    let unqueued = match known {
        0 => latency,
        known if charge.is_probe() && latency < known => known - (known - latency).div_ceil(2),
        known if latency < known => known - (known - latency).div_ceil(4),
        known if outlier => known,
        known if look => known + (latency - known) / 2,
        known if near_alone => known + (latency - known) / 8,
        known => known,
    }
    .max(1);
    if unqueued != known {
        base.latency.set(unqueued);
    }
    if charge.is_probe() {
        outlier::doubt_writes(forecast, class, latency, now_ms);
    }
    let path = forecast.base.get();
    forecast.base.set(match path {
        0 => unqueued,
        path if look && !outlier => path / 2 + unqueued / 2,
        path => step(path, unqueued, 5),
    });
    let longest = forecast.longest.get();
    forecast.longest.set(unqueued.max(longest - longest / 64));
    unqueued
}

/// How soon an unused path is looked at again: soon while it gets better, ever later while nothing
/// changes.
#[inline]
fn pace_of_looks(base: &Base, charge: Charge, known: u32, latency: u32) {
    if !charge.is_probe() {
        if base.gap_ms.get() > FIRST_GAP_MS {
            base.gap_ms.set(FIRST_GAP_MS);
        }
        return;
    }
    let better = known == 0 || latency < known - known / 8;
    let gap = base.gap_ms.get().max(FIRST_GAP_MS);
    base.gap_ms.set(if better { FIRST_GAP_MS } else { (2 * gap).min(LAST_GAP_MS) });
}

/// Faster is always true: a path can not deliver more than it can. Slower says something only when
/// there was a queue.
#[inline]
fn learn_pace(forecast: &Forecast, pace: u64, queued: Queued) {
    let known = u64::from(forecast.pace.get());
    if queued != Queued::No {
        forecast.proven.set(1);
    }
    let next = if known == 0 {
        pace
    } else if pace < known {
        known - ((known - pace) >> if queued == Queued::No { 2 } else { 4 })
    } else if queued == Queued::Yes {
        known + ((pace.min(OUTLIER * known) - known) >> 3)
    } else {
        return;
    };
    forecast.pace.set(word(next.max(1)));
}

/// `old` goes the 2^shift-th part of the way.
#[inline]
pub(super) fn step(old: u32, new: u32, shift: u32) -> u32 {
    if new < old { old - ((old - new) >> shift) } else { old + ((new - old) >> shift) }
}

#[cold]
fn next_least(forecast: &Forecast, now_ms: u32) {
    forecast.least_ms.set(now_ms);
    forecast.next_least();
}
