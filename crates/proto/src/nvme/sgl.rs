//! SGL descriptors as NVMe/TCP uses them (Base "Scatter Gather List", TCP 3.2).

use super::le;

/// One 16-byte SGL descriptor, as in bytes 24 to 39 of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sgl {
    address: u64,
    length: u32,
    identifier: u8,
}

/// What a descriptor says about where the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SglKind {
    /// Data block with an offset (type 0h, subtype 1h): the data is in the capsule.
    InCapsule,
    /// Transport data block (type 5h, subtype Ah): the data moves by data PDUs.
    Transport,
    /// Data block with a memory address (type 0h, subtype 0h): not for this transport.
    Address,
    /// Bit bucket (type 1h).
    BitBucket,
    /// Segment (type 2h).
    Segment,
    /// Last segment (type 3h).
    LastSegment,
    /// Keyed data block (type 4h): for RDMA.
    Keyed,
    /// Anything else.
    Unknown,
}

impl Sgl {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 16;

    /// `length` bytes in the capsule, right behind the command (ICDOFF 0).
    #[must_use]
    pub const fn in_capsule(length: u32) -> Sgl {
        Sgl { address: 0, length, identifier: 0x01 }
    }

    /// `length` bytes that move by data PDUs.
    #[must_use]
    pub const fn transport(length: u32) -> Sgl {
        Sgl { address: 0, length, identifier: 0x5a }
    }

    /// No data: a transport data block of no bytes, as the Linux host sends it.
    #[must_use]
    pub const fn none() -> Sgl {
        Sgl::transport(0)
    }

    /// A descriptor from raw fields; `identifier` holds the type in its upper and the subtype in
    /// its lower half.
    #[must_use]
    pub const fn from_raw(address: u64, length: u32, identifier: u8) -> Sgl {
        Sgl { address, length, identifier }
    }

    /// Address, or offset into the in-capsule data.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// Length in bytes. For segments: of the segment itself.
    #[must_use]
    pub const fn length(self) -> u32 {
        self.length
    }

    /// Type (upper half) and subtype (lower half).
    #[must_use]
    pub const fn identifier(self) -> u8 {
        self.identifier
    }

    /// What the descriptor says about where the data is.
    #[must_use]
    pub const fn kind(self) -> SglKind {
        match (self.identifier >> 4, self.identifier & 0xf) {
            (0, 0) => SglKind::Address,
            (0, 1) => SglKind::InCapsule,
            (1, _) => SglKind::BitBucket,
            (2, _) => SglKind::Segment,
            (3, _) => SglKind::LastSegment,
            (4, _) => SglKind::Keyed,
            (5, 0xa) => SglKind::Transport,
            _ => SglKind::Unknown,
        }
    }

    /// Reads 16 bytes. Bytes 12 to 14 are reserved and not looked at.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Sgl::BYTES]) -> Sgl {
        Sgl { address: le::u64(bytes, 0), length: le::u32(bytes, 8), identifier: bytes[15] }
    }

    /// The 16 bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Sgl::BYTES] {
        let mut bytes = [0; Sgl::BYTES];
        le::put_u64(&mut bytes, 0, self.address);
        le::put_u32(&mut bytes, 8, self.length);
        bytes[15] = self.identifier;
        bytes
    }
}

impl core::fmt::Display for Sgl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let word = match self.kind() {
            SglKind::InCapsule => "in-capsule",
            SglKind::Transport => "transport",
            SglKind::Address => "address",
            SglKind::BitBucket => "bit-bucket",
            SglKind::Segment => "segment",
            SglKind::LastSegment => "last-segment",
            SglKind::Keyed => "keyed",
            SglKind::Unknown => "unknown",
        };
        write!(f, "{word}({:02x}h) len {}", self.identifier, self.length)?;
        if self.address != 0 {
            write!(f, " addr {:#x}", self.address)?;
        }
        Ok(())
    }
}
