//! One line for a human about something on the wire.

use crate::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, H2cData, IcReq, IcResp, Pdu, R2t, Role, TermReq,
};
use core::fmt;

impl fmt::Display for Pdu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pdu::IcReq(pdu) => pdu.fmt(f),
            Pdu::IcResp(pdu) => pdu.fmt(f),
            Pdu::TermReq(pdu) => pdu.fmt(f),
            Pdu::CapsuleCmd(pdu) => pdu.fmt(f),
            Pdu::CapsuleResp(pdu) => pdu.fmt(f),
            Pdu::H2cData(pdu) => pdu.fmt(f),
            Pdu::C2hData(pdu) => pdu.fmt(f),
            Pdu::R2t(pdu) => pdu.fmt(f),
        }
    }
}

const fn digests(header: bool, data: bool) -> &'static str {
    match (header, data) {
        (false, false) => "none",
        (true, false) => "header",
        (false, true) => "data",
        (true, true) => "header+data",
    }
}

impl fmt::Display for IcReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digests = digests(self.header_digest, self.data_digest);
        write!(f, "ICReq hpda={} digests={digests} maxr2t={}", self.hpda, self.maxr2t)
    }
}

impl fmt::Display for IcResp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digests = digests(self.header_digest, self.data_digest);
        write!(f, "ICResp cpda={} digests={digests} maxh2cdata={}", self.cpda, self.max_h2c_data)
    }
}

impl fmt::Display for TermReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.from() {
            Role::Host => "H2CTermReq",
            Role::Controller => "C2HTermReq",
        };
        let (fes, fei, len) = (self.fes(), self.fei(), self.offending().len());
        write!(f, "{name} fes={} ({fes}) fei={fei:#x} header_bytes={len}", fes.0)
    }
}

impl fmt::Display for CapsuleCmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sqe = &self.sqe;
        write!(f, "CapsuleCmd cid={:#06x} opcode={:#04x}", sqe.cid(), sqe.opcode())?;
        if sqe.is_fabrics() {
            write!(f, " fctype={:#04x}", sqe.fctype())?;
        } else {
            write!(f, " nsid={}", sqe.nsid())?;
        }
        write!(f, " in_capsule={}", self.in_capsule_bytes)
    }
}

impl fmt::Display for CapsuleResp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cqe = &self.cqe;
        write!(f, "CapsuleResp cid={:#06x} status={:#06x}", cqe.cid, cqe.status.bits())?;
        write!(f, " result={:#x} sqhd={}", cqe.result, cqe.sqhd)
    }
}

impl fmt::Display for H2cData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "H2CData cid={:#06x} ttag={:#06x}", self.cid, self.ttag)?;
        write!(f, " offset={} length={}", self.offset, self.length)?;
        f.write_str(if self.last { " last" } else { "" })
    }
}

impl fmt::Display for C2hData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C2HData cid={:#06x}", self.cid)?;
        write!(f, " offset={} length={}", self.offset, self.length)?;
        f.write_str(if self.last { " last" } else { "" })?;
        f.write_str(if self.success { " success" } else { "" })
    }
}

impl fmt::Display for R2t {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R2T cid={:#06x} ttag={:#06x}", self.cid, self.ttag)?;
        write!(f, " offset={} length={}", self.offset, self.length)
    }
}
