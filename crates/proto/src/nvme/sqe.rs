//! Submission queue entries: the 64 bytes of a command.

use super::{Sgl, le, opcode};

/// A command (Base "Submission Queue Entry"). Any 64 bytes are a command; what they ask for is
/// checked by whoever carries it out.
///
/// [`Sqe::new`] and the constructors in the sibling modules leave the command identifier and the
/// SGL to the queue that sends the command.
///
/// Aligned to what is moved in one piece, so that wherever it lies it is read in the pieces in
/// which it was written: other ones wait until all has left for the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(16))]
pub struct Sqe([u8; Sqe::BYTES]);

impl Sqe {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 64;

    /// A command without parameters. PSDT says "SGL", as NVMe over Fabrics asks for.
    #[must_use]
    pub fn new(opcode: u8) -> Sqe {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = opcode;
        bytes[1] = 0x40;
        Sqe(bytes).with_sgl(Sgl::none())
    }

    /// A Fabrics command of this type.
    #[must_use]
    pub fn fabrics(fctype: u8) -> Sqe {
        let mut sqe = Sqe::new(opcode::fabrics::FABRICS);
        sqe.0[4] = fctype;
        sqe
    }

    /// Any 64 bytes.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; Sqe::BYTES]) -> Sqe {
        Sqe(*bytes)
    }

    /// The 64 bytes on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Sqe::BYTES] {
        &self.0
    }

    /// What to do.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.0[0]
    }

    /// Fused operation field: 0 is a normal command, 1 first, 2 second of a fused pair.
    #[must_use]
    pub const fn fuse(&self) -> u8 {
        self.0[1] & 3
    }

    /// PRP or SGL: 0 PRP, 1 SGL with contiguous metadata, 2 SGL with metadata SGL, 3 reserved.
    #[must_use]
    pub const fn psdt(&self) -> u8 {
        self.0[1] >> 6
    }

    /// Command identifier.
    #[must_use]
    pub fn cid(&self) -> u16 {
        le::u16(&self.0, 2)
    }

    /// Namespace identifier. Not for Fabrics commands.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        le::u32(&self.0, 4)
    }

    /// Whether this is a Fabrics command; then [`Sqe::fctype`] tells which.
    #[must_use]
    pub const fn is_fabrics(&self) -> bool {
        self.0[0] == opcode::fabrics::FABRICS
    }

    /// Fabrics command type.
    #[must_use]
    pub const fn fctype(&self) -> u8 {
        self.0[4]
    }

    /// Which way the data goes, by the opcode or the Fabrics type.
    #[must_use]
    pub const fn direction(&self) -> opcode::Direction {
        opcode::Direction::of(if self.is_fabrics() { self.fctype() } else { self.opcode() })
    }

    /// The data descriptor.
    #[must_use]
    pub fn sgl(&self) -> Sgl {
        Sgl::from_bytes(&le::array(&self.0, 24))
    }

    /// Command dword `number`.
    ///
    /// # Panics
    /// When `number` is above 15.
    #[must_use]
    pub fn cdw(&self, number: usize) -> u32 {
        le::u32(&self.0, number * 4)
    }

    /// Command dwords `number` (low half) and `number + 1` (high half).
    ///
    /// # Panics
    /// When `number` is above 14.
    #[must_use]
    pub fn cdw_pair(&self, number: usize) -> u64 {
        le::u64(&self.0, number * 4)
    }

    /// The same command with this fused operation field.
    #[must_use]
    pub const fn with_fuse(mut self, fuse: u8) -> Sqe {
        self.0[1] = self.0[1] & !3 | fuse & 3;
        self
    }

    /// The same command with this command identifier.
    #[must_use]
    pub fn with_cid(mut self, cid: u16) -> Sqe {
        le::put_u16(&mut self.0, 2, cid);
        self
    }

    /// The same command for this namespace.
    #[must_use]
    pub fn with_nsid(mut self, nsid: u32) -> Sqe {
        le::put_u32(&mut self.0, 4, nsid);
        self
    }

    /// The same command with this data descriptor.
    #[must_use]
    pub fn with_sgl(mut self, sgl: Sgl) -> Sqe {
        le::put(&mut self.0, 24, &sgl.to_bytes());
        self
    }

    /// The same command with command dword `number` set.
    ///
    /// # Panics
    /// When `number` is above 15.
    #[must_use]
    pub fn with_cdw(mut self, number: usize, value: u32) -> Sqe {
        le::put_u32(&mut self.0, number * 4, value);
        self
    }

    /// The same command with command dwords `number` (low half) and `number + 1` set.
    ///
    /// # Panics
    /// When `number` is above 14.
    #[must_use]
    pub fn with_cdw_pair(mut self, number: usize, value: u64) -> Sqe {
        le::put_u64(&mut self.0, number * 4, value);
        self
    }
}

impl core::fmt::Debug for Sqe {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sqe")
            .field("opcode", &self.opcode())
            .field("cid", &self.cid())
            .field("nsid", &self.nsid())
            .field("sgl", &self.sgl())
            .finish_non_exhaustive()
    }
}
