//! A request header, and whether the device can do what it asks for.

use super::errno::Fault;
use super::exports::Device;
use super::wire::{self, command, command_flag, errno};
use super::{MAX_REQUEST_BYTES, MAX_UNFRAGMENTED_BYTES};

/// A request header as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) flags: u16,
    pub(super) command: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What is to be done, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write {
        fua: bool,
    },
    Flush,
    Trim {
        fua: bool,
    },
    WriteZeroes {
        fua: bool,
        deallocate: bool,
    },
    /// What became of those on a device that does not make zeroes itself after all: they are
    /// written.
    Blank {
        fua: bool,
    },
}

impl Op {
    /// Whether it may need more space than there is: decides between EINVAL and ENOSPC.
    pub(super) fn writes(self) -> bool {
        matches!(self, Op::Write { .. } | Op::WriteZeroes { .. } | Op::Blank { .. })
    }

    /// Whether only a flush makes it as durable as the client wants it.
    pub(super) fn needs_flush(self) -> bool {
        matches!(self, Op::Trim { fua: true } | Op::WriteZeroes { fua: true, .. })
    }

    /// Whether blocks may be others afterwards.
    pub(super) fn changes(self) -> bool {
        self.writes() || matches!(self, Op::Trim { .. })
    }
}

impl Header {
    /// `None` when the magic number is wrong: then nothing that follows can be understood.
    pub(super) fn parse(raw: &[u8; wire::REQUEST_BYTES]) -> Option<Header> {
        let (magic, rest) = raw.split_first_chunk::<4>()?;
        let (flags, rest) = rest.split_first_chunk::<2>()?;
        let (command, rest) = rest.split_first_chunk::<2>()?;
        let (cookie, rest) = rest.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, _) = rest.split_first_chunk::<4>()?;
        (u32::from_be_bytes(*magic) == wire::REQUEST_MAGIC).then(|| Header {
            flags: u16::from_be_bytes(*flags),
            command: u16::from_be_bytes(*command),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            bytes: u32::from_be_bytes(*bytes),
        })
    }

    /// The bytes that follow the header, whatever becomes of the request.
    pub(super) fn payload_bytes(&self) -> u32 {
        if self.command == command::WRITE { self.bytes } else { 0 }
    }

    /// Checks everything that can be checked before anything is done.
    pub(super) fn check(&self, device: &Device, structured: bool) -> Result<Op, Fault> {
        let fua = self.flags & command_flag::FUA != 0;
        // First of all: what a device that may be changed would be asked for is not announced.
        if device.read_only && command::CHANGING.contains(&self.command) {
            return Err(Fault::new(errno::EPERM, "the export is read-only"));
        }
        let (op, known_flags) = match self.command {
            command::READ if structured => (Op::Read, command_flag::DF),
            command::READ => (Op::Read, 0),
            command::WRITE => (Op::Write { fua }, 0),
            command::FLUSH => (Op::Flush, 0),
            command::TRIM if device.trim => (Op::Trim { fua }, 0),
            command::WRITE_ZEROES if device.write_zeroes => {
                let deallocate = self.flags & command_flag::NO_HOLE == 0;
                (Op::WriteZeroes { fua, deallocate }, command_flag::NO_HOLE)
            }
            _ => return Err(Fault::new(errno::EINVAL, "the command is not supported")),
        };
        // FUA is valid with every command (it means nothing for some).
        if self.flags & !(known_flags | command_flag::FUA) != 0 {
            return Err(Fault::new(errno::EINVAL, "unknown command flags"));
        }
        if op == Op::Flush {
            return Ok(op);
        }
        self.check_range(op, device)?;
        if self.flags & command_flag::DF != 0 && self.bytes > MAX_UNFRAGMENTED_BYTES {
            return Err(Fault::new(errno::EOVERFLOW, "too long for one chunk"));
        }
        Ok(op)
    }

    /// The whole blocks of a range that was checked, as offset and bytes.
    ///
    /// "A server MAY round offset up and len down" for a trim, and has to: qemu hands on what a
    /// guest with smaller blocks than ours discards as it is, and takes a refusal for an error of
    /// the disk.
    pub(super) fn whole_blocks(&self, device: &Device) -> (u64, u32) {
        let block = u64::from(device.block_bytes);
        let start = self.offset.next_multiple_of(block);
        let end = self.offset + u64::from(self.bytes);
        // At most as long as the range.
        let bytes = (end - end % block).saturating_sub(start) as u32;
        (start, bytes)
    }

    fn check_range(&self, op: Op, device: &Device) -> Result<(), Fault> {
        if matches!(op, Op::Read | Op::Write { .. }) && self.bytes > MAX_REQUEST_BYTES {
            return Err(Fault::new(errno::EINVAL, "longer than the announced maximum"));
        }
        let end = self.offset.checked_add(u64::from(self.bytes));
        if end.is_none_or(|end| end > device.bytes) {
            let number = if op.writes() { errno::ENOSPC } else { errno::EINVAL };
            return Err(Fault::new(number, "the range does not lie on the device"));
        }
        if self.bytes == 0 {
            return Err(Fault::new(errno::EINVAL, "a request of no bytes"));
        }
        // A trim may be rounded: see `whole_blocks`.
        let block = u64::from(device.block_bytes);
        if matches!(op, Op::Trim { .. }) {
            return Ok(());
        }
        if !self.offset.is_multiple_of(block) || !u64::from(self.bytes).is_multiple_of(block) {
            return Err(Fault::new(errno::EINVAL, "not aligned to the announced block size"));
        }
        Ok(())
    }
}
