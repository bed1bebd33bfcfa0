//! Data PDUs: H2CData and C2HData.

use super::header::{
    AT_FLAGS, FLAG_LAST, FLAG_SUCCESS, Format, Head, PduType, View, plain_common_header,
};
use crate::error::{Fes, ProtocolError, Rule};

/// Byte offset of CCCID.
pub const AT_CCCID: u32 = 8;
/// Byte offset of TTAG.
pub const AT_TTAG: u32 = 10;
/// Byte offset of DATAO.
pub const AT_DATAO: u32 = 12;
/// Byte offset of DATAL.
pub const AT_DATAL: u32 = 16;

/// Data from the host, the answer to an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2cData {
    /// The command.
    pub cid: u16,
    /// The R2T's transfer tag.
    pub ttag: u16,
    /// Where the data belongs in the command's data, in bytes.
    pub offset: u32,
    /// Bytes in this PDU, at least one.
    pub length: u32,
    /// The last PDU for this R2T.
    pub last: bool,
}

/// Data from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct C2hData {
    /// The command.
    pub cid: u16,
    /// Where the data belongs in the command's data, in bytes.
    pub offset: u32,
    /// Bytes in this PDU, at least one.
    pub length: u32,
    /// The last PDU of this command.
    pub last: bool,
    /// The command has succeeded; no response capsule follows. Only with `last`.
    pub success: bool,
}

/// DATAO and DATAL, which must agree with PLEN and must not overflow together.
#[inline(always)]
fn range(view: &View<'_>) -> Result<(u32, u32), ProtocolError> {
    let offset = view.u32_at(AT_DATAO as usize);
    let length = view.u32_at(AT_DATAL as usize);
    let carried = view.common().data_bytes();
    if length != carried {
        return Err(view.error("DATAL", AT_DATAL, length.into(), Rule::MustBe, carried.into()));
    }
    if offset.checked_add(length).is_none() {
        let most = u32::MAX - length;
        return Err(view
            .error("DATAO", AT_DATAO, offset.into(), Rule::AtMost, most.into())
            .with_fes(Fes::OUT_OF_RANGE, 0));
    }
    Ok((offset, length))
}

fn put_range(head: &mut Head, cid: u16, offset: u32, length: u32) {
    head.put(AT_CCCID as usize, &cid.to_le_bytes());
    head.put(AT_DATAO as usize, &offset.to_le_bytes());
    head.put(AT_DATAL as usize, &length.to_le_bytes());
}

impl H2cData {
    /// Reads it.
    ///
    /// # Errors
    /// DATAL is not what the PDU carries; DATAO and DATAL overflow.
    #[inline]
    pub fn parse(view: &View<'_>) -> Result<H2cData, ProtocolError> {
        let (offset, length) = range(view)?;
        Ok(H2cData {
            cid: view.u16_at(AT_CCCID as usize),
            ttag: view.u16_at(AT_TTAG as usize),
            offset,
            length,
            last: view.common().last(),
        })
    }

    /// Everything up to the data.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        let mut head = Head::start(PduType::H2cData);
        put_range(&mut head, self.cid, self.offset, self.length);
        head.put(AT_TTAG as usize, &self.ttag.to_le_bytes());
        head.seal(if self.last { FLAG_LAST } else { 0 }, self.length, format);
        head
    }
}

impl C2hData {
    /// Size of its header in bytes.
    pub const BYTES: usize = 24;

    /// Reads it.
    ///
    /// # Errors
    /// DATAL is not what the PDU carries; DATAO and DATAL overflow; SUCCESS without LAST_PDU.
    #[inline(always)]
    pub fn parse(view: &View<'_>) -> Result<C2hData, ProtocolError> {
        let (offset, length) = range(view)?;
        let (last, success) = (view.common().last(), view.common().success());
        if success && !last {
            let rule = Rule::Plain("set without LAST_PDU");
            return Err(view.error("SUCCESS", AT_FLAGS, 1, rule, 0));
        }
        Ok(C2hData { cid: view.u16_at(AT_CCCID as usize), offset, length, last, success })
    }

    /// Everything up to the data.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        let mut head = Head::start(PduType::C2hData);
        put_range(&mut head, self.cid, self.offset, self.length);
        head.seal(self.flags(), self.length, format);
        head
    }

    /// Everything up to the data, in a plain [`Format`]: the same as [`C2hData::emit`], in less
    /// time.
    #[must_use]
    #[inline]
    pub fn emit_plain(&self) -> [u8; C2hData::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let common = plain_common_header(PduType::C2hData, self.flags(), self.length);
        bytes[..common.len()].copy_from_slice(&common);
        bytes[AT_CCCID as usize..][..2].copy_from_slice(&self.cid.to_le_bytes());
        bytes[AT_DATAO as usize..][..4].copy_from_slice(&self.offset.to_le_bytes());
        bytes[AT_DATAL as usize..][..4].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    #[inline]
    const fn flags(&self) -> u8 {
        let last = if self.last { FLAG_LAST } else { 0 };
        let success = if self.success { FLAG_SUCCESS } else { 0 };
        last | success
    }
}
