//! Where blocks are: in memory, or in a file.

mod absent;
mod memory;

use absent::Absent;
pub(crate) use memory::Memory;

use crate::config::BackendConfig;
use anabranch_proto::machine::{FileId, SystemError, Time};
use anabranch_proto::nvme::Status;

/// A namespace's blocks.
#[derive(Debug)]
pub(crate) enum Backend {
    Memory(Memory),
    File(FileStore),
}

impl Backend {
    pub(crate) fn new(config: &BackendConfig) -> Backend {
        match *config {
            BackendConfig::Memory { bytes } => Backend::Memory(Memory::new(bytes)),
            BackendConfig::File { file, .. } => Backend::File(FileStore {
                file,
                lost_writes: 0,
                absent: Absent::default(),
                failures_quiet_until: None,
                failures_untold: 0,
                look_at: None,
                looking: false,
                is_short: false,
            }),
        }
    }

    /// Another size; what lies behind a smaller one is gone.
    pub(crate) fn resize(&mut self, bytes: u64) {
        match self {
            Backend::Memory(memory) => memory.resize(bytes),
            // Whoever says how long it is has seen to it that it is.
            Backend::File(store) => (store.look_at, store.is_short) = (None, false),
        }
    }

    /// Whether it is a file that has lost its end.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self, Backend::File(store) if store.is_short)
    }

    /// Memory taken, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        match self {
            Backend::Memory(memory) => memory.resident_bytes(),
            Backend::File(_) => 0,
        }
    }
}

/// Blocks in a file. The work itself is the driver's ([`anabranch_proto::machine::Output::Disk`]).
#[derive(Debug)]
pub(crate) struct FileStore {
    pub(crate) file: FileId,
    /// How often making data durable has failed. The system forgets such an error after it was
    /// reported once, and the data with it; so each controller gets it reported once, whichever
    /// flush ran into it (reliability F39).
    pub(crate) lost_writes: u64,
    /// How many of those the hosts know of that have left: they may have written before.
    pub(crate) absent: Absent,
    /// Until then operations that fail are only counted.
    pub(crate) failures_quiet_until: Option<Time>,
    /// So many were.
    pub(crate) failures_untold: u32,
    /// Something was written since its end was looked at; that is looked at again then.
    pub(crate) look_at: Option<Time>,
    /// That is under way.
    pub(crate) looking: bool,
    /// Somebody has made it shorter than the namespace. What is written behind its end makes it
    /// longer again, with zeroes for what was lost: so nothing is done there any more.
    pub(crate) is_short: bool,
}

/// What a file operation was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskKind {
    Read,
    Write,
    Durable,
    Zero,
    Compare,
    /// Whether the file still has its last block.
    Look,
}

impl DiskKind {
    /// As people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DiskKind::Read => "read",
            DiskKind::Write => "write",
            DiskKind::Durable => "flush",
            DiskKind::Zero => "zeroing",
            DiskKind::Compare => "comparison",
            DiskKind::Look => "look at the end",
        }
    }
}

/// The status of a file operation that failed. A retry through this or another controller would
/// meet the same disk, or worse, succeed where data is lost: hence DNR. What the disk was
/// not asked for, as the system had no thread for it, has lost nothing, and may well succeed.
pub(crate) fn disk_status(kind: DiskKind, error: SystemError) -> Status {
    const NOT_PERMITTED: i32 = 1;
    const TOO_BIG: i32 = 27;
    const READ_ONLY: i32 = 30;
    const QUOTA: i32 = 122;
    let status = match (kind, error) {
        (_, SystemError::AGAIN) => return Status::COMMAND_INTERRUPTED,
        // Whatever the disk lacked: data that was acknowledged may be lost. "No space" would read
        // as if only this command had failed.
        (DiskKind::Durable, _) => Status::WRITE_FAULT,
        (_, SystemError::NO_SPACE | SystemError(TOO_BIG | QUOTA)) => Status::CAPACITY_EXCEEDED,
        // A file system that has become read-only, as many do after an error; a file that was made
        // immutable.
        (DiskKind::Write | DiskKind::Zero, SystemError(READ_ONLY | NOT_PERMITTED)) => {
            Status::WRITE_PROTECTED
        }
        (DiskKind::Read | DiskKind::Compare, SystemError::IO) => Status::UNRECOVERED_READ_ERROR,
        (_, SystemError::IO) => Status::WRITE_FAULT,
        _ => Status::INTERNAL_ERROR,
    };
    status.with_dnr()
}
