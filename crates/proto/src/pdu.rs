//! NVMe/TCP protocol data units (NVMe/TCP Transport Specification, "PDU Structure").
//!
//! A PDU is an 8-byte common header, the rest of its header (HLEN bytes in all), an optional header
//! digest, optional padding up to PDO, optional data, an optional data digest.
//!
//! * [`View`] is a checked view over the bytes of a header: what the common header promises fits
//!   the type, the direction, what was negotiated, and itself; the header digest is right.
//! * Each PDU has a value in a module of its own with `parse` (from a view) and `emit` (into a
//!   [`Head`]); the value cannot hold what the specification forbids without context.
//! * [`Pdu`] is any of them.
//!
//! What depends on context (which command, how much was asked for) is checked by the queues.

pub mod capsule;
pub mod data;
pub mod header;
pub mod ic;
pub mod r2t;
pub mod term;

pub use capsule::{CapsuleCmd, CapsuleResp};
pub use data::{C2hData, H2cData};
pub use header::{CommonHeader, Format, Head, PduType, View};
pub use ic::{IcReq, IcResp};
pub use r2t::R2t;
pub use term::TermReq;

use crate::error::ProtocolError;
use alloc::boxed::Box;

/// Which end of a connection one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Opens connections and sends commands.
    Host,
    /// Takes connections and carries commands out.
    Controller,
}

/// The longest head: everything up to the data. PDO is one byte, so data starts at 252 at the
/// latest; headers without data end earlier.
pub const HEAD_MAX: usize = 256;

/// Size of the common header in bytes.
pub const COMMON_HEADER_BYTES: usize = 8;

/// Any PDU, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pdu {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// Terminate Connection Request, either direction. Boxed: it is twice as long as any other, and
    /// comes once per connection at most.
    TermReq(Box<TermReq>),
    /// Command capsule.
    CapsuleCmd(CapsuleCmd),
    /// Response capsule.
    CapsuleResp(CapsuleResp),
    /// Data from host to controller.
    H2cData(H2cData),
    /// Data from controller to host.
    C2hData(C2hData),
    /// Ready to transfer.
    R2t(R2t),
}

impl Pdu {
    /// Reads the PDU that a view shows.
    ///
    /// # Errors
    /// When a field holds what its PDU can never hold.
    #[inline]
    pub fn parse(view: &View<'_>) -> Result<Pdu, ProtocolError> {
        Ok(match view.common().kind() {
            PduType::IcReq => Pdu::IcReq(IcReq::parse(view)?),
            PduType::IcResp => Pdu::IcResp(IcResp::parse(view)?),
            PduType::H2cTermReq | PduType::C2hTermReq => {
                Pdu::TermReq(Box::new(TermReq::parse(view)))
            }
            PduType::CapsuleCmd => Pdu::CapsuleCmd(CapsuleCmd::parse(view)),
            PduType::CapsuleResp => Pdu::CapsuleResp(CapsuleResp::parse(view)),
            PduType::H2cData => Pdu::H2cData(H2cData::parse(view)?),
            PduType::C2hData => Pdu::C2hData(C2hData::parse(view)?),
            PduType::R2t => Pdu::R2t(R2t::parse(view)?),
        })
    }

    /// Everything up to the data, digest of the header included.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        match self {
            Pdu::IcReq(pdu) => pdu.emit(),
            Pdu::IcResp(pdu) => pdu.emit(),
            Pdu::TermReq(pdu) => pdu.emit(),
            Pdu::CapsuleCmd(pdu) => pdu.emit(format),
            Pdu::CapsuleResp(pdu) => pdu.emit(format),
            Pdu::H2cData(pdu) => pdu.emit(format),
            Pdu::C2hData(pdu) => pdu.emit(format),
            Pdu::R2t(pdu) => pdu.emit(format),
        }
    }

    /// The bytes of data that follow the head.
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        match self {
            Pdu::CapsuleCmd(pdu) => pdu.in_capsule_bytes,
            Pdu::H2cData(pdu) => pdu.length,
            Pdu::C2hData(pdu) => pdu.length,
            _ => 0,
        }
    }
}
