//! When more comes than the nearest path can do, in an open load.
//!
//! Who waits in a queue makes all wait that come behind, as long as it stands: each alone does best
//! where it is done first, and all together stand in a queue as long as the way to the next path.
//! So the nearest path has a *toll*, as a road that is full: it grows while a queue stands there
//! and another path has room, and falls while none does. Where more comes than the path can do, it
//! comes to be the difference of the two ways, and what is too much goes the longer one, while the
//! queue stays short.

use super::FinishTimeParameters;
use super::forecast::Forecast;
use super::select::{Best, Incoming, UNHEARD, is_silent, queued_ns};
use super::spill::{HALF, with_room};
use super::unit::word;
use crate::AsCandidate;

/// A toll grows by this part of the time for which a queue stands, as a shift, and falls by all of
/// the time for which none does: queues that come and go by chance have hardly any.
const GROWS_SHIFT: u32 = 4;

/// The cheapest of the other paths that has room, if the best one's toll makes it worth the way.
#[inline]
pub(super) fn overflow<P: AsCandidate>(
    parameters: FinishTimeParameters,
    paths: &[P],
    best: Best,
    incoming: Incoming,
) -> Option<usize> {
    let load = paths[best.index].candidate().load;
    let forecast = load.shared.forecast();
    if !stands(forecast, load.work(), incoming) {
        fall(forecast, incoming.now_ns);
        return None;
    }
    let answers = |other: &Forecast, work| !is_silent(other, work, incoming.now_ns);
    let any = |_: &Forecast, _, _| true;
    let (index, cost) = with_room(parameters, paths, best, incoming, UNHEARD, answers, any)?;
    let toll = forecast.toll.get();
    if cost < best.cost.saturating_add(toll.into()) {
        forecast.toll_ns.set(incoming.now_ns);
        return Some(index);
    }
    // The last look may be long ago: then no queue stood in between.
    let stood_ns = forecast.toll_ns.age_ns(incoming.now_ns).min(best.cost);
    forecast.toll_ns.set(incoming.now_ns);
    forecast.toll.set(toll.saturating_add(word(stood_ns >> GROWS_SHIFT)));
    None
}

/// More is in flight than the way holds twice, and that is what makes commands wait: where
/// latencies scatter for other reasons, a path that has little to do looks slow, and full with it.
#[inline]
fn stands(forecast: &Forecast, work: u64, incoming: Incoming) -> bool {
    let base = forecast.base.get();
    let is_due = || forecast.elasticity.of(incoming.units, base).is_none_or(|e| e >= HALF);
    work != 0 && queued_ns(forecast, work + incoming.units) > 2 * u64::from(base) && is_due()
}

/// No queue stands now, and none has since the last look.
#[inline]
fn fall(forecast: &Forecast, now_ns: u64) {
    if forecast.toll.get() != 0 {
        forecast.toll.set(fallen(forecast, now_ns));
        forecast.toll_ns.set(now_ns);
    }
}

/// What is left of the toll when no queue has stood since the last look, ns.
#[inline]
fn fallen(forecast: &Forecast, now_ns: u64) -> u32 {
    forecast.toll.get().saturating_sub(word(forecast.toll_ns.age_ns(now_ns)))
}

/// What such a command would be charged for a queue that stands on the path, ns.
pub(super) fn toll_ns(forecast: &Forecast, work: u64, incoming: Incoming) -> u64 {
    let stands = stands(forecast, work, incoming);
    u64::from(if stands { forecast.toll.get() } else { fallen(forecast, incoming.now_ns) })
}
