//! Taking requests in.

use super::Shard;
use super::command::Request as Entry;
use crate::topology::{HeadId, HeadView};
use crate::user::{Refused, Request, RequestOp, Submit};
use alloc::sync::Arc;
use anabranch_proto::machine::{Time, WorkerId};

impl Submit for Shard {
    fn submit(&mut self, now: Time, request: Request) -> Result<(), Refused> {
        if self.draining {
            return Err(Refused::NotHere);
        }
        let head = self.heads.get_mut(request.head.0);
        let head = head.filter(|head| !head.gone).ok_or(Refused::UnknownHead)?;
        request.op.check(&head.view)?;
        if head.zeroes_refused && matches!(request.op, RequestOp::WriteZeroes { .. }) {
            return Err(Refused::NotSupported);
        }
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
