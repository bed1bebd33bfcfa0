//! What one worker has on one path, and when it tells the others.
//!
//! The words of a [`Forecast`] wander between the processors of all workers that write them. At
//! real rates that does not show. A worker that ends more than a command in two microseconds on a
//! path, for longer than a burst, keeps what it starts and ends to itself for a moment: others see
//! it at most that moment later, and never less than three quarters of it.

use super::directions::place;
use super::forecast::Forecast;
use super::in_flight::{InFlight, may_stay_untold};
use crate::OpClass;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Completions are told, and learned from, as often as this in the long run, ns.
const INTERVAL_NS: u64 = 2_000;
/// … and so many more, at once or little by little, after a time in which there were fewer.
const BURST: u64 = 256;

/// One worker's part of what is in flight on one path under `finish-time`. A path has one per
/// worker; only the worker itself writes it. It outlives the path as long as charges are out.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Lane {
    /// Units that this worker has in flight, of reads, then of all else.
    own: [AtomicU64; 2],
    /// What of those [`Forecast`] does not know yet: differences, modulo 2^64.
    untold: [AtomicU64; 2],
    /// Units delivered that it does not know yet, of reads, then of writes.
    delivered: [AtomicU32; 2],
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
            own: [AtomicU64::new(0), AtomicU64::new(0)],
            untold: [AtomicU64::new(0), AtomicU64::new(0)],
            delivered: [AtomicU32::new(0), AtomicU32::new(0)],
            held: AtomicBool::new(false),
            paid_ns: AtomicU64::new(0),
        }
    }

    /// Units that this worker has in flight, of reads, then of all else.
    #[inline]
    pub(super) fn own(&self) -> [u64; 2] {
        [0, 1].map(|at| self.own[at].load(Relaxed))
    }

    /// What is in flight on the path as far as this worker knows, likewise.
    #[inline]
    pub(super) fn in_flight(&self, forecast: &Forecast) -> [InFlight; 2] {
        [0, 1].map(|at| forecast.in_flight(at, self.untold[at].load(Relaxed)))
    }

    /// Units of all that.
    #[inline]
    pub(crate) fn work(&self, forecast: &Forecast) -> u64 {
        self.in_flight(forecast).map(InFlight::units).iter().sum()
    }

    /// Units delivered by the path, likewise, in the direction of the op and in the other one;
    /// modulo 2^32.
    #[inline]
    pub(super) fn delivered(&self, forecast: &Forecast, op: OpClass) -> [u32; 2] {
        let told = &forecast.directions.delivered;
        [place(op), 1 - place(op)]
            .map(|at| told[at].load(Relaxed).wrapping_add(self.delivered[at].load(Relaxed)))
    }

    /// A command of so many units was started.
    #[inline]
    pub(super) fn started(&self, forecast: &Forecast, op: OpClass, units: u64, now_ns: u64) {
        if self.held.load(Relaxed) && !self.is_early(now_ns) {
            self.tell(forecast);
        }
        self.change(forecast, place(op), units);
    }

    /// That command ended.
    #[inline]
    pub(super) fn ended(&self, forecast: &Forecast, op: OpClass, units: u64) {
        let own = self.own[place(op)].load(Relaxed);
        debug_assert!(own >= units, "a charge was returned twice or to another place");
        self.change(forecast, place(op), units.wrapping_neg());
    }

    /// What is in flight in a direction changes by this much, modulo 2^64.
    #[inline]
    fn change(&self, forecast: &Forecast, at: usize, by: u64) {
        let had = self.own[at].load(Relaxed);
        let own = had.wrapping_add(by);
        self.own[at].store(own, Relaxed);
        let workers = u64::from(own != 0).wrapping_sub(u64::from(had != 0));
        if !self.held.load(Relaxed) {
            return forecast.add_in_flight(at, by, workers);
        }
        let untold = self.untold[at].load(Relaxed).wrapping_add(by);
        // A worker that has nothing left, or had nothing, tells so.
        if may_stay_untold(untold, own) {
            return self.untold[at].store(untold, Relaxed);
        }
        self.untold[at].store(0, Relaxed);
        forecast.add_in_flight(at, untold, workers);
    }

    /// So many units of this op were delivered; gives back how many in all, as
    /// [`Lane::delivered`], when this completion is to be learned from. Then all is told.
    #[inline]
    pub(super) fn done(
        &self,
        forecast: &Forecast,
        op: OpClass,
        units: u32,
        is_probe: bool,
        now_ns: u64,
    ) -> Option<[u32; 2]> {
        if !is_probe {
            if self.is_early(now_ns) {
                let delivered = &self.delivered[place(op)];
                delivered.store(delivered.load(Relaxed).wrapping_add(units), Relaxed);
                self.held.store(true, Relaxed);
                return None;
            }
            let from_ns = self.paid_ns.load(Relaxed).max(now_ns);
            self.paid_ns.store(from_ns.saturating_add(INTERVAL_NS), Relaxed);
        }
        if self.held.load(Relaxed) {
            self.tell(forecast);
        }
        let told = &forecast.directions.delivered;
        let own = told[place(op)].fetch_add(units, Relaxed).wrapping_add(units);
        Some([own, told[1 - place(op)].load(Relaxed)])
    }

    /// What was kept back is told, and what starts or ends from now on at once.
    fn tell(&self, forecast: &Forecast) {
        self.held.store(false, Relaxed);
        for (at, untold) in self.untold.iter().enumerate() {
            let units = untold.load(Relaxed);
            if units != 0 {
                untold.store(0, Relaxed);
                forecast.add_in_flight(at, units, 0);
            }
        }
        for (kept, told) in self.delivered.iter().zip(&forecast.directions.delivered) {
            let delivered = kept.load(Relaxed);
            if delivered != 0 {
                kept.store(0, Relaxed);
                told.fetch_add(delivered, Relaxed);
            }
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

#[cfg(test)]
mod tests;
