//! What each block of a region must hold, where one worker owns the region and no two of its
//! requests overlap. Blocks are zero at first; any number of requests may have ended badly.

/// Every word of a block, by what was written there.
pub(crate) fn fill(device: usize, lba: u64, write: u64, block: &mut [u8]) {
    let key = write.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (lba << 20) ^ ((device as u64) << 60);
    for (place, word) in (0_u64..).zip(block.chunks_exact_mut(8)) {
        let value = match (write, place) {
            (0, _) => 0,
            (_, 0) => write,
            _ => key.wrapping_add(place).rotate_left(place as u32 % 64),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Which write a block holds (0: zeroes), unless it is none, or that of another place.
fn held(device: usize, lba: u64, block: &[u8]) -> Option<u64> {
    let write = u64::from_le_bytes(block[..8].try_into().expect("a block has a word"));
    let mut whole = vec![0; block.len()];
    fill(device, lba, write, &mut whole);
    (whole == block).then_some(write)
}

#[derive(Clone, Default)]
struct Block {
    /// The last write that was acknowledged; 0: zeroes.
    acknowledged: u64,
    /// Later ones that may have happened.
    maybe: Vec<u64>,
    busy: bool,
}

/// The blocks of one device that one worker uses.
pub(crate) struct Register {
    device: usize,
    first: u64,
    blocks: Vec<Block>,
}

/// Blocks from one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lba: u64,
    pub(crate) blocks: u32,
}

impl Register {
    pub(crate) fn new(device: usize, first: u64, blocks: usize) -> Register {
        Register { device, first, blocks: vec![Block::default(); blocks] }
    }

    pub(crate) fn extent(&self, at: u64, blocks: u32) -> Extent {
        Extent { lba: self.first + at, blocks }
    }

    fn range(&mut self, extent: Extent) -> &mut [Block] {
        let start = (extent.lba - self.first) as usize;
        &mut self.blocks[start..start + extent.blocks as usize]
    }

    /// Takes an extent for a request; `false` when another has part of it.
    pub(crate) fn claim(&mut self, extent: Extent) -> bool {
        let blocks = self.range(extent);
        let free = blocks.iter().all(|block| !block.busy);
        if free {
            blocks.iter_mut().for_each(|block| block.busy = true);
        }
        free
    }

    pub(crate) fn release(&mut self, extent: Extent) {
        self.range(extent).iter_mut().for_each(|block| block.busy = false);
    }

    /// A write (0: of zeroes) has ended.
    pub(crate) fn written(&mut self, extent: Extent, write: u64, well: bool) {
        for block in self.range(extent) {
            if well {
                *block = Block { acknowledged: write, maybe: Vec::new(), busy: block.busy };
            } else {
                block.maybe.push(write);
            }
        }
    }

    /// What the blocks must hold, if that is certain.
    pub(crate) fn certain(&mut self, extent: Extent, into: &mut [u8]) -> bool {
        let (device, size) = (self.device, into.len() / extent.blocks as usize);
        let blocks = self.range(extent).iter();
        blocks.zip(extent.lba..).zip(into.chunks_mut(size)).all(|((block, lba), into)| {
            fill(device, lba, block.acknowledged, into);
            block.maybe.is_empty()
        })
    }

    /// Checks what a read has brought: gives back the first block that is wrong.
    pub(crate) fn verify(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), String> {
        let (device, size) = (self.device, bytes.len() / extent.blocks as usize);
        let blocks = self.range(extent).iter_mut();
        for ((block, lba), bytes) in blocks.zip(extent.lba..).zip(bytes.chunks(size)) {
            let held = held(device, lba, bytes);
            if held == Some(block.acknowledged) {
                continue;
            }
            let seen = block.maybe.iter().position(|&write| Some(write) == held);
            let Some(seen) = seen else {
                let (last, maybe) = (block.acknowledged, &block.maybe);
                return Err(format!(
                    "block {lba} of device {device} holds {held:?}, not {last} or one of {maybe:?}"
                ));
            };
            // It has happened, and must not be undone.
            block.acknowledged = block.maybe.swap_remove(seen);
        }
        Ok(())
    }
}
