//! Features (Base 5.27): queue count, keep-alive, asynchronous events, what the host can do, host
//! identifier.

use super::opcode::admin;
use super::{Sqe, Uuid};

/// Feature identifiers.
pub mod fid {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE_TIMER: u8 = 0x0f;
    /// Host Behavior Support.
    pub const HOST_BEHAVIOR: u8 = 0x16;
    /// Host Identifier.
    pub const HOST_IDENTIFIER: u8 = 0x81;
}

/// What Get Features shall return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The value in force.
    Current,
    /// The default.
    Default,
    /// The saved value.
    Saved,
    /// What can be done with the feature.
    Capabilities,
    /// A reserved code.
    Reserved(u8),
}

/// Set Features for `fid` with dword 11; not saved. Without CID and SGL.
#[must_use]
pub fn set(fid: u8, value: u32) -> Sqe {
    Sqe::new(admin::SET_FEATURES).with_cdw(10, u32::from(fid)).with_cdw(11, value)
}

/// Get Features for `fid`, the current value. Without CID and SGL.
#[must_use]
pub fn get(fid: u8) -> Sqe {
    Sqe::new(admin::GET_FEATURES).with_cdw(10, u32::from(fid))
}

/// The feature that a Set or Get Features command names.
#[must_use]
pub fn fid_of(sqe: &Sqe) -> u8 {
    (sqe.cdw(10) & 0xff) as u8
}

/// Whether a Set Features command asks to save the value.
#[must_use]
pub fn save_of(sqe: &Sqe) -> bool {
    sqe.cdw(10) >> 31 != 0
}

/// What a Get Features command asks for.
#[must_use]
pub fn select_of(sqe: &Sqe) -> Select {
    match (sqe.cdw(10) >> 8 & 7) as u8 {
        0 => Select::Current,
        1 => Select::Default,
        2 => Select::Saved,
        3 => Select::Capabilities,
        other => Select::Reserved(other),
    }
}

/// Counts of I/O queues, asked for (dword 11) or granted (result). Both are counts, not the
/// zero-based numbers of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberOfQueues {
    /// I/O submission queues, 1 to 65535.
    pub submission: u16,
    /// I/O completion queues, 1 to 65535.
    pub completion: u16,
}

impl NumberOfQueues {
    /// As many of one as of the other; 0 counts as 1.
    #[must_use]
    pub const fn pairs(count: u16) -> NumberOfQueues {
        let count = if count == 0 { 1 } else { count };
        NumberOfQueues { submission: count, completion: count }
    }

    /// The dword on the wire. Counts of 0 count as 1.
    #[must_use]
    pub const fn dword(self) -> u32 {
        let submission = self.submission.saturating_sub(1) as u32;
        submission | (self.completion.saturating_sub(1) as u32) << 16
    }

    /// From the dword on the wire; `None` for the invalid count FFFFh.
    #[must_use]
    pub const fn from_dword(value: u32) -> Option<NumberOfQueues> {
        let (submission, completion) = ((value & 0xffff) as u16, (value >> 16) as u16);
        if submission == u16::MAX || completion == u16::MAX {
            return None;
        }
        Some(NumberOfQueues { submission: submission + 1, completion: completion + 1 })
    }

    /// The number of queue pairs that both counts allow.
    #[must_use]
    pub fn usable(self) -> u16 {
        self.submission.min(self.completion)
    }

    /// The command, without CID.
    #[must_use]
    pub fn sqe(self) -> Sqe {
        set(fid::NUMBER_OF_QUEUES, self.dword())
    }
}

/// The keep-alive time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveTimer {
    /// Milliseconds; 0 is off.
    pub kato_ms: u32,
}

impl KeepAliveTimer {
    /// The command, without CID.
    #[must_use]
    pub fn sqe(self) -> Sqe {
        set(fid::KEEP_ALIVE_TIMER, self.kato_ms)
    }
}

/// Which asynchronous events are wanted; the same bits as OAES of Identify Controller for notices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncEventConfig(pub u32);

impl AsyncEventConfig {
    /// Namespace attribute notices.
    pub const NAMESPACE_ATTRIBUTE: u32 = 1 << 8;
    /// Firmware activation notices.
    pub const FIRMWARE_ACTIVATION: u32 = 1 << 9;
    /// ANA change notices.
    pub const ANA_CHANGE: u32 = 1 << 11;
    /// Discovery log page change notices.
    pub const DISCOVERY_CHANGE: u32 = 1 << 31;

    /// The command, without CID.
    #[must_use]
    pub fn sqe(self) -> Sqe {
        set(fid::ASYNC_EVENT_CONFIG, self.0)
    }
}

/// What this host can do, where controllers must ask (Base, "Host Behavior Support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBehavior {
    /// Advanced Command Retry: it reads CRD in statuses, which controllers else leave 0.
    pub retry_delays: bool,
}

impl HostBehavior {
    /// Size of the data that Set Features brings.
    pub const BYTES: usize = 512;

    /// Set Features, without CID and SGL.
    #[must_use]
    pub fn sqe() -> Sqe {
        set(fid::HOST_BEHAVIOR, 0)
    }

    /// The data of Set Features.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.retry_delays as u8;
        bytes
    }
}

/// The host identifier; 16 bytes on Fabrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostIdentifier(pub Uuid);

impl HostIdentifier {
    /// Size of the extended identifier in bytes.
    pub const BYTES: usize = 16;

    /// Whether a Get or Set Features command speaks of the extended (16-byte) identifier.
    #[must_use]
    pub fn is_extended(sqe: &Sqe) -> bool {
        sqe.cdw(11) & 1 != 0
    }

    /// Get Features, extended. Without CID and SGL.
    #[must_use]
    pub fn get() -> Sqe {
        get(fid::HOST_IDENTIFIER).with_cdw(11, 1)
    }
}
