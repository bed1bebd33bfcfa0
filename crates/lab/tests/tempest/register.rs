//! What each block of a region must hold, where one worker owns the region and no two of its
//! requests overlap. Blocks are zero at first; any number of requests may have ended badly. When
//! the target loses its power, what was acknowledged may be gone, unless it was durable: written
//! so, or acknowledged before a flush was asked for that was acknowledged, too.

use std::ops::Range;

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
    /// Earlier ones that a loss of power could bring back, and when they were overtaken.
    overtaken: Vec<(u64, Moment)>,
    /// Power was lost since, and one of these may be what it has left.
    left: Vec<u64>,
    busy: bool,
}

/// Answers that a worker had been given by then.
pub(crate) type Moment = u64;

/// How a write has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) well: bool,
    /// It was to be durable when it was answered.
    pub(crate) durable: bool,
    /// Power was lost while it was under way.
    pub(crate) power_lost: bool,
    pub(crate) at: Moment,
}

impl Block {
    /// A write (0: of zeroes) has ended.
    fn written(&mut self, write: u64, ended: Ended) {
        if !ended.well {
            return self.maybe.push(write);
        }
        let mut before = std::mem::take(&mut self.maybe);
        before.append(&mut self.left);
        before.push(std::mem::replace(&mut self.acknowledged, write));
        if ended.durable {
            return self.overtaken.clear();
        }
        if ended.power_lost {
            // It may have happened before that, or after: then the next loss can take it.
            before.extend(self.overtaken.drain(..).map(|(write, _)| write));
            self.left.clone_from(&before);
        }
        self.overtaken.extend(before.into_iter().map(|write| (write, ended.at)));
    }

    /// A read has found it to hold this; `false` when it must not.
    fn found(&mut self, held: Option<u64>, power_lost: bool, at: Moment) -> bool {
        let is = |write: &u64| Some(*write) == held;
        if power_lost {
            // Of before that, or of after.
            let mut overtaken = self.overtaken.iter().map(|(write, _)| write);
            return is(&self.acknowledged)
                || self.maybe.iter().chain(&self.left).any(is)
                || overtaken.any(is);
        }
        if is(&self.acknowledged) && self.maybe.iter().any(is) {
            // It may be the later one, over what was left: a loss of power brings that back.
            self.overtaken.extend(self.left.drain(..).map(|write| (write, at)));
        } else if is(&self.acknowledged) {
            self.left.clear();
        } else if let Some(place) = self.maybe.iter().position(is) {
            // It has happened, and must not be undone, but by a loss of power.
            let seen = self.maybe.swap_remove(place);
            let before = std::mem::replace(&mut self.acknowledged, seen);
            let before = std::mem::take(&mut self.left).into_iter().chain([before]);
            self.overtaken.extend(before.map(|write| (write, at)));
        } else if let Some(place) = self.left.iter().position(is) {
            // What the medium held: nothing else can come back.
            self.acknowledged = self.left.swap_remove(place);
            self.left.clear();
            self.overtaken.clear();
        } else {
            return false;
        }
        true
    }
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

impl Extent {
    pub(crate) fn lbas(self) -> Range<u64> {
        self.lba..self.lba + u64::from(self.blocks)
    }
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
    pub(crate) fn written(&mut self, extent: Extent, write: u64, ended: Ended) {
        self.range(extent).iter_mut().for_each(|block| block.written(write, ended));
    }

    /// A flush was acknowledged that was asked for then. Gives back the blocks for which that was
    /// needed, and that nothing has changed since.
    pub(crate) fn flushed(&mut self, asked: Moment) -> Vec<u64> {
        let mut settled = Vec::new();
        for (block, lba) in self.blocks.iter_mut().zip(self.first..) {
            let before = block.overtaken.len();
            block.overtaken.retain(|(_, at)| *at > asked);
            let still = block.overtaken.is_empty() && block.maybe.is_empty() && !block.busy;
            if still && before > 0 {
                settled.push(lba);
            }
        }
        settled
    }

    /// The target has lost its power.
    pub(crate) fn power_lost(&mut self) {
        for block in &mut self.blocks {
            block.left.extend(block.overtaken.drain(..).map(|(write, _)| write));
        }
    }

    /// What the blocks must hold, if that is certain.
    pub(crate) fn certain(&mut self, extent: Extent, into: &mut [u8]) -> bool {
        let (device, size) = (self.device, into.len() / extent.blocks as usize);
        let blocks = self.range(extent).iter();
        blocks.zip(extent.lba..).zip(into.chunks_mut(size)).all(|((block, lba), into)| {
            fill(device, lba, block.acknowledged, into);
            block.maybe.is_empty() && block.left.is_empty()
        })
    }

    /// Checks what a read has brought by now. Gives back the first block that is wrong, or how many
    /// hold what was there before writes that a loss of power has taken.
    pub(crate) fn verify(
        &mut self,
        extent: Extent,
        bytes: &[u8],
        power_lost: bool,
        now: Moment,
    ) -> Result<u64, String> {
        let mut lost = 0;
        let (device, size) = (self.device, bytes.len() / extent.blocks as usize);
        let blocks = self.range(extent).iter_mut();
        for ((block, lba), bytes) in blocks.zip(extent.lba..).zip(bytes.chunks(size)) {
            let held = held(device, lba, bytes);
            let kept =
                Some(block.acknowledged) == held || block.maybe.iter().any(|it| Some(*it) == held);
            lost += u64::from(!kept);
            if !block.found(held, power_lost, now) {
                let Block { acknowledged: last, maybe, left, .. } = block;
                return Err(format!(
                    "block {lba} of device {device} holds {held:?}, not {last} or one of \
                     {maybe:?}, {left:?}"
                ));
            }
        }
        Ok(lost)
    }
}

#[test]
fn what_was_left_may_come_back_where_a_later_write_has_the_same_value() {
    let ended = |well, at| Ended { well, durable: false, power_lost: false, at };
    // What the second zeroes may have overwritten is there again when they are lost.
    for (again, comes_back) in [(false, false), (true, true)] {
        let mut register = Register::new(0, 0, 1);
        let extent = register.extent(0, 1);
        register.written(extent, 7, ended(true, 1));
        register.written(extent, 0, ended(true, 2));
        register.power_lost();
        if again {
            register.written(extent, 0, ended(false, 3));
        }
        let mut block = [0; 512];
        assert_eq!(register.verify(extent, &block, false, 4), Ok(0));
        register.power_lost();
        fill(0, 0, 7, &mut block);
        assert_eq!(register.verify(extent, &block, false, 5).is_ok(), comes_back, "{again}");
    }
}
