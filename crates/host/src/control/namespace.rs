//! A namespace as one controller shows it, and what it is recognised by.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::nvme::ids::{Eui64, Nguid, Uuid};
use core::fmt;

/// The identifiers of a namespace; zero = none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) uuid: Uuid,
    pub(super) nguid: Nguid,
    pub(super) eui64: Eui64,
}

impl Ids {
    /// There is nothing to recognise the namespace by.
    pub(super) fn is_none(&self) -> bool {
        self.uuid.is_zero() && self.nguid.is_zero() && self.eui64.is_zero()
    }

    /// All that there are, where the first is not what matters.
    pub(super) fn in_full(&self) -> String {
        let Ids { uuid, nguid, eui64 } = *self;
        let all = [
            (!uuid.is_zero()).then(|| format!("uuid {uuid}")),
            (!nguid.is_zero()).then(|| format!("nguid {nguid}")),
            (!eui64.is_zero()).then(|| format!("eui64 {eui64}")),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        if all.is_empty() { self.to_string() } else { all.join(", ") }
    }

    /// Some identifier that both have is the same.
    pub(super) fn overlaps(&self, other: &Ids) -> bool {
        (!self.uuid.is_zero() && self.uuid == other.uuid)
            || (!self.nguid.is_zero() && self.nguid == other.nguid)
            || (!self.eui64.is_zero() && self.eui64 == other.eui64)
    }
}

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.uuid.is_zero() {
            write!(f, "uuid {}", self.uuid)
        } else if !self.nguid.is_zero() {
            write!(f, "nguid {}", self.nguid)
        } else if !self.eui64.is_zero() {
            write!(f, "eui64 {}", self.eui64)
        } else {
            f.write_str("no identifier")
        }
    }
}

/// A namespace as one controller shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Namespace {
    pub(super) nsid: u32,
    pub(super) ids: Ids,
    pub(super) blocks: u64,
    /// Blocks in use (NUSE) as of the scan.
    pub(super) used_blocks: u64,
    pub(super) block_bytes: u32,
    /// May be attached to several controllers (NMIC bit 0).
    pub(super) shared: bool,
    pub(super) ana_group: u32,
    pub(super) write_protected: bool,
    /// Write Zeroes may be told to give the space back.
    pub(super) zeroes_may_deallocate: bool,
    /// It could not be read this time: all this is what was read before.
    pub(super) unread: bool,
}

impl Namespace {
    /// Whether it is the same one, perhaps of another size.
    pub(super) fn is_still(&self, now: &Namespace) -> bool {
        self.nsid == now.nsid && self.ids == now.ids && self.block_bytes == now.block_bytes
    }
}
