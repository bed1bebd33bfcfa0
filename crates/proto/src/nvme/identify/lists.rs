//! Lists: active namespaces, and the identification descriptors of one namespace.

use super::super::check::{self, broken};
use super::super::{Eui64, Nguid, Uuid, le};
use crate::error::ProtocolError;
use alloc::vec::Vec;

/// The highest valid NSID.
const HIGHEST_NSID: u32 = 0xffff_fffe;

/// One page of the active namespace list: ascending NSIDs, at most 1024.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveNamespaceList {
    nsids: Vec<u32>,
}

impl ActiveNamespaceList {
    /// NSIDs on a page.
    pub const PER_PAGE: usize = super::BYTES / 4;

    const WHAT: &str = "Active Namespace List";

    /// The page that answers a command with NSID `after`, from ascending NSIDs.
    #[must_use]
    pub fn page(ascending: impl IntoIterator<Item = u32>, after: u32) -> ActiveNamespaceList {
        let above = ascending.into_iter().filter(|&nsid| nsid > after);
        ActiveNamespaceList { nsids: above.take(Self::PER_PAGE).collect() }
    }

    /// The NSIDs, ascending.
    #[must_use]
    pub fn nsids(&self) -> &[u32] {
        &self.nsids
    }

    /// Where the next page starts; `None` when this was the last one. Pages strictly ascend, so
    /// reading them ends even when the controller lies. Nothing can follow the highest NSID, and
    /// nobody may ask for it.
    #[must_use]
    pub fn next_after(&self) -> Option<u32> {
        let full = self.nsids.len() >= Self::PER_PAGE;
        self.nsids.last().copied().filter(|&last| full && last < HIGHEST_NSID)
    }

    /// Writes as much of the 4096-byte page as fits into `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; super::BYTES];
        for (index, nsid) in self.nsids.iter().take(Self::PER_PAGE).enumerate() {
            le::put_u32(&mut bytes, 4 * index, *nsid);
        }
        check::copy_prefix(&bytes, out);
    }

    /// Reads the page that answers a command with NSID `after`.
    ///
    /// # Errors
    /// Fewer than 4096 bytes, or NSIDs that do not ascend from `after`, or `FFFF_FFFFh`.
    pub fn parse(bytes: &[u8], after: u32) -> Result<ActiveNamespaceList, ProtocolError> {
        check::length(bytes, Self::WHAT, super::BYTES)?;
        let mut nsids = Vec::new();
        let mut last = after;
        for at in (0..super::BYTES).step_by(4) {
            let nsid = le::u32(bytes, at);
            if nsid == 0 {
                break;
            }
            if nsid <= last || nsid == u32::MAX {
                return Err(broken(Self::WHAT, "NSID", nsid.into(), "must ascend"));
            }
            nsids.push(nsid);
            last = nsid;
        }
        Ok(ActiveNamespaceList { nsids })
    }
}

/// The identifiers of a namespace. Identifiers of zeroes are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceIdDescriptors {
    /// EUI64.
    pub eui64: Option<Eui64>,
    /// NGUID.
    pub nguid: Option<Nguid>,
    /// UUID.
    pub uuid: Option<Uuid>,
    /// Command set; 0 is NVM.
    pub csi: Option<u8>,
}

impl NamespaceIdDescriptors {
    const WHAT: &str = "Namespace Identification Descriptor";
    const EUI64: u8 = 1;
    const NGUID: u8 = 2;
    const UUID: u8 = 3;
    const CSI: u8 = 4;

    /// Writes as much of the 4096-byte structure as fits into `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; super::BYTES];
        let mut at = 0;
        let mut push = |kind: u8, value: &[u8]| {
            // Four short descriptors: the lengths are ours and fit.
            le::put(&mut bytes, at, &[kind, value.len() as u8, 0, 0]);
            le::put(&mut bytes, at + 4, value);
            at += 4 + value.len();
        };
        if let Some(eui64) = &self.eui64 {
            push(Self::EUI64, eui64.as_bytes());
        }
        if let Some(nguid) = &self.nguid {
            push(Self::NGUID, nguid.as_bytes());
        }
        if let Some(uuid) = &self.uuid {
            push(Self::UUID, uuid.as_bytes());
        }
        if let Some(csi) = self.csi {
            push(Self::CSI, &[csi]);
        }
        check::copy_prefix(&bytes, out);
    }

    /// Reads the list; unknown types are skipped.
    ///
    /// # Errors
    /// Fewer than 4096 bytes; a descriptor of length 0, of a length that does not fit its type, or
    /// beyond the end; two different identifiers of one type.
    pub fn parse(bytes: &[u8]) -> Result<NamespaceIdDescriptors, ProtocolError> {
        check::length(bytes, Self::WHAT, super::BYTES)?;
        let mut it = NamespaceIdDescriptors::default();
        let mut rest = &bytes[..super::BYTES];
        while let [kind, length, _, _, tail @ ..] = rest {
            if *kind == 0 && *length == 0 {
                break;
            }
            let (kind, bytes) = (*kind, usize::from(*length));
            let expected = match kind {
                Self::EUI64 => 8,
                Self::NGUID | Self::UUID => 16,
                Self::CSI => 1,
                _ => bytes,
            };
            if bytes == 0 || bytes != expected || bytes > tail.len() {
                let sentence = "does not fit the type or the structure";
                return Err(broken(Self::WHAT, "NIDL", bytes as u64, sentence));
            }
            let (value, after) = tail.split_at(bytes);
            it.take(kind, value)?;
            rest = after;
        }
        Ok(it)
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Result<(), ProtocolError> {
        if value.iter().all(|&byte| byte == 0) && kind != Self::CSI {
            return Ok(());
        }
        let before = *self;
        let fresh = match kind {
            Self::EUI64 => self.eui64.replace(Eui64(le::array(value, 0))).is_none(),
            Self::NGUID => self.nguid.replace(Nguid(le::array(value, 0))).is_none(),
            Self::UUID => self.uuid.replace(Uuid(le::array(value, 0))).is_none(),
            Self::CSI => self.csi.replace(value[0]).is_none(),
            _ => true,
        };
        if fresh || before == *self {
            return Ok(());
        }
        Err(broken(Self::WHAT, "NIDT", kind.into(), "two different identifiers of one type"))
    }
}
