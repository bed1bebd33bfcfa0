//! What nobody waits for any more and a controller may still carry out.

use crate::user::RequestOp;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Withdrawn requests of a head that change blocks and have not ended, on all workers. Whoever asks
/// for something while there are any may be overtaken by them: a write that is answered then could
/// be undone. A user lets nobody begin until there are none, and [`Submit`](crate::user::Submit)
/// takes nothing that changes the same blocks.
#[derive(Debug)]
pub struct Leftovers {
    all: AtomicU32,
    /// Of those, the ones that have no place: they may be anywhere on the device.
    unlisted: AtomicU32,
    places: [Place; PLACES],
}

/// So many have their blocks known. More than that are there at once only when a client with a deep
/// queue is lost, and for no longer than its requests take.
const PLACES: usize = 64;

/// The blocks of one. Reading them while they change is harmless: what has gone needs nobody to
/// wait, and what comes at that moment is as if it had come after.
#[derive(Debug, Default)]
struct Place {
    /// Counts in [`STEP`]s how often it was taken, above how it stands.
    state: AtomicU32,
    first: AtomicU64,
    end: AtomicU64,
}

/// A place is free when its state is a multiple of this, ...
const STEP: u32 = 4;
/// ... being written with this added, ...
const WRITTEN: u32 = 1;
/// ... and stands for blocks with this.
const LISTED: u32 = 2;

impl Default for Leftovers {
    fn default() -> Leftovers {
        Leftovers {
            all: AtomicU32::new(0),
            unlisted: AtomicU32::new(0),
            places: [const { Place::new() }; PLACES],
        }
    }
}

impl Leftovers {
    /// One was withdrawn. Nothing happens for a request that changes no blocks.
    pub fn begin(&self, op: &RequestOp) {
        let Some((first, end)) = changed(op) else { return };
        self.all.fetch_add(1, Ordering::AcqRel);
        if !self.places.iter().any(|place| place.take(first, end)) {
            self.unlisted.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One that was withdrawn has ended.
    pub fn end(&self, op: &RequestOp) {
        let Some((first, end)) = changed(op) else { return };
        // One place with these blocks is as good as another.
        if !self.places.iter().any(|place| place.give(first, end)) {
            self.unlisted.fetch_sub(1, Ordering::AcqRel);
        }
        self.all.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are any.
    #[must_use]
    #[inline]
    pub fn any(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// Whether one may undo what a request does.
    #[must_use]
    #[inline]
    pub fn may_undo(&self, op: &RequestOp) -> bool {
        self.any() && self.touch(op)
    }

    #[cold]
    fn touch(&self, op: &RequestOp) -> bool {
        let Some((first, end)) = changed(op) else { return false };
        self.unlisted.load(Ordering::Acquire) > 0
            || self.places.iter().any(|place| place.touches(first, end))
    }
}

/// The first block that a request changes, and the one behind the last.
fn changed(op: &RequestOp) -> Option<(u64, u64)> {
    let (first, blocks) = match *op {
        RequestOp::Write { lba, blocks, .. } => (lba, u64::from(blocks)),
        RequestOp::WriteZeroes { lba, blocks, .. } | RequestOp::Discard { lba, blocks } => {
            (lba, blocks)
        }
        RequestOp::Read { .. } | RequestOp::Compare { .. } | RequestOp::Flush => return None,
    };
    Some((first, first.saturating_add(blocks)))
}

impl Place {
    const fn new() -> Place {
        Place { state: AtomicU32::new(0), first: AtomicU64::new(0), end: AtomicU64::new(0) }
    }

    /// Stands for these blocks from now on, if it is free.
    fn take(&self, first: u64, end: u64) -> bool {
        let free = self.state.load(Ordering::Relaxed);
        if !free.is_multiple_of(STEP) || !self.change(free, free + WRITTEN) {
            return false;
        }
        self.first.store(first, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.state.store(free + LISTED, Ordering::Release);
        true
    }

    /// Is free from now on, if it stands for these blocks.
    fn give(&self, first: u64, end: u64) -> bool {
        let listed = self.state.load(Ordering::Acquire);
        let stands = listed % STEP == LISTED
            && self.first.load(Ordering::Relaxed) == first
            && self.end.load(Ordering::Relaxed) == end;
        // The count tells when it has been free meanwhile and stands for something else.
        stands && self.change(listed, (listed - LISTED).wrapping_add(STEP))
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn touches(&self, first: u64, end: u64) -> bool {
        self.state.load(Ordering::Acquire) % STEP == LISTED
            && self.first.load(Ordering::Relaxed) < end
            && first < self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
