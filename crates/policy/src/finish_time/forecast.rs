//! What is known about one path, shared by all workers.

use super::directions::Directions;
use super::elasticity::Elasticity;
use super::flight::Flight;
use super::in_flight::{InFlight, apart};
use super::unit::{time_ns, word};
use super::{Lane, unit};
use crate::{OpClass, SizeClass};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// A number that is read and written by all workers. Two that write it in the same instant lose one
/// of the two: it is an average, or a time that both know.
#[derive(Debug, Default)]
pub(super) struct Word(AtomicU32);

impl Word {
    pub(super) const MAX: u32 = u32::MAX;

    pub(super) const fn new() -> Word {
        Word(AtomicU32::new(0))
    }

    #[inline]
    pub(super) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, value: u32) {
        // A line that nobody writes stays with all who read it.
        if self.0.load(Relaxed) != value {
            self.0.store(value, Relaxed);
        }
    }
}

/// A time in the caller's nanoseconds, likewise.
#[derive(Debug, Default)]
pub(super) struct Moment(AtomicU64);

impl Moment {
    pub(super) const fn new() -> Moment {
        Moment(AtomicU64::new(0))
    }

    #[inline]
    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, at_ns: u64) {
        self.0.store(at_ns, Relaxed);
    }

    /// How long ago it was; 0 when the clock of another worker was read a little later.
    #[inline]
    pub(super) fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.get())
    }
}

/// What the path does without a queue, for commands of one op and size class.
#[derive(Debug, Default)]
pub(super) struct Base {
    /// Unqueued latency, ns; 0 when it is not known.
    pub(super) latency: Word,
    /// The least latency of the present and of the last window, ns; 0 when there was none.
    pub(super) least: [Word; 2],
    /// When a command of this kind ended here last, or a probe was asked for; ms.
    pub(super) seen_ms: Word,
    /// For how long it may go unseen until a probe is asked for, ms; 0 is the shortest.
    pub(super) gap_ms: Word,
}

impl Base {
    const fn new() -> Base {
        Base {
            latency: Word::new(),
            least: [Word::new(), Word::new()],
            seen_ms: Word::new(),
            gap_ms: Word::new(),
        }
    }

    /// The least of both windows.
    pub(super) fn least_ns(&self) -> u32 {
        match (self.least[0].get(), self.least[1].get()) {
            (0, only) | (only, 0) => only,
            (a, b) => a.min(b),
        }
    }
}

/// The state of one path.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Forecast {
    /// Reads, then all else, as far as workers have told: see [`InFlight`].
    in_flight: [AtomicU64; 2],
    /// The last completion, or when the first command went to the idle path, ns.
    pub(super) busy_ns: Moment,
    /// When the present window of [`Forecast::least_wait`] began, ns.
    pub(super) window_ns: Moment,
    /// When [`Forecast::toll`] was looked at last, ns.
    pub(super) toll_ns: Moment,
    /// When the last command went there that found it without anything to do for a mean base
    /// latency, ns.
    rested_ns: Moment,
    /// The least that a command took beyond the base latency of its kind, in the last and the
    /// present window, ns; the largest number when there was none.
    pub(super) least_wait: [Word; 2],
    /// Whether more in flight makes more be done.
    pub(super) elasticity: Elasticity,
    /// Nanoseconds per unit at the measured rate, with [`unit::RATE_SHIFT`] fraction bits; 0: not
    /// measured.
    pub(super) pace: Word,
    /// A queue in each direction predicts better than one for both.
    pub(super) apart: Word,
    /// A queue was seen at this pace.
    pub(super) proven: Word,
    /// When a command ended here last, ms.
    pub(super) heard_ms: Word,
    /// What a command pays for making others wait, in an open load, ns.
    pub(super) toll: Word,
    /// Mean unqueued latency of what is done at present, ns.
    pub(super) base: Word,
    /// The longest of late, ns.
    pub(super) longest: Word,
    /// By how much latencies of late were off what is predicted, on average, ns.
    pub(super) off: Word,
    /// What commands cost that took far longer than was predicted, on the average of all, ns.
    pub(super) outliers: Word,
    /// Whether the last one was such a command, and how it ended: a state of `outlier`.
    pub(super) far: Word,
    /// When the present window of the least latencies began, ms.
    pub(super) least_ms: Word,
    /// When a probe, or a user's read, was answered last, ms.
    pub(super) answered_ms: Word,
    /// Completions of commands that were started before say nothing, ns.
    pub(super) reset_ns: Moment,
    pub(super) probes: AtomicU64,
    pub(super) probe_bytes: AtomicU64,
    /// Reads, then writes.
    bases: [[Base; SizeClass::COUNT]; 2],
    /// What is known of reads and writes apart.
    pub(super) directions: Directions,
}

const _: () = assert!(size_of::<Forecast>() <= 1024);

impl Forecast {
    pub(crate) const fn new() -> Forecast {
        Forecast {
            in_flight: [AtomicU64::new(0), AtomicU64::new(0)],
            busy_ns: Moment::new(),
            window_ns: Moment::new(),
            toll_ns: Moment::new(),
            rested_ns: Moment::new(),
            least_wait: [const { Word(AtomicU32::new(Word::MAX)) }; 2],
            elasticity: Elasticity::new(),
            pace: Word::new(),
            apart: Word::new(),
            proven: Word::new(),
            heard_ms: Word::new(),
            toll: Word::new(),
            base: Word::new(),
            longest: Word::new(),
            off: Word::new(),
            outliers: Word::new(),
            far: Word::new(),
            least_ms: Word::new(),
            answered_ms: Word::new(),
            reset_ns: Moment::new(),
            probes: AtomicU64::new(0),
            probe_bytes: AtomicU64::new(0),
            bases: [const { [const { Base::new() }; SizeClass::COUNT] }; 2],
            directions: Directions::new(),
        }
    }

    /// What is in flight in a direction, with what one worker has not told.
    #[inline]
    pub(super) fn in_flight(&self, at: usize, untold: u64) -> InFlight {
        InFlight::with(self.in_flight[at].load(Relaxed), untold)
    }

    /// So much and so many workers more in a direction, modulo 2^64.
    #[inline]
    pub(super) fn add_in_flight(&self, at: usize, units: u64, workers: u64) {
        self.in_flight[at].fetch_add(InFlight::word(units, workers), Relaxed);
    }

    /// What workers have told, in bytes.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        unit::in_flight_bytes([0, 1].map(|at| self.in_flight(at, 0).units()).iter().sum())
    }

    #[inline]
    pub(super) fn of(&self, op: OpClass, class: SizeClass) -> &Base {
        &self.bases[usize::from(op != OpClass::Read)][class.index()]
    }

    /// The unqueued latency of such a command, ns; what is not known is taken from the nearest
    /// size, a smaller one first, then from the other direction. 0: nothing is known.
    #[inline]
    pub(super) fn base_ns(&self, op: OpClass, class: SizeClass) -> u32 {
        match self.of(op, class).latency.get() {
            0 => self.borrowed_ns(op, class),
            known => known,
        }
    }

    #[cold]
    fn borrowed_ns(&self, op: OpClass, class: SizeClass) -> u32 {
        let other = if op == OpClass::Read { OpClass::Write } else { OpClass::Read };
        for op in [op, other] {
            let row = &self.bases[usize::from(op != OpClass::Read)];
            let (smaller, larger) = row.split_at(class.index());
            let mut near = smaller.iter().rev().chain(larger);
            if let Some(base) = near.find(|base| base.latency.get() != 0) {
                return base.latency.get();
            }
        }
        0
    }

    /// A new window of the least latencies.
    pub(super) fn next_least(&self) {
        for base in self.bases.iter().flatten() {
            base.least[0].set(base.least[1].get());
            base.least[1].set(0);
        }
        self.directions.next_least();
    }

    /// Forgets everything but what is in flight and the counters.
    pub(crate) fn reset(&self) {
        let measured =
            [&self.pace, &self.apart, &self.proven, &self.base, &self.longest, &self.off];
        let outliers = [&self.outliers, &self.far];
        let words = measured.into_iter().chain(outliers).chain([&self.answered_ms, &self.toll]);
        words.for_each(|word| word.set(0));
        self.forget_waits();
        self.elasticity.reset();
        self.directions.reset();
        for base in self.bases.iter().flatten() {
            base.latency.set(0);
            base.least.iter().for_each(|least| least.set(0));
            base.gap_ms.set(0);
            base.seen_ms.set(0);
        }
    }

    /// What commands of late have waited is not of late any more.
    fn forget_waits(&self) {
        self.least_wait.iter().for_each(|least| least.set(Word::MAX));
    }

    /// How long a window of [`Forecast::least_wait`] is, ns.
    #[inline]
    pub(super) fn window(&self) -> u64 {
        (2 * u64::from(self.base.get())).max(unit::SHORTEST_WINDOW_NS)
    }

    /// Whether it had nothing to do for a mean base latency in the last two windows.
    #[inline]
    pub(super) fn rested(&self, now_ns: u64) -> bool {
        self.rested_ns.age_ns(now_ns) <= 2 * self.window()
    }

    /// Whether one that has nothing to do has had nothing for two windows: what commands waited
    /// before that says nothing.
    #[inline]
    pub(super) fn has_been_idle(&self, now_ns: u64) -> bool {
        self.busy_ns.age_ns(now_ns) > 2 * self.window()
    }

    /// Whether a queue in each direction predicts better than one for both.
    #[inline]
    pub(super) fn is_apart(&self) -> bool {
        self.apart.get() != 0
    }

    /// Paces of the op's own direction and of the other one, where that is so.
    #[inline]
    pub(super) fn paces_apart(&self, op: OpClass) -> Option<[u32; 2]> {
        let paces = self.directions.paces(op);
        (self.is_apart() && !paces.contains(&0)).then_some(paces)
    }

    /// How long so much work takes at a pace of this path, ns.
    #[inline]
    pub(super) fn queued_at_ns(&self, pace: u32, work: u64) -> u64 {
        // It may be faster than anybody has asked for: let it grow.
        time_ns(work, if self.proven.get() == 0 { pace / 2 } else { pace })
    }

    /// A command of `units` was started; gives back what it found there.
    #[inline]
    pub(crate) fn started(&self, lane: &Lane, op: OpClass, units: u32, now_ns: u64) -> Flight {
        let units = u64::from(units);
        let found = lane.work(self);
        let delivered = lane.delivered(self, op);
        let apart = (delivered[1] != 0).then(|| apart(lane, self, op, units));
        lane.started(self, op, units, now_ns);
        if found == 0 {
            if self.has_been_idle(now_ns) {
                self.forget_waits();
            }
            if self.busy_ns.age_ns(now_ns) > self.window() / 2 {
                self.rested_ns.set(now_ns);
            }
            self.busy_ns.set(now_ns);
        }
        if self.window_ns.age_ns(now_ns) > self.window() || self.window_ns.get() > now_ns {
            self.window_ns.set(now_ns);
            self.least_wait[0].set(self.least_wait[1].get());
            self.least_wait[1].set(Word::MAX);
            // A clock that went back must not keep it there.
            self.rested_ns.set(self.rested_ns.get().min(now_ns));
        }
        let path_idle_ns = word(self.busy_ns.age_ns(now_ns));
        let flight = Flight::new(delivered, found + units, path_idle_ns);
        // Where all goes one way, nobody asks what goes the other one.
        let Some([own, other]) = apart else { return flight };
        if own == 0 {
            self.directions.ended(op, now_ns);
        }
        flight.apart([own + units, other], self.directions.idle_ns(op, now_ns))
    }

    /// That command ended, well or not.
    #[inline]
    pub(crate) fn ended(&self, lane: &Lane, op: OpClass, units: u32) {
        lane.ended(self, op, u64::from(units));
    }
}

impl Default for Forecast {
    fn default() -> Self {
        Forecast::new()
    }
}
