//! Payload memory: whole buffers, used again and again.

use anabranch_proto::machine::{BufRef, Buffers};

/// Sizes of buffers are powers of two from here.
const SMALLEST: u32 = 512;

struct Cell {
    bytes: Box<[u8]>,
    generation: u16,
    live: bool,
}

/// Memory without a limit. A buffer that was given back is given out again as it is, so that
/// nothing is cleared or allocated per request.
///
/// # Panics
/// Touching or freeing a buffer that is not allocated panics: that is an engine's defect.
#[derive(Default)]
pub(super) struct Memory {
    cells: Vec<Cell>,
    /// By the logarithm of the size.
    free: [Vec<u32>; 32],
    live: usize,
}

impl Memory {
    /// Buffers that are allocated now.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    #[inline]
    fn place(&self, buf: BufRef) -> usize {
        let index = (buf.offset() >> 32) as usize;
        let cell = &self.cells[index];
        assert!(cell.live && cell.generation == buf.generation(), "{buf:?} is not allocated");
        index
    }
}

#[inline]
fn range(buf: BufRef) -> std::ops::Range<usize> {
    let start = (buf.offset() & u64::from(u32::MAX)) as usize;
    start..start + buf.len() as usize
}

impl Buffers for Memory {
    #[inline]
    fn bytes(&self, buf: BufRef) -> &[u8] {
        if buf.is_empty() {
            return &[];
        }
        &self.cells[self.place(buf)].bytes[range(buf)]
    }

    #[inline]
    fn bytes_mut(&mut self, buf: BufRef) -> &mut [u8] {
        if buf.is_empty() {
            return &mut [];
        }
        let place = self.place(buf);
        &mut self.cells[place].bytes[range(buf)]
    }

    #[inline]
    fn alloc(&mut self, len: u32) -> Option<BufRef> {
        if len > self.max_alloc() {
            return None;
        }
        let size = len.max(SMALLEST).next_power_of_two();
        let index = match self.free[size.trailing_zeros() as usize].pop() {
            Some(index) => index,
            None => {
                let bytes = vec![0; size as usize].into_boxed_slice();
                self.cells.push(Cell { bytes, generation: 0, live: false });
                u32::try_from(self.cells.len() - 1).ok()?
            }
        };
        let cell = &mut self.cells[index as usize];
        cell.generation = cell.generation.wrapping_add(1);
        cell.live = true;
        self.live += 1;
        Some(BufRef::new(0, cell.generation, u64::from(index) << 32, len))
    }

    #[inline]
    fn free(&mut self, buf: BufRef) {
        let index = self.place(buf);
        let cell = &mut self.cells[index];
        cell.live = false;
        self.live -= 1;
        self.free[cell.bytes.len().trailing_zeros() as usize].push(index as u32);
    }

    /// The longest request of a scenario.
    fn max_alloc(&self) -> u32 {
        crate::scenario::MAX_REQUEST_BYTES
    }
}
