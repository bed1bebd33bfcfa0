//! Ready to transfer: the controller asks for data of a write.

use super::header::{Format, Head, PduType, View};
use crate::error::{Fes, ProtocolError, Rule};

/// Byte offset of CCCID.
pub const AT_CCCID: u32 = 8;
/// Byte offset of TTAG.
pub const AT_TTAG: u32 = 10;
/// Byte offset of R2TO.
pub const AT_R2TO: u32 = 12;
/// Byte offset of R2TL.
pub const AT_R2TL: u32 = 16;

/// Ready to transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The command.
    pub cid: u16,
    /// The controller's name for this transfer; comes back in each H2CData.
    pub ttag: u16,
    /// Where the wanted bytes start in the command's data.
    pub offset: u32,
    /// How many bytes are wanted, at least one.
    pub length: u32,
}

impl R2t {
    /// Reads it.
    ///
    /// # Errors
    /// R2TL is 0; R2TO and R2TL overflow.
    pub fn parse(view: &View<'_>) -> Result<R2t, ProtocolError> {
        let offset = view.u32_at(AT_R2TO as usize);
        let length = view.u32_at(AT_R2TL as usize);
        if length == 0 {
            return Err(view.error("R2TL", AT_R2TL, 0, Rule::AtLeast, 1));
        }
        if offset.checked_add(length).is_none() {
            let most = u32::MAX - length;
            return Err(view
                .error("R2TO", AT_R2TO, offset.into(), Rule::AtMost, most.into())
                .with_fes(Fes::OUT_OF_RANGE, 0));
        }
        Ok(R2t {
            cid: view.u16_at(AT_CCCID as usize),
            ttag: view.u16_at(AT_TTAG as usize),
            offset,
            length,
        })
    }

    /// The whole PDU.
    #[must_use]
    pub fn emit(&self, format: Format) -> Head {
        let mut head = Head::start(PduType::R2t);
        head.put(AT_CCCID as usize, &self.cid.to_le_bytes());
        head.put(AT_TTAG as usize, &self.ttag.to_le_bytes());
        head.put(AT_R2TO as usize, &self.offset.to_le_bytes());
        head.put(AT_R2TL as usize, &self.length.to_le_bytes());
        head.seal(0, 0, format);
        head
    }
}
