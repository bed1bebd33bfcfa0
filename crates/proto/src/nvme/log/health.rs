//! Error information, SMART and health, changed namespaces.

use super::super::check;
use super::super::{Status, le};
use crate::error::ProtocolError;
use alloc::vec::Vec;

/// One entry of the error information log (Base 5.16.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorEntry {
    /// Unique number of the error; 0 in an unused entry.
    pub error_count: u64,
    /// Submission queue of the command.
    pub sqid: u16,
    /// The command.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
    /// Byte (bits 0 to 7) and bit (8 to 10) of the parameter at fault; FFFFh for none.
    pub parameter: u16,
    /// First block at fault.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
}

impl ErrorEntry {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 64;

    /// Reads 64 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; ErrorEntry::BYTES]) -> ErrorEntry {
        ErrorEntry {
            error_count: le::u64(bytes, 0),
            sqid: le::u16(bytes, 8),
            cid: le::u16(bytes, 10),
            status: Status::from_bits(le::u16(bytes, 12) >> 1),
            parameter: le::u16(bytes, 14),
            lba: le::u64(bytes, 16),
            nsid: le::u32(bytes, 24),
        }
    }

    /// The 64 bytes on the wire; the transport is TCP.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ErrorEntry::BYTES] {
        let mut bytes = [0; Self::BYTES];
        le::put_u64(&mut bytes, 0, self.error_count);
        le::put_u16(&mut bytes, 8, self.sqid);
        le::put_u16(&mut bytes, 10, self.cid);
        le::put_u16(&mut bytes, 12, self.status.bits() << 1);
        le::put_u16(&mut bytes, 14, self.parameter);
        le::put_u64(&mut bytes, 16, self.lba);
        le::put_u32(&mut bytes, 24, self.nsid);
        bytes[29] = 3;
        bytes
    }
}

/// The SMART and health log, the fields that we use (Base 5.16.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Smart {
    /// Critical warnings, a bit each.
    pub critical_warning: u8,
    /// Composite temperature in kelvin.
    pub temperature_k: u16,
    /// Spare capacity left, in percent.
    pub available_spare: u8,
    /// Below this many percent of spare a warning is given.
    pub spare_threshold: u8,
    /// Wear in percent of what is expected; may exceed 100.
    pub percentage_used: u8,
    /// Data read, in units of 512,000 bytes.
    pub data_units_read: u128,
    /// Data written, in units of 512,000 bytes.
    pub data_units_written: u128,
    /// Read and Compare commands.
    pub host_reads: u128,
    /// Write commands.
    pub host_writes: u128,
    /// Power cycles.
    pub power_cycles: u128,
    /// Power-on hours.
    pub power_on_hours: u128,
    /// Unsafe shutdowns.
    pub unsafe_shutdowns: u128,
    /// Media and data integrity errors.
    pub media_errors: u128,
    /// Entries ever made in the error log.
    pub error_log_entries: u128,
}

impl Smart {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 512;

    /// The 512 bytes on the wire.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Smart::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.critical_warning;
        le::put_u16(&mut bytes, 1, self.temperature_k);
        bytes[3] = self.available_spare;
        bytes[4] = self.spare_threshold;
        bytes[5] = self.percentage_used;
        let counters = [
            (32, self.data_units_read),
            (48, self.data_units_written),
            (64, self.host_reads),
            (80, self.host_writes),
            (112, self.power_cycles),
            (128, self.power_on_hours),
            (144, self.unsafe_shutdowns),
            (160, self.media_errors),
            (176, self.error_log_entries),
        ];
        for (at, value) in counters {
            le::put(&mut bytes, at, &value.to_le_bytes());
        }
        bytes
    }

    /// Reads the log.
    ///
    /// # Errors
    /// Fewer than 512 bytes.
    pub fn parse(bytes: &[u8]) -> Result<Smart, ProtocolError> {
        check::length(bytes, "SMART / Health Information log", Self::BYTES)?;
        let counter = |at| u128::from_le_bytes(le::array(bytes, at));
        Ok(Smart {
            critical_warning: bytes[0],
            temperature_k: le::u16(bytes, 1),
            available_spare: bytes[3],
            spare_threshold: bytes[4],
            percentage_used: bytes[5],
            data_units_read: counter(32),
            data_units_written: counter(48),
            host_reads: counter(64),
            host_writes: counter(80),
            power_cycles: counter(112),
            power_on_hours: counter(128),
            unsafe_shutdowns: counter(144),
            media_errors: counter(160),
            error_log_entries: counter(176),
        })
    }
}

/// The changed namespace list (Base 5.16.1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedNamespaces {
    /// These, at most 1024.
    Listed(Vec<u32>),
    /// More than fit: any may have changed.
    TooMany,
}

impl ChangedNamespaces {
    /// Size on the wire in bytes.
    pub const BYTES: usize = 4096;

    /// From NSIDs in any number.
    #[must_use]
    pub fn new(nsids: &[u32]) -> ChangedNamespaces {
        if nsids.len() > Self::BYTES / 4 {
            ChangedNamespaces::TooMany
        } else {
            ChangedNamespaces::Listed(nsids.to_vec())
        }
    }

    /// Writes as much of the 4096-byte list as fits into `out`.
    pub fn emit(&self, out: &mut [u8]) {
        let mut bytes = [0; Self::BYTES];
        match self {
            ChangedNamespaces::TooMany => le::put_u32(&mut bytes, 0, u32::MAX),
            ChangedNamespaces::Listed(nsids) => {
                for (index, nsid) in nsids.iter().take(Self::BYTES / 4).enumerate() {
                    le::put_u32(&mut bytes, 4 * index, *nsid);
                }
            }
        }
        check::copy_prefix(&bytes, out);
    }

    /// Reads the list up to the first 0. Order and doubles do not matter to a reader.
    ///
    /// # Errors
    /// Fewer than 4096 bytes.
    pub fn parse(bytes: &[u8]) -> Result<ChangedNamespaces, ProtocolError> {
        check::length(bytes, "Changed Namespace List", Self::BYTES)?;
        let all = bytes[..Self::BYTES].chunks_exact(4).map(|nsid| le::u32(nsid, 0));
        let nsids: Vec<u32> = all.take_while(|&nsid| nsid != 0).collect();
        if nsids.contains(&u32::MAX) {
            return Ok(ChangedNamespaces::TooMany);
        }
        Ok(ChangedNamespaces::Listed(nsids))
    }
}
