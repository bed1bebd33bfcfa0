//! Paths that do what is predicted of them: there what is in flight now tells when one is full.
//! That commands have waited tells it a round trip later, and of few commands hardly at all.

use super::forecast::Forecast;
use super::learn::step;
use super::select::Incoming;
use super::spill::{HALF, MANY};
use super::unit::{time_ns, word};

/// Predictions are right when they are off by less than this part of the base latency on average.
const EXACT: u64 = 8;
/// A mean over so many commands, as a shift.
const MEMORY_SHIFT: u32 = 5;
/// One counts as off by so many base latencies at most.
const MOST: u32 = 16;
/// Commands are alike when the base latency of each kind is within this part of the mean. (Of a
/// mixture the mean says when the path is full of none of them.)
const ALIKE: u64 = 4;
/// A path is full with a sixteenth more than its base latency holds: of a rate that is too low, as
/// nobody has asked for more, it is seen there.
const FULL: u64 = 17;
/// Of few commands each one makes a difference: then it is full with seven eighths of that already,
/// when commands wait there, so that the rate is not just what was asked for …
const NEARLY_FULL: u64 = 14;
/// … for this part of the base latency on average.
const WAITS: u64 = 32;

/// By how much a command was off, where what the path did meanwhile takes `queued_ns`. (What it
/// found there is not what is done before it where queue pairs take turns.)
#[inline]
pub(super) fn learn(forecast: &Forecast, queued_ns: u64, latency_ns: u64, unqueued_ns: u32) {
    let off_ns = word(latency_ns.abs_diff(queued_ns.max(unqueued_ns.into())));
    let off_ns = off_ns.min(unqueued_ns.saturating_mul(MOST));
    forecast.off.set(step(forecast.off.get(), off_ns, MEMORY_SHIFT));
}

/// What is known of a regular path, for one kind of command.
#[derive(Clone, Copy)]
pub(super) struct Regular {
    /// Latencies were seen to hang together with what is in flight.
    pub(super) seen: bool,
    /// More is in flight than the way holds, and more than one command.
    pub(super) full: bool,
}

/// Whether commands like this one take as long there as is predicted, and not for other reasons
/// than what is in flight: what they wait for may be the queue of other hosts.
#[inline]
pub(super) fn regular(forecast: &Forecast, work: u64, incoming: Incoming) -> Option<Regular> {
    let mean_ns = u64::from(forecast.base.get());
    let base_ns = u64::from(forecast.base_ns(incoming.op, incoming.class));
    let exact = EXACT * u64::from(forecast.off.get()) <= mean_ns;
    if !exact || ALIKE * base_ns.abs_diff(mean_ns) > mean_ns {
        return None;
    }
    let elasticity = forecast.elasticity.of(incoming.units, forecast.base.get());
    if elasticity.is_some_and(|e| e < HALF) {
        return None;
    }
    let full = is_nearly_full(forecast, work, incoming) && {
        let waits = WAITS.saturating_mul(forecast.elasticity.wait_ns()) >= mean_ns;
        work < MANY * incoming.units && waits || sixteenths_ns(forecast, work) > FULL * mean_ns
    };
    Some(Regular { seen: elasticity.is_some(), full })
}

/// More than one command is there, and seven eighths of what its base latency holds.
#[inline]
pub(super) fn is_nearly_full(forecast: &Forecast, work: u64, incoming: Incoming) -> bool {
    let mean_ns = u64::from(forecast.base.get());
    work > incoming.units && sixteenths_ns(forecast, work) >= NEARLY_FULL * mean_ns
}

/// Sixteen times what so much work takes, ns.
#[inline]
fn sixteenths_ns(forecast: &Forecast, work: u64) -> u64 {
    16 * time_ns(work, forecast.pace.get())
}
