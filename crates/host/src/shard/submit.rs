//! Taking requests in.

use super::Shard;
use super::command::Request as Entry;
use crate::topology::{HeadId, HeadView};
use crate::user::{Refused, Request, RequestOp, Submit};
use alloc::sync::Arc;
use anabranch_proto::machine::{BufRef, Time, WorkerId};

impl Submit for Shard {
    fn submit(&mut self, now: Time, request: Request) -> Result<(), Refused> {
        if self.draining {
            return Err(Refused::NotHere);
        }
        let head = self.heads.get_mut(request.head.0);
        let head = head.filter(|head| !head.gone).ok_or(Refused::UnknownHead)?;
        check(&head.view, head.zeroes_refused, &request.op)?;
        let entry = || Entry {
            head: request.head,
            op: request.op,
            tag: request.tag,
            submitted: now,
            issued_blocks: 0,
            outstanding: 0,
            listed: true,
            error: None,
        };
        if !self.request_shares.has_room(head.requests, 1) {
            return Err(Refused::Full);
        }
        let key = self.requests.insert_with(entry).ok_or(Refused::Full)?;
        self.request_shares.take(&mut head.requests);
        if head.view.frozen > 0 {
            head.held.push_back(&mut self.requests, key);
        } else {
            head.enlist(key, &mut self.requests, &mut self.issuing);
        }
        Ok(())
    }

    fn withdraw(&mut self, head: HeadId, theirs: &dyn Fn(u64) -> bool) {
        self.mark_withdrawn(head, theirs);
    }

    fn may_be_undone(&self, head: HeadId, op: &RequestOp) -> bool {
        let Some(head) = self.heads.get(head.0) else { return false };
        let leftovers = &head.view.leftovers;
        leftovers.any() && op.changes().is_some_and(|blocks| leftovers.touch(&blocks))
    }

    fn heads(&self) -> &[Arc<HeadView>] {
        &self.topology.heads
    }

    fn worker(&self) -> WorkerId {
        self.me.id
    }

    fn workers(&self) -> u16 {
        self.workers
    }
}

impl Shard {
    /// Lets the requests in that came while the head was frozen.
    pub(super) fn release_held(&mut self, id: HeadId) {
        let Some(head) = self.heads.get_mut(id.0) else { return };
        while let Some(key) = head.held.pop_front(&mut self.requests) {
            head.enlist(key, &mut self.requests, &mut self.issuing);
        }
    }
}

fn check(head: &HeadView, zeroes_refused: bool, op: &RequestOp) -> Result<(), Refused> {
    let range = |lba: u64, blocks: u64| {
        let end = lba.checked_add(blocks);
        if blocks > 0 && end.is_some_and(|end| end <= head.blocks) {
            Ok(())
        } else {
            Err(Refused::OutOfRange)
        }
    };
    let payload = |blocks: u32, buf: BufRef| {
        let bytes = u64::from(blocks) * u64::from(head.block_bytes);
        if bytes == u64::from(buf.len()) { Ok(()) } else { Err(Refused::BufferLength) }
    };
    let supported = |yes: bool| if yes { Ok(()) } else { Err(Refused::NotSupported) };
    match *op {
        RequestOp::Read { lba, blocks, buf } => {
            range(lba, u64::from(blocks))?;
            payload(blocks, buf)
        }
        RequestOp::Write { lba, blocks, buf, .. } => {
            supported(!head.limits.read_only)?;
            range(lba, u64::from(blocks))?;
            payload(blocks, buf)
        }
        RequestOp::Compare { lba, blocks, buf } => {
            supported(head.limits.compare)?;
            range(lba, u64::from(blocks))?;
            payload(blocks, buf)
        }
        RequestOp::Flush => Ok(()),
        RequestOp::WriteZeroes { lba, blocks, .. } => {
            let offered = head.limits.max_write_zeroes_blocks > 0 && !zeroes_refused;
            supported(offered && !head.limits.read_only)?;
            range(lba, blocks)
        }
        RequestOp::Discard { lba, blocks } => {
            supported(head.limits.max_discard_blocks > 0 && !head.limits.read_only)?;
            range(lba, blocks)
        }
    }
}
