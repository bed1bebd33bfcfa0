//! What each block of a region must hold, when one writer owns the region and never overlaps its
//! own requests.

use super::stamp::{Stamp, StampError};
use std::fmt;

/// A stretch of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub lba: u64,
    /// How many.
    pub blocks: u32,
}

/// A block that does not hold what it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The block.
    pub lba: u64,
    /// The sequence number it must hold (the last acknowledged write).
    pub expected: u64,
    /// What it holds.
    pub found: Result<Stamp, StampError>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} must hold write {} but ", self.lba, self.expected)?;
        match self.found {
            Err(StampError::NotStamped) => f.write_str("is not stamped"),
            Err(StampError::Crc) => f.write_str("is damaged (CRC)"),
            Ok(stamp) => write!(
                f,
                "holds write {} of writer {} to block {} of volume {:x}",
                stamp.sequence, stamp.writer, stamp.lba, stamp.volume
            ),
        }
    }
}

#[derive(Clone, Copy)]
struct Block {
    /// The last acknowledged write, or the last that was seen of those behind it; 0 = never written
    /// by us.
    acknowledged: u64,
    /// Since the last acknowledged write, the first and the last one that failed to the user: each
    /// may or may not have happened, in whatever order; 0 = none.
    maybe: (u64, u64),
    /// A request covers the block now.
    busy: bool,
}

/// The register of a region.
pub(super) struct Register {
    volume: u64,
    writer: u32,
    first: u64,
    blocks: Vec<Block>,
}

impl Register {
    /// For the region that starts at block `first`.
    pub(super) fn new(volume: u64, writer: u32, first: u64, blocks: usize) -> Register {
        let empty = Block { acknowledged: 0, maybe: (0, 0), busy: false };
        Register { volume, writer, first, blocks: vec![empty; blocks] }
    }

    fn range(&mut self, extent: Extent) -> &mut [Block] {
        let start = (extent.lba - self.first) as usize;
        &mut self.blocks[start..start + extent.blocks as usize]
    }

    /// Marks an extent busy; `false` when a request covers part of it already.
    pub(super) fn claim(&mut self, extent: Extent) -> bool {
        let blocks = self.range(extent);
        if blocks.iter().any(|block| block.busy) {
            return false;
        }
        blocks.iter_mut().for_each(|block| block.busy = true);
        true
    }

    pub(super) fn release(&mut self, extent: Extent) {
        self.range(extent).iter_mut().for_each(|block| block.busy = false);
    }

    /// Fills the payload of a write.
    pub(super) fn fill(&self, extent: Extent, sequence: u64, bytes: &mut [u8]) {
        let size = bytes.len() / extent.blocks as usize;
        for (lba, block) in (extent.lba..).zip(bytes.chunks_mut(size)) {
            Stamp { volume: self.volume, lba, writer: self.writer, sequence }.fill(block);
        }
    }

    /// A write has ended: well, or with an error that leaves its effect unknown.
    pub(super) fn written(&mut self, extent: Extent, sequence: u64, well: bool) {
        for block in self.range(extent) {
            if well {
                block.acknowledged = sequence;
                block.maybe = (0, 0);
            } else {
                let first = if block.maybe.0 == 0 { sequence } else { block.maybe.0 };
                block.maybe = (first, sequence);
            }
        }
    }

    /// Checks what a read has brought; returns how many blocks could be checked. Blocks that were
    /// never written by us may hold anything.
    pub(super) fn verify(
        &mut self,
        extent: Extent,
        bytes: &[u8],
        mut mismatch: impl FnMut(Mismatch),
    ) -> u64 {
        let (volume, writer) = (self.volume, self.writer);
        let size = bytes.len() / extent.blocks as usize;
        let mut checked = 0;
        let blocks = self.range(extent).iter_mut();
        for ((lba, block), data) in (extent.lba..).zip(blocks).zip(bytes.chunks(size)) {
            if block.acknowledged == 0 {
                continue;
            }
            checked += 1;
            let found = Stamp::read(data);
            // What names this block was written to it.
            let ours = found.ok().map(|stamp| stamp.sequence);
            let ours =
                ours.filter(|&sequence| found == Ok(Stamp { volume, lba, writer, sequence }));
            let (first, last) = block.maybe;
            match ours {
                // Seen once, it has happened: what was before all of these must not come back.
                Some(sequence) if first != 0 && (first..=last).contains(&sequence) => {
                    block.acknowledged = sequence;
                }
                Some(sequence) if sequence == block.acknowledged => {}
                _ => mismatch(Mismatch { lba, expected: block.acknowledged, found }),
            }
        }
        checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENT: Extent = Extent { lba: 10, blocks: 2 };

    fn errors(register: &mut Register, bytes: &[u8]) -> Vec<Mismatch> {
        let mut found = Vec::new();
        register.verify(EXTENT, bytes, |mismatch| found.push(mismatch));
        found
    }

    #[test]
    fn an_older_write_that_comes_back_is_an_error() {
        let mut register = Register::new(1, 2, 8, 8);
        let (mut first, mut second) = ([0; 1024], [0; 1024]);
        register.fill(EXTENT, 1, &mut first);
        register.fill(EXTENT, 2, &mut second);
        assert_eq!(errors(&mut register, &first), [], "nothing is known of unwritten blocks");
        register.written(EXTENT, 1, true);
        register.written(EXTENT, 2, true);
        assert_eq!(errors(&mut register, &second), []);
        assert_eq!(errors(&mut register, &first).len(), 2);
    }

    #[test]
    fn a_failed_write_may_be_there_or_not_but_once_seen_it_stays() {
        let mut register = Register::new(1, 2, 8, 8);
        let (mut first, mut second) = ([0; 1024], [0; 1024]);
        register.fill(EXTENT, 1, &mut first);
        register.fill(EXTENT, 2, &mut second);
        register.written(EXTENT, 1, true);
        register.written(EXTENT, 2, false);
        assert_eq!(errors(&mut register, &first), []);
        assert_eq!(errors(&mut register, &second), []);
        assert_eq!(errors(&mut register, &first).len(), 2, "it was seen and then undone");
    }

    /// Both may still be under way when they have failed.
    #[test]
    fn of_several_failed_writes_each_may_be_there() {
        let mut register = Register::new(1, 2, 8, 8);
        let data = [1, 2, 3, 4].map(|sequence| {
            let mut bytes = [0; 1024];
            register.fill(EXTENT, sequence, &mut bytes);
            bytes
        });
        register.written(EXTENT, 1, true);
        register.written(EXTENT, 2, false);
        register.written(EXTENT, 3, false);
        assert_eq!(errors(&mut register, &data[0]), []);
        for seen in [1, 2, 1] {
            assert_eq!(errors(&mut register, &data[seen]), [], "write {}", seen + 1);
            assert_eq!(errors(&mut register, &data[0]).len(), 2, "write 1 is gone for good");
        }
        register.written(EXTENT, 4, true);
        assert_eq!(errors(&mut register, &data[3]), []);
        for undone in [1, 2] {
            assert_eq!(errors(&mut register, &data[undone]).len(), 2, "write {}", undone + 1);
        }
    }

    #[test]
    fn a_block_of_another_place_is_an_error() {
        let mut register = Register::new(1, 2, 8, 8);
        let mut data = [0; 1024];
        register.fill(EXTENT, 1, &mut data);
        register.written(EXTENT, 1, true);
        data.rotate_left(512);
        assert_eq!(errors(&mut register, &data).len(), 2);
    }

    #[test]
    fn claims_do_not_overlap() {
        let mut register = Register::new(1, 2, 8, 8);
        assert!(register.claim(EXTENT));
        assert!(!register.claim(Extent { lba: 11, blocks: 3 }));
        register.release(EXTENT);
        assert!(register.claim(Extent { lba: 11, blocks: 3 }));
    }
}
