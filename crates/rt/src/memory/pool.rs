//! The buffers of one worker.

use super::region::{CHUNK, NO_CLASS, PAGE, Region, Regions};
use anabranch_proto::machine::{BufRef, Buffers, Time};
use std::sync::Arc;
use std::time::Duration;

/// Slot sizes: 4 KiB << class, up to a whole chunk.
const CLASSES: usize = (CHUNK / PAGE).trailing_zeros() as usize + 1;
const PAGES_PER_CHUNK: usize = (CHUNK / PAGE) as usize;
const NONE: u32 = u32::MAX;

/// Memory that nobody needed for so long goes back to the system. Longer than load pauses for: to
/// touch a page again costs more than a request of its size.
pub(super) const GIVE_BACK_AFTER: Duration = Duration::from_secs(5);
/// Chunks that are given back at a time, some hundred microseconds, and the pause before the next.
pub(super) const GIVE_BACK_CHUNKS: u32 = 8;
pub(super) const GIVE_BACK_PAUSE: Duration = Duration::from_millis(20);

/// Hands out slots of the worker's own region. Chunks without a used slot can serve any size again,
/// except one per class that is kept to save the change.
#[derive(Debug)]
pub(crate) struct Pool {
    regions: Arc<Regions>,
    own: u16,
    slots: Slots,
    /// When to look whether there is something to give back; while nothing is, nobody looks.
    look_at: Option<Time>,
}

/// Which slots are free. The region is an argument: it is shared with other workers.
#[derive(Debug)]
struct Slots {
    chunks: Box<[Chunk]>,
    /// Per class: chunks with at least one free slot, a doubly linked list.
    partial: [u32; CLASSES],
    /// Chunks that serve no class: a singly linked list through `next`.
    unused: u32,
    /// How many those are.
    unused_count: u32,
    /// How many of them were used since the system gave them: the first ones of the list.
    warm: u32,
    /// The fewest that there were since the last look: nobody needed so many.
    warm_least: u32,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// One bit per slot, set when free.
    free: [u64; PAGES_PER_CHUNK / 64],
    free_count: u16,
    class: u8,
    /// The system has given it pages.
    warm: bool,
    next: u32,
    prev: u32,
}

impl Pool {
    /// The pool of worker `own`, over its region.
    pub(crate) fn new(regions: Arc<Regions>, own: u16) -> Pool {
        let count = regions.get(own).chunks();
        let (class, warm, next, prev) = (NO_CLASS, false, NONE, NONE);
        let chunk = Chunk { free: [0; 4], free_count: 0, class, warm, next, prev };
        let mut chunks = vec![chunk; count].into_boxed_slice();
        for (i, chunk) in chunks.iter_mut().enumerate() {
            chunk.next = if i + 1 < count { i as u32 + 1 } else { NONE };
        }
        let unused_count = count as u32;
        let (partial, warm, warm_least) = ([NONE; CLASSES], 0, 0);
        let slots = Slots { chunks, partial, unused: 0, unused_count, warm, warm_least };
        Pool { regions, own, slots, look_at: None }
    }

    /// Gives memory back to the system that nobody has needed for [`GIVE_BACK_AFTER`], a few chunks
    /// at a time. To be asked in every turn; the answer is when at the latest to ask again.
    pub(crate) fn tidy(&mut self, now: Time) -> Option<Time> {
        let slots = &mut self.slots;
        if slots.warm == 0 {
            self.look_at = None;
            return None;
        }
        let Some(at) = self.look_at else {
            slots.warm_least = slots.warm;
            return self.look_again(now, GIVE_BACK_AFTER);
        };
        if at > now {
            return Some(at);
        }
        slots.give_back(self.regions.get(self.own), slots.warm_least.min(GIVE_BACK_CHUNKS));
        if slots.warm_least > 0 {
            return self.look_again(now, GIVE_BACK_PAUSE);
        }
        slots.warm_least = slots.warm;
        self.look_again(now, GIVE_BACK_AFTER)
    }

    fn look_again(&mut self, now: Time, pause: Duration) -> Option<Time> {
        self.look_at = (self.slots.warm > 0).then(|| now.after(pause));
        self.look_at
    }

    /// Takes home what other workers freed.
    pub(crate) fn collect(&mut self) {
        self.slots.collect(self.regions.get(self.own));
    }
}

impl Slots {
    fn collect(&mut self, region: &Region) {
        region.take_returned(|page| self.release(region, page));
    }

    /// Takes a slot of 4 KiB << `class` and returns its first page.
    fn allocate(&mut self, region: &Region, class: usize) -> Option<usize> {
        if self.partial[class] == NONE && !self.refill(region, class) {
            return None;
        }
        let index = self.partial[class];
        let chunk = &mut self.chunks[index as usize];
        let word = chunk.free.iter().position(|w| *w != 0).expect("a partial chunk has a slot");
        let bit = chunk.free[word].trailing_zeros();
        chunk.free[word] &= !(1 << bit);
        chunk.free_count -= 1;
        if chunk.free_count == 0 {
            self.unlink(index);
        }
        let slot = word * 64 + bit as usize;
        Some(index as usize * PAGES_PER_CHUNK + (slot << class))
    }

    /// Finds a chunk for `class`: an unused one, what came home, or an idle chunk of another class.
    fn refill(&mut self, region: &Region, class: usize) -> bool {
        if self.unused == NONE {
            self.collect(region);
            if self.partial[class] != NONE {
                return true;
            }
        }
        if self.unused == NONE {
            let idle = (0..CLASSES).find_map(|other| {
                let index = self.partial[other];
                self.is_idle(index, other).then_some(index)
            });
            let Some(index) = idle else { return false };
            self.retire_chunk(region, index);
        }
        let index = self.unused;
        let chunk = &mut self.chunks[index as usize];
        self.unused = chunk.next;
        self.unused_count -= 1;
        if std::mem::replace(&mut chunk.warm, true) {
            self.warm -= 1;
            self.warm_least = self.warm_least.min(self.warm);
        }
        let slots = PAGES_PER_CHUNK >> class;
        chunk.class = class as u8;
        chunk.free_count = slots as u16;
        for (i, word) in chunk.free.iter_mut().enumerate() {
            let left = slots.saturating_sub(i * 64);
            *word = if left >= 64 { u64::MAX } else { (1 << left) - 1 };
        }
        region.set_class(index as usize, class as u8);
        self.link(index);
        true
    }

    /// Takes back the slot that begins at `page`.
    fn release(&mut self, region: &Region, page: usize) {
        let index = (page / PAGES_PER_CHUNK) as u32;
        let chunk = &mut self.chunks[index as usize];
        let class = usize::from(chunk.class);
        let slot = (page % PAGES_PER_CHUNK) >> class;
        let bit = 1 << (slot % 64);
        assert!(chunk.free[slot / 64] & bit == 0, "buffer freed twice");
        chunk.free[slot / 64] |= bit;
        chunk.free_count += 1;
        let free = usize::from(chunk.free_count);
        if free == 1 {
            let first = self.partial[class];
            self.link(index);
            // It was kept as the only one. Behind another one nobody would find it.
            if self.is_idle(first, class) {
                self.retire_chunk(region, first);
            }
        }
        // An idle chunk is kept when it is the only one of its class with room.
        let only = {
            let chunk = &self.chunks[index as usize];
            chunk.next == NONE && chunk.prev == NONE
        };
        if free == PAGES_PER_CHUNK >> class && !only {
            self.retire_chunk(region, index);
        }
    }

    /// Whether no slot of a chunk that serves `class` is used.
    fn is_idle(&self, index: u32, class: usize) -> bool {
        let chunk = self.chunks.get(index as usize);
        chunk.is_some_and(|it| usize::from(it.free_count) == PAGES_PER_CHUNK >> class)
    }

    fn retire_chunk(&mut self, region: &Region, index: u32) {
        self.unlink(index);
        region.set_class(index as usize, NO_CLASS);
        let chunk = &mut self.chunks[index as usize];
        chunk.class = NO_CLASS;
        chunk.next = self.unused;
        self.unused = index;
        self.unused_count += 1;
        self.warm += 1;
    }

    /// Gives back the pages of so many of the unused chunks: of those that were not used for the
    /// longest time. What is used next comes from the front of the list.
    fn give_back(&mut self, region: &Region, count: u32) {
        let mut index = self.unused;
        for place in 0..self.warm {
            let chunk = &mut self.chunks[index as usize];
            if place >= self.warm - count {
                chunk.warm = false;
                region.give_up(index as usize);
            }
            index = chunk.next;
        }
        self.warm -= count;
        self.warm_least -= count;
    }

    fn link(&mut self, index: u32) {
        let class = usize::from(self.chunks[index as usize].class);
        let first = std::mem::replace(&mut self.partial[class], index);
        if let Some(chunk) = self.chunks.get_mut(first as usize) {
            chunk.prev = index;
        }
        let chunk = &mut self.chunks[index as usize];
        chunk.next = first;
        chunk.prev = NONE;
    }

    fn unlink(&mut self, index: u32) {
        let chunk = &mut self.chunks[index as usize];
        let class = usize::from(chunk.class);
        let (prev, next) = (chunk.prev, chunk.next);
        (chunk.prev, chunk.next) = (NONE, NONE);
        match self.chunks.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.partial[class] = next,
        }
        if let Some(after) = self.chunks.get_mut(next as usize) {
            after.prev = prev;
        }
    }
}

impl Buffers for Pool {
    fn bytes(&self, buf: BufRef) -> &[u8] {
        let at = self.regions.resolve(buf);
        // SAFETY: `resolve` checked that the stretch lies in a live buffer, which stays mapped as
        // long as `self.regions`. The contract of `machine` gives a buffer one owner at a time (the
        // engine that calls this), and the borrow of `self` keeps that engine from changing it.
        unsafe { std::slice::from_raw_parts(at, buf.len() as usize) }
    }

    fn bytes_mut(&mut self, buf: BufRef) -> &mut [u8] {
        let at = self.regions.resolve(buf);
        // SAFETY: as in `bytes`; the borrow is exclusive on this worker, and by the contract no
        // other worker and no operation in flight owns the buffer.
        unsafe { std::slice::from_raw_parts_mut(at, buf.len() as usize) }
    }

    fn alloc(&mut self, len: u32) -> Option<BufRef> {
        if len == 0 {
            return Some(BufRef::EMPTY);
        }
        if u64::from(len) > CHUNK {
            return None;
        }
        let region = self.regions.get(self.own);
        let page = self.slots.allocate(region, slot_pages(len).trailing_zeros() as usize)?;
        let generation = region.generation(page);
        Some(BufRef::new(self.own, generation, page as u64 * PAGE, len))
    }

    fn free(&mut self, buf: BufRef) {
        if buf.region() == BufRef::EMPTY.region() {
            return;
        }
        let region = self.regions.get(buf.region());
        let (page, _) = region.slot(buf.offset());
        let generation = region.generation(page);
        assert!(generation == buf.generation(), "{buf:?} freed twice ({generation})");
        region.retire(page);
        if buf.region() == self.own {
            self.slots.release(region, page);
        } else {
            region.give_back(page);
        }
    }

    fn capacity(&self) -> u64 {
        self.slots.chunks.len() as u64 * CHUNK
    }

    fn spare(&self) -> u64 {
        u64::from(self.slots.unused_count) * CHUNK
    }

    fn cost(&self, len: u32) -> u64 {
        if len == 0 { 0 } else { slot_pages(len) * PAGE }
    }
}

/// Pages of the slot that a buffer lies in.
fn slot_pages(len: u32) -> u64 {
    u64::from(len).div_ceil(PAGE).next_power_of_two()
}
