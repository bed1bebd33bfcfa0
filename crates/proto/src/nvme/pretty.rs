//! One line per command and completion, for logs and traces.

use super::io::{BlockFields, DsmFields};
use super::opcode::{Direction, admin, fabrics as fctype, io};
use super::{Cqe, Sqe, fabrics, feature, identify, log};
use core::fmt;

/// Shows a command. Opcodes of admin and I/O queues overlap, so it must be told which it is.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    sqe: &'a Sqe,
    admin: bool,
}

/// The command as one line; `admin` tells which queue it is on.
#[must_use]
pub const fn command(sqe: &Sqe, admin: bool) -> Command<'_> {
    Command { sqe, admin }
}

/// The specification's name of a command; `None` for one that we do not know.
#[must_use]
pub const fn name(sqe: &Sqe, admin_queue: bool) -> Option<&'static str> {
    Some(match (sqe.opcode(), admin_queue) {
        (fctype::FABRICS, _) => match sqe.fctype() {
            fctype::PROPERTY_SET => "Property Set",
            fctype::CONNECT => "Connect",
            fctype::PROPERTY_GET => "Property Get",
            fctype::AUTHENTICATION_SEND => "Authentication Send",
            fctype::AUTHENTICATION_RECEIVE => "Authentication Receive",
            fctype::DISCONNECT => "Disconnect",
            _ => return None,
        },
        (admin::GET_LOG_PAGE, true) => "Get Log Page",
        (admin::IDENTIFY, true) => "Identify",
        (admin::ABORT, true) => "Abort",
        (admin::SET_FEATURES, true) => "Set Features",
        (admin::GET_FEATURES, true) => "Get Features",
        (admin::ASYNC_EVENT_REQUEST, true) => "Asynchronous Event Request",
        (admin::KEEP_ALIVE, true) => "Keep Alive",
        (io::FLUSH, false) => "Flush",
        (io::WRITE, false) => "Write",
        (io::READ, false) => "Read",
        (io::COMPARE, false) => "Compare",
        (io::WRITE_ZEROES, false) => "Write Zeroes",
        (io::DATASET_MANAGEMENT, false) => "Dataset Management",
        _ => return None,
    })
}

impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sqe = self.sqe;
        match name(sqe, self.admin) {
            Some(name) => f.write_str(name)?,
            None if sqe.is_fabrics() => write!(f, "Fabrics type {:#04x}", sqe.fctype())?,
            None => write!(f, "opcode {:#04x}", sqe.opcode())?,
        }
        write!(f, " cid {:#06x}", sqe.cid())?;
        if !sqe.is_fabrics() && sqe.nsid() != 0 {
            write!(f, " nsid {}", sqe.nsid())?;
        }
        if sqe.is_fabrics() {
            fabrics_fields(sqe, f)?;
        } else if self.admin {
            admin_fields(sqe, f)?;
        } else {
            io_fields(sqe, f)?;
        }
        if sqe.fuse() != 0 {
            write!(f, " fuse {}", sqe.fuse())?;
        }
        if sqe.direction() != Direction::None || sqe.sgl().length() != 0 {
            write!(f, " sgl {}", sqe.sgl())?;
        }
        Ok(())
    }
}

fn fabrics_fields(sqe: &Sqe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match sqe.fctype() {
        fctype::CONNECT => match fabrics::ConnectCommand::parse(sqe) {
            Ok(it) => write!(f, " qid {} sqsize {} kato {} ms", it.qid, it.sqsize, it.kato_ms),
            Err(refusal) => write!(f, " ({})", refusal.status),
        },
        fctype::PROPERTY_GET | fctype::PROPERTY_SET => {
            write!(f, " offset {:#x}", sqe.cdw(11))?;
            if sqe.fctype() == fctype::PROPERTY_SET {
                write!(f, " value {:#x}", sqe.cdw_pair(12))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn admin_fields(sqe: &Sqe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match sqe.opcode() {
        admin::IDENTIFY => write!(f, " cns {:#04x}", identify::Identify::parse(sqe).cns),
        admin::GET_LOG_PAGE => match log::GetLogPage::parse(sqe) {
            Ok(it) => write!(f, " lid {:#04x} offset {} bytes {}", it.lid, it.offset, it.bytes),
            Err(status) => write!(f, " lid {:#04x} ({status})", sqe.cdw(10) & 0xff),
        },
        admin::SET_FEATURES | admin::GET_FEATURES => {
            write!(f, " fid {:#04x} value {:#x}", feature::fid_of(sqe), sqe.cdw(11))
        }
        admin::ABORT => {
            let (sqid, cid) = super::aer::abort_target(sqe);
            write!(f, " of sqid {sqid} cid {cid:#06x}")
        }
        _ => Ok(()),
    }
}

fn io_fields(sqe: &Sqe, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match sqe.opcode() {
        io::READ | io::WRITE | io::COMPARE | io::WRITE_ZEROES => {
            let it = BlockFields::of(sqe);
            write!(f, " lba {} blocks {}", it.lba, it.blocks)?;
            if it.fua {
                f.write_str(" FUA")?;
            }
            if it.deallocate && sqe.opcode() == io::WRITE_ZEROES {
                f.write_str(" DEAC")?;
            }
            Ok(())
        }
        io::DATASET_MANAGEMENT => {
            let it = DsmFields::of(sqe);
            let word = if it.deallocate { " deallocate" } else { "" };
            write!(f, " ranges {}{word}", it.ranges)
        }
        _ => Ok(()),
    }
}

/// One line: command, status, result, queue head.
impl fmt::Display for Cqe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cqe { result, sqhd, sqid, cid, status } = self;
        write!(f, "cid {cid:#06x} sqid {sqid} sqhd {sqhd} result {result:#x} {status}")
    }
}
