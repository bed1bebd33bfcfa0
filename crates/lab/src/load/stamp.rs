//! What a verified block carries: who wrote what, where, and when.

use anabranch_proto::digest::crc32c;

const MAGIC: u32 = 0x414e_4142;
const HEADER_BYTES: usize = 40;

/// The contents of one block, all derived from these four values. Every byte of the block is
/// covered by the CRC-32C, so that torn, misplaced and foreign data is told apart from good data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The device it was written to.
    pub volume: u64,
    /// The block it was written to.
    pub lba: u64,
    /// Who wrote it.
    pub writer: u32,
    /// Counts the writes of that writer, from 1.
    pub sequence: u64,
}

/// Why a block carries no stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampError {
    /// It does not begin as a stamped block does.
    NotStamped,
    /// Its CRC does not match: torn or damaged.
    Crc,
}

impl Stamp {
    /// Fills a block (at least 512 bytes).
    pub fn fill(&self, block: &mut [u8]) {
        block[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        block[4..8].fill(0);
        block[8..16].copy_from_slice(&self.volume.to_le_bytes());
        block[16..24].copy_from_slice(&self.lba.to_le_bytes());
        block[24..28].copy_from_slice(&self.writer.to_le_bytes());
        block[28..32].fill(0);
        block[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        let mut word = (self.lba ^ self.sequence.rotate_left(32)) | 1;
        for chunk in block[HEADER_BYTES..].chunks_mut(8) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        let crc = crc32c(block);
        block[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads the stamp of a block.
    ///
    /// # Errors
    /// [`StampError`] when the block carries none or is damaged.
    pub fn read(block: &[u8]) -> Result<Stamp, StampError> {
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
        if block.len() < HEADER_BYTES || u32_at(0) != MAGIC {
            return Err(StampError::NotStamped);
        }
        let mut crc = anabranch_proto::digest::Crc32c::new();
        crc.update(&block[..4]);
        crc.update(&[0; 4]);
        crc.update(&block[8..]);
        if crc.take() != u32_at(4) {
            return Err(StampError::Crc);
        }
        Ok(Stamp { volume: u64_at(8), lba: u64_at(16), writer: u32_at(24), sequence: u64_at(32) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_block_is_noticed() {
        let stamp = Stamp { volume: 7, lba: 42, writer: 3, sequence: 9 };
        let mut block = [0; 512];
        stamp.fill(&mut block);
        assert_eq!(Stamp::read(&block), Ok(stamp));
        for bit in 0..block.len() * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(Stamp::read(&block), Ok(stamp), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
