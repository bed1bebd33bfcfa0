//! A link carries both ways at once: reads fill it from the target, writes to it.
//!
//! One rate for all that is in flight is right where something serves both, such as a disk, and
//! where both directions are as fast and as full as each other. Where a link is slow one way only,
//! or has more to carry there, it is not: then what fills the other one costs next to nothing.

use super::flight::Flight;
use super::forecast::{Forecast, Moment, Word};
use super::learn::{OUTLIER, step};
use super::select::Incoming;
use super::unit::{RATE_SHIFT, time_ns, word};
use crate::{Charge, OpClass, SizeClass};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// How far predictions are off is a mean of 2^8 commands or so.
const MEMORY_SHIFT: u32 = 8;
/// One counts as off by so many base latencies at most.
const MOST: u32 = 16;
/// A command that took so many eighths of what is in flight in the other direction waited in its
/// own one, too.
const LONGER: u64 = 10;
/// A prediction goes one part in so many from the direction that is done last to the command's own
/// one: of paths on which a command waits for the other direction it takes the one where it makes
/// others wait least.
const OWN: u64 = 5;

/// What is told of one op from all others.
#[derive(Debug)]
pub(super) struct Directions {
    /// Units of writes in flight, as far as workers have told, modulo 2^64.
    pub(super) writes: AtomicU64,
    /// Units delivered, of reads, then of writes, modulo 2^32.
    pub(super) delivered: [AtomicU32; 2],
    /// Nanoseconds per unit, likewise; as [`Forecast::pace`](super::Forecast).
    paces: [Word; 2],
    /// When one ended here last, or the first one came, ns; likewise.
    ended_ns: [Moment; 2],
    /// By how much latencies were off what one queue predicts on average, where both were in
    /// flight, ns.
    off_together: Word,
    /// … and what a queue in each direction does.
    off_apart: Word,
}

impl Directions {
    pub(super) const fn new() -> Directions {
        Directions {
            writes: AtomicU64::new(0),
            delivered: [AtomicU32::new(0), AtomicU32::new(0)],
            paces: [Word::new(), Word::new()],
            ended_ns: [Moment::new(), Moment::new()],
            off_together: Word::new(),
            off_apart: Word::new(),
        }
    }

    /// Forgets what was measured.
    pub(super) fn reset(&self) {
        let words = self.paces.iter().chain([&self.off_together, &self.off_apart]);
        words.for_each(|word| word.set(0));
    }

    /// A command ended, or one was started that has its direction to itself.
    #[inline]
    pub(super) fn ended(&self, op: OpClass, now_ns: u64) {
        self.ended_ns[place(op)].set(now_ns);
    }

    /// For how long nothing has come back in this direction, ns; at most 4.3 s.
    #[inline]
    pub(super) fn idle_ns(&self, op: OpClass, now_ns: u64) -> u32 {
        word(self.ended_ns[place(op)].age_ns(now_ns))
    }

    /// Paces of the op's own direction and of the other one; 0: not measured.
    #[inline]
    pub(super) fn paces(&self, op: OpClass) -> [u32; 2] {
        [&self.paces[place(op)], &self.paces[1 - place(op)]].map(Word::get)
    }
}

/// Where what belongs to the op's direction is.
#[inline]
pub(super) fn place(op: OpClass) -> usize {
    usize::from(op != OpClass::Read)
}

/// When the command will be done, ns from now, where each direction has a queue of its own: a read
/// waits for the writes before it, for its command is behind them, and then for its data; a write
/// for the reads before it, for its answer is. As both go on meanwhile, the longer one counts.
#[inline]
pub(super) fn until_done_ns(
    forecast: &Forecast,
    [own_pace, other_pace]: [u32; 2],
    [own, other]: [u64; 2],
    incoming: Incoming,
) -> u64 {
    let own = if own == 0 { 0 } else { own + incoming.units };
    let own_ns = forecast.queued_at_ns(own_pace, own);
    let last_ns = own_ns.max(forecast.queued_at_ns(other_pace, other));
    last_ns - (last_ns - own_ns) / OWN
}

/// A command ended that took `latency_ns`, `unqueued_ns` without a queue. Since what its flight
/// tells, its direction has delivered `done` units.
#[inline]
pub(super) fn learn(
    forecast: &Forecast,
    charge: Charge,
    flight: Flight,
    done: u32,
    latency_ns: u64,
    unqueued_ns: u32,
) {
    let directions = &forecast.directions;
    let [own, other] = [place(charge.op()), 1 - place(charge.op())].map(|at| &directions.paces[at]);
    let base_ns = u64::from(unqueued_ns);
    let known = own.get();
    let own_ns = time_ns(flight.own().into(), known);
    let other_ns = time_ns(flight.other().into(), other.get());
    if known != 0 && other_ns != 0 {
        let together_ns = time_ns(flight.work().into(), forecast.pace.get());
        let most = unqueued_ns.saturating_mul(MOST);
        let off = |predicted: u64| word(latency_ns.abs_diff(predicted.max(base_ns))).min(most);
        for (mean, predicted) in
            [(&directions.off_together, together_ns), (&directions.off_apart, own_ns.max(other_ns))]
        {
            mean.set(step(mean.get(), off(predicted), MEMORY_SHIFT));
        }
        let apart = directions.off_apart.get() < directions.off_together.get();
        forecast.apart.set(apart.into());
    }
    let span_ns = latency_ns.saturating_add(flight.own_idle_ns().into());
    let pace = (span_ns.min(u64::MAX >> RATE_SHIFT) << RATE_SHIFT) / u64::from(done.max(1));
    let queued = latency_ns.saturating_mul(2) > 3 * base_ns;
    // What the other direction has made it wait for says nothing of its own one.
    let due = own_ns >= other_ns || latency_ns.saturating_mul(8) > other_ns.saturating_mul(LONGER);
    let known = u64::from(known);
    let next = if known == 0 {
        pace
    } else if pace < known {
        known - ((known - pace) >> if queued { 4 } else { 2 })
    } else if queued && due {
        known + ((pace.min(OUTLIER * known) - known) >> 3)
    } else {
        known
    };
    // Not slower than any command of late was with all that it waited for.
    let kind = forecast.of(charge.op(), SizeClass::of(charge.bytes()));
    let least_ns = u64::from(kind.least_ns().max(unqueued_ns));
    let most = (least_ns << RATE_SHIFT) / u64::from(super::units(charge.bytes()));
    own.set(word(next.min(most).max(1)));
}
