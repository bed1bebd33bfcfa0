//! The seam between a shard and whatever submits requests on it.

use crate::topology::{HeadId, HeadView};
use alloc::sync::Arc;
use anabranch_proto::machine::{BufRef, Buffers, ConnId, Gather, Input, Output, Time, WorkerId};
use anabranch_proto::nvme::status::{IoStatus, Status};
use core::fmt;
use core::ops::Range;

/// A front that submits requests: an NBD server, a load job, a queue of a C caller.
///
/// It is a [`Machine`](anabranch_proto::machine::Machine) that can also submit. It owns the
/// *accepted* connections of its worker (opened ones are the host's) and all disk operations.
/// One instance lives on every worker, the control worker included; there `submit` is refused, and
/// control verbs ([`Verb::User`](crate::verb::Verb::User)) arrive there.
pub trait User {
    /// What users of different workers tell each other.
    type Mail;
    /// A control request to the user on the control worker.
    type Verb;
    /// Its answer.
    type Reply;
    /// Something worth telling a human.
    type Event;

    /// Takes one input, as `Machine::handle` does.
    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, Self::Verb, Self::Mail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    );

    /// A request of ours has ended; its buffer is ours again.
    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers);

    /// Heads came, went or changed (size, limits).
    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers);

    /// As `Machine::poll_output`.
    fn poll_output(&mut self) -> Option<Output<Self::Mail, Self::Reply, Self::Event>>;

    /// As `Machine::poll_transmit`, for accepted connections.
    fn poll_transmit(
        &mut self,
        now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    );

    /// As `Machine::poll_timeout`.
    fn poll_timeout(&mut self) -> Option<Time>;
}

/// What a user may ask of the shard it sits on.
pub trait Submit {
    /// Takes a request. It ends in exactly one [`User::completed`], never inside this call.
    ///
    /// # Errors
    /// [`Refused`] when it was not taken; nothing was done and the buffer stays the caller's.
    fn submit(&mut self, now: Time, request: Request) -> Result<(), Refused>;

    /// Nobody waits any more for the answers to those requests of a head whose tags are `theirs`.
    /// Nothing of them is sent from now on, nor sent again; what is with a controller is waited
    /// for. Each still ends in its [`User::completed`]. Who never withdraws may leave this out.
    fn withdraw(&mut self, head: HeadId, theirs: &dyn Fn(u64) -> bool) {
        let _ = (head, theirs);
    }

    /// Whether a request that nobody waits for any more may undo what this one does, which should
    /// wait for that ([`Leftovers`](crate::Leftovers)). Who never withdraws may leave this out.
    fn may_be_undone(&self, head: HeadId, op: &RequestOp) -> bool {
        let _ = (head, op);
        false
    }

    /// The heads that exist, ordered by id.
    fn heads(&self) -> &[Arc<HeadView>];

    /// The worker this is.
    fn worker(&self) -> WorkerId;

    /// How many workers there are, the control worker included.
    fn workers(&self) -> u16;
}

/// What a user submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The device.
    pub head: HeadId,
    /// What to do.
    pub op: RequestOp,
    /// Given back in [`Done`].
    pub tag: u64,
}

/// What to do. Addresses and lengths are in blocks; a buffer is exactly that many blocks long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOp {
    /// Read blocks.
    Read {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Destination.
        buf: BufRef,
    },
    /// Write blocks; with `fua` they are durable when the request ends.
    Write {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// Source.
        buf: BufRef,
        /// Force unit access.
        fua: bool,
    },
    /// Compare blocks with the buffer; a difference is `CompareFailure`.
    Compare {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u32,
        /// What to compare with.
        buf: BufRef,
    },
    /// Make all writes that were answered before durable.
    Flush,
    /// Blocks become zero; with `deallocate` their space may be given back. A flush makes that
    /// durable, and nothing else does: not every target heeds Force Unit Access here (those of
    /// Linux and SPDK do not), and Linux's host never asks for it.
    WriteZeroes {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// The space may be given back.
        deallocate: bool,
    },
    /// The contents of blocks are no longer needed.
    Discard {
        /// First block.
        lba: u64,
        /// How many.
        blocks: u64,
    },
}

impl RequestOp {
    /// First block and number of blocks; none for a flush, which is for all.
    #[must_use]
    pub fn extent(&self) -> Option<(u64, u64)> {
        match *self {
            RequestOp::Read { lba, blocks, .. }
            | RequestOp::Write { lba, blocks, .. }
            | RequestOp::Compare { lba, blocks, .. } => Some((lba, u64::from(blocks))),
            RequestOp::WriteZeroes { lba, blocks, .. } | RequestOp::Discard { lba, blocks } => {
                Some((lba, blocks))
            }
            RequestOp::Flush => None,
        }
    }

    /// The blocks that may be others afterwards.
    #[must_use]
    pub fn changes(&self) -> Option<Range<u64>> {
        let (first, blocks) = self.extent().filter(|_| self.changes_media())?;
        Some(first..first.saturating_add(blocks))
    }

    /// Whether data is durable when it has succeeded.
    #[must_use]
    pub fn makes_durable(&self) -> bool {
        match *self {
            RequestOp::Flush => true,
            RequestOp::Write { fua, .. } => fua,
            RequestOp::Read { .. }
            | RequestOp::Compare { .. }
            | RequestOp::WriteZeroes { .. }
            | RequestOp::Discard { .. } => false,
        }
    }

    fn changes_media(&self) -> bool {
        match self {
            RequestOp::Write { .. } | RequestOp::WriteZeroes { .. } | RequestOp::Discard { .. } => {
                true
            }
            RequestOp::Read { .. } | RequestOp::Compare { .. } | RequestOp::Flush => false,
        }
    }

    /// Whether a device takes such a request.
    ///
    /// # Errors
    /// What is wrong with it: the device does not offer it, it goes beyond it, or its buffer is not
    /// as long as its blocks.
    #[inline]
    pub fn check(&self, head: &HeadView) -> Result<(), Refused> {
        let limits = &head.limits;
        let offered = match self {
            RequestOp::Read { .. } | RequestOp::Write { .. } | RequestOp::Flush => true,
            RequestOp::Compare { .. } => limits.compare,
            RequestOp::WriteZeroes { .. } => {
                limits.max_write_zeroes_blocks > 0 && !head.zeroes_refused
            }
            RequestOp::Discard { .. } => limits.max_discard_blocks > 0,
        };
        if !offered || limits.read_only && self.changes_media() {
            return Err(Refused::NotSupported);
        }
        let Some((lba, blocks)) = self.extent() else { return Ok(()) };
        let end = lba.checked_add(blocks);
        if blocks == 0 || end.is_none_or(|end| end > head.blocks) {
            return Err(Refused::OutOfRange);
        }
        match *self {
            RequestOp::Read { buf, .. }
            | RequestOp::Write { buf, .. }
            | RequestOp::Compare { buf, .. }
                if blocks * u64::from(head.block_bytes) != u64::from(buf.len()) =>
            {
                Err(Refused::BufferLength)
            }
            _ => Ok(()),
        }
    }
}

/// A request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The device.
    pub head: HeadId,
    /// As submitted.
    pub tag: u64,
    /// Well, or the first error of its commands.
    pub result: Result<(), IoError>,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// The controller said so.
    Status(Status),
    /// No path is left and none may come back in time.
    NoPath,
    /// The device is gone.
    Gone,
    /// It was withdrawn ([`Submit::withdraw`]).
    Withdrawn,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoError::Status(status) => write!(f, "{}", IoStatus(*status)),
            IoError::NoPath => f.write_str("no available path"),
            IoError::Gone => f.write_str("the device is gone"),
            IoError::Withdrawn => f.write_str("it was withdrawn"),
        }
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such head.
    UnknownHead,
    /// The range does not lie on the device, or is empty.
    OutOfRange,
    /// The buffer's length is not `blocks` times the block size.
    BufferLength,
    /// The device is read-only or does not support the operation.
    NotSupported,
    /// The head has its share of the request table: submit again after the next completion of this
    /// worker, of whichever head.
    Full,
    /// This worker carries no I/O, or is draining.
    NotHere,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::UnknownHead => "there is no such device",
            Refused::OutOfRange => "the range does not lie on the device",
            Refused::BufferLength => "the buffer is not as long as the blocks",
            Refused::NotSupported => "the device does not support the operation",
            Refused::Full => "there is no room for another request to this device",
            Refused::NotHere => "this worker takes no requests",
        })
    }
}
