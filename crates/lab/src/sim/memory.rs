//! Payload memory of the simulation: one allocation per buffer, checked at each touch.

use anabranch_proto::machine::{BufRef, Buffers};

/// What freed memory is filled with, so that a late reader notices.
const POISON: u8 = 0xdb;

struct Cell {
    generation: u16,
    bytes: Vec<u8>,
    live: bool,
}

/// Memory of one group of workers.
///
/// # Panics
/// Touching or freeing a buffer that is not allocated panics: that is an engine's defect, and what
/// this memory is for.
#[derive(Default)]
pub struct SimBuffers {
    cells: Vec<Cell>,
    free: Vec<usize>,
    live: usize,
    /// Nothing is left to allocate.
    pub(super) exhausted: bool,
}

impl SimBuffers {
    /// Buffers that are allocated now.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live
    }

    fn cell(&self, buf: BufRef) -> &Cell {
        let cell = &self.cells[(buf.offset() >> 32) as usize];
        assert!(cell.live && cell.generation == buf.generation(), "{buf:?} is not allocated");
        cell
    }

    fn range(buf: BufRef) -> std::ops::Range<usize> {
        let start = (buf.offset() & u64::from(u32::MAX)) as usize;
        start..start + buf.len() as usize
    }
}

impl Buffers for SimBuffers {
    fn bytes(&self, buf: BufRef) -> &[u8] {
        if buf.is_empty() {
            return &[];
        }
        &self.cell(buf).bytes[Self::range(buf)]
    }

    fn bytes_mut(&mut self, buf: BufRef) -> &mut [u8] {
        if buf.is_empty() {
            return &mut [];
        }
        self.cell(buf);
        &mut self.cells[(buf.offset() >> 32) as usize].bytes[Self::range(buf)]
    }

    fn alloc(&mut self, len: u32) -> Option<BufRef> {
        if self.exhausted || len > self.max_alloc() {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.cells.push(Cell { generation: 0, bytes: Vec::new(), live: false });
            self.cells.len() - 1
        });
        let cell = &mut self.cells[index];
        cell.generation = cell.generation.wrapping_add(1);
        cell.bytes.clear();
        cell.bytes.resize(len as usize, POISON);
        cell.live = true;
        self.live += 1;
        Some(BufRef::new(0, cell.generation, (index as u64) << 32, len))
    }

    fn free(&mut self, buf: BufRef) {
        self.cell(buf);
        let index = (buf.offset() >> 32) as usize;
        let cell = &mut self.cells[index];
        cell.live = false;
        cell.bytes.fill(POISON);
        self.live -= 1;
        self.free.push(index);
    }
}
