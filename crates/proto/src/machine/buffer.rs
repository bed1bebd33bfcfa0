//! Payload memory: engines hold handles, drivers hold the memory.

/// A handle to a stretch of payload memory: region, offset, length, generation.
///
/// Regions are known to a whole group of workers (pool memory of a worker, memory that a caller or
/// a guest registered). The generation lets a driver notice a handle that outlived its buffer.
///
/// Two words, because it goes through nearly every call: those travel in registers, four fields of
/// different widths in memory, where each reading waits for the writing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufRef {
    /// Region, generation and length, from the highest bits down.
    place: u64,
    offset: u64,
}

impl BufRef {
    /// A buffer of no bytes, in no region.
    pub const EMPTY: BufRef = BufRef::new(u16::MAX, 0, 0, 0);

    /// Made by whoever owns the memory. `offset` and `len` are bytes.
    #[must_use]
    #[inline]
    pub const fn new(region: u16, generation: u16, offset: u64, len: u32) -> BufRef {
        BufRef { place: (region as u64) << 48 | (generation as u64) << 32 | len as u64, offset }
    }

    /// The region that the memory lies in.
    #[must_use]
    #[inline]
    pub const fn region(self) -> u16 {
        (self.place >> 48) as u16
    }

    /// The owner's check value.
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u16 {
        (self.place >> 32) as u16
    }

    /// Byte offset in the region.
    #[must_use]
    #[inline]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub const fn len(self) -> u32 {
        self.place as u32
    }

    /// Whether there is no byte in it.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The part that starts `offset` bytes in and has `len` bytes.
    ///
    /// # Panics
    /// When the part does not lie in the buffer: that is the caller's mistake, never a peer's (peer
    /// values are checked where they are parsed).
    #[must_use]
    #[inline]
    pub const fn slice(self, offset: u32, len: u32) -> BufRef {
        assert!(offset <= self.len() && len <= self.len() - offset, "slice lies in the buffer");
        BufRef::new(self.region(), self.generation(), self.offset + offset as u64, len)
    }
}

impl core::fmt::Debug for BufRef {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BufRef")
            .field("region", &self.region())
            .field("generation", &self.generation())
            .field("offset", &self.offset)
            .field("len", &self.len())
            .finish()
    }
}

/// The payload memory, as an engine may touch it.
///
/// An engine touches only buffers that it owns at that moment (see the module documentation);
/// a driver may check that and panic.
pub trait Buffers {
    /// The bytes of a buffer.
    fn bytes(&self, buf: BufRef) -> &[u8];

    /// The bytes of a buffer, to change.
    fn bytes_mut(&mut self, buf: BufRef) -> &mut [u8];

    /// Takes `len` bytes from this worker's pool, contents unspecified; `None` when the pool is at
    /// its limit (the caller waits: every pool buffer in use comes back by a completion) or when
    /// `len` exceeds [`Buffers::max_alloc`].
    fn alloc(&mut self, len: u32) -> Option<BufRef>;

    /// Gives back a buffer from [`Buffers::alloc`], whole (any slice of it names it).
    fn free(&mut self, buf: BufRef);

    /// All that `alloc` can give out at once, in bytes as [`Buffers::cost`] counts them; no limit
    /// by default.
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    /// How much of that is at hand for buffers of any length; no limit by default. Who shares the
    /// pool among several peers lets none of them take the last of it.
    fn spare(&self) -> u64 {
        u64::MAX
    }

    /// What a buffer of `len` bytes takes of the capacity: no less than `len`.
    fn cost(&self, len: u32) -> u64 {
        u64::from(len)
    }

    /// The longest buffer that `alloc` can give, at least 1 MiB.
    fn max_alloc(&self) -> u32 {
        1 << 20
    }
}

/// Collects one batch to send. Order is the order on the wire.
pub trait Gather {
    /// Appends bytes by copy: protocol headers, small payload, digests.
    fn copy(&mut self, bytes: &[u8]);

    /// Appends payload. The driver copies a small one and refers to a large one, which must
    /// therefore stay as it is until `Transmitted`.
    fn payload(&mut self, buf: BufRef, bufs: &dyn Buffers);

    /// Whether the batch can take one more protocol unit (up to 256 bytes of copies and one payload
    /// of any length). An engine asks before each unit and stops when it cannot.
    fn has_room(&self) -> bool;
}
