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
    /// And those of users who have said that they leave.
    unlisted_leaving: AtomicU32,
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
        let [all, unlisted, unlisted_leaving] = [const { AtomicU32::new(0) }; 3];
        Leftovers { all, unlisted, unlisted_leaving, head, places }
    }

    /// There is one that changes these blocks.
    pub fn begin(&self, blocks: &Range<u64>) {
        self.enter(blocks, LISTED);
    }

    /// One that changes these blocks has ended.
    pub fn end(&self, blocks: &Range<u64>) {
        self.remove(blocks, LISTED);
    }

    /// As [`Leftovers::begin`], of a user who has said that it leaves: it may still submit what
    /// changes these blocks.
    pub fn begin_leaving(&self, blocks: &Range<u64>) {
        self.enter(blocks, LEAVING);
    }

    /// As [`Leftovers::end`], after [`Leftovers::begin_leaving`].
    pub fn end_leaving(&self, blocks: &Range<u64>) {
        self.remove(blocks, LEAVING);
    }

    fn enter(&self, blocks: &Range<u64>, kind: u32) {
        self.all.fetch_add(1, Ordering::AcqRel);
        if !self.places.0.iter().any(|place| place.take(self.head, blocks, kind)) {
            self.unlisted(kind).fetch_add(1, Ordering::AcqRel);
        }
    }

    fn remove(&self, blocks: &Range<u64>, kind: u32) {
        // One place with these blocks is as good as another.
        if !self.places.0.iter().any(|place| place.give(self.head, blocks, kind)) {
            self.unlisted(kind).fetch_sub(1, Ordering::AcqRel);
        }
        self.all.fetch_sub(1, Ordering::AcqRel);
    }

    fn unlisted(&self, kind: u32) -> &AtomicU32 {
        if kind == LEAVING { &self.unlisted_leaving } else { &self.unlisted }
    }

    fn is_changed(&self, blocks: &Range<u64>, kinds: &[u32]) -> bool {
        kinds.iter().any(|&kind| self.unlisted(kind).load(Ordering::Acquire) > 0)
            || self.places.0.iter().any(|place| place.touches(self.head, blocks, kinds))
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
        self.any() && self.is_changed(blocks, &[LISTED, LEAVING])
    }

    /// Whether one may whose user is gone. Those who leave wait for such alone: none of these waits
    /// for anything, while two who leave would wait for each other.
    #[must_use]
    pub fn gone_touch(&self, blocks: &Range<u64>) -> bool {
        self.is_changed(blocks, &[LISTED])
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
/// ... stands for blocks with this, ...
const LISTED: u32 = 2;
/// ... and with this for those of a user who has said that it leaves.
const LEAVING: u32 = 3;

impl Place {
    /// Stands for these blocks from now on, if it is free.
    fn take(&self, head: HeadId, blocks: &Range<u64>, kind: u32) -> bool {
        let free = self.state.load(Ordering::Relaxed);
        if !free.is_multiple_of(STEP) || !self.change(free, free + WRITTEN) {
            return false;
        }
        self.head.store(head.0, Ordering::Relaxed);
        self.first.store(blocks.start, Ordering::Relaxed);
        self.end.store(blocks.end, Ordering::Relaxed);
        self.state.store(free + kind, Ordering::Release);
        true
    }

    /// Is free from now on, if it stands for these blocks.
    fn give(&self, head: HeadId, blocks: &Range<u64>, kind: u32) -> bool {
        let listed = self.state.load(Ordering::Acquire);
        let stands = self.is_of(head, listed, &[kind]) && self.blocks() == *blocks;
        // The count tells when it has been free meanwhile and stands for something else.
        stands && self.change(listed, (listed - kind).wrapping_add(STEP))
    }

    fn touches(&self, head: HeadId, blocks: &Range<u64>, kinds: &[u32]) -> bool {
        let is_mine = self.is_of(head, self.state.load(Ordering::Acquire), kinds);
        let its = self.blocks();
        is_mine && its.start < blocks.end && blocks.start < its.end
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn is_of(&self, head: HeadId, state: u32, kinds: &[u32]) -> bool {
        kinds.contains(&(state % STEP)) && self.head.load(Ordering::Relaxed) == head.0
    }

    fn blocks(&self) -> Range<u64> {
        self.first.load(Ordering::Relaxed)..self.end.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
