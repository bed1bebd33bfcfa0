//! Command and response capsules.

use super::header::{Format, Head, PduType, View, plain_common_header};
use crate::nvme::{Cqe, Sqe};

const AT_ENTRY: usize = 8;

/// A command capsule: the submission queue entry, perhaps followed by data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleCmd {
    /// The command.
    pub sqe: Sqe,
    /// Bytes of data that follow in the same PDU.
    pub in_capsule_bytes: u32,
}

/// A response capsule: the completion queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapsuleResp {
    /// The completion.
    pub cqe: Cqe,
}

impl CapsuleCmd {
    /// Size of its header in bytes.
    pub const BYTES: usize = AT_ENTRY + Sqe::BYTES;

    /// Reads it; the entry's content is checked by whoever carries it out.
    #[must_use]
    #[inline]
    pub fn parse(view: &View<'_>) -> CapsuleCmd {
        CapsuleCmd {
            sqe: Sqe::from_bytes(&view.array_at(AT_ENTRY)),
            in_capsule_bytes: view.common().data_bytes(),
        }
    }

    /// Everything up to the data, in a plain [`Format`]: the same as [`CapsuleCmd::emit`], in less
    /// time.
    #[must_use]
    #[inline]
    pub fn emit_plain(sqe: &Sqe, in_capsule_bytes: u32) -> [u8; CapsuleCmd::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (common, entry) = bytes.split_at_mut(AT_ENTRY);
        let kind = PduType::CapsuleCmd;
        common.copy_from_slice(&plain_common_header(kind, 0, in_capsule_bytes));
        entry.copy_from_slice(sqe.as_bytes());
        bytes
    }

    /// Everything up to the data.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        let mut head = Head::start(PduType::CapsuleCmd);
        head.put(AT_ENTRY, self.sqe.as_bytes());
        head.seal(0, self.in_capsule_bytes, format);
        head
    }
}

impl CapsuleResp {
    /// Its size in bytes, digest not included.
    pub const BYTES: usize = AT_ENTRY + Cqe::BYTES;

    /// Reads it; every 16 bytes are a completion.
    #[must_use]
    #[inline]
    pub fn parse(view: &View<'_>) -> CapsuleResp {
        CapsuleResp { cqe: Cqe::from_bytes(&view.array_at(AT_ENTRY)) }
    }

    /// The whole PDU, in a plain [`Format`].
    #[must_use]
    #[inline]
    pub fn emit_plain(&self) -> [u8; CapsuleResp::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (common, entry) = bytes.split_at_mut(AT_ENTRY);
        common.copy_from_slice(&plain_common_header(PduType::CapsuleResp, 0, 0));
        entry.copy_from_slice(&self.cqe.to_bytes());
        bytes
    }

    /// The whole PDU.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        let mut head = Head::start(PduType::CapsuleResp);
        head.put(AT_ENTRY, &self.cqe.to_bytes());
        head.seal(0, 0, format);
        head
    }
}
