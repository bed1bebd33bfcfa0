//! Asynchronous events: what a completion of an Asynchronous Event Request says (Base 5.2).

use super::Sqe;
use super::opcode::admin;

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Error status.
    Error,
    /// SMART and health status.
    Smart,
    /// Notice.
    Notice,
    /// I/O command specific.
    IoCommand,
    /// Vendor specific.
    Vendor,
    /// A type that the specification does not define.
    Unknown(u8),
}

impl EventKind {
    /// The three-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            EventKind::Error => 0,
            EventKind::Smart => 1,
            EventKind::Notice => 2,
            EventKind::IoCommand => 6,
            EventKind::Vendor => 7,
            EventKind::Unknown(code) => code & 7,
        }
    }
}

/// Information of notices.
pub mod notice {
    /// Namespace attributes changed: read the changed namespace list.
    pub const NAMESPACE_ATTRIBUTE: u8 = 0x00;
    /// Firmware activation starts.
    pub const FIRMWARE_ACTIVATION: u8 = 0x01;
    /// An ANA state changed: read the ANA log.
    pub const ANA_CHANGE: u8 = 0x03;
    /// The discovery log changed.
    pub const DISCOVERY_CHANGE: u8 = 0xf0;
}

/// Information of errors.
pub mod error {
    /// Persistent internal error: the controller needs a reset.
    pub const PERSISTENT_INTERNAL: u8 = 0x03;
}

/// One event. Every 32-bit result is one; a host logs those it does not know and asks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Type.
    pub kind: EventKind,
    /// What exactly, by type.
    pub info: u8,
    /// The log page that tells more and re-arms the event when read.
    pub log_page: u8,
}

impl AsyncEvent {
    /// Namespace attributes changed.
    pub const NAMESPACES: AsyncEvent =
        AsyncEvent::of(notice::NAMESPACE_ATTRIBUTE, super::log::lid::CHANGED_NAMESPACES);
    /// An ANA state changed.
    pub const ANA: AsyncEvent = AsyncEvent::of(notice::ANA_CHANGE, super::log::lid::ANA);
    /// The discovery log changed.
    pub const DISCOVERY: AsyncEvent =
        AsyncEvent::of(notice::DISCOVERY_CHANGE, super::log::lid::DISCOVERY);

    const fn of(info: u8, log_page: u8) -> AsyncEvent {
        AsyncEvent { kind: EventKind::Notice, info, log_page }
    }

    /// From the completion's result.
    #[must_use]
    pub const fn from_result(result: u64) -> AsyncEvent {
        let kind = match (result & 7) as u8 {
            0 => EventKind::Error,
            1 => EventKind::Smart,
            2 => EventKind::Notice,
            6 => EventKind::IoCommand,
            7 => EventKind::Vendor,
            other => EventKind::Unknown(other),
        };
        let (info, log_page) = ((result >> 8 & 0xff) as u8, (result >> 16 & 0xff) as u8);
        AsyncEvent { kind, info, log_page }
    }

    /// The completion's result.
    #[must_use]
    pub const fn result(self) -> u64 {
        self.kind.code() as u64 | (self.info as u64) << 8 | (self.log_page as u64) << 16
    }
}

/// Asynchronous Event Request, without CID.
#[must_use]
pub fn request() -> Sqe {
    Sqe::new(admin::ASYNC_EVENT_REQUEST)
}

/// Keep Alive, without CID.
#[must_use]
pub fn keep_alive() -> Sqe {
    Sqe::new(admin::KEEP_ALIVE)
}

/// Abort of command `cid` on submission queue `sqid`, without CID of its own.
#[must_use]
pub fn abort(sqid: u16, cid: u16) -> Sqe {
    Sqe::new(admin::ABORT).with_cdw(10, u32::from(cid) << 16 | u32::from(sqid))
}

/// The queue and the command that an Abort names.
#[must_use]
pub fn abort_target(sqe: &Sqe) -> (u16, u16) {
    ((sqe.cdw(10) & 0xffff) as u16, (sqe.cdw(10) >> 16) as u16)
}
