//! The blocks of the namespace: of each, only the first bytes are kept.

use super::stamp::STAMP_BYTES;
use anabranch_proto::machine::{BufRef, Buffers, DiskOp, SystemError};

/// Blocks that are allocated at once.
const CHUNK: u64 = 1024;

type Stamp = [u8; STAMP_BYTES];

/// Sparse blocks; what was never written reads as zeros.
pub(super) struct Store {
    block_bytes: u64,
    chunks: Vec<Option<Box<[Stamp; CHUNK as usize]>>>,
}

impl Store {
    pub(super) fn new(block_bytes: u32, bytes: u64) -> Store {
        let block_bytes = u64::from(block_bytes);
        let chunks = bytes.div_ceil(block_bytes).div_ceil(CHUNK);
        let mut all = Vec::new();
        all.resize_with(usize::try_from(chunks).unwrap_or(0), || None);
        Store { block_bytes, chunks: all }
    }

    /// Carries out what a target wants of its file.
    pub(super) fn disk(&mut self, op: DiskOp, bufs: &mut dyn Buffers) -> Result<u32, SystemError> {
        match op {
            DiskOp::Read { offset, buf } => {
                self.read(offset, bufs.bytes_mut(buf));
                Ok(buf.len())
            }
            DiskOp::Write { offset, buf, .. } => {
                self.write(offset, buf, bufs);
                Ok(buf.len())
            }
            DiskOp::Flush | DiskOp::Sync { .. } => Ok(0),
            DiskOp::Zero { offset, len, .. } | DiskOp::Deallocate { offset, len } => {
                self.zero(offset, len);
                Ok(0)
            }
        }
    }

    /// Copies the stamps of whole blocks.
    pub(super) fn copy_stamps(&self, from: &[u8], into: &mut [u8]) {
        let step = self.block_bytes as usize;
        for (from, into) in from.chunks(step).zip(into.chunks_mut(step)) {
            let len = from.len().min(STAMP_BYTES);
            into[..len].copy_from_slice(&from[..len]);
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) {
        let first = offset / self.block_bytes;
        for (block, into) in (first..).zip(into.chunks_mut(self.block_bytes as usize)) {
            let chunk = self.chunks.get((block / CHUNK) as usize).and_then(Option::as_deref);
            let stamp = chunk.map_or(&[0; STAMP_BYTES], |chunk| &chunk[(block % CHUNK) as usize]);
            into[..STAMP_BYTES].copy_from_slice(stamp);
        }
    }

    fn write(&mut self, offset: u64, from: BufRef, bufs: &dyn Buffers) {
        let first = offset / self.block_bytes;
        let blocks = bufs.bytes(from).chunks(self.block_bytes as usize);
        for (block, from) in (first..).zip(blocks) {
            let Some(chunk) = self.chunks.get_mut((block / CHUNK) as usize) else { return };
            let chunk = chunk.get_or_insert_with(|| Box::new([[0; STAMP_BYTES]; CHUNK as usize]));
            chunk[(block % CHUNK) as usize].copy_from_slice(&from[..STAMP_BYTES]);
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        let (mut block, end) = (offset / self.block_bytes, (offset + len) / self.block_bytes);
        while block < end {
            let next = ((block / CHUNK + 1) * CHUNK).min(end);
            if let Some(chunk) = self.chunks.get_mut((block / CHUNK) as usize) {
                if next - block == CHUNK {
                    *chunk = None;
                } else if let Some(chunk) = chunk {
                    let from = (block % CHUNK) as usize;
                    chunk[from..from + (next - block) as usize].fill([0; STAMP_BYTES]);
                }
            }
            block = next;
        }
    }
}
