//! When writes and flushes were under way, on all workers: what flushes have made durable of what
//! others had written.

use crate::register::Extent;
use crate::wire::Settled;
use anabranch_proto::machine::Time;
use std::collections::BTreeSet;

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) asked: Time,
    pub(crate) ended: Time,
    pub(crate) nsid: u32,
    pub(crate) extent: Extent,
    /// It was acknowledged.
    pub(crate) well: bool,
    /// It was acknowledged, and is durable only when it was flushed.
    pub(crate) owed: bool,
}

/// All writes, and the flushes that went well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    pub(crate) writes: Vec<Span>,
    pub(crate) flushes: Vec<Span>,
}

impl Spans {
    pub(crate) fn add(&mut self, other: &Spans) {
        self.writes.extend(&other.writes);
        self.flushes.extend(&other.flushes);
    }

    /// What flushes have made durable of what was acknowledged before they were asked for, unless
    /// it was being written again.
    pub(crate) fn settled(&self) -> Vec<Settled> {
        let mut settled = Vec::new();
        for &Span { asked, ended, nsid, .. } in &self.flushes {
            let writes = || self.writes.iter().filter(|write| write.nsid == nsid);
            let before = writes().filter(|write| write.owed && write.ended < asked);
            let meanwhile = writes().filter(|write| write.asked <= ended && write.ended >= asked);
            let changed: BTreeSet<u64> = meanwhile.flat_map(|it| it.extent.lbas()).collect();
            let blocks: BTreeSet<u64> = before.flat_map(|it| it.extent.lbas()).collect();
            let blocks = blocks.difference(&changed);
            settled.extend(blocks.map(|&lba| Settled { asked, ended, nsid, lba }));
        }
        settled
    }

    /// Whether the block may hold a write that nobody was told has ended well: none is owed that.
    pub(crate) fn may_be_of_another(&self, settled: &Settled) -> bool {
        self.writes.iter().any(|write| {
            let before = write.nsid == settled.nsid && write.asked <= settled.ended;
            before && !write.well && write.extent.lbas().any(|lba| lba == settled.lba)
        })
    }
}
