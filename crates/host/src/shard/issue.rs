//! Splitting requests into commands.

use super::Shard;
use super::command::{Command, NOT_OFFERED, Origin, Request, Work};
use super::head::{HeadState, PathState};
use super::wire;
use crate::table::{Key, Table};
use crate::topology::{ControllerId, HeadId, HeadView};
use crate::user::RequestOp;
use alloc::collections::VecDeque;
use anabranch_proto::machine::{Buffers, Time};
use core::time::Duration;

/// Blocks that one command can name (NLB is a 16-bit field, counted from 0).
pub(super) const NLB_BLOCKS_MAX: u32 = 1 << 16;

/// What came of trying to make the next command of a request.
enum Next {
    Made(Work),
    /// Nothing more to make.
    Complete,
    /// A pool buffer is missing: later.
    Later,
}

/// What came of a request on its head's issue list.
enum Outcome {
    /// It is off the list.
    Issued,
    /// Its head has its share of the command table.
    NoRoom,
    /// It waits for a path, or for a newer picture.
    Waits,
    /// It waits for a pool buffer.
    NoBuffer,
}

/// When a request that found no pool buffer looks again at the latest.
const BUFFER_PAUSE: Duration = Duration::from_millis(10);

impl HeadState {
    /// Commands are to be made for a request, after those that came before it.
    #[inline]
    pub(super) fn enlist(
        &mut self,
        key: Key,
        requests: &mut Table<Request>,
        issuing: &mut VecDeque<HeadId>,
    ) {
        self.issue.push_back(requests, key);
        if !self.issuing {
            self.issuing = true;
            issuing.push_back(self.view.id);
        }
    }
}

impl Shard {
    /// Makes commands of the requests that wait for that, for one head after the other.
    pub(super) fn issue_requests(&mut self, now: Time, bufs: &mut dyn Buffers) {
        for _ in 0..self.issuing.len() {
            let Some(head) = self.issuing.pop_front() else { return };
            self.issue_requests_of(head, now, bufs);
        }
    }

    /// The same for one head, oldest first, while it may have more commands.
    fn issue_requests_of(&mut self, id: HeadId, now: Time, bufs: &mut dyn Buffers) {
        let mut passed = 0;
        while let Some(head) = self.heads.get_mut(id.0) {
            let Some(key) = head.issue.front(&self.requests) else {
                head.issuing = false;
                return;
            };
            if passed == head.issue.len() {
                break;
            }
            match self.issue_request(key, now, bufs) {
                Outcome::Issued => {}
                Outcome::NoRoom => break,
                Outcome::Waits => {
                    let Some(head) = self.heads.get_mut(id.0) else { return };
                    // Those behind it have no path either.
                    head.awaits_news = true;
                    return;
                }
                Outcome::NoBuffer => {
                    let Some(head) = self.heads.get_mut(id.0) else { break };
                    // Those behind it may be what holds the pool's buffers: they go first.
                    head.issue.unlink(&mut self.requests, key);
                    head.issue.push_back(&mut self.requests, key);
                    passed += 1;
                    self.wake_at(now.after(BUFFER_PAUSE));
                }
            }
        }
        if self.heads.get(id.0).is_some() {
            self.issuing.push_back(id);
        }
    }

    /// Issues one request as a whole, unless it has to wait.
    fn issue_request(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) -> Outcome {
        loop {
            let request = &mut self.requests[key];
            if matches!(request.op, RequestOp::Flush) {
                return self.issue_flush(key, now, bufs);
            }
            let Some(of) = self.heads.get_mut(request.head.0) else {
                unreachable!("a head stays while it has requests");
            };
            if !self.command_shares.has_room(of.commands, 1) {
                return Outcome::NoRoom;
            }
            match next_work(request, of, bufs) {
                Next::Made(work) => {
                    request.outstanding += 1;
                    let (head, last) = (request.head, request.is_issued());
                    if last {
                        request.listed = false;
                        of.issue.unlink(&mut self.requests, key);
                    }
                    self.command_shares.take(&mut of.commands);
                    self.add_command(key, head, work, now, bufs);
                    if last {
                        return Outcome::Issued;
                    }
                }
                Next::Later => return Outcome::NoBuffer,
                Next::Complete => {
                    self.issued(key, now);
                    return Outcome::Issued;
                }
            }
        }
    }

    /// A flush goes to each controller that can be asked and has acknowledged writes of this head
    /// since its last flush, or to the one that the policy chooses when there is none such. While
    /// it can go nowhere it waits here, and is for those that can be asked then. If others have
    /// written under a newer picture, that is on its way to us, too.
    #[inline(never)]
    fn issue_flush(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) -> Outcome {
        let id = self.requests[key].head;
        let Some(head) = self.heads.get(id.0) else {
            unreachable!("a head stays while it has requests");
        };
        if head.view.written.is_after(self.topology.epoch) {
            return Outcome::Waits;
        }
        // A cache that there was, and that nobody tells of any more, is flushed all the same.
        let owed = || head.paths.iter().any(|path| path.view.writes.owes());
        if head.view.limits.volatile_write_cache || owed() {
            if is_at_rest(head) || self.has_nobody_to_flush_yet(head) {
                return Outcome::Waits;
            }
            let paths = head.paths.len();
            let most = u32::try_from(paths.max(1)).unwrap_or(u32::MAX);
            if !self.command_shares.has_room(head.commands, most) {
                return Outcome::NoRoom;
            }
            let unasked = |path: &PathState| !path.flushes && path.view.writes.owes();
            if head.paths.iter().any(unasked) {
                head.view.failed_flushes.pass_over();
            }
            let mut made = false;
            for index in 0..paths {
                let Some(owed) = self.flush_at(id, index) else { continue };
                made = true;
                self.add_flush(key, id, Some(owed), now, bufs);
            }
            if !made {
                self.add_flush(key, id, None, now, bufs);
            }
        }
        self.requests[key].issued_blocks = 1;
        self.issued(key, now);
        Outcome::Issued
    }

    /// Whether no path can be used, none that can be asked is owed a flush, and that may change.
    fn has_nobody_to_flush_yet(&self, head: &HeadState) -> bool {
        let is_asked = |path: &PathState| {
            path.usable && head.may_choose(path)
                || path.flushes && path.view.writes.pending().is_some()
        };
        !head.paths.iter().any(is_asked) && head.may_come_back(&self.controllers)
    }

    /// Whether a flush that was under way can go nowhere: whoever it was for may be back with
    /// others by the time it can. One that has met doubts has so many tries.
    pub(super) fn waits_as_request(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let Origin::Own { work: Work::Flush { owed }, .. } = command.origin else { return false };
        let Some(head) = self.heads.get(command.head.0) else { return false };
        let its_own = owed.and_then(|(controller, _)| head.flushes_through(controller));
        let waits = its_own.is_none() && self.has_nobody_to_flush_yet(head);
        // Where nobody tells of a cache any more it would end at once.
        let is_needed = head.view.limits.volatile_write_cache && command.doubts.count() == 0;
        is_needed && (is_at_rest(head) || waits)
    }

    /// A flush is made into commands anew, when it can go. What it has done by then stays done.
    #[cold]
    pub(super) fn flush_later(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let &Command { head, origin: Origin::Own { request: of, .. }, .. } = &self.commands[key]
        else {
            return;
        };
        if let (Some(request), Some(head)) = (self.requests.get_mut(of), self.heads.get_mut(head.0))
            && request.error.is_none()
            && !request.listed
        {
            (request.listed, request.issued_blocks) = (true, 0);
            head.enlist(of, &mut self.requests, &mut self.issuing);
        }
        self.end_command(key, Ok(()), now, bufs);
    }

    fn flush_at(&self, head: HeadId, path: usize) -> Option<(ControllerId, u64)> {
        let path = self.heads.get(head.0)?.paths.get(path).filter(|path| path.flushes)?;
        Some((path.view.controller, path.view.writes.pending()?))
    }

    fn add_flush(
        &mut self,
        key: Key,
        id: HeadId,
        owed: Option<(ControllerId, u64)>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        self.requests[key].outstanding += 1;
        if let Some(head) = self.heads.get_mut(id.0) {
            self.command_shares.take(&mut head.commands);
        }
        self.add_command(key, id, Work::Flush { owed }, now, bufs);
    }

    /// One more command of a request. Request and head count it already.
    #[inline]
    fn add_command(
        &mut self,
        key: Key,
        head: HeadId,
        work: Work,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        self.own_commands += 1;
        let command = || Command::new(Origin::Own { request: key, work }, head, now);
        let Some(key) = self.commands.insert_with(command) else {
            unreachable!("room was checked before the command was made");
        };
        self.dispatch(key, None, now, bufs);
    }

    /// A request leaves the issue list; it may have ended already.
    fn issued(&mut self, key: Key, now: Time) {
        let head = self.requests[key].head;
        if let Some(head) = self.heads.get_mut(head.0) {
            head.issue.unlink(&mut self.requests, key);
        }
        let request = &mut self.requests[key];
        request.listed = false;
        if request.outstanding == 0 {
            self.finish_request(key, now);
        }
    }
}

/// Whether nothing is sent until the head is unquiesced.
fn is_at_rest(head: &HeadState) -> bool {
    head.view.quiesced > 0 && !head.gone
}

/// Blocks that one command may transfer, at least one.
pub(super) fn transfer_blocks(head: &HeadView) -> u32 {
    (head.limits.max_transfer_bytes / head.block_bytes).clamp(1, NLB_BLOCKS_MAX)
}

#[inline]
fn next_work(request: &mut Request, head: &HeadState, bufs: &mut dyn Buffers) -> Next {
    // Most requests are one command.
    if request.issued_blocks == 0 && request.error.is_none() {
        let (work, blocks) = match request.op {
            RequestOp::Read { lba, blocks, buf } => (Work::Read { lba, blocks, buf }, blocks),
            RequestOp::Write { lba, blocks, buf, fua } => {
                (Work::Write { lba, blocks, buf, fua }, blocks)
            }
            _ => return next_piece(request, &head.view, bufs),
        };
        if blocks <= head.transfer_blocks {
            request.issued_blocks = u64::from(blocks);
            return Next::Made(work);
        }
    }
    next_piece(request, &head.view, bufs)
}

/// As much of a request as one command can do.
#[inline(never)]
fn next_piece(request: &mut Request, head: &HeadView, bufs: &mut dyn Buffers) -> Next {
    if request.is_issued() {
        return Next::Complete;
    }
    let done = request.issued_blocks;
    let left = request.blocks() - done;
    let limits = &head.limits;
    let transfer = transfer_blocks(head);
    let offered = match request.op {
        RequestOp::WriteZeroes { .. } => limits.max_write_zeroes_blocks,
        RequestOp::Discard { .. } => limits.max_discard_blocks,
        _ => transfer,
    };
    if offered == 0 {
        request.error = Some(NOT_OFFERED);
        return Next::Complete;
    }
    let take = |most: u32| left.min(u64::from(most)) as u32;
    let piece = |buf: anabranch_proto::machine::BufRef, blocks: u32| {
        buf.slice(done as u32 * head.block_bytes, blocks * head.block_bytes)
    };
    let work = match request.op {
        RequestOp::Read { lba, buf, .. } => {
            let blocks = take(transfer);
            Work::Read { lba: lba + done, blocks, buf: piece(buf, blocks) }
        }
        RequestOp::Write { lba, buf, fua, .. } => {
            let blocks = take(transfer);
            Work::Write { lba: lba + done, blocks, buf: piece(buf, blocks), fua }
        }
        RequestOp::Compare { lba, buf, .. } => {
            let blocks = take(transfer);
            Work::Compare { lba: lba + done, blocks, buf: piece(buf, blocks) }
        }
        RequestOp::WriteZeroes { lba, deallocate, .. } => {
            let blocks = take(limits.max_write_zeroes_blocks.min(NLB_BLOCKS_MAX));
            Work::WriteZeroes { lba: lba + done, blocks, deallocate }
        }
        RequestOp::Discard { lba, .. } => {
            let blocks = take(limits.max_discard_blocks);
            let Some(range) = bufs.alloc(wire::DISCARD_RANGE_BYTES) else { return Next::Later };
            let lba = lba + done;
            wire::write_discard_range(bufs.bytes_mut(range), lba, blocks);
            Work::Discard { lba, blocks, range }
        }
        RequestOp::Flush => return Next::Complete,
    };
    let blocks = match work {
        Work::Read { blocks, .. }
        | Work::Write { blocks, .. }
        | Work::Compare { blocks, .. }
        | Work::WriteZeroes { blocks, .. }
        | Work::Discard { blocks, .. } => blocks,
        Work::Flush { .. } => 0,
    };
    request.issued_blocks += u64::from(blocks);
    Next::Made(work)
}

#[cfg(test)]
mod tests;
