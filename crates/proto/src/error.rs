//! What went wrong with bytes from a peer, and who is to blame.

use crate::pdu::COMMON_HEADER_BYTES;
use core::fmt;

/// Who has to change something so that an error goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The bytes do not parse: damaged on their way, or not our protocol at all.
    Bytes,
    /// The peer breaks the protocol.
    Peer,
    /// The peer keeps the protocol, but asks for or lacks something that we cannot do without.
    Incompatible,
    /// Our caller asked for something that cannot be.
    Caller,
    /// The system under us: memory, files, sockets.
    System,
    /// The peer says that *we* broke the protocol (a Terminate Connection Request came in).
    Reported,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Blame::Bytes => "the bytes do not parse",
            Blame::Peer => "the peer breaks the protocol",
            Blame::Incompatible => "the peer is incompatible",
            Blame::Caller => "misuse by the caller",
            Blame::System => "a failure of the system",
            Blame::Reported => "reported by the peer",
        })
    }
}

/// Fatal Error Status of a Terminate Connection Request (NVMe/TCP transport, H2CTermReq and
/// C2HTermReq).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fes(pub u16);

impl Fes {
    /// Invalid PDU header field; the information is the field's byte offset in the header.
    pub const INVALID_HEADER_FIELD: Fes = Fes(1);
    /// PDU sequence error.
    pub const SEQUENCE: Fes = Fes(2);
    /// Header digest error; the information is the digest that was received.
    pub const HEADER_DIGEST: Fes = Fes(3);
    /// Data transfer out of range.
    pub const OUT_OF_RANGE: Fes = Fes(4);
    /// R2T limit exceeded (host to controller), data transfer limit exceeded (the other way).
    pub const LIMIT_EXCEEDED: Fes = Fes(5);
    /// Unsupported parameter; the information is the field's byte offset in the header.
    pub const UNSUPPORTED_PARAMETER: Fes = Fes(6);

    /// The specification's words for the code, `None` for a reserved code.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "invalid PDU header field",
            2 => "PDU sequence error",
            3 => "header digest error",
            4 => "data transfer out of range",
            5 => "R2T or data transfer limit exceeded",
            6 => "unsupported parameter",
            _ => return None,
        })
    }
}

impl fmt::Display for Fes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "reserved fatal error status {:#06x}", self.0),
        }
    }
}

/// The rule that a value breaks. `limit` of [`ProtocolError`] belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Must equal the limit.
    MustBe,
    /// Must not exceed the limit.
    AtMost,
    /// Must not exceed the limit, which the peer has set itself in this field.
    AtMostIts(&'static str),
    /// Must not be below the limit.
    AtLeast,
    /// Must be a multiple of the limit.
    MultipleOf,
    /// Must equal the limit, which is the digest of the header in front of it.
    HeaderDigest,
    /// Something that one sentence says; the limit is of no interest.
    Plain(&'static str),
    /// The same of a field of text: there is no number to show, either.
    Text(&'static str),
    /// Must be a PDU type, where a connection begins: these are the first bytes of something else.
    FirstBytes([u8; COMMON_HEADER_BYTES]),
}

/// Something that came off the wire, or that a caller asked for, cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// Who has to change something.
    pub blame: Blame,
    /// The structure, in the specification's words: `"C2HData"`, `"Identify Controller"`.
    pub what: &'static str,
    /// The field, in the specification's words: `"DATAO"`.
    pub field: &'static str,
    /// What the field holds.
    pub value: u64,
    /// What it must hold.
    pub rule: Rule,
    /// The limit that the rule names.
    pub limit: u64,
    /// What a Terminate Connection Request says about it.
    pub fes: Fes,
    /// Fatal Error Information that goes with `fes`.
    pub fei: u32,
    /// Whether the peer is told by a Terminate Connection Request. Never in answer to one.
    pub answered: bool,
}

impl ProtocolError {
    /// `what.field` holds `value`, which breaks `rule`. Blames the peer; fatal error status 1 with
    /// offset 0 until [`ProtocolError::with_fes`] says better.
    #[must_use]
    pub const fn new(
        what: &'static str,
        field: &'static str,
        value: u64,
        rule: Rule,
        limit: u64,
    ) -> ProtocolError {
        let fes = Fes::INVALID_HEADER_FIELD;
        let (blame, fei, answered) = (Blame::Peer, 0, true);
        ProtocolError { blame, what, field, value, rule, limit, fes, fei, answered }
    }

    /// With the fatal error status and information for a Terminate Connection Request.
    #[must_use]
    pub const fn with_fes(self, fes: Fes, fei: u32) -> ProtocolError {
        ProtocolError { fes, fei, ..self }
    }

    /// With the byte offset of the broken field in the PDU header (fatal error status 1).
    #[must_use]
    pub const fn at(self, offset: u32) -> ProtocolError {
        self.with_fes(Fes::INVALID_HEADER_FIELD, offset)
    }

    /// With another one to blame.
    #[must_use]
    pub const fn blaming(self, blame: Blame) -> ProtocolError {
        ProtocolError { blame, ..self }
    }

    /// About a Terminate Connection Request, which is not answered (TCP 3.5).
    #[must_use]
    pub const fn unanswered(self) -> ProtocolError {
        ProtocolError { answered: false, ..self }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Rule::FirstBytes(bytes) = self.rule {
            let bytes = bytes.escape_ascii();
            write!(f, "the peer does not speak NVMe/TCP: it began with \"{bytes}\" (")?;
            return write!(f, "{} {} is {}: no such type)", self.what, self.field, self.value);
        }
        write!(f, "{} {} ", self.what, self.field)?;
        if let Rule::Text(sentence) = self.rule {
            return write!(f, "{sentence} ({})", self.blame);
        }
        if self.rule == Rule::HeaderDigest {
            // Neither number says more than that they differ; and the header may well parse.
            write!(f, "is {:#010x}, and that of the header is {:#010x}: ", self.value, self.limit)?;
            return f.write_str("they do not match (the bytes were damaged on their way)");
        }
        write!(f, "is {}: ", self.value)?;
        match self.rule {
            Rule::MustBe => write!(f, "must be {}", self.limit)?,
            Rule::AtMost => write!(f, "must be at most {}", self.limit)?,
            Rule::AtMostIts(field) => write!(f, "must be at most {} ({field})", self.limit)?,
            Rule::AtLeast => write!(f, "must be at least {}", self.limit)?,
            Rule::MultipleOf => write!(f, "must be a multiple of {}", self.limit)?,
            Rule::Plain(sentence) | Rule::Text(sentence) => f.write_str(sentence)?,
            Rule::HeaderDigest | Rule::FirstBytes(_) => {}
        }
        write!(f, " ({})", self.blame)
    }
}

impl core::error::Error for ProtocolError {}
