//! Setting up a connection: ICReq and ICResp, 128 bytes each.

use super::header::{Head, PduType, View};
use crate::error::{Blame, Fes, ProtocolError, Rule};

/// The only PDU format version.
pub const PFV: u16 = 0;
/// The largest HPDA or CPDA.
pub const ALIGNMENT_MAX: u8 = 31;
/// The smallest MAXH2CDATA in bytes.
pub const MAXH2CDATA_MIN: u32 = 4096;

const AT_PFV: u32 = 8;
const AT_ALIGNMENT: u32 = 10;
const AT_DGST: u32 = 11;
const AT_LIMIT: u32 = 12;
const DGST_HEADER: u8 = 1 << 0;
const DGST_DATA: u8 = 1 << 1;

/// Initialize Connection Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcReq {
    /// HPDA: alignment of data that the host wants, in dwords, 0-based. At most 31.
    pub hpda: u8,
    /// The host can do header digests and wants them.
    pub header_digest: bool,
    /// The host can do data digests and wants them.
    pub data_digest: bool,
    /// How many R2Ts per command the host can have outstanding, 0-based.
    pub maxr2t: u32,
}

/// Initialize Connection Response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcResp {
    /// CPDA: alignment of data that the controller wants, in dwords, 0-based. At most 31.
    pub cpda: u8,
    /// Header digests are on.
    pub header_digest: bool,
    /// Data digests are on.
    pub data_digest: bool,
    /// The most data in one H2CData PDU, in bytes. At least 4096, whole dwords.
    pub max_h2c_data: u32,
}

fn check_version_and_alignment(view: &View<'_>, field: &'static str) -> Result<u8, ProtocolError> {
    let pfv = view.u16_at(AT_PFV as usize);
    if pfv != PFV {
        return Err(view
            .error("PFV", AT_PFV, pfv.into(), Rule::MustBe, PFV.into())
            .blaming(Blame::Incompatible));
    }
    let alignment = view.bytes()[AT_ALIGNMENT as usize];
    if alignment > ALIGNMENT_MAX {
        let limit = ALIGNMENT_MAX.into();
        return Err(view.error(field, AT_ALIGNMENT, alignment.into(), Rule::AtMost, limit));
    }
    Ok(alignment)
}

const fn digest_bits(header: bool, data: bool) -> u8 {
    (if header { DGST_HEADER } else { 0 }) | (if data { DGST_DATA } else { 0 })
}

fn emit(kind: PduType, alignment: u8, digests: u8, limit: u32) -> Head {
    let mut head = Head::start(kind);
    head.put(AT_PFV as usize, &PFV.to_le_bytes());
    head.put(AT_ALIGNMENT as usize, &[alignment, digests]);
    head.put(AT_LIMIT as usize, &limit.to_le_bytes());
    head.seal_plain(0);
    head
}

impl IcReq {
    /// Reads it. Reserved bits are ignored.
    ///
    /// # Errors
    /// PFV is not 0, HPDA is above 31.
    pub fn parse(view: &View<'_>) -> Result<IcReq, ProtocolError> {
        let hpda = check_version_and_alignment(view, "HPDA")?;
        let digests = view.bytes()[AT_DGST as usize];
        Ok(IcReq {
            hpda,
            header_digest: digests & DGST_HEADER != 0,
            data_digest: digests & DGST_DATA != 0,
            maxr2t: view.u32_at(AT_LIMIT as usize),
        })
    }

    /// The 128 bytes.
    #[must_use]
    pub fn emit(&self) -> Head {
        let digests = digest_bits(self.header_digest, self.data_digest);
        emit(PduType::IcReq, self.hpda, digests, self.maxr2t)
    }
}

impl IcResp {
    /// Reads it. Reserved bits are ignored.
    ///
    /// # Errors
    /// PFV is not 0, CPDA is above 31, MAXH2CDATA is below 4096 or not whole dwords.
    pub fn parse(view: &View<'_>) -> Result<IcResp, ProtocolError> {
        let cpda = check_version_and_alignment(view, "CPDA")?;
        let digests = view.bytes()[AT_DGST as usize];
        let max = view.u32_at(AT_LIMIT as usize);
        if max < MAXH2CDATA_MIN {
            let limit = MAXH2CDATA_MIN.into();
            return Err(view.error("MAXH2CDATA", AT_LIMIT, max.into(), Rule::AtLeast, limit));
        }
        if !max.is_multiple_of(4) {
            return Err(view.error("MAXH2CDATA", AT_LIMIT, max.into(), Rule::MultipleOf, 4));
        }
        Ok(IcResp {
            cpda,
            header_digest: digests & DGST_HEADER != 0,
            data_digest: digests & DGST_DATA != 0,
            max_h2c_data: max,
        })
    }

    /// The 128 bytes.
    #[must_use]
    pub fn emit(&self) -> Head {
        let digests = digest_bits(self.header_digest, self.data_digest);
        emit(PduType::IcResp, self.cpda, digests, self.max_h2c_data)
    }

    /// Whether the answer goes with what `request` asked for. A digest that was asked for must be
    /// granted: a host that wants one does not go on without it (the Linux host acts alike).
    ///
    /// # Errors
    /// A digest is on that was not asked for, or off that was.
    pub fn check_against(&self, request: &IcReq) -> Result<(), ProtocolError> {
        let error = |field, granted: bool, asked: bool| {
            ProtocolError::new("ICResp", field, granted.into(), Rule::MustBe, asked.into())
        };
        for (field, granted, asked) in [
            ("HDGST_ENABLE", self.header_digest, request.header_digest),
            ("DDGST_ENABLE", self.data_digest, request.data_digest),
        ] {
            if granted && !asked {
                return Err(error(field, granted, asked).at(AT_DGST));
            }
            if asked && !granted {
                return Err(error(field, granted, asked)
                    .with_fes(Fes::UNSUPPORTED_PARAMETER, AT_DGST)
                    .blaming(Blame::Incompatible));
            }
        }
        Ok(())
    }
}
