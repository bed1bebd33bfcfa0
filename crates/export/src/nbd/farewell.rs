//! A client that has said that it leaves.

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
        blocks.iter().for_each(|blocks| leftovers.begin(blocks));
        Some(Farewell { leftovers, blocks })
    }

    /// Whether what somebody else has left behind may undo what this one of the client's own
    /// requests does.
    pub(super) fn may_be_undone_by_others(&self, op: &RequestOp) -> bool {
        let Some(blocks) = op.changes() else { return false };
        let own = |its: &&Range<u64>| its.start < blocks.end && blocks.start < its.end;
        self.leftovers.listed(&blocks) > self.blocks.iter().filter(own).count()
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.blocks.iter().for_each(|blocks| self.leftovers.end(blocks));
    }
}
