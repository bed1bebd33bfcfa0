//! Identify Namespace.

use super::super::check::{self, broken, unusable};
use super::super::{Eui64, Nguid, le};
use crate::error::ProtocolError;

const WHAT: &str = "Identify Namespace";

/// Identify Namespace of the NVM command set, the fields that we use, named as in the
/// specification (NVM figure "Identify Namespace Data Structure"). [`Namespace::parse`] accepts
/// active namespaces with blocks of 512 bytes to 64 KiB and no metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Size in blocks, at least 1.
    pub nsze: u64,
    /// Capacity in blocks, 1 to `nsze`.
    pub ncap: u64,
    /// Blocks in use, at most `nsze`.
    pub nuse: u64,
    /// Features: see the constants.
    pub nsfeat: u8,
    /// Block size as a power of two, 9 to 16.
    pub lbads: u8,
    /// Multi-path and sharing: bit 0 shared.
    pub nmic: u8,
    /// Deallocate: bits 0 to 2 what reads return (1 zeroes), bit 3 Write Zeroes can deallocate.
    pub dlfeat: u8,
    /// Optimal I/O boundary in blocks; 0 is none.
    pub noiob: u16,
    /// Preferred write granularity in blocks less one; means something with `NSFEAT_OPTPERF`.
    pub npwg: u16,
    /// Preferred write alignment in blocks less one, likewise.
    pub npwa: u16,
    /// Preferred deallocate granularity in blocks less one, likewise.
    pub npdg: u16,
    /// Preferred deallocate alignment in blocks less one, likewise.
    pub npda: u16,
    /// Optimal write size in blocks less one, likewise.
    pub nows: u16,
    /// ANA group; 0 when ANA is not reported.
    pub anagrpid: u32,
    /// Attributes: bit 0 write protected.
    pub nsattr: u8,
    /// Identifier, zero for none.
    pub nguid: Nguid,
    /// Identifier, zero for none.
    pub eui64: Eui64,
}

impl Namespace {
    /// NSFEAT: the preferred granularities are reported.
    pub const NSFEAT_OPTPERF: u8 = 1 << 4;
    /// NMIC: several controllers may have the namespace at once.
    pub const NMIC_SHARED: u8 = 1 << 0;
    /// DLFEAT: deallocated blocks read as zeroes, Write Zeroes can deallocate.
    pub const DLFEAT_ZEROES: u8 = 1 | 1 << 3;
    /// NSATTR: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

    const LBADS_MIN: u8 = 9;
    const LBADS_MAX: u8 = 16;

    /// Whether Write Zeroes may be told to give the space back: the controller takes that bit, and
    /// what is given back still reads as zeroes.
    #[must_use]
    pub fn zeroes_may_deallocate(&self) -> bool {
        self.dlfeat & 0xf == Self::DLFEAT_ZEROES
    }

    /// A shared namespace of `blocks` blocks of `1 << lbads` bytes.
    #[must_use]
    pub fn new(blocks: u64, lbads: u8) -> Namespace {
        Namespace {
            nsze: blocks,
            ncap: blocks,
            nuse: blocks,
            nsfeat: 0,
            lbads,
            nmic: Self::NMIC_SHARED,
            dlfeat: 0,
            noiob: 0,
            npwg: 0,
            npwa: 0,
            npdg: 0,
            npda: 0,
            nows: 0,
            anagrpid: 0,
            nsattr: 0,
            nguid: Nguid::default(),
            eui64: Eui64::default(),
        }
    }

    /// Block size in bytes.
    #[must_use]
    pub const fn block_bytes(&self) -> u32 {
        1 << self.lbads
    }

    /// Size in bytes; fits because [`Namespace::parse`] checked it.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.nsze << self.lbads
    }

    /// Whether several controllers may have it at once.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.nmic & Self::NMIC_SHARED != 0
    }

    /// Whether writes are refused.
    #[must_use]
    pub const fn is_write_protected(&self) -> bool {
        self.nsattr & Self::NSATTR_WRITE_PROTECTED != 0
    }

    /// Writes as much of the 4096-byte structure as fits into `out`: one LBA format, no metadata.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; super::BYTES];
        let b = &mut bytes;
        le::put_u64(b, 0, self.nsze);
        le::put_u64(b, 8, self.ncap);
        le::put_u64(b, 16, self.nuse);
        b[24] = self.nsfeat;
        b[30] = self.nmic;
        b[33] = self.dlfeat;
        le::put_u16(b, 46, self.noiob);
        le::put_u16(b, 64, self.npwg);
        le::put_u16(b, 66, self.npwa);
        le::put_u16(b, 68, self.npdg);
        le::put_u16(b, 70, self.npda);
        le::put_u16(b, 72, self.nows);
        le::put_u32(b, 92, self.anagrpid);
        b[99] = self.nsattr;
        le::put(b, 104, self.nguid.as_bytes());
        le::put(b, 120, self.eui64.as_bytes());
        b[130] = self.lbads;
        check::copy_prefix(&bytes, out);
    }

    /// Whether the structure is the one that stands for "no such active namespace": all zero.
    #[must_use]
    pub fn is_inactive(bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte == 0)
    }

    /// Reads what a controller says about a namespace. NCAP and NUSE above NSZE become NSZE.
    ///
    /// # Errors
    /// Fewer than 4096 bytes; no blocks; a format that is not in the table, has metadata, or whose
    /// blocks are not 512 bytes to 64 KiB; a size in bytes beyond 2^63 - 1.
    pub fn parse(bytes: &[u8]) -> Result<Namespace, ProtocolError> {
        check::length(bytes, WHAT, super::BYTES)?;
        let (nsze, ncap) = (le::u64(bytes, 0), le::u64(bytes, 8));
        if nsze == 0 || ncap == 0 {
            let (field, sentence) = (if nsze == 0 { "NSZE" } else { "NCAP" }, "is not active");
            return Err(unusable(WHAT, field, 0, sentence));
        }
        let lbads = Self::parse_format(bytes)?;
        if nsze > (i64::MAX as u64) >> lbads {
            return Err(unusable(WHAT, "NSZE", nsze, "2^63 bytes and more cannot be addressed"));
        }
        Ok(Namespace {
            nsze,
            ncap: ncap.min(nsze),
            nuse: le::u64(bytes, 16).min(nsze),
            nsfeat: bytes[24],
            lbads,
            nmic: bytes[30],
            dlfeat: bytes[33],
            noiob: le::u16(bytes, 46),
            npwg: le::u16(bytes, 64),
            npwa: le::u16(bytes, 66),
            npdg: le::u16(bytes, 68),
            npda: le::u16(bytes, 70),
            nows: le::u16(bytes, 72),
            anagrpid: le::u32(bytes, 92),
            nsattr: bytes[99],
            nguid: Nguid(le::array(bytes, 104)),
            eui64: Eui64(le::array(bytes, 120)),
        })
    }

    /// The block size of the format in use.
    fn parse_format(bytes: &[u8]) -> Result<u8, ProtocolError> {
        let (nlbaf, flbas, nulbaf) = (bytes[25], bytes[26], bytes[82]);
        // Those with attributes of their own follow the others (NULBAF). Two more bits of the index
        // count where there are more than 16.
        let last = nlbaf.saturating_add(nulbaf);
        let index = flbas & 0xf | if last < 16 { 0 } else { (flbas >> 5 & 3) << 4 };
        if index > last {
            let sentence = "names a format above NLBAF + NULBAF";
            return Err(broken(WHAT, "FLBAS", index.into(), sentence));
        }
        let format = le::u32(bytes, 128 + 4 * usize::from(index));
        let (metadata, lbads) = (format & 0xffff, (format >> 16 & 0xff) as u8);
        if metadata != 0 {
            return Err(unusable(WHAT, "LBAF MS", metadata.into(), "metadata is not supported"));
        }
        if !(Self::LBADS_MIN..=Self::LBADS_MAX).contains(&lbads) {
            let sentence = "blocks must have 512 bytes to 64 KiB (9 to 16)";
            return Err(unusable(WHAT, "LBAF LBADS", lbads.into(), sentence));
        }
        Ok(lbads)
    }
}
