//! Test support: payload memory and a batch collector in plain memory, for tests of engines and
//! queues. Not for production: nothing here is fast or bounded by a pool.

use crate::machine::{BufRef, Buffers, Gather};
use alloc::vec;
use alloc::vec::Vec;

/// Payload memory made of separate regions, one per [`MemoryBuffers::alloc`].
///
/// Checks what a driver may check: a handle must lie in its region and carry its region's
/// generation, which changes with every allocation; a freed region is not touched any more.
#[derive(Debug, Default)]
pub struct MemoryBuffers {
    regions: Vec<Region>,
    limit_bytes: Option<u64>,
    in_use_bytes: u64,
}

#[derive(Debug)]
struct Region {
    generation: u16,
    live: bool,
    bytes: Vec<u8>,
}

impl MemoryBuffers {
    /// Without a limit.
    #[must_use]
    pub fn new() -> MemoryBuffers {
        MemoryBuffers::default()
    }

    /// `alloc` fails when more than `bytes` would be in use.
    #[must_use]
    pub fn with_limit(bytes: u64) -> MemoryBuffers {
        MemoryBuffers { limit_bytes: Some(bytes), ..MemoryBuffers::default() }
    }

    /// A buffer that holds `bytes`.
    ///
    /// # Panics
    /// When the limit is reached.
    #[must_use]
    pub fn filled(&mut self, bytes: &[u8]) -> BufRef {
        let len = u32::try_from(bytes.len()).expect("length fits");
        let buf = self.alloc(len).expect("below the limit");
        self.bytes_mut(buf).copy_from_slice(bytes);
        buf
    }

    /// Bytes of buffers not yet freed.
    #[must_use]
    pub fn in_use_bytes(&self) -> u64 {
        self.in_use_bytes
    }

    fn range(&self, buf: BufRef) -> core::ops::Range<usize> {
        let region = &self.regions[usize::from(buf.region())];
        assert!(region.live, "a freed buffer was touched");
        assert_eq!(region.generation, buf.generation(), "a stale handle was used");
        let start = usize::try_from(buf.offset()).expect("offset fits");
        start..start + buf.len() as usize
    }
}

impl Buffers for MemoryBuffers {
    fn bytes(&self, buf: BufRef) -> &[u8] {
        if buf.is_empty() {
            return &[];
        }
        &self.regions[usize::from(buf.region())].bytes[self.range(buf)]
    }

    fn bytes_mut(&mut self, buf: BufRef) -> &mut [u8] {
        if buf.is_empty() {
            return &mut [];
        }
        let range = self.range(buf);
        &mut self.regions[usize::from(buf.region())].bytes[range]
    }

    fn alloc(&mut self, len: u32) -> Option<BufRef> {
        let after = self.in_use_bytes + u64::from(len);
        if len > self.max_alloc() || self.limit_bytes.is_some_and(|limit| after > limit) {
            return None;
        }
        self.in_use_bytes = after;
        let free = self.regions.iter().position(|region| !region.live);
        let index = free.unwrap_or_else(|| {
            self.regions.push(Region { generation: 0, live: false, bytes: Vec::new() });
            self.regions.len() - 1
        });
        let region = &mut self.regions[index];
        region.generation = region.generation.wrapping_add(1);
        region.live = true;
        // A pattern that no test expects: contents are unspecified.
        region.bytes = vec![0xdb; len as usize];
        Some(BufRef::new(u16::try_from(index).expect("few regions"), region.generation, 0, len))
    }

    fn free(&mut self, buf: BufRef) {
        let region = &mut self.regions[usize::from(buf.region())];
        assert!(region.live, "a buffer was freed twice");
        assert_eq!(region.generation, buf.generation(), "a stale handle was freed");
        region.live = false;
        self.in_use_bytes -= region.bytes.len() as u64;
        region.bytes = Vec::new();
    }

    fn capacity(&self) -> u64 {
        self.limit_bytes.unwrap_or(u64::MAX)
    }

    fn spare(&self) -> u64 {
        self.capacity() - self.in_use_bytes
    }

    fn max_alloc(&self) -> u32 {
        4 << 20
    }
}

/// Collects one batch as the bytes that would go on the wire.
#[derive(Debug)]
pub struct VecGather {
    bytes: Vec<u8>,
    payloads: Vec<BufRef>,
    room: usize,
    units: usize,
}

impl VecGather {
    /// A batch without a limit.
    #[must_use]
    pub fn new() -> VecGather {
        VecGather::with_room(usize::MAX)
    }

    /// A batch that has room for `units` protocol units (counted by how often `has_room` said yes
    /// before something was put in).
    #[must_use]
    pub fn with_room(units: usize) -> VecGather {
        VecGather { bytes: Vec::new(), payloads: Vec::new(), room: units, units: 0 }
    }

    /// The bytes so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The payload buffers so far: they belong to the batch until it is transmitted.
    #[must_use]
    pub fn payloads(&self) -> &[BufRef] {
        &self.payloads
    }

    /// Whether nothing was put in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, and starts again from nothing.
    pub fn take(&mut self) -> Vec<u8> {
        self.payloads.clear();
        self.units = 0;
        core::mem::take(&mut self.bytes)
    }

    /// A unit begins with a header of more than four bytes; digests are four bytes and belong to
    /// the unit before them.
    fn count(&mut self, len: usize) {
        if len > crate::digest::DIGEST_BYTES {
            self.units += 1;
        }
    }
}

impl Default for VecGather {
    fn default() -> VecGather {
        VecGather::new()
    }
}

impl Gather for VecGather {
    fn copy(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn payload(&mut self, buf: BufRef, bufs: &dyn Buffers) {
        self.payloads.push(buf);
        self.bytes.extend_from_slice(bufs.bytes(buf));
    }

    fn has_room(&self) -> bool {
        self.units < self.room
    }
}
