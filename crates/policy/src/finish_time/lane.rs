//! What one worker has on one path, and when it tells the others.
//!
//! The words of a [`Forecast`] wander between the processors of all workers that write them. At
//! real rates that does not show. A worker that ends more than a command in two microseconds on a
//! path, for longer than a burst, keeps what it starts and ends to itself for a moment: others see
//! it at most that moment later, and never less than three quarters of it.

use super::forecast::{Forecast, InFlight};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Completions are told, and learned from, as often as this in the long run, ns.
const INTERVAL_NS: u64 = 2_000;
/// … and so many more, at once or little by little, after a time in which there were fewer.
const BURST: u64 = 256;
/// Of what the worker has in flight, one part in so many may be untold.
const UNTOLD_PART: u64 = 4;

/// One worker's part of what is in flight on one path under `finish-time`. A path has one per
/// worker; only the worker itself writes it. It outlives the path as long as charges are out.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Lane {
    /// Units of this worker in flight.
    own: AtomicU64,
    /// What of them [`Forecast`] does not know yet: a difference, modulo 2^64.
    untold: AtomicU64,
    /// Units delivered that it does not know yet.
    delivered: AtomicU32,
    /// The last look at the clock found that it was too early.
    held: AtomicBool,
    /// Up to when completions are paid for, ns: [`INTERVAL_NS`] each.
    paid_ns: AtomicU64,
}

impl Lane {
    /// Nothing in flight.
    #[must_use]
    pub const fn new() -> Lane {
        Lane {
            own: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            delivered: AtomicU32::new(0),
            held: AtomicBool::new(false),
            paid_ns: AtomicU64::new(0),
        }
    }

    /// Units of this worker in flight.
    #[inline]
    pub(super) fn own(&self) -> u64 {
        self.own.load(Relaxed)
    }

    /// Units in flight on the path, as far as this worker knows.
    #[inline]
    pub(crate) fn work(&self, forecast: &Forecast) -> u64 {
        self.in_flight(forecast).units()
    }

    /// What is in flight on the path, as far as this worker knows.
    #[inline]
    pub(super) fn in_flight(&self, forecast: &Forecast) -> InFlight {
        forecast.in_flight_with(self.untold.load(Relaxed))
    }

    /// Units delivered by the path, likewise; modulo 2^32.
    #[inline]
    pub(super) fn delivered(&self, forecast: &Forecast) -> u32 {
        forecast.delivered.load(Relaxed).wrapping_add(self.delivered.load(Relaxed))
    }

    /// So many units more; gives back what was in flight before.
    #[inline]
    pub(super) fn started(&self, forecast: &Forecast, units: u64, now_ns: u64) -> u64 {
        if self.held.load(Relaxed) && !self.is_early(now_ns) {
            self.tell(forecast);
        }
        self.change(forecast, units).saturating_sub(units)
    }

    /// So many units less.
    #[inline]
    pub(super) fn ended(&self, forecast: &Forecast, units: u64) {
        let own = self.own.load(Relaxed);
        debug_assert!(own >= units, "a charge was returned twice or to another place");
        self.change(forecast, units.wrapping_neg());
    }

    /// The units in flight on the path change by this much; gives back how many there are then.
    #[inline]
    fn change(&self, forecast: &Forecast, by: u64) -> u64 {
        let had = self.own.load(Relaxed);
        let own = had.wrapping_add(by);
        self.own.store(own, Relaxed);
        let workers = match (had, own) {
            (0, _) => 1,
            (_, 0) => 1_u64.wrapping_neg(),
            _ => 0,
        };
        if !self.held.load(Relaxed) {
            return forecast.add_in_flight(by, workers).units();
        }
        let untold = self.untold.load(Relaxed).wrapping_add(by);
        // A worker that has nothing left, or had nothing, tells so.
        if magnitude(untold).saturating_mul(UNTOLD_PART) <= own {
            self.untold.store(untold, Relaxed);
            return forecast.in_flight_with(untold).units();
        }
        self.untold.store(0, Relaxed);
        forecast.add_in_flight(untold, workers).units()
    }

    /// So many units were delivered; gives back how many in all, modulo 2^32, when this completion
    /// is to be learned from. Then all is told.
    #[inline]
    pub(super) fn done(
        &self,
        forecast: &Forecast,
        units: u32,
        is_probe: bool,
        now_ns: u64,
    ) -> Option<u32> {
        if !is_probe {
            if self.is_early(now_ns) {
                self.delivered.store(self.delivered.load(Relaxed).wrapping_add(units), Relaxed);
                self.held.store(true, Relaxed);
                return None;
            }
            let from_ns = self.paid_ns.load(Relaxed).max(now_ns);
            self.paid_ns.store(from_ns.saturating_add(INTERVAL_NS), Relaxed);
        }
        if self.held.load(Relaxed) {
            self.tell(forecast);
        }
        Some(forecast.delivered.fetch_add(units, Relaxed).wrapping_add(units))
    }

    /// What was kept back is told, and what starts or ends from now on at once.
    fn tell(&self, forecast: &Forecast) {
        self.held.store(false, Relaxed);
        let (untold, delivered) = (self.untold.load(Relaxed), self.delivered.load(Relaxed));
        if untold != 0 {
            self.untold.store(0, Relaxed);
            forecast.add_in_flight(untold, 0);
        }
        if delivered != 0 {
            self.delivered.store(0, Relaxed);
            forecast.delivered.fetch_add(delivered, Relaxed);
        }
    }

    /// It is too early to tell anything.
    #[inline]
    fn is_early(&self, now_ns: u64) -> bool {
        let ahead_ns = self.paid_ns.load(Relaxed).saturating_sub(now_ns);
        if ahead_ns <= BURST * INTERVAL_NS {
            return false;
        }
        // Further ahead than can be paid: the clock went back.
        let went_back = ahead_ns > (BURST + 1) * INTERVAL_NS;
        if went_back {
            self.paid_ns.store(now_ns, Relaxed);
        }
        !went_back
    }
}

/// Of a difference modulo 2^64.
#[inline]
const fn magnitude(difference: u64) -> u64 {
    (difference as i64).unsigned_abs()
}

#[cfg(test)]
mod tests;
