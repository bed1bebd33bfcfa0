//! The commands that are under way on a queue: one entry per tag, named by CID.

use super::HostData;
use crate::nvme::sqe::Sqe;
use crate::nvme::status::Status;
use alloc::vec::Vec;

/// A command identifier: the tag in the low 12 bits, a generation in the high 4. The generation
/// changes with each use of the tag, so that an answer to an earlier command is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cid(pub u16);

impl Cid {
    const TAG_BITS: u32 = 12;

    pub(super) fn tag(self) -> u16 {
        self.0 & ((1 << Self::TAG_BITS) - 1)
    }

    fn next(self) -> Cid {
        Cid(self.0.wrapping_add(1 << Self::TAG_BITS))
    }
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its capsule waits to be put into a batch.
    Queued,
    /// Its capsule was put into a batch: the controller may know it.
    Sent,
    /// The controller has answered; its payload may still be in the batch under way.
    Answered,
}

/// What a controller has asked for and not yet got.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) ttag: u16,
    pub(super) offset: u32,
    pub(super) left: u32,
}

/// One command.
pub(super) struct Entry {
    pub(super) cid: Cid,
    pub(super) user: u64,
    /// As it is sent.
    pub(super) sqe: Sqe,
    pub(super) data: HostData,
    pub(super) in_capsule: bool,
    pub(super) stage: Stage,
    /// Payload in the batch that has not left yet.
    pub(super) in_batch: bool,
    /// Bytes of read data that have come, in order from the start.
    pub(super) received: u32,
    /// The last C2HData PDU has come.
    pub(super) last_seen: bool,
    /// A data digest did not match.
    pub(super) damaged: bool,
    /// Bytes of write data that the controller has asked for, in order from the start.
    pub(super) asked: u32,
    pub(super) grant: Option<Grant>,
    /// What the controller has answered, while a batch still names the payload.
    pub(super) status: Status,
    pub(super) result: u64,
}

/// All tags of a queue. The last one is outside the depth: for the event request.
pub(super) struct Tags {
    entries: Vec<Option<Entry>>,
    cids: Vec<Cid>,
    free: Vec<u16>,
    depth: u16,
}

impl Tags {
    pub(super) fn new(depth: u16) -> Tags {
        let count = depth + 1;
        Tags {
            entries: (0..count).map(|_| None).collect(),
            cids: (0..count).map(Cid).collect(),
            free: (0..depth).rev().collect(),
            depth,
        }
    }

    pub(super) fn free(&self) -> u16 {
        self.free.len() as u16
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<Cid> {
        let tag = self.free.pop()?;
        Some(self.fresh(tag))
    }

    /// The tag outside the depth, when it is free.
    pub(super) fn take_event_tag(&mut self) -> Option<Cid> {
        let tag = self.depth;
        if self.entries[usize::from(tag)].is_some() {
            return None;
        }
        Some(self.fresh(tag))
    }

    #[inline]
    fn fresh(&mut self, tag: u16) -> Cid {
        let cid = self.cids[usize::from(tag)].next();
        self.cids[usize::from(tag)] = cid;
        cid
    }

    #[inline]
    pub(super) fn put(&mut self, entry: Entry) {
        let tag = usize::from(entry.cid.tag());
        debug_assert!(self.entries[tag].is_none(), "a tag carries one command");
        self.entries[tag] = Some(entry);
    }

    /// The command with exactly this CID, generation included.
    #[inline]
    pub(super) fn get_mut(&mut self, cid: Cid) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(usize::from(cid.tag()))?.as_mut()?;
        (entry.cid == cid).then_some(entry)
    }

    #[inline]
    pub(super) fn get(&self, cid: Cid) -> Option<&Entry> {
        let entry = self.entries.get(usize::from(cid.tag()))?.as_ref()?;
        (entry.cid == cid).then_some(entry)
    }

    /// The command with this CID, which there is, has ended: its tag is free.
    #[inline]
    pub(super) fn release(&mut self, cid: Cid) {
        let tag = cid.tag();
        debug_assert!(self.get(cid).is_some(), "a tag is released once");
        self.entries[usize::from(tag)] = None;
        if tag < self.depth {
            self.free.push(tag);
        }
    }

    /// Any command that is left.
    pub(super) fn any(&self) -> Option<Cid> {
        self.entries.iter().flatten().map(|entry| entry.cid).next()
    }

    pub(super) fn len(&self) -> u16 {
        self.entries.iter().flatten().count() as u16
    }
}
