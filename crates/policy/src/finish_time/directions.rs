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
use crate::{Charge, OpClass};
use core::sync::atomic::AtomicU32;

/// How far predictions are off is a mean of 2^8 commands or so.
const MEMORY_SHIFT: u32 = 8;
/// A prediction that is off by less than one part in 2^this more than another is hardly worse.
const HARDLY_SHIFT: u32 = 3;
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
    /// Units delivered, of reads, then of writes, modulo 2^32.
    pub(super) delivered: [AtomicU32; 2],
    /// Nanoseconds per unit, likewise; as [`Forecast::pace`](super::Forecast).
    paces: [Word; 2],
    /// When one ended here last, or the first one came, ns; likewise.
    ended_ns: [Moment; 2],
    /// The shortest that a command took per unit in the last and in the present window, as a pace,
    /// likewise; 0: none has ended.
    least: [[Word; 2]; 2],
    /// By how much latencies were off what one queue predicts on average, ns.
    off_together: Word,
    /// … and what a queue in each direction does.
    off_apart: Word,
}

impl Directions {
    pub(super) const fn new() -> Directions {
        Directions {
            delivered: [AtomicU32::new(0), AtomicU32::new(0)],
            paces: [Word::new(), Word::new()],
            ended_ns: [Moment::new(), Moment::new()],
            least: [const { [Word::new(), Word::new()] }; 2],
            off_together: Word::new(),
            off_apart: Word::new(),
        }
    }

    /// Forgets what was measured.
    pub(super) fn reset(&self) {
        let words = self.paces.iter().chain([&self.off_together, &self.off_apart]);
        words.chain(self.least.iter().flatten()).for_each(|word| word.set(0));
    }

    /// A new window of the shortest times.
    pub(super) fn next_least(&self) {
        for [last, present] in &self.least {
            last.set(present.get());
            present.set(0);
        }
    }

    /// A command took so long per unit; gives back the shortest of late.
    #[inline]
    fn least(&self, op: OpClass, pace: u32) -> u32 {
        let [last, present] = &self.least[place(op)];
        let known = present.get();
        if known == 0 || pace < known {
            present.set(pace.max(1));
        }
        match last.get() {
            0 => present.get(),
            last => present.get().min(last),
        }
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

    /// A latency was so far off what one queue predicts, and a queue in each direction. (As far
    /// off as the first one, and a quarter farther, a queue in each was before.)
    #[inline]
    fn judge(&self, together_ns: u32, apart_ns: u32) {
        if self.off_together.get() == 0 && self.off_apart.get() == 0 {
            self.off_together.set(together_ns);
            self.off_apart.set(together_ns.saturating_add(together_ns / 4));
            return;
        }
        for (mean, off) in [(&self.off_together, together_ns), (&self.off_apart, apart_ns)] {
            mean.set(step(mean.get(), off, MEMORY_SHIFT));
        }
    }

    /// Whether a queue in each direction predicts better than one for both, or hardly worse: where
    /// what is predicted is followed, what is seen of the other way becomes less.
    #[inline]
    fn predict_well(&self) -> bool {
        let apart = self.off_apart.get();
        apart - (apart >> HARDLY_SHIFT) < self.off_together.get()
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
    outlier: bool,
) {
    // Where all goes one way, nobody asks.
    let Some([found, found_other, idle_ns]) = flight.found_apart() else { return };
    let directions = &forecast.directions;
    let [own, other] = [place(charge.op()), 1 - place(charge.op())].map(|at| &directions.paces[at]);
    let base_ns = u64::from(unqueued_ns);
    let known = own.get();
    let own_ns = time_ns(found.into(), known);
    let other_ns = time_ns(found_other.into(), other.get());
    if known != 0 && other.get() != 0 {
        let together_ns = time_ns(flight.work().into(), forecast.pace.get());
        let most = unqueued_ns.saturating_mul(MOST);
        let off = |predicted: u64| word(latency_ns.abs_diff(predicted.max(base_ns))).min(most);
        directions.judge(off(together_ns), off(own_ns.max(other_ns)));
        forecast.apart.set(directions.predict_well().into());
    }
    let span_ns = latency_ns.saturating_add(idle_ns.into());
    let pace = (span_ns.min(u64::MAX >> RATE_SHIFT) << RATE_SHIFT) / u64::from(done.max(1));
    let queued = latency_ns.saturating_mul(2) > 3 * base_ns;
    // What the other direction has made it wait for says nothing of its own one, nor an outlier.
    let due = !outlier
        && (own_ns.saturating_mul(2) >= other_ns.saturating_mul(3)
            || latency_ns.saturating_mul(8) > other_ns.saturating_mul(LONGER));
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
    // No command was faster than its direction with all that it waited for.
    let shown = (latency_ns.min(u64::MAX >> RATE_SHIFT) << RATE_SHIFT)
        / u64::from(super::units(charge.bytes()));
    let least = directions.least(charge.op(), word(shown));
    own.set(word(next.max(1)).min(least));
}
