//! The Identify command and its data structures (Base 5.17, NVM 4.1.5).

mod controller;
mod lists;
mod namespace;

pub use controller::{Controller, ControllerKind, IoCommandLimits};
pub use lists::{ActiveNamespaceList, NamespaceIdDescriptors};
pub use namespace::Namespace;

use super::Sqe;
use super::opcode::admin;

/// Size of every Identify data structure in bytes.
pub const BYTES: usize = 4096;

/// Controller or namespace structure (CNS).
pub mod cns {
    /// Identify Namespace, NVM command set.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespace list.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptor list.
    pub const DESCRIPTORS: u8 = 0x03;
    /// Identify Namespace, I/O command set specific.
    pub const NAMESPACE_IO: u8 = 0x05;
    /// Identify Controller, I/O command set specific.
    pub const CONTROLLER_IO: u8 = 0x06;
    /// Identify Namespace, independent of the command set.
    pub const NAMESPACE_COMMON: u8 = 0x08;
}

/// The fields of an Identify command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identify {
    /// Which structure.
    pub cns: u8,
    /// The namespace, or where a list starts; 0 where none is named.
    pub nsid: u32,
    /// The controller; 0 where none is named.
    pub cntid: u16,
    /// The command set (CSI); 0 is NVM.
    pub csi: u8,
}

impl Identify {
    /// Identify Controller.
    pub const CONTROLLER: Identify = Identify::of(cns::CONTROLLER, 0);
    /// Identify Controller, NVM command set specific.
    pub const CONTROLLER_IO: Identify = Identify::of(cns::CONTROLLER_IO, 0);

    const fn of(cns: u8, nsid: u32) -> Identify {
        Identify { cns, nsid, cntid: 0, csi: 0 }
    }

    /// Identify Namespace.
    #[must_use]
    pub const fn namespace(nsid: u32) -> Identify {
        Identify::of(cns::NAMESPACE, nsid)
    }

    /// Identification descriptors of a namespace.
    #[must_use]
    pub const fn descriptors(nsid: u32) -> Identify {
        Identify::of(cns::DESCRIPTORS, nsid)
    }

    /// Active namespaces above `after`.
    #[must_use]
    pub const fn active_namespaces(after: u32) -> Identify {
        Identify::of(cns::ACTIVE_NAMESPACES, after)
    }

    /// The command, without CID and SGL. Its data has [`BYTES`].
    #[must_use]
    pub fn sqe(&self) -> Sqe {
        Sqe::new(admin::IDENTIFY)
            .with_nsid(self.nsid)
            .with_cdw(10, u32::from(self.cns) | u32::from(self.cntid) << 16)
            .with_cdw(11, u32::from(self.csi) << 24)
    }

    /// Reads a command with the Identify opcode.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Identify {
        let cdw10 = sqe.cdw(10);
        Identify {
            cns: (cdw10 & 0xff) as u8,
            nsid: sqe.nsid(),
            cntid: (cdw10 >> 16) as u16,
            csi: (sqe.cdw(11) >> 24) as u8,
        }
    }
}
