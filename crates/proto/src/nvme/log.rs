//! Get Log Page and the log pages (Base 5.16).

mod ana;
mod discovery;
mod health;

pub use ana::{Ana, AnaGroup, AnaLimits};
pub use discovery::{DiscoveryEntry, DiscoveryHeader, SubsystemKind, TransportAddress};
pub use health::{ChangedNamespaces, ErrorEntry, Smart};

use super::opcode::admin;
use super::{Sqe, Status};

/// Log page identifiers.
pub mod lid {
    /// Supported log pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Error information.
    pub const ERROR: u8 = 0x01;
    /// SMART and health.
    pub const SMART: u8 = 0x02;
    /// Firmware slots.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed namespace list.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands supported and effects.
    pub const EFFECTS: u8 = 0x05;
    /// Asymmetric namespace access.
    pub const ANA: u8 = 0x0c;
    /// Discovery.
    pub const DISCOVERY: u8 = 0x70;
}

/// The fields of a Get Log Page command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Which page.
    pub lid: u8,
    /// Log specific field, 7 bits. ANA: bit 0 asks for groups without namespaces.
    pub lsp: u8,
    /// Retain the asynchronous event.
    pub retain_event: bool,
    /// Bytes asked for: a multiple of 4, 4 to 2^34.
    pub bytes: u64,
    /// First byte: a multiple of 4.
    pub offset: u64,
    /// The namespace, `FFFF_FFFFh` for the whole controller; 0 where none is named.
    pub nsid: u32,
}

impl GetLogPage {
    /// `bytes` of the page from `offset`; both are rounded down to multiples of 4.
    #[must_use]
    pub const fn new(lid: u8, offset: u64, bytes: u32) -> GetLogPage {
        let bytes = if bytes < 4 { 4 } else { bytes & !3 } as u64;
        GetLogPage { lid, lsp: 0, retain_event: false, bytes, offset: offset & !3, nsid: 0 }
    }

    /// The command, without CID and SGL.
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        // At most 2^32 dwords, so the count less one fits 32 bits.
        let numd = (self.bytes / 4).saturating_sub(1).min(u32::MAX.into()) as u32;
        Sqe::new(admin::GET_LOG_PAGE)
            .with_nsid(self.nsid)
            .with_cdw(
                10,
                u32::from(self.lid)
                    | u32::from(self.lsp & 0x7f) << 8
                    | u32::from(self.retain_event) << 15
                    | numd << 16,
            )
            .with_cdw(11, numd >> 16)
            .with_cdw_pair(12, self.offset)
    }

    /// Reads a command with the Get Log Page opcode.
    ///
    /// # Errors
    /// An offset that is not a multiple of 4, or a range that does not fit 64 bits.
    pub fn parse(sqe: &Sqe) -> Result<GetLogPage, Status> {
        let cdw10 = sqe.cdw(10);
        let numd = u64::from(cdw10 >> 16) | u64::from(sqe.cdw(11) & 0xffff) << 16;
        let (bytes, offset) = ((numd + 1) * 4, sqe.cdw_pair(12));
        if !offset.is_multiple_of(4) || offset.checked_add(bytes).is_none() {
            return Err(Status::INVALID_FIELD.with_dnr());
        }
        Ok(GetLogPage {
            lid: (cdw10 & 0xff) as u8,
            lsp: (cdw10 >> 8 & 0x7f) as u8,
            retain_event: cdw10 >> 15 & 1 != 0,
            bytes,
            offset,
            nsid: sqe.nsid(),
        })
    }
}
