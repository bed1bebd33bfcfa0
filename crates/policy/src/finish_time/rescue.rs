//! When what is in flight on a path that has fallen silent is better sent elsewhere.

use super::forecast::Forecast;
use super::unit::time_ns;
use crate::Load;

/// A path is not given up before it has been silent for so long …
pub(super) const SILENCE_NS: u64 = 50_000_000;
/// … and for so many times what was predicted of all that is in flight …
const SILENCE_FACTOR: u64 = 8;
/// … but it is before it has been silent for so much longer than that, ns: an answer that was late
/// must not make patience longer than the time limit of a command. Of a path of which nothing is
/// known nothing is predicted.
const LONGER_NS: u64 = 1_000_000_000;

/// When what is in flight on this path is overdue, unless something ends there before: the caller's
/// time, ns. Reads that are still there then may be sent again on another path. Nothing while the
/// path is idle.
#[cold]
#[must_use]
pub fn overdue_at_ns(load: Load<'_>) -> Option<u64> {
    let forecast = load.shared.forecast();
    let work = load.work();
    if work == 0 {
        return None;
    }
    let known = forecast.pace.get() != 0;
    let patience_ns = if known { patience_ns(forecast, work) } else { LONGER_NS };
    Some(forecast.busy_ns.get().saturating_add(patience_ns))
}

/// How long a path with so much in flight may be silent until it is given up, ns.
pub(super) fn patience_ns(forecast: &Forecast, work: u64) -> u64 {
    let expected_ns = time_ns(work, forecast.pace.get()).max(forecast.longest.get().into());
    let longest_ns = expected_ns.saturating_add(LONGER_NS);
    expected_ns.saturating_mul(SILENCE_FACTOR).min(longest_ns).max(SILENCE_NS)
}
