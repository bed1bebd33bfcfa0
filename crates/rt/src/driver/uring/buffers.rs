//! Receive buffers of a worker, provided to the kernel in a ring: it takes one when bytes are
//! there, not before, so idle connections hold none.

use crate::Error;
use crate::driver::Received;
use crate::memory::Map;
use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use std::sync::atomic::{AtomicU16, Ordering};

/// The group number that receives name.
pub(super) const GROUP: u16 = 0;
/// Buffers in use at the beginning; more are taken when they do not suffice, so that little traffic
/// stays within little memory (and within the cache).
const FIRST_BUFFERS: u16 = 4;

#[derive(Debug)]
pub(super) struct ReceiveBuffers {
    ring: Map,
    memory: Map,
    count: u16,
    bytes: u32,
    /// Buffers below this number are in use.
    live: u16,
    /// How many the kernel has.
    provided: u16,
    tail: u16,
}

impl ReceiveBuffers {
    /// Registers `count` buffers (a power of two) of `bytes` each.
    pub(super) fn new(uring: &IoUring, count: u16, bytes: u32) -> Result<ReceiveBuffers, Error> {
        // Memory that is refused here is no matter of what a user may lock.
        let map = |len| {
            Map::new(len).map_err(|source| Error::System { what: "map receive buffers", source })
        };
        let ring = map(usize::from(count) * size_of::<BufRingEntry>())?;
        let memory = map(usize::from(count) * bytes as usize)?;
        let addr = ring.base() as u64;
        // SAFETY: the map is page aligned and holds `count` entries. The kernel holds its pages
        // until the ring is gone, so it may be unmapped earlier; the memory that entries name is
        // written to by receives alone, and `Uring` keeps it when one could not be reaped.
        unsafe { uring.submitter().register_buf_ring_with_flags(addr, count, GROUP, 0) }
            .map_err(|error| super::refused(error, "provided receive buffers"))?;
        let mut buffers =
            ReceiveBuffers { ring, memory, count, bytes, live: 0, provided: 0, tail: 0 };
        buffers.grow(FIRST_BUFFERS);
        Ok(buffers)
    }

    /// Brings up to `more` further buffers into use.
    fn grow(&mut self, more: u16) {
        let to = self.count.min(self.live.saturating_add(more));
        while self.live < to {
            self.live += 1;
            self.provide(self.live - 1);
        }
    }

    /// The size of a buffer.
    pub(super) fn size(&self) -> u32 {
        self.bytes
    }

    /// Doubles the buffers in use, up to all.
    pub(super) fn double(&mut self) {
        self.grow(self.live);
    }

    /// Whether a buffer is provided that no completion which was looked at has taken.
    pub(super) fn any(&self) -> bool {
        self.provided > 0
    }

    /// The kernel has taken one.
    pub(super) fn taken(&mut self) {
        self.provided -= 1;
    }

    /// Gives a buffer to the kernel.
    pub(super) fn provide(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        let at = self.memory.at(u64::from(buffer) * u64::from(self.bytes), self.bytes);
        let base = self.ring.base().cast::<BufRingEntry>();
        // SAFETY: `slot` is below the number of entries in the ring map, and the kernel does not
        // read entries at or behind the tail, so nobody else touches this one.
        let entry = unsafe { &mut *base.add(slot) };
        entry.set_addr(at as u64);
        entry.set_len(self.bytes);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.provided += 1;
        // SAFETY: `base` is the first entry of the registered ring; the tail lies in it, aligned
        // for u16, is written by us alone and read by the kernel, hence atomically.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    /// The bytes that a finished receive has put into a buffer.
    pub(super) fn bytes(&self, received: Received) -> &[u8] {
        let len = received.len.min(self.bytes);
        let at = self.memory.at(u64::from(received.buffer) * u64::from(self.bytes), len);
        // SAFETY: the stretch lies in the map (`at` checks), and the kernel does not write to a
        // buffer that it has handed back until `provide`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(at, len as usize) }
    }
}
