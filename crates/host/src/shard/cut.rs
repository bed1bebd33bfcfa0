//! Commands that were made for longer transfers than the head allows by now.
//!
//! A path may join, or a controller come back, that takes less at once than those before it. The
//! head's limits shrink, and new requests are split by the new ones. A command that was made before
//! and has to be dispatched again does its blocks in several turns then, one after the other: it
//! keeps its one place in the table, so that nothing has to wait for more. The range of a
//! deallocate command is a descriptor in memory, which is written anew for each turn.
//!
//! What the head does not take at all any more ends as if it came now: its user can write zeroes
//! instead, and need not deallocate. Sent to a controller that does not have the command, it would
//! be told as a failure, and zeroes would not be asked for again when another one has it.

use super::Shard;
use super::absence::Doubts;
use super::command::{NOT_OFFERED, Origin, Work};
use super::failed::Failed;
use super::head::HeadState;
use super::wire;
use crate::table::Key;
use crate::topology::ControllerId;
use crate::user::{IoError, RequestOp};
use anabranch_proto::machine::{BufRef, Buffers, Time};

impl Shard {
    /// Dispatches a command that had been dispatched before, cut to what its head allows now.
    pub(super) fn dispatch_again(
        &mut self,
        key: Key,
        prefer: Option<ControllerId>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        if self.was_withdrawn(&self.commands[key]) {
            return self.end_command(key, Err(IoError::Withdrawn), now, bufs);
        }
        if self.waits_as_request(key) {
            return self.flush_later(key, now, bufs);
        }
        let command = &mut self.commands[key];
        if let (Origin::Own { work, .. }, Some(head)) =
            (&mut command.origin, self.heads.get(command.head.0))
        {
            if most(work, head) == 0 {
                return self.end_command(key, Err(NOT_OFFERED), now, bufs);
            }
            let left = cut(work, head);
            if left > 0 {
                command.left_blocks += left;
                describe(work, bufs);
            }
        }
        self.dispatch(key, prefer, now, bufs);
    }

    /// A command that was cut has done its work well: it goes on with what is left.
    #[cold]
    pub(super) fn next_turn(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let command = &mut self.commands[key];
        let Origin::Own { request, work } = &mut command.origin else { return };
        let block_bytes = self.heads.get(command.head.0).map_or(0, |head| head.view.block_bytes);
        if let Some(request) = self.requests.get(*request) {
            *work = behind(*work, command.left_blocks, request.op, block_bytes);
            describe(work, bufs);
        }
        (command.left_blocks, command.retries, command.failovers) = (0, 0, 0);
        command.doubts = Doubts::default();
        command.failed = Failed::NONE;
        self.dispatch_again(key, None, now, bufs);
    }
}

/// How many blocks one command may be about; 0: the head does not take it.
fn most(work: &Work, head: &HeadState) -> u32 {
    match work {
        Work::Read { .. } | Work::Write { .. } | Work::Compare { .. } => head.transfer_blocks,
        Work::WriteZeroes { .. } => head.view.limits.max_write_zeroes_blocks,
        Work::Discard { .. } => head.view.limits.max_discard_blocks,
        Work::Flush { .. } => u32::MAX,
    }
}

/// Cuts off what is too long; gives back how many blocks that are.
fn cut(work: &mut Work, head: &HeadState) -> u32 {
    let most = most(work, head);
    match work {
        Work::Read { blocks, buf, .. }
        | Work::Write { blocks, buf, .. }
        | Work::Compare { blocks, buf, .. }
            if *blocks > most =>
        {
            *buf = buf.slice(0, most * head.view.block_bytes);
            core::mem::replace(blocks, most) - most
        }
        Work::WriteZeroes { blocks, .. } | Work::Discard { blocks, .. } if *blocks > most => {
            core::mem::replace(blocks, most) - most
        }
        _ => 0,
    }
}

/// Says in memory what a deallocate command covers. No path has it at this moment.
fn describe(work: &Work, bufs: &mut dyn Buffers) {
    if let Work::Discard { lba, blocks, range } = *work {
        wire::write_discard_range(bufs.bytes_mut(range), lba, blocks);
    }
}

/// What comes behind `done` in its request, as long as `blocks`.
fn behind(done: Work, blocks: u32, op: RequestOp, block_bytes: u32) -> Work {
    // A request's buffer is shorter than 4 GiB, and so is what lies before any part of it.
    let piece = |whole: BufRef, first: u64, lba: u64| {
        whole.slice((lba - first) as u32 * block_bytes, blocks * block_bytes)
    };
    match (done, op) {
        (Work::Read { lba, blocks: n, .. }, RequestOp::Read { lba: first, buf, .. }) => {
            let lba = lba + u64::from(n);
            Work::Read { lba, blocks, buf: piece(buf, first, lba) }
        }
        (Work::Write { lba, blocks: n, fua, .. }, RequestOp::Write { lba: first, buf, .. }) => {
            let lba = lba + u64::from(n);
            Work::Write { lba, blocks, buf: piece(buf, first, lba), fua }
        }
        (Work::Compare { lba, blocks: n, .. }, RequestOp::Compare { lba: first, buf, .. }) => {
            let lba = lba + u64::from(n);
            Work::Compare { lba, blocks, buf: piece(buf, first, lba) }
        }
        (Work::WriteZeroes { lba, blocks: n, deallocate }, _) => {
            Work::WriteZeroes { lba: lba + u64::from(n), blocks, deallocate }
        }
        (Work::Discard { lba, blocks: n, range }, _) => {
            Work::Discard { lba: lba + u64::from(n), blocks, range }
        }
        _ => unreachable!("a command does what its request asks for, and only these are cut"),
    }
}
