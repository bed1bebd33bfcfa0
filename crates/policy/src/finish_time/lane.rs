//! What one worker has on one path, and when it tells the others.
//!
//! The words of a [`Forecast`] wander between the processors of all workers that write them. At
//! real rates that does not show. A worker that ends more than a command in two microseconds on a
//! path, for longer than a burst, keeps what it starts and ends to itself for a moment: others see
//! it at most that moment later, and never less than three quarters of it.

use super::directions::place;
use super::flight::Work;
use super::forecast::{Forecast, InFlight};
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
    /// What this worker has in flight.
    own: Amount,
    /// What of that [`Forecast`] does not know yet: a difference, modulo 2^64.
    untold: Amount,
    /// Units delivered that it does not know yet, of reads, then of writes.
    delivered: [AtomicU32; 2],
    /// The last look at the clock found that it was too early.
    held: AtomicBool,
    /// Up to when completions are paid for, ns: [`INTERVAL_NS`] each.
    paid_ns: AtomicU64,
}

/// Units, and those of writes among them; written by one worker alone.
#[derive(Debug, Default)]
struct Amount {
    units: AtomicU64,
    writes: AtomicU64,
}

impl Amount {
    const fn new() -> Amount {
        Amount { units: AtomicU64::new(0), writes: AtomicU64::new(0) }
    }

    #[inline]
    fn get(&self) -> Work {
        Work { units: self.units.load(Relaxed), writes: self.writes.load(Relaxed) }
    }

    #[inline]
    fn set(&self, work: Work) {
        self.units.store(work.units, Relaxed);
        self.writes.store(work.writes, Relaxed);
    }
}

impl Lane {
    /// Nothing in flight.
    #[must_use]
    pub const fn new() -> Lane {
        Lane {
            own: Amount::new(),
            untold: Amount::new(),
            delivered: [AtomicU32::new(0), AtomicU32::new(0)],
            held: AtomicBool::new(false),
            paid_ns: AtomicU64::new(0),
        }
    }

    /// What this worker has in flight.
    #[inline]
    pub(super) fn own(&self) -> Work {
        self.own.get()
    }

    /// Units of all that.
    #[inline]
    pub(super) fn units(&self) -> u64 {
        self.own.units.load(Relaxed)
    }

    /// Units in flight on the path, as far as this worker knows.
    #[inline]
    pub(crate) fn work(&self, forecast: &Forecast) -> u64 {
        self.in_flight(forecast).units()
    }

    /// What is in flight on the path, as far as this worker knows.
    #[inline]
    pub(super) fn in_flight(&self, forecast: &Forecast) -> InFlight {
        forecast.in_flight_with(self.untold.units.load(Relaxed))
    }

    /// Units of writes in flight, likewise. (A worker may tell of an end before another tells of
    /// the start: then there are none.)
    #[inline]
    pub(super) fn writes(&self, forecast: &Forecast) -> u64 {
        let told = forecast.directions.writes.load(Relaxed);
        let writes = told.wrapping_add(self.untold.writes.load(Relaxed));
        (writes as i64).max(0).unsigned_abs()
    }

    /// Units delivered by the path, likewise, in the direction of the op and in the other one;
    /// modulo 2^32.
    #[inline]
    pub(super) fn delivered(&self, forecast: &Forecast, op: OpClass) -> [u32; 2] {
        let told = &forecast.directions.delivered;
        [place(op), 1 - place(op)]
            .map(|at| told[at].load(Relaxed).wrapping_add(self.delivered[at].load(Relaxed)))
    }

    /// So much more; gives back what is in flight with it.
    #[inline]
    pub(super) fn started(&self, forecast: &Forecast, work: Work, now_ns: u64) -> Work {
        if self.held.load(Relaxed) && !self.is_early(now_ns) {
            self.tell(forecast);
        }
        let units = self.change(forecast, work);
        Work { units, writes: self.writes(forecast) }
    }

    /// So much less.
    #[inline]
    pub(super) fn ended(&self, forecast: &Forecast, work: Work) {
        let own = self.own();
        debug_assert!(
            own.units >= work.units && own.writes >= work.writes,
            "a charge was returned twice or to another place"
        );
        self.change(forecast, work.negative());
    }

    /// What is in flight on the path changes by this much; gives back how many units there are
    /// then.
    #[inline]
    fn change(&self, forecast: &Forecast, by: Work) -> u64 {
        let had = self.own();
        let own = had.plus(by);
        self.own.set(own);
        let workers = match (had.units, own.units) {
            (0, _) => 1,
            (_, 0) => 1_u64.wrapping_neg(),
            _ => 0,
        };
        if !self.held.load(Relaxed) {
            return forecast.add_in_flight(by, workers).units();
        }
        let untold = self.untold.get().plus(by);
        // A worker that has nothing left, or had nothing, tells so.
        if untold.is_small_of(own) {
            self.untold.set(untold);
            return forecast.in_flight_with(untold.units).units();
        }
        self.untold.set(Work::default());
        forecast.add_in_flight(untold, workers).units()
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
        let untold = self.untold.get();
        if untold != Work::default() {
            self.untold.set(Work::default());
            forecast.add_in_flight(untold, 0);
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
