//! What a path had done when a command was started.

use super::short::Short;
use crate::OpClass;

/// Of what a worker has in flight in a direction, one part in so many may be untold.
const UNTOLD_PART: u64 = 4;

/// … and what the command found there. Of a command that is counted otherwise, whose queue pair it
/// took: no command needs both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    /// Units delivered so far, modulo 2^32: in the command's own direction, and in the other one.
    delivered: [u32; 2],
    /// For how long nothing had come back, ns; at most 4.3 s: from the path, and in its direction.
    idle_ns: [Short; 2],
    /// Units in flight: in its own direction, its own with them, and in the other one.
    found: [Short; 2],
}

impl Flight {
    pub(crate) const NONE: Flight =
        Flight { delivered: [0; 2], idle_ns: [Short::NONE; 2], found: [Short::NONE; 2] };

    #[inline]
    pub(super) fn new(delivered: [u32; 2], idle_ns: [u32; 2], found: [u32; 2]) -> Flight {
        Flight { delivered, idle_ns: idle_ns.map(Short::of), found: found.map(Short::of) }
    }

    /// Of a command that is counted in its queue pair.
    #[inline]
    pub(crate) const fn on_queue(queue: u16) -> Flight {
        Flight { found: [Short::raw(queue), Short::NONE], ..Flight::NONE }
    }

    /// Which one that was.
    #[inline]
    pub(crate) const fn queue(self) -> u16 {
        self.found[0].bits()
    }

    /// Units delivered since, in its own direction and in the other one, when so many are by now.
    #[inline]
    pub(super) const fn since(self, delivered: [u32; 2]) -> [u32; 2] {
        let [own, other] = self.delivered;
        [delivered[0].wrapping_sub(own), delivered[1].wrapping_sub(other)]
    }

    /// For how long nothing had come back from the path, ns.
    #[inline]
    pub(super) const fn idle_ns(self) -> u32 {
        self.idle_ns[0].get()
    }

    /// … in its own direction.
    #[inline]
    pub(super) const fn own_idle_ns(self) -> u32 {
        self.idle_ns[1].get()
    }

    /// Units in flight in its own direction, its own with them.
    #[inline]
    pub(super) const fn own(self) -> u32 {
        self.found[0].get()
    }

    /// Units in flight in the other one.
    #[inline]
    pub(super) const fn other(self) -> u32 {
        self.found[1].get()
    }

    /// Units in flight on the path, its own with them.
    #[inline]
    pub(super) const fn work(self) -> u32 {
        self.own().saturating_add(self.other())
    }
}

/// Units of all ops, and of those that fill the direction of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Work {
    pub(super) units: u64,
    pub(super) writes: u64,
}

impl Work {
    #[inline]
    pub(super) const fn of(op: OpClass, units: u64) -> Work {
        Work { units, writes: if matches!(op, OpClass::Read) { 0 } else { units } }
    }

    /// The sum, modulo 2^64.
    #[inline]
    pub(super) const fn plus(self, by: Work) -> Work {
        let Work { units, writes } = self;
        Work { units: units.wrapping_add(by.units), writes: writes.wrapping_add(by.writes) }
    }

    /// Whether a difference modulo 2^64 is so little of what there is, in either direction, that it
    /// may stay untold.
    #[inline]
    pub(super) const fn is_small_of(self, all: Work) -> bool {
        const fn small(part: u64, all: u64) -> bool {
            (part as i64).unsigned_abs().saturating_mul(UNTOLD_PART) <= all
        }
        let reads = self.units.wrapping_sub(self.writes);
        small(self.units, all.units)
            && small(self.writes, all.writes)
            && small(reads, all.units.wrapping_sub(all.writes))
    }

    /// What takes it away, modulo 2^64.
    #[inline]
    pub(super) const fn negative(self) -> Work {
        Work { units: self.units.wrapping_neg(), writes: self.writes.wrapping_neg() }
    }

    /// Units of the op's own direction, and of the other one. (What one worker has told of both
    /// another may have seen half of.)
    #[inline]
    pub(super) const fn split(self, op: OpClass) -> [u64; 2] {
        let reads = self.units.saturating_sub(self.writes);
        match op {
            OpClass::Read => [reads, self.writes],
            _ => [self.writes, reads],
        }
    }
}
