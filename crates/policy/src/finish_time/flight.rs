//! What a path had done when a command was started.

use super::short::{Short, Triple};

/// … and what the command found there. Of a command that is counted otherwise, whose queue pair it
/// took: no command needs both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    /// Units delivered so far, modulo 2^32: in the command's own direction, and in the other one.
    delivered: [u32; 2],
    /// Units in flight on the path, its own with them.
    work: Short,
    /// For how long nothing had come back from the path, ns; at most 4.3 s.
    idle_ns: Short,
    /// Units in flight, counted as if there were turns: in its own direction, its own with them,
    /// and in the other one; and for how long nothing had come back in its own, ns. All zero where
    /// nothing was ever done in the other one.
    apart: Triple,
}

impl Flight {
    pub(crate) const NONE: Flight =
        Flight { delivered: [0; 2], work: Short::NONE, idle_ns: Short::NONE, apart: Triple::NONE };

    #[inline]
    pub(super) fn new(delivered: [u32; 2], work: u64, idle_ns: u32) -> Flight {
        Flight {
            delivered,
            work: Short::of(cut(work)),
            idle_ns: Short::of(idle_ns),
            ..Flight::NONE
        }
    }

    /// With what is told of its own direction and of the other one.
    #[inline]
    pub(super) fn apart(self, found: [u64; 2], own_idle_ns: u32) -> Flight {
        let [own, other] = found.map(cut);
        Flight { apart: Triple::of([own, other, own_idle_ns]), ..self }
    }

    /// Of a command that is counted in its queue pair.
    #[inline]
    pub(crate) const fn on_queue(queue: u16) -> Flight {
        Flight { work: Short::raw(queue), ..Flight::NONE }
    }

    /// Which one that was.
    #[inline]
    pub(crate) const fn queue(self) -> u16 {
        self.work.bits()
    }

    /// Units delivered since, in its own direction and in the other one, when so many are by now.
    #[inline]
    pub(super) const fn since(self, delivered: [u32; 2]) -> [u32; 2] {
        let [own, other] = self.delivered;
        [delivered[0].wrapping_sub(own), delivered[1].wrapping_sub(other)]
    }

    /// Units in flight on the path, its own with them.
    #[inline]
    pub(super) const fn work(self) -> u32 {
        self.work.get()
    }

    /// For how long nothing had come back from the path, ns.
    #[inline]
    pub(super) const fn idle_ns(self) -> u32 {
        self.idle_ns.get()
    }

    /// Units in flight, counted as if there were turns, in its own direction, its own with them,
    /// and in the other one; and for how long nothing had come back in its own, ns.
    #[inline]
    pub(super) fn found_apart(self) -> Option<[u32; 3]> {
        (self.apart != Triple::NONE).then(|| self.apart.get())
    }
}

/// Units cut to what a word holds.
#[inline]
fn cut(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}
