//! One batch to send: copied bytes in an area of its own, large payload by reference.

use crate::memory::Regions;
use anabranch_proto::machine::{BufRef, Buffers, Gather};
use std::sync::Arc;

/// Payload from this length on is referenced, below it is copied (bytes).
pub(crate) const REFERENCE_FROM: u32 = 4096;
/// Room for copied bytes.
const AREA_BYTES: usize = 32 << 10;
/// Pieces of one batch; the system's limit is 1024.
const MAX_PIECES: usize = 512;
/// A batch that has so many bytes takes no further unit, so that a small command never waits behind
/// a queue of long ones in the same send.
const MAX_BYTES: u64 = 1 << 20;
/// What one protocol unit may copy beside a payload (`Gather::has_room`).
const UNIT_COPY: usize = 256;

/// Memory of one send operation. Its address must not change while the kernel uses it: the driver
/// keeps it boxed until the operation is reaped.
pub(crate) struct Batch {
    regions: Arc<Regions>,
    area: Box<[u8]>,
    used: usize,
    pieces: Vec<libc::iovec>,
    /// Pieces before this one have left.
    first: usize,
    lent: Vec<BufRef>,
    bytes: u64,
    header: libc::msghdr,
}

// SAFETY: the raw pointers in `pieces` and `header` point into this value's own boxes and into the
// group's regions, which `regions` keeps alive; they are not tied to a thread.
unsafe impl Send for Batch {}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// What to hand to the kernel.
pub(crate) enum Pieces {
    One(*const u8, u32),
    Many(*const libc::msghdr),
}

impl Batch {
    pub(crate) fn new(regions: Arc<Regions>) -> Box<Batch> {
        // SAFETY: `msghdr` consists of integers and raw pointers; zero is valid for all of them.
        let header: libc::msghdr = unsafe { std::mem::zeroed() };
        Box::new(Batch {
            regions,
            area: vec![0; AREA_BYTES].into_boxed_slice(),
            used: 0,
            pieces: Vec::with_capacity(MAX_PIECES),
            first: 0,
            lent: Vec::with_capacity(MAX_PIECES),
            bytes: 0,
            header,
        })
    }

    /// Bytes that have not left yet.
    pub(crate) fn left(&self) -> u64 {
        self.bytes
    }

    /// Gives up the references to payload; the batch is empty again.
    pub(crate) fn clear(&mut self) {
        for buf in self.lent.drain(..) {
            self.regions.reaped(buf);
        }
        self.pieces.clear();
        self.used = 0;
        self.first = 0;
        self.bytes = 0;
    }

    /// `sent` bytes have left.
    pub(crate) fn advance(&mut self, sent: u64) {
        debug_assert!(sent <= self.bytes, "no more left than there was");
        let mut sent = sent.min(self.bytes);
        self.bytes -= sent;
        while let Some(piece) = self.pieces.get_mut(self.first) {
            let len = piece.iov_len as u64;
            if sent < len {
                // SAFETY: `sent` is less than the length of the piece.
                piece.iov_base = unsafe { piece.iov_base.add(sent as usize) };
                piece.iov_len -= sent as usize;
                return;
            }
            sent -= len;
            self.first += 1;
        }
    }

    /// The rest of the batch, for the kernel. Valid until the batch is changed or moved out of its
    /// box.
    pub(crate) fn pieces(&mut self) -> Pieces {
        let rest = &mut self.pieces[self.first..];
        if let [only] = rest
            && let Ok(len) = u32::try_from(only.iov_len)
        {
            return Pieces::One(only.iov_base.cast(), len);
        }
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len();
        Pieces::Many(&raw const self.header)
    }

    fn push(&mut self, base: *mut u8, len: usize) {
        self.bytes += len as u64;
        self.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: len });
    }
}

impl Gather for Batch {
    /// # Panics
    /// When the engine did not ask `has_room`.
    fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let from = self.used;
        let area = &mut self.area[from..from + bytes.len()];
        area.copy_from_slice(bytes);
        let base = area.as_mut_ptr();
        self.used += bytes.len();
        if let Some(last) = self.pieces.last_mut() {
            // Adjacent copies are one piece. Compared as addresses: the last piece may be payload.
            if last.iov_base as usize + last.iov_len == base as usize && from != 0 {
                last.iov_len += bytes.len();
                self.bytes += bytes.len() as u64;
                return;
            }
        }
        assert!(self.pieces.len() < MAX_PIECES, "batch takes no more pieces: ask has_room first");
        self.push(base, bytes.len());
    }

    fn payload(&mut self, buf: BufRef, bufs: &dyn Buffers) {
        if buf.len() < REFERENCE_FROM {
            self.copy(bufs.bytes(buf));
            return;
        }
        assert!(self.pieces.len() < MAX_PIECES, "batch takes no more pieces: ask has_room first");
        let base = self.regions.lend(buf);
        self.lent.push(buf);
        self.push(base, buf.len() as usize);
    }

    fn has_room(&self) -> bool {
        self.area.len() - self.used >= UNIT_COPY + REFERENCE_FROM as usize
            // A unit is at most header, payload, digest; the first copy may open a piece.
            && MAX_PIECES - self.pieces.len() >= 4
            && self.bytes < MAX_BYTES
    }
}
