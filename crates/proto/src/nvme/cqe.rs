//! Completion queue entries.

use super::{Status, le};

/// A completion: 16 bytes (Base "Completion Queue Entry"). On Fabrics there is no phase tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    /// Dwords 0 and 1: the command's result.
    pub result: u64,
    /// Submission queue head pointer: flow control of the submission queue.
    pub sqhd: u16,
    /// Submission queue identifier; hosts ignore it on Fabrics.
    pub sqid: u16,
    /// The command that ended.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
}

impl Cqe {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 16;

    /// Reads 16 bytes; every pattern is a completion. The phase bit is dropped.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Cqe::BYTES]) -> Cqe {
        Cqe {
            result: le::u64(bytes, 0),
            sqhd: le::u16(bytes, 8),
            sqid: le::u16(bytes, 10),
            cid: le::u16(bytes, 12),
            status: Status::from_bits(le::u16(bytes, 14) >> 1),
        }
    }

    /// The 16 bytes on the wire, phase bit clear.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Cqe::BYTES] {
        let mut bytes = [0; Cqe::BYTES];
        le::put_u64(&mut bytes, 0, self.result);
        le::put_u16(&mut bytes, 8, self.sqhd);
        le::put_u16(&mut bytes, 10, self.sqid);
        le::put_u16(&mut bytes, 12, self.cid);
        le::put_u16(&mut bytes, 14, self.status.bits() << 1);
        bytes
    }
}
