//! The common header, and what surrounds the data of a PDU: digests and alignment.

use super::{COMMON_HEADER_BYTES, Role};
use crate::digest::{DIGEST_BYTES, crc32c};
use crate::error::{Blame, Fes, ProtocolError, Rule};

/// Flag HDGSTF: a header digest follows the header.
pub const FLAG_HDGST: u8 = 1 << 0;
/// Flag DDGSTF: a data digest follows the data.
pub const FLAG_DDGST: u8 = 1 << 1;
/// Flag LAST_PDU of data PDUs.
pub const FLAG_LAST: u8 = 1 << 2;
/// Flag SUCCESS of C2HData.
pub const FLAG_SUCCESS: u8 = 1 << 3;

/// Byte offset of the flags in every header.
pub(super) const AT_FLAGS: u32 = 1;
const AT_HLEN: u32 = 2;
const AT_PDO: u32 = 3;
const AT_PLEN: u32 = 4;

/// The longest Terminate Connection Request: its header and 128 bytes of what was wrong.
pub(super) const TERM_REQ_MAX: u32 = 152;

/// PDU types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request, 00h.
    IcReq = 0,
    /// Initialize Connection Response, 01h.
    IcResp = 1,
    /// Terminate Connection Request from the host, 02h.
    H2cTermReq = 2,
    /// Terminate Connection Request from the controller, 03h.
    C2hTermReq = 3,
    /// Command capsule, 04h.
    CapsuleCmd = 4,
    /// Response capsule, 05h.
    CapsuleResp = 5,
    /// Data from the host, 06h.
    H2cData = 6,
    /// Data from the controller, 07h.
    C2hData = 7,
    /// Ready to transfer, 09h.
    R2t = 9,
}

impl PduType {
    /// The type with this code.
    #[must_use]
    #[inline]
    pub const fn from_code(code: u8) -> Option<PduType> {
        Some(match code {
            0 => PduType::IcReq,
            1 => PduType::IcResp,
            2 => PduType::H2cTermReq,
            3 => PduType::C2hTermReq,
            4 => PduType::CapsuleCmd,
            5 => PduType::CapsuleResp,
            6 => PduType::H2cData,
            7 => PduType::C2hData,
            9 => PduType::R2t,
            _ => return None,
        })
    }

    /// The specification's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PduType::IcReq => "ICReq",
            PduType::IcResp => "ICResp",
            PduType::H2cTermReq => "H2CTermReq",
            PduType::C2hTermReq => "C2HTermReq",
            PduType::CapsuleCmd => "CapsuleCmd",
            PduType::CapsuleResp => "CapsuleResp",
            PduType::H2cData => "H2CData",
            PduType::C2hData => "C2HData",
            PduType::R2t => "R2T",
        }
    }

    /// The one that may send it.
    #[must_use]
    #[inline]
    pub const fn sender(self) -> Role {
        match self {
            PduType::IcReq | PduType::H2cTermReq | PduType::CapsuleCmd | PduType::H2cData => {
                Role::Host
            }
            _ => Role::Controller,
        }
    }

    /// HLEN: the length of its header in bytes, digest not included.
    #[must_use]
    #[inline]
    pub const fn header_bytes(self) -> u8 {
        match self {
            PduType::IcReq | PduType::IcResp => 128,
            PduType::CapsuleCmd => 72,
            _ => 24,
        }
    }

    /// Whether it sets up or ends a connection: never with digests.
    #[must_use]
    #[inline]
    pub const fn is_connection_control(self) -> bool {
        (self as u8) <= PduType::C2hTermReq as u8
    }
}

/// What was negotiated for the PDUs of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Header digests are on.
    pub header_digest: bool,
    /// Data digests are on.
    pub data_digest: bool,
    /// CPDA (towards the controller) or HPDA (towards the host): data starts at a multiple of
    /// this many dwords plus one. 0 to 31.
    pub alignment: u8,
}

impl Format {
    /// No digests, and data follows its header at once.
    #[must_use]
    #[inline]
    pub const fn is_plain(self) -> bool {
        !self.header_digest && !self.data_digest && self.alignment == 0
    }

    const fn alignment_bytes(self) -> u32 {
        (self.alignment as u32 + 1) * 4
    }

    const fn header_digest_bytes(self) -> u32 {
        if self.header_digest { DIGEST_BYTES as u32 } else { 0 }
    }

    /// The bytes of the digest behind `data_bytes` bytes of data.
    #[must_use]
    pub const fn data_digest_bytes(self, data_bytes: u32) -> u32 {
        if self.data_digest && data_bytes > 0 { DIGEST_BYTES as u32 } else { 0 }
    }
}

/// The first eight bytes of a PDU, consistent with its type and with what was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommonHeader {
    kind: PduType,
    flags: u8,
    pdo: u8,
    plen: u32,
    /// Bytes before the data; the whole PDU when it has none.
    head_bytes: u32,
    data_bytes: u32,
}

impl CommonHeader {
    /// Reads and checks a common header that `receiver` got.
    ///
    /// # Errors
    /// Fatal error status 1 with the offset of the field that is wrong. A malformed Terminate
    /// Connection Request must not be answered ([`ProtocolError::answered`]).
    #[inline]
    pub fn parse(
        bytes: &[u8; COMMON_HEADER_BYTES],
        receiver: Role,
        format: Format,
    ) -> Result<CommonHeader, ProtocolError> {
        let [code, flags, hlen, pdo, a, b, c, d] = *bytes;
        let plen = u32::from_le_bytes([a, b, c, d]);
        let Some(kind) = PduType::from_code(code) else {
            let rule = Rule::Plain("no such type");
            return Err(
                ProtocolError::new("PDU", "type", code.into(), rule, 0).blaming(Blame::Bytes)
            );
        };
        if kind.sender() == receiver {
            let rule = Rule::Plain("wrong direction for this type");
            return Err(ProtocolError::new(kind.name(), "type", code.into(), rule, 0));
        }
        let mut header = CommonHeader { kind, flags, pdo, plen, head_bytes: plen, data_bytes: 0 };
        header.check_hlen(hlen)?;
        if !kind.is_connection_control() {
            header.check_flags(format)?;
        }
        match kind {
            PduType::IcReq | PduType::IcResp => header.check_plen(kind.header_bytes().into())?,
            PduType::H2cTermReq | PduType::C2hTermReq => header.check_term_req()?,
            PduType::CapsuleResp | PduType::R2t => {
                header.check_plen(u32::from(hlen) + format.header_digest_bytes())?;
                header.check_no_data()?;
            }
            PduType::CapsuleCmd | PduType::H2cData | PduType::C2hData => {
                header.check_data(format)?;
            }
        }
        Ok(header)
    }

    #[cold]
    fn error(self, field: &'static str, value: u32, rule: Rule, limit: u32) -> ProtocolError {
        ProtocolError::new(self.kind.name(), field, value.into(), rule, limit.into())
    }

    #[inline]
    fn check_hlen(&self, hlen: u8) -> Result<(), ProtocolError> {
        let right = self.kind.header_bytes();
        if hlen == right {
            return Ok(());
        }
        let error = self.error("HLEN", hlen.into(), Rule::MustBe, right.into()).at(AT_HLEN);
        Err(if self.is_term_req() { error.unanswered() } else { error })
    }

    #[inline]
    fn check_flags(&self, format: Format) -> Result<(), ProtocolError> {
        let header = self.flags & FLAG_HDGST != 0;
        if header != format.header_digest {
            let right = format.header_digest.into();
            return Err(self.error("HDGSTF", header.into(), Rule::MustBe, right).at(AT_FLAGS));
        }
        let data = self.flags & FLAG_DDGST != 0;
        let carries_data = matches!(self.kind, PduType::H2cData | PduType::C2hData)
            || self.kind == PduType::CapsuleCmd && self.pdo != 0;
        // Without data there is no digest either way; some hosts set the flag all the same.
        if data && !format.data_digest || !data && format.data_digest && carries_data {
            let right = format.data_digest.into();
            return Err(self.error("DDGSTF", data.into(), Rule::MustBe, right).at(AT_FLAGS));
        }
        Ok(())
    }

    #[inline]
    fn check_plen(&self, right: u32) -> Result<(), ProtocolError> {
        if self.plen == right {
            return Ok(());
        }
        Err(self.error("PLEN", self.plen, Rule::MustBe, right).at(AT_PLEN))
    }

    #[inline]
    fn check_no_data(&self) -> Result<(), ProtocolError> {
        if self.pdo == 0 {
            return Ok(());
        }
        Err(self.error("PDO", self.pdo.into(), Rule::MustBe, 0).at(AT_PDO))
    }

    fn check_term_req(&self) -> Result<(), ProtocolError> {
        let least = u32::from(self.kind.header_bytes());
        let (rule, limit) = match self.plen {
            plen if plen < least => (Rule::AtLeast, least),
            plen if plen > TERM_REQ_MAX => (Rule::AtMost, TERM_REQ_MAX),
            _ => return Ok(()),
        };
        Err(self.error("PLEN", self.plen, rule, limit).at(AT_PLEN).unanswered())
    }

    /// A type that carries data: PDO and PLEN against each other.
    #[inline]
    fn check_data(&mut self, format: Format) -> Result<(), ProtocolError> {
        let header = u32::from(self.kind.header_bytes()) + format.header_digest_bytes();
        if self.kind == PduType::CapsuleCmd && self.plen == header {
            return self.check_no_data();
        }
        if self.plen < header {
            return Err(self.error("PLEN", self.plen, Rule::AtLeast, header).at(AT_PLEN));
        }
        let pdo = u32::from(self.pdo);
        if pdo < header {
            return Err(self.error("PDO", pdo, Rule::AtLeast, header).at(AT_PDO));
        }
        let alignment = format.alignment_bytes();
        if !pdo.is_multiple_of(alignment) {
            return Err(self.error("PDO", pdo, Rule::MultipleOf, alignment).at(AT_PDO));
        }
        if pdo > self.plen {
            return Err(self.error("PDO", pdo, Rule::AtMost, self.plen).at(AT_PDO));
        }
        let around = pdo + format.data_digest_bytes(1);
        if self.plen <= around {
            return Err(self.error("PLEN", self.plen, Rule::AtLeast, around + 1).at(AT_PLEN));
        }
        self.head_bytes = pdo;
        self.data_bytes = self.plen - around;
        Ok(())
    }

    /// The type.
    #[must_use]
    pub const fn kind(&self) -> PduType {
        self.kind
    }

    /// Whether flag LAST_PDU is set.
    #[must_use]
    pub const fn last(&self) -> bool {
        self.flags & FLAG_LAST != 0
    }

    /// Whether flag SUCCESS is set.
    #[must_use]
    pub const fn success(&self) -> bool {
        self.flags & FLAG_SUCCESS != 0
    }

    /// The length of the whole PDU in bytes.
    #[must_use]
    pub const fn plen(&self) -> u32 {
        self.plen
    }

    /// How many bytes come before the data: header, digest, padding; a Terminate Connection Request
    /// whole. At most [`super::HEAD_MAX`].
    #[must_use]
    pub const fn head_bytes(&self) -> u32 {
        self.head_bytes
    }

    /// How many bytes of data the PDU carries.
    #[must_use]
    pub const fn data_bytes(&self) -> u32 {
        self.data_bytes
    }

    const fn is_term_req(&self) -> bool {
        matches!(self.kind, PduType::H2cTermReq | PduType::C2hTermReq)
    }
}

/// The common header of a PDU in a plain [`Format`].
#[inline]
pub(super) const fn plain_common_header(
    kind: PduType,
    flags: u8,
    data_bytes: u32,
) -> [u8; COMMON_HEADER_BYTES] {
    let hlen = kind.header_bytes();
    let pdo = if data_bytes > 0 { hlen } else { 0 };
    let [a, b, c, d] = (hlen as u32 + data_bytes).to_le_bytes();
    [kind as u8, flags, hlen, pdo, a, b, c, d]
}

/// A checked view over the head of a PDU.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    common: CommonHeader,
    bytes: &'a [u8],
}

impl<'a> View<'a> {
    /// Looks at `head`, which starts with the header that `common` was parsed from and holds
    /// `common.head_bytes()` bytes. Checks the header digest.
    ///
    /// # Errors
    /// Fatal error status 3 when the digest is wrong.
    ///
    /// # Panics
    /// When `head` is shorter than `common.head_bytes()`: the caller's mistake.
    #[inline]
    pub fn new(
        common: CommonHeader,
        head: &'a [u8],
        format: Format,
    ) -> Result<View<'a>, ProtocolError> {
        let bytes = &head[..common.head_bytes as usize];
        let view = View { common, bytes };
        if format.header_digest && !common.kind.is_connection_control() {
            let header = usize::from(common.kind.header_bytes());
            let (received, right) = (view.u32_at(header), crc32c(&bytes[..header]));
            if received != right {
                let name = common.kind.name();
                let rule = Rule::HeaderDigest;
                return Err(ProtocolError::new(name, "HDGST", received.into(), rule, right.into())
                    .with_fes(Fes::HEADER_DIGEST, received)
                    .blaming(Blame::Bytes));
            }
        }
        Ok(view)
    }

    /// A view over the start of a whole PDU, for tests and tools. `None` when bytes are missing.
    ///
    /// # Errors
    /// As [`CommonHeader::parse`] and [`View::new`].
    pub fn of(
        bytes: &'a [u8],
        receiver: Role,
        format: Format,
    ) -> Result<Option<View<'a>>, ProtocolError> {
        let Some(first) = bytes.first_chunk() else { return Ok(None) };
        let common = CommonHeader::parse(first, receiver, format)?;
        if bytes.len() < common.head_bytes as usize {
            return Ok(None);
        }
        View::new(common, bytes, format).map(Some)
    }

    /// The common header.
    #[must_use]
    pub const fn common(&self) -> &CommonHeader {
        &self.common
    }

    /// The bytes up to the data.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn array_at<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut out = [0; N];
        out.copy_from_slice(&self.bytes[at..at + N]);
        out
    }

    #[inline]
    pub(super) fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array_at(at))
    }

    #[inline]
    pub(super) fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array_at(at))
    }

    /// An error about a field of this PDU at byte `at` of its header.
    #[cold]
    pub(super) fn error(
        // By value: that of the caller need not lie in memory.
        self,
        field: &'static str,
        at: u32,
        value: u64,
        rule: Rule,
        limit: u64,
    ) -> ProtocolError {
        ProtocolError::new(self.common.kind.name(), field, value, rule, limit).at(at)
    }
}

/// The bytes of a PDU up to its data, ready to send.
#[derive(Clone, Copy)]
pub struct Head {
    bytes: [u8; TERM_REQ_MAX as usize],
    len: u16,
}

impl Head {
    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// A head of `kind` whose fields behind the common header are still zero.
    #[inline]
    pub(super) const fn start(kind: PduType) -> Head {
        let len = kind.header_bytes();
        let mut head = Head { bytes: [0; TERM_REQ_MAX as usize], len: len as u16 };
        head.bytes[0] = kind as u8;
        head.bytes[2] = len;
        head
    }

    #[inline]
    pub(super) fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// Ends a PDU that has neither digests nor data besides `extra` bytes already put behind its
    /// header.
    pub(super) fn seal_plain(&mut self, extra: u16) {
        self.len += extra;
        let plen = u32::from(self.len);
        self.put(4, &plen.to_le_bytes());
    }

    /// Fills flags, PDO, PLEN and the header digest for a PDU that carries `data_bytes`.
    ///
    /// # Panics
    /// When PLEN overflows: the caller's mistake, data is bounded long before.
    #[inline]
    pub(super) fn seal(&mut self, flags: u8, data_bytes: u32, format: Format) {
        let header = usize::from(self.len);
        let mut flags = flags;
        let mut end = u32::from(self.len);
        if format.header_digest {
            flags |= FLAG_HDGST;
            end += DIGEST_BYTES as u32;
        }
        if data_bytes > 0 {
            if format.data_digest {
                flags |= FLAG_DDGST;
            }
            end = end.next_multiple_of(format.alignment_bytes());
            // At most 128: the longest header with its digest is 76 bytes, the coarsest alignment
            // 128.
            self.bytes[3] = end as u8;
        }
        self.bytes[1] = flags;
        let plen = end + data_bytes + format.data_digest_bytes(data_bytes);
        self.put(4, &plen.to_le_bytes());
        if format.header_digest {
            let digest = crc32c(&self.bytes[..header]);
            self.put(header, &digest.to_le_bytes());
        }
        self.len = end as u16;
    }
}

impl core::fmt::Debug for Head {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Head({:02x?})", self.as_bytes())
    }
}
