//! Terminate Connection Request: the last thing that one says to a peer that broke the protocol.

use super::Role;
use super::header::{Head, PduType, View};
use crate::error::{Blame, Fes, ProtocolError, Rule};

const AT_FES: usize = 8;
const AT_FEI: usize = 10;
const HEADER_BYTES: usize = 24;

/// The most bytes of the offending header that a request carries.
pub const OFFENDING_MAX: usize = 128;

/// Terminate Connection Request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TermReq {
    from: Role,
    fes: Fes,
    fei: u32,
    offending: [u8; OFFENDING_MAX],
    offending_bytes: u8,
}

impl TermReq {
    /// What `from` says about `error`, which it found in a PDU whose header is (or starts with)
    /// `offending`; no more than 128 bytes of that go along.
    #[must_use]
    pub fn new(from: Role, error: &ProtocolError, offending: &[u8]) -> TermReq {
        let len = offending.len().min(OFFENDING_MAX);
        let mut bytes = [0; OFFENDING_MAX];
        bytes[..len].copy_from_slice(&offending[..len]);
        TermReq {
            from,
            fes: error.fes,
            fei: error.fei,
            offending: bytes,
            offending_bytes: len as u8,
        }
    }

    /// Who sent it.
    #[must_use]
    pub const fn from(&self) -> Role {
        self.from
    }

    /// What was wrong.
    #[must_use]
    pub const fn fes(&self) -> Fes {
        self.fes
    }

    /// Details: an offset in the offending header, or the digest that was received.
    #[must_use]
    pub const fn fei(&self) -> u32 {
        self.fei
    }

    /// The start of the offending PDU's header, at most 128 bytes.
    #[must_use]
    pub fn offending(&self) -> &[u8] {
        &self.offending[..usize::from(self.offending_bytes)]
    }

    /// What its arrival means for us. Never answered.
    #[must_use]
    pub const fn as_error(&self) -> ProtocolError {
        let what = match self.from {
            Role::Host => PduType::H2cTermReq.name(),
            Role::Controller => PduType::C2hTermReq.name(),
        };
        let rule = match self.fes.name() {
            Some(name) => Rule::Plain(name),
            None => Rule::Plain("a reserved code"),
        };
        ProtocolError::new(what, "FES", self.fes.0 as u64, rule, 0)
            .with_fes(self.fes, self.fei)
            .blaming(Blame::Reported)
            .unanswered()
    }

    /// Reads it. Any content will do: it changes nothing about what has to follow.
    #[must_use]
    pub fn parse(view: &View<'_>) -> TermReq {
        let rest = &view.bytes()[HEADER_BYTES..];
        let mut offending = [0; OFFENDING_MAX];
        offending[..rest.len()].copy_from_slice(rest);
        TermReq {
            from: view.common().kind().sender(),
            fes: Fes(view.u16_at(AT_FES)),
            fei: view.u32_at(AT_FEI),
            offending,
            offending_bytes: rest.len() as u8,
        }
    }

    /// The whole PDU, at most 152 bytes.
    #[must_use]
    pub fn emit(&self) -> Head {
        let mut head = Head::start(match self.from {
            Role::Host => PduType::H2cTermReq,
            Role::Controller => PduType::C2hTermReq,
        });
        head.put(AT_FES, &self.fes.0.to_le_bytes());
        head.put(AT_FEI, &self.fei.to_le_bytes());
        head.put(HEADER_BYTES, self.offending());
        head.seal_plain(u16::from(self.offending_bytes));
        head
    }
}

impl core::fmt::Debug for TermReq {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TermReq")
            .field("from", &self.from)
            .field("fes", &self.fes)
            .field("fei", &self.fei)
            .field("offending", &self.offending())
            .finish()
    }
}
