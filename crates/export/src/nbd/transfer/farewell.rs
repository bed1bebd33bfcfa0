//! The end of a client, that has said so or has not.

use super::super::MAX_PIECES;
use super::super::memory::Memory;
use super::super::pieces::{Piece, Stage};
use super::super::request::Op;
use super::Transfer;
use anabranch_host::Leftovers;
use anabranch_host::topology::HeadId;
use anabranch_host::user::{RequestOp, Submit};
use std::ops::Range;
use std::sync::Arc;

/// What it had asked for and still changes blocks. "The server MUST handle all outstanding
/// requests", whether it waits for the answers or has gone already, which nobody knows. It may be
/// back at once, so until then all of this counts as left behind.
pub(super) struct Farewell {
    leftovers: Arc<Leftovers>,
    blocks: Vec<Range<u64>>,
}

impl Farewell {
    /// These blocks are still to change; none when that is nothing to anybody.
    pub(super) fn new(
        host: &dyn Submit,
        head: HeadId,
        blocks: Vec<Range<u64>>,
    ) -> Option<Farewell> {
        let head = host.heads().iter().find(|view| view.id == head);
        let leftovers = Arc::clone(&head.filter(|_| !blocks.is_empty())?.leftovers);
        blocks.iter().for_each(|blocks| leftovers.begin_leaving(blocks));
        Some(Farewell { leftovers, blocks })
    }

    /// Whether what somebody else has left behind may undo what this one of the client's own
    /// requests does. (What others who leave have still to do was asked for beside it.)
    pub(super) fn may_be_undone_by_others(&self, op: &RequestOp) -> bool {
        op.changes().is_some_and(|blocks| self.leftovers.gone_touch(&blocks))
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.blocks.iter().for_each(|blocks| self.leftovers.end_leaving(blocks));
    }
}

impl Transfer {
    /// The client leaves. What it has asked for is done, and waited for by others: whether it is
    /// there to hear of it nobody knows.
    pub(in super::super) fn bid_farewell(&mut self, host: &dyn Submit) {
        let block = u64::from(self.device.block_bytes);
        let changing = self.requests.iter().filter(|it| it.op.changes() && !it.is_over());
        let blocks = changing
            .map(|it| it.offset / block..(it.offset + u64::from(it.bytes)).div_ceil(block))
            .collect();
        self.failures.bids_farewell();
        self.leaves = true;
        self.farewell = Farewell::new(host, self.device.head, blocks);
    }

    /// If nothing is left of what the client had asked for when it left, that has ended.
    pub(super) fn end_farewell(&mut self) {
        if self.is_done() {
            self.farewell = None;
        }
    }

    /// Whether what it has asked for is to be done though nobody waits for answers.
    pub(in super::super) fn leaves(&self) -> bool {
        self.leaves
    }

    /// Nothing waits, and the host has nothing.
    pub(in super::super) fn is_done(&self) -> bool {
        self.at_host == 0 && self.waiting.is_empty()
    }

    /// From now on nothing is answered; what is ready may still leave. Nor is anything done any
    /// more that waits, unless the client has said that it leaves.
    pub(in super::super) fn mute(&mut self, memory: &mut Memory<'_>) {
        self.muted = true;
        for index in std::mem::take(&mut self.waiting) {
            let request = self.pieces.get(index).and_then(|it| self.requests.get(it.slot));
            if self.leaves && request.is_some_and(|request| request.op != Op::Read) {
                self.waiting.push_back(index);
            } else {
                self.release(index, memory);
            }
        }
    }

    /// What waits is not done, whatever its client has said.
    pub(in super::super) fn give_up_on_it(&mut self, memory: &mut Memory<'_>) {
        self.leaves = false;
        self.mute(memory);
    }

    /// The connection is gone, nothing outside names its buffers: all come back except those of
    /// what is still to be done, which come back as that ends.
    pub(in super::super) fn closed(&mut self, memory: &mut Memory<'_>) {
        self.mute(memory);
        self.queue.clear();
        self.sent.clear();
        for index in 0..MAX_PIECES as u16 {
            let is_done = |it: &Piece| matches!(it.stage, Stage::Filling | Stage::Replying);
            if self.pieces.get(index).is_some_and(is_done) {
                self.release(index, memory);
            }
        }
    }

    /// The client may come back: what the host has not sent is not to be sent any more.
    pub(in super::super) fn withdraw(&self, host: &mut dyn Submit) {
        if self.at_host > 0 {
            let client = u64::from(self.key);
            host.withdraw(self.device.head, &|tag| tag >> 16 == client);
        }
    }
}
