//! What each block carries, and what a read may bring: the block's address, and which write it was.
//!
//! Writes are numbered as they are submitted. A read must bring a write of its own block, and not
//! one after whose end another write of that block began that had ended before the read began.

use std::collections::VecDeque;

/// Address and number, little endian.
pub(super) const STAMP_BYTES: usize = 16;

/// Blocks whose floors are allocated at once.
const CHUNK: u64 = 1024;

/// A write that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// From 1.
    pub(super) number: u64,
    /// No older write was open when it began.
    oldest: u64,
}

/// All that must be known to judge what reads bring.
#[derive(Debug)]
pub(super) struct Ledger {
    block_bytes: usize,
    next: u64,
    /// The oldest write that has not ended, or the next one.
    oldest: u64,
    /// Whether a write has not ended, from `oldest` on.
    open: VecDeque<bool>,
    /// Per block: reads that begin now bring no older write.
    floors: Vec<Option<Box<[u64; CHUNK as usize]>>>,
    /// Some blocks may have become zeros again.
    discards: bool,
    errors: u64,
    first_error: Option<String>,
}

impl Ledger {
    pub(super) fn new(block_bytes: u32, bytes: u64) -> Ledger {
        let chunks = bytes.div_ceil(u64::from(block_bytes)).div_ceil(CHUNK);
        let mut floors = Vec::new();
        floors.resize_with(usize::try_from(chunks).unwrap_or(0), || None);
        Ledger {
            block_bytes: block_bytes as usize,
            next: 1,
            oldest: 1,
            open: VecDeque::with_capacity(4096),
            floors,
            discards: false,
            errors: 0,
            first_error: None,
        }
    }

    /// Reads that brought what they must not, and the first of them in words.
    pub(super) fn errors(&self) -> (u64, Option<&str>) {
        (self.errors, self.first_error.as_deref())
    }

    /// A write has been submitted.
    pub(super) fn begin_write(&mut self) -> Write {
        let number = self.next;
        self.next += 1;
        self.open.push_back(true);
        Write { number, oldest: self.oldest }
    }

    /// It has ended; it was acknowledged or failed.
    pub(super) fn end_write(&mut self, write: Write, lba: u64, blocks: u64, acknowledged: bool) {
        self.open[(write.number - self.oldest) as usize] = false;
        while self.open.front() == Some(&false) {
            self.open.pop_front();
            self.oldest += 1;
        }
        if !acknowledged {
            return;
        }
        for block in lba..lba + blocks {
            let Some(chunk) = self.floors.get_mut((block / CHUNK) as usize) else { return };
            let chunk = chunk.get_or_insert_with(|| Box::new([0; CHUNK as usize]));
            let floor = &mut chunk[(block % CHUNK) as usize];
            *floor = write.oldest.max(*floor);
        }
    }

    /// Blocks may be zeros from now on.
    pub(super) fn discard(&mut self) {
        self.discards = true;
    }

    /// What a read of these blocks that begins now may bring at the oldest.
    pub(super) fn floors(&self, lba: u64, blocks: u64, into: &mut Vec<u64>) {
        into.clear();
        into.extend((lba..lba + blocks).map(|block| {
            let chunk = self.floors.get((block / CHUNK) as usize).and_then(Option::as_deref);
            chunk.map_or(0, |chunk| chunk[(block % CHUNK) as usize])
        }));
    }

    /// Puts a write's stamps on its blocks.
    pub(super) fn fill(&self, number: u64, lba: u64, data: &mut [u8]) {
        for (lba, block) in (lba..).zip(data.chunks_exact_mut(self.block_bytes)) {
            block[..8].copy_from_slice(&lba.to_le_bytes());
            block[8..STAMP_BYTES].copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Judges what a read has brought.
    pub(super) fn check(&mut self, lba: u64, data: &[u8], floors: &[u64]) {
        let blocks = data.chunks_exact(self.block_bytes).zip(floors);
        for (lba, (block, floor)) in (lba..).zip(blocks) {
            let (address, number) = (word(block, 0), word(block, 8));
            let right = match (address, number) {
                (0, 0) => *floor == 0 || self.discards,
                _ => address == lba && number >= *floor && number < self.next,
            };
            if !right {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| {
                    format!(
                        "block {lba} brought write {number} of block {address}; \
                         no write before {floor} can be there"
                    )
                });
            }
        }
    }
}

#[inline]
fn word(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ledger: &mut Ledger, lba: u64, data: &[u8]) -> u64 {
        let mut floors = Vec::new();
        ledger.floors(lba, data.len() as u64 / 512, &mut floors);
        ledger.check(lba, data, &floors);
        ledger.errors().0
    }

    #[test]
    fn a_read_brings_the_last_acknowledged_write() {
        let mut ledger = Ledger::new(512, 1 << 20);
        let mut data = vec![0; 1024];
        assert_eq!(read(&mut ledger, 7, &data), 0);
        let first = ledger.begin_write();
        ledger.fill(first.number, 7, &mut data);
        assert_eq!(read(&mut ledger, 7, &data), 0, "it may be there before it is acknowledged");
        ledger.end_write(first, 7, 2, true);
        assert_eq!(read(&mut ledger, 7, &data), 0);
        let second = ledger.begin_write();
        assert_eq!(read(&mut ledger, 7, &data), 0, "the first is still allowed");
        ledger.end_write(second, 7, 1, true);
        assert_eq!(read(&mut ledger, 7, &data), 1, "now it is stale, in its first block alone");
        assert_eq!(read(&mut ledger, 8, &data[512..]), 1);
    }

    #[test]
    fn writes_that_overlap_in_time_may_end_up_either_way() {
        let mut ledger = Ledger::new(512, 1 << 20);
        let mut data = vec![0; 512];
        let first = ledger.begin_write();
        let second = ledger.begin_write();
        ledger.end_write(second, 3, 1, true);
        ledger.end_write(first, 3, 1, true);
        for write in [first, second] {
            ledger.fill(write.number, 3, &mut data);
            assert_eq!(read(&mut ledger, 3, &data), 0);
        }
        let third = ledger.begin_write();
        ledger.end_write(third, 3, 1, false);
        assert_eq!(read(&mut ledger, 3, &data), 0, "what failed has replaced nothing for certain");
    }

    #[test]
    fn foreign_torn_and_missing_blocks_are_noticed() {
        let mut ledger = Ledger::new(512, 1 << 20);
        let mut data = vec![0; 512];
        let write = ledger.begin_write();
        ledger.fill(write.number, 4, &mut data);
        ledger.end_write(write, 5, 1, true);
        assert_eq!(read(&mut ledger, 5, &data), 1);
        assert_eq!(read(&mut ledger, 5, &vec![0xa5; 512]), 2);
        assert_eq!(read(&mut ledger, 5, &vec![0; 512]), 3);
        assert!(ledger.errors().1.is_some_and(|text| text.contains("block 5 brought write 1")));
        ledger.discard();
        assert_eq!(read(&mut ledger, 5, &vec![0; 512]), 3);
    }
}
