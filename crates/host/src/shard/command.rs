//! Requests and the commands that they are split into.

use super::absence::Doubts;
use super::failed::Failed;
use crate::table::Key;
use crate::topology::{Association, ControllerId, HeadId};
use crate::user::{IoError, RequestOp};
use anabranch_policy::{Charge, OpClass};
use anabranch_proto::host_queue::{Cid, Flaw, HostData};
use anabranch_proto::machine::{BufRef, Time, WorkerId};
use anabranch_proto::nvme::opcode::io::{FLUSH, READ, WRITE};
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;

/// How a request ends that its head took, and takes no more before all of it was done: as if a
/// controller had said that it does not have the command.
pub(super) const NOT_OFFERED: IoError = IoError::Status(Status::INVALID_OPCODE);

/// A user's request on its way.
pub(super) struct Request {
    pub(super) head: HeadId,
    pub(super) op: RequestOp,
    pub(super) tag: u64,
    pub(super) submitted: Time,
    /// Blocks that commands have been made for (data requests), or whether the commands of a flush
    /// have been made (1).
    pub(super) issued_blocks: u64,
    /// Commands that have not ended.
    pub(super) outstanding: u32,
    /// It is on the issue list or held, so more commands may follow.
    pub(super) listed: bool,
    /// The first error of its commands.
    pub(super) error: Option<IoError>,
}

impl Request {
    /// Blocks that the request covers; 1 for a flush, which covers no range.
    pub(super) fn blocks(&self) -> u64 {
        self.op.extent().map_or(1, |(_, blocks)| blocks)
    }

    /// Whether a command that is with its path since `started` and ends now stands for the request:
    /// it is all of it, and took as long.
    #[inline]
    pub(super) fn is_all_in(&self, work: &Work, started: Time) -> bool {
        let same = match (self.op, work) {
            (RequestOp::Read { blocks, .. }, Work::Read { blocks: all, .. })
            | (RequestOp::Write { blocks, .. }, Work::Write { blocks: all, .. }) => blocks == *all,
            _ => false,
        };
        same && !self.listed && self.submitted == started && self.error.is_none()
    }

    /// Whether nothing more will be issued: everything was, or an error makes the rest pointless.
    pub(super) fn is_issued(&self) -> bool {
        self.issued_blocks >= self.blocks() || self.error.is_some()
    }
}

/// What one command does.
#[derive(Clone, Copy)]
pub(super) enum Work {
    Read {
        lba: u64,
        blocks: u32,
        buf: BufRef,
    },
    Write {
        lba: u64,
        blocks: u32,
        buf: BufRef,
        fua: bool,
    },
    Compare {
        lba: u64,
        blocks: u32,
        buf: BufRef,
    },
    /// `owed` restricts it to the controller whose acknowledged writes it must cover, up to that
    /// write mark, while that one can be asked.
    Flush {
        owed: Option<(ControllerId, u64)>,
    },
    WriteZeroes {
        lba: u64,
        blocks: u32,
        deallocate: bool,
    },
    /// `range` is pool memory that holds the one range descriptor.
    Discard {
        lba: u64,
        blocks: u32,
        range: BufRef,
    },
}

impl Work {
    pub(super) fn class(&self) -> OpClass {
        match self {
            Work::Read { .. } => OpClass::Read,
            Work::Write { .. } => OpClass::Write,
            _ => OpClass::Other,
        }
    }

    /// Payload bytes that travel.
    pub(super) fn bytes(&self) -> u32 {
        match self {
            Work::Read { buf, .. } | Work::Write { buf, .. } | Work::Compare { buf, .. } => {
                buf.len()
            }
            Work::Discard { range, .. } => range.len(),
            Work::Flush { .. } | Work::WriteZeroes { .. } => 0,
        }
    }

    /// Whether carrying it out twice, late, could undo a later write.
    pub(super) fn changes_media(&self) -> bool {
        matches!(self, Work::Write { .. } | Work::WriteZeroes { .. } | Work::Discard { .. })
    }
}

/// Whom the answer is for.
pub(super) enum Origin {
    /// A request of this shard.
    Own { request: Key, work: Work },
    /// Another shard, which submits through our queue pair.
    Peer(Carried),
    /// Nobody: a probe, which only looks how long its path takes.
    Probe { lba: u64, blocks: u32 },
    /// Nobody any more: a read whose request has gone on elsewhere.
    LeftBehind,
}

/// A command of another shard.
#[derive(Clone, Copy)]
pub(super) struct Carried {
    pub(super) worker: WorkerId,
    pub(super) token: u64,
    pub(super) association: Association,
    /// The picture that it was made from.
    pub(super) epoch: u64,
    pub(super) sqe: Sqe,
    pub(super) data: HostData,
}

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// On its head's requeue list: it has no path.
    Requeued,
    /// On the list of a queue pair that has no free tag, or set aside there while its head is
    /// quiesced.
    Waiting { slot: u16 },
    /// With the controller (or in the queue pair's send batch).
    Flying { slot: u16, cid: Cid },
    /// Sent to the worker that owns the queue pair.
    Carried,
    /// Waits for the time to be tried again, through that controller if it is still usable then.
    Delayed { until: Time, again_on: Option<ControllerId> },
    /// It was answered well on a path that is being looked at, until then at the longest. The
    /// namespace had so many blocks before.
    Doubted { until: Time, blocks: u64 },
}

/// One command: what one path carries.
pub(super) struct Command {
    pub(super) origin: Origin,
    pub(super) head: HeadId,
    /// The path chosen last.
    pub(super) controller: ControllerId,
    /// Its statistics entry, which stands for that path while the command is on it.
    pub(super) stats: u32,
    /// Where in its head's list the path stood when it was chosen.
    pub(super) path: u16,
    pub(super) place: Place,
    /// What was added to the chosen controller's ledger, to be given back.
    pub(super) charge: Option<Charge>,
    /// When the chosen path took it.
    pub(super) started: Time,
    /// When it got its tag: its time limit runs from here, as in Linux.
    pub(super) tagged: Time,
    /// Blocks behind those of its work that it also has to do: it was cut.
    pub(super) left_blocks: u32,
    /// Tries again for other reasons than the path, since a path last failed under it.
    pub(super) retries: u8,
    /// How often it has waited for a path to be looked at, and its namespace was not there.
    pub(super) doubts: Doubts,
    /// How often paths failed under it, in a row.
    pub(super) failovers: u8,
    /// Which those were.
    pub(super) failed: Failed,
    /// What was wrong with what it was answered last.
    pub(super) flaw: Option<Flaw>,
}

impl Command {
    /// It has no path yet, is on no list and charged nothing.
    #[inline]
    pub(super) fn new(origin: Origin, head: HeadId, now: Time) -> Command {
        Command {
            origin,
            head,
            controller: ControllerId(u32::MAX),
            stats: u32::MAX,
            path: u16::MAX,
            place: Place::Requeued,
            charge: None,
            started: now,
            tagged: now,
            left_blocks: 0,
            retries: 0,
            doubts: Doubts::default(),
            failovers: 0,
            failed: Failed::NONE,
            flaw: None,
        }
    }

    /// What it is to a policy, and to the queue pairs of its controller.
    #[inline]
    pub(super) fn class(&self) -> OpClass {
        match &self.origin {
            Origin::Own { work, .. } => work.class(),
            Origin::Peer(Carried { sqe, .. }) => match sqe.opcode() {
                READ => OpClass::Read,
                WRITE => OpClass::Write,
                _ => OpClass::Other,
            },
            Origin::Probe { .. } | Origin::LeftBehind => OpClass::Read,
        }
    }

    /// Whether it is a flush of this shard.
    pub(super) fn is_own_flush(&self) -> bool {
        matches!(self.origin, Origin::Own { work: Work::Flush { .. }, .. })
    }

    /// Whether it is one that only one controller can do.
    pub(super) fn is_owed_flush(&self) -> bool {
        matches!(self.origin, Origin::Own { work: Work::Flush { owed: Some(_) }, .. })
    }

    /// Whether it makes durable what the controller that it is with has acknowledged. What another
    /// worker sends may be a flush for any.
    pub(super) fn flushes_here(&self) -> bool {
        match self.origin {
            Origin::Own { .. } => self.is_owed_flush(),
            Origin::Peer(Carried { sqe, .. }) => sqe.opcode() == FLUSH,
            Origin::Probe { .. } | Origin::LeftBehind => false,
        }
    }

    /// The controller that a flush was meant for cannot be asked: whichever serves the namespace
    /// answers for it, and what the first has acknowledged stays owed.
    pub(super) fn flush_anywhere(&mut self) {
        if let Origin::Own { work: work @ Work::Flush { .. }, .. } = &mut self.origin {
            *work = Work::Flush { owed: None };
        }
    }
}
