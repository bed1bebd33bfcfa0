//! What an I/O command asks for, checked against its namespace. Nothing is done here.

use crate::namespace::Namespace;
use anabranch_proto::nvme::io::{BlockFields, DsmFields, DsmRange};
use anabranch_proto::nvme::opcode::io as opcode;
use anabranch_proto::nvme::{Sqe, Status};

/// A checked I/O command. Offsets and lengths are bytes of the namespace and lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Read {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Write {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Compare {
        offset: u64,
        len: u32,
        durable: bool,
    },
    Zero {
        offset: u64,
        len: u64,
        deallocate: bool,
        durable: bool,
    },
    /// `len` bytes of ranges are to come; without `deallocate` they are only advice.
    Ranges {
        len: u32,
        deallocate: bool,
    },
    Flush,
}

impl Plan {
    /// Bytes that are read from the namespace, if any are.
    pub(crate) fn read_bytes(&self) -> Option<u32> {
        match *self {
            Plan::Read { len, .. } | Plan::Compare { len, .. } => Some(len),
            _ => None,
        }
    }

    /// Where its blocks begin and how many bytes they are; none of a flush, and of what names
    /// ranges.
    pub(crate) fn blocks(&self) -> (u64, u64) {
        match *self {
            Plan::Read { offset, len, .. }
            | Plan::Compare { offset, len, .. }
            | Plan::Write { offset, len, .. } => (offset, len.into()),
            Plan::Zero { offset, len, .. } => (offset, len),
            Plan::Ranges { .. } | Plan::Flush => (0, 0),
        }
    }

    /// Whether its blocks have to be durable when it is answered (force unit access): what it has
    /// changed, and also what it has read (NVM, "Read", "Compare").
    pub(crate) fn is_durable(&self) -> bool {
        match *self {
            Plan::Read { durable, .. }
            | Plan::Write { durable, .. }
            | Plan::Compare { durable, .. }
            | Plan::Zero { durable, .. } => durable,
            Plan::Ranges { .. } | Plan::Flush => false,
        }
    }

    /// Bytes that the host sends along.
    pub(crate) fn host_bytes(&self) -> u32 {
        match *self {
            Plan::Write { len, .. } | Plan::Compare { len, .. } | Plan::Ranges { len, .. } => len,
            _ => 0,
        }
    }
}

/// Whether the opcode is one of ours.
pub(crate) fn is_known(code: u8) -> bool {
    matches!(
        code,
        opcode::FLUSH
            | opcode::WRITE
            | opcode::READ
            | opcode::COMPARE
            | opcode::WRITE_ZEROES
            | opcode::DATASET_MANAGEMENT
    )
}

/// Checks a command with a known opcode.
pub(crate) fn plan(sqe: &Sqe, namespace: &Namespace, max_bytes: u32) -> Result<Plan, Status> {
    match sqe.opcode() {
        opcode::FLUSH => Ok(Plan::Flush),
        opcode::DATASET_MANAGEMENT => {
            let fields = DsmFields::of(sqe);
            Ok(Plan::Ranges { len: fields.data_bytes(), deallocate: fields.deallocate })
        }
        code => over_blocks(code, BlockFields::of(sqe), namespace, max_bytes),
    }
}

fn over_blocks(
    code: u8,
    fields: BlockFields,
    namespace: &Namespace,
    max_bytes: u32,
) -> Result<Plan, Status> {
    // Protection information needs metadata, which no namespace has.
    if fields.prinfo != 0 {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    let bytes = u64::from(fields.blocks) << namespace.block_shift;
    if code != opcode::WRITE_ZEROES && bytes > u64::from(max_bytes) {
        return Err(Status::INVALID_FIELD.with_dnr());
    }
    fields.check(namespace.blocks)?;
    let offset = fields.lba << namespace.block_shift;
    if code == opcode::WRITE_ZEROES {
        let (deallocate, durable) = (fields.deallocate, fields.fua);
        return Ok(Plan::Zero { offset, len: bytes, deallocate, durable });
    }
    let len = u32::try_from(bytes).map_err(|_| Status::INVALID_FIELD.with_dnr())?;
    let durable = fields.fua;
    Ok(match code {
        opcode::READ => Plan::Read { offset, len, durable },
        opcode::COMPARE => Plan::Compare { offset, len, durable },
        _ => Plan::Write { offset, len, durable },
    })
}

/// The `index`th range of a Dataset Management command: offset and length in bytes.
pub(crate) fn dsm_range(
    namespace: &Namespace,
    ranges: &[u8],
    index: usize,
) -> Option<Result<(u64, u64), Status>> {
    let entry = ranges.chunks_exact(DsmRange::BYTES).nth(index)?;
    let range = DsmRange::from_bytes(entry.try_into().ok()?);
    let shift = namespace.block_shift;
    Some(
        range
            .check(namespace.blocks)
            .map(|()| (range.lba << shift, u64::from(range.blocks) << shift)),
    )
}
