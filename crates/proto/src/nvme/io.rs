//! I/O commands of the NVM command set: constructors for hosts, field readers for controllers.

use super::opcode::io as opcode;
use super::{Sqe, Status, le};

const FUA: u32 = 1 << 30;
const LIMITED_RETRY: u32 = 1 << 31;
const DEAC: u32 = 1 << 25;
const PRINFO: u32 = 0xf << 26;
const AD_DEALLOCATE: u32 = 1 << 2;

/// The most blocks that one command can name.
pub const MAX_BLOCKS: u32 = 1 << 16;

/// A command over a range of blocks.
///
/// # Panics
/// When `blocks` is not 1 to 65536: a mistake of the caller.
fn over_blocks(code: u8, nsid: u32, lba: u64, blocks: u32) -> Sqe {
    assert!((1..=MAX_BLOCKS).contains(&blocks), "a command names 1 to 65536 blocks");
    Sqe::new(code).with_nsid(nsid).with_cdw_pair(10, lba).with_cdw(12, blocks - 1)
}

fn with_bits(sqe: Sqe, bits: u32, on: bool) -> Sqe {
    if on { sqe.with_cdw(12, sqe.cdw(12) | bits) } else { sqe }
}

/// Read of `blocks` (1 to 65536, else panics) from `lba`. Without CID and SGL, as all of these.
#[must_use]
#[inline]
pub fn read(nsid: u32, lba: u64, blocks: u32) -> Sqe {
    over_blocks(opcode::READ, nsid, lba, blocks)
}

/// Write of `blocks` (1 to 65536, else panics) at `lba`; with `fua`, durable when it completes.
#[must_use]
#[inline]
pub fn write(nsid: u32, lba: u64, blocks: u32, fua: bool) -> Sqe {
    with_bits(over_blocks(opcode::WRITE, nsid, lba, blocks), FUA, fua)
}

/// Compare of `blocks` (1 to 65536, else panics) at `lba` with the data sent along.
#[must_use]
pub fn compare(nsid: u32, lba: u64, blocks: u32) -> Sqe {
    over_blocks(opcode::COMPARE, nsid, lba, blocks)
}

/// Flush of one namespace, or of all with `FFFF_FFFFh`.
#[must_use]
pub fn flush(nsid: u32) -> Sqe {
    Sqe::new(opcode::FLUSH).with_nsid(nsid)
}

/// Write Zeroes of `blocks` (1 to 65536, else panics) at `lba`; with `deallocate` the blocks may be
/// given back.
#[must_use]
pub fn write_zeroes(nsid: u32, lba: u64, blocks: u32, deallocate: bool, fua: bool) -> Sqe {
    let sqe = over_blocks(opcode::WRITE_ZEROES, nsid, lba, blocks);
    with_bits(with_bits(sqe, DEAC, deallocate), FUA, fua)
}

/// Dataset Management, deallocate, with `ranges` (1 to 256, else panics) range descriptors as data.
#[must_use]
pub fn deallocate(nsid: u32, ranges: u32) -> Sqe {
    assert!((1..=MAX_RANGES).contains(&ranges), "a command names 1 to 256 ranges");
    Sqe::new(opcode::DATASET_MANAGEMENT)
        .with_nsid(nsid)
        .with_cdw(10, ranges - 1)
        .with_cdw(11, AD_DEALLOCATE)
}

/// The most ranges of one Dataset Management command.
pub const MAX_RANGES: u32 = 256;

/// The fields of Read, Write, Compare and Write Zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFields {
    /// First block.
    pub lba: u64,
    /// How many, 1 to 65536.
    pub blocks: u32,
    /// Force unit access.
    pub fua: bool,
    /// Limited retry.
    pub limited_retry: bool,
    /// Deallocate (Write Zeroes).
    pub deallocate: bool,
    /// Protection information field, 4 bits; not 0 asks for something that needs metadata.
    pub prinfo: u8,
}

impl BlockFields {
    /// Reads the fields of a command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> BlockFields {
        let cdw12 = sqe.cdw(12);
        BlockFields {
            lba: sqe.cdw_pair(10),
            blocks: (cdw12 & 0xffff) + 1,
            fua: cdw12 & FUA != 0,
            limited_retry: cdw12 & LIMITED_RETRY != 0,
            deallocate: cdw12 & DEAC != 0,
            prinfo: ((cdw12 & PRINFO) >> 26) as u8,
        }
    }

    /// Checks the range against a namespace of `size_blocks`.
    ///
    /// # Errors
    /// LBA Out of Range, also when the end does not fit 64 bits.
    pub fn check(&self, size_blocks: u64) -> Result<(), Status> {
        check_range(self.lba, self.blocks.into(), size_blocks)
    }
}

fn check_range(lba: u64, blocks: u64, size_blocks: u64) -> Result<(), Status> {
    match lba.checked_add(blocks) {
        Some(end) if end <= size_blocks => Ok(()),
        _ => Err(Status::LBA_OUT_OF_RANGE.with_dnr()),
    }
}

/// One range of a Dataset Management command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DsmRange {
    /// Context attributes; advice only.
    pub attributes: u32,
    /// How many blocks; 0 is allowed and does nothing.
    pub blocks: u32,
    /// First block.
    pub lba: u64,
}

impl DsmRange {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 16;

    /// Reads 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; DsmRange::BYTES]) -> DsmRange {
        DsmRange {
            attributes: le::u32(bytes, 0),
            blocks: le::u32(bytes, 4),
            lba: le::u64(bytes, 8),
        }
    }

    /// The 16 bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; DsmRange::BYTES] {
        let mut bytes = [0; Self::BYTES];
        le::put_u32(&mut bytes, 0, self.attributes);
        le::put_u32(&mut bytes, 4, self.blocks);
        le::put_u64(&mut bytes, 8, self.lba);
        bytes
    }

    /// Checks the range against a namespace of `size_blocks`.
    ///
    /// # Errors
    /// LBA Out of Range.
    pub fn check(&self, size_blocks: u64) -> Result<(), Status> {
        check_range(self.lba, self.blocks.into(), size_blocks)
    }
}

/// The fields of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DsmFields {
    /// How many range descriptors the data holds, 1 to 256.
    pub ranges: u32,
    /// Whether the ranges shall be deallocated; without it the command is advice only.
    pub deallocate: bool,
}

impl DsmFields {
    /// Reads the fields of a command.
    #[must_use]
    pub fn of(sqe: &Sqe) -> DsmFields {
        DsmFields { ranges: (sqe.cdw(10) & 0xff) + 1, deallocate: sqe.cdw(11) & AD_DEALLOCATE != 0 }
    }

    /// The bytes of data that the command needs.
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        self.ranges * DsmRange::BYTES as u32
    }

    /// The ranges in `data`.
    ///
    /// # Errors
    /// Data SGL Length Invalid when the data is shorter than the ranges.
    pub fn read<'a>(
        &self,
        data: &'a [u8],
    ) -> Result<impl Iterator<Item = DsmRange> + use<'a>, Status> {
        let bytes = data
            .get(..self.data_bytes() as usize)
            .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
        Ok(bytes
            .chunks_exact(DsmRange::BYTES)
            .map(|range| DsmRange::from_bytes(&le::array(range, 0))))
    }
}
