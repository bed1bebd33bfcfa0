//! What nobody waits for any more and a controller may still carry out.

use crate::topology::HeadId;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Requests of a head that change blocks, whose user has left and that have not ended, on all
/// workers. Whoever asks for something while there are any may be overtaken by them: a write that
/// is answered then could be undone. A user lets nobody begin until there are none, and submits
/// nothing that changes the same blocks
/// ([`Submit::may_be_undone`](crate::user::Submit::may_be_undone)).
#[derive(Debug)]
pub struct Leftovers {
    all: AtomicU32,
    /// Of those, the ones that have no place: they may be anywhere on the device.
    unlisted: AtomicU32,
    head: HeadId,
    places: Places,
}

/// Where the blocks of leftovers are noted: one for all heads of a host.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<[Place]>);

/// So many have their blocks known. More are there at once only when many clients with deep queues
/// are lost together, and for no longer than their requests take.
const PLACES: usize = 1024;

impl Default for Places {
    fn default() -> Places {
        let all: Vec<Place> = (0..PLACES).map(|_| Place::default()).collect();
        Places(all.into())
    }
}

impl Default for Leftovers {
    fn default() -> Leftovers {
        Leftovers::new(HeadId(0), Places::default())
    }
}

impl Leftovers {
    /// None, of this head.
    pub(crate) fn new(head: HeadId, places: Places) -> Leftovers {
        Leftovers { all: AtomicU32::new(0), unlisted: AtomicU32::new(0), head, places }
    }

    /// There is one that changes these blocks.
    pub fn begin(&self, blocks: &Range<u64>) {
        self.all.fetch_add(1, Ordering::AcqRel);
        if !self.places.0.iter().any(|place| place.take(self.head, blocks)) {
            self.unlisted.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// One that changes these blocks has ended.
    pub fn end(&self, blocks: &Range<u64>) {
        // One place with these blocks is as good as another.
        if !self.places.0.iter().any(|place| place.give(self.head, blocks)) {
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

    /// Whether one may change some of these blocks.
    #[must_use]
    pub fn touch(&self, blocks: &Range<u64>) -> bool {
        self.any() && (self.unlisted.load(Ordering::Acquire) > 0 || self.listed(blocks) > 0)
    }

    /// How many whose blocks are known change some of these.
    #[must_use]
    pub fn listed(&self, blocks: &Range<u64>) -> usize {
        self.places.0.iter().filter(|place| place.touches(self.head, blocks)).count()
    }
}

/// The blocks of one. Reading them while they change is harmless: what has gone needs nobody to
/// wait, and what comes at that moment is as if it had come after.
#[derive(Debug, Default)]
struct Place {
    /// Counts in [`STEP`]s how often it was taken, above how it stands.
    state: AtomicU32,
    head: AtomicU32,
    first: AtomicU64,
    end: AtomicU64,
}

/// A place is free when its state is a multiple of this, ...
const STEP: u32 = 4;
/// ... being written with this added, ...
const WRITTEN: u32 = 1;
/// ... and stands for blocks with this.
const LISTED: u32 = 2;

impl Place {
    /// Stands for these blocks from now on, if it is free.
    fn take(&self, head: HeadId, blocks: &Range<u64>) -> bool {
        let free = self.state.load(Ordering::Relaxed);
        if !free.is_multiple_of(STEP) || !self.change(free, free + WRITTEN) {
            return false;
        }
        self.head.store(head.0, Ordering::Relaxed);
        self.first.store(blocks.start, Ordering::Relaxed);
        self.end.store(blocks.end, Ordering::Relaxed);
        self.state.store(free + LISTED, Ordering::Release);
        true
    }

    /// Is free from now on, if it stands for these blocks.
    fn give(&self, head: HeadId, blocks: &Range<u64>) -> bool {
        let listed = self.state.load(Ordering::Acquire);
        let stands = self.is_of(head, listed) && self.blocks() == *blocks;
        // The count tells when it has been free meanwhile and stands for something else.
        stands && self.change(listed, (listed - LISTED).wrapping_add(STEP))
    }

    fn touches(&self, head: HeadId, blocks: &Range<u64>) -> bool {
        let is_mine = self.is_of(head, self.state.load(Ordering::Acquire));
        let its = self.blocks();
        is_mine && its.start < blocks.end && blocks.start < its.end
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn is_of(&self, head: HeadId, state: u32) -> bool {
        state % STEP == LISTED && self.head.load(Ordering::Relaxed) == head.0
    }

    fn blocks(&self) -> Range<u64> {
        self.first.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
