//! What is in flight on a path, of reads and of writes.

use super::directions::place;
use super::{Forecast, Lane};
use crate::OpClass;

/// Of what a worker has in flight in a direction, one part in so many may be untold.
const UNTOLD_PART: u64 = 4;
/// A port may serve commands in the order in which they come, or the queue pairs of its hosts by
/// turns: of what that changes, one part in 2^this is counted.
const TURNS_SHIFT: u32 = 2;

/// What is in flight in one direction, in one word: how many workers have something there, and
/// units above that. Differences are added to it, modulo 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlight(u64);

impl InFlight {
    /// There are fewer than 2^16 workers, with far less than 2^47 units.
    const WORKER_BITS: u32 = 16;

    /// The word, or what is added to it, modulo 2^64.
    #[inline]
    pub(super) const fn word(units: u64, workers: u64) -> u64 {
        (units << InFlight::WORKER_BITS).wrapping_add(workers)
    }

    /// What a word says, with units that it does not know of.
    #[inline]
    pub(super) const fn with(word: u64, untold: u64) -> InFlight {
        InFlight(word.wrapping_add(InFlight::word(untold, 0)))
    }

    /// A worker may tell of an end before another tells of the start: then there are none.
    #[inline]
    pub(super) fn units(self) -> u64 {
        (self.0 as i64 >> InFlight::WORKER_BITS).max(0).unsigned_abs()
    }

    /// How many workers they are of.
    #[inline]
    pub(super) fn workers(self) -> u64 {
        self.0 & ((1 << InFlight::WORKER_BITS) - 1)
    }
}

/// Whether a difference modulo 2^64 is so little of what a worker has that it may stay untold.
#[inline]
pub(super) const fn may_stay_untold(untold: u64, own: u64) -> bool {
    (untold as i64).unsigned_abs().saturating_mul(UNTOLD_PART) <= own
}

/// What is in flight on a path as one of its workers knows it, which starts a command there.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    pub(super) lane: &'a Lane,
    /// Units in flight, of all workers.
    pub(super) units: u64,
    workers: u64,
}

impl<'a> Ahead<'a> {
    #[inline(always)]
    pub(super) fn of(lane: &'a Lane, forecast: &Forecast) -> Ahead<'a> {
        let [reads, others] = lane.in_flight(forecast);
        // Those who have something in one direction mostly have something in the other one.
        let workers = reads.workers().max(others.workers());
        Ahead { lane, units: reads.units() + others.units(), workers }
    }

    /// What is done there before a command of so many units, in units.
    #[inline(always)]
    pub(super) fn work(self, units: u64) -> u64 {
        let [reads, others] = self.lane.own();
        let own = reads + others;
        by_turns(self.units, own, self.workers + u64::from(own == 0), units)
    }
}

/// The same in the command's own direction, and in the other one.
#[inline]
pub(super) fn apart(lane: &Lane, forecast: &Forecast, op: OpClass, units: u64) -> [u64; 2] {
    let (here, there) = (place(op), 1 - place(op));
    let (all, own) = (lane.in_flight(forecast), lane.own());
    let workers = all[here].workers() + u64::from(own[here] == 0);
    [
        by_turns(all[here].units(), own[here], workers, units),
        by_turns(all[there].units(), own[there], all[there].workers(), 0),
    ]
}

/// Where queue pairs take turns, each worker that has something there gets as much done meanwhile
/// as this one: less than it has in flight, or more, as it goes on. (At most as much again is
/// counted: it may have nothing more.) Of so much `work`, when `own` is this worker's.
#[inline(always)]
fn by_turns(work: u64, own: u64, workers: u64, units: u64) -> u64 {
    if work <= own {
        return work;
    }
    // Far from 2^64: there are at most 2^16 workers, with at most 2^16 commands each.
    let turns = ((own + units) * workers).saturating_sub(units);
    if turns < work {
        work - ((work - turns) >> TURNS_SHIFT)
    } else {
        work + ((turns - work).min(work) >> TURNS_SHIFT)
    }
}
