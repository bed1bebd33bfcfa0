//! The table of requests, and lists through it.

use anabranch_policy::{Charge, OpClass};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nowhere: the slot is free, or its thread does something else.
    Idle,
    /// Burners have its worker's CPU.
    Delayed,
    /// No path is usable.
    Requeued,
    /// Its path is chosen; no tag is free there.
    Waiting,
    /// On its way to the target.
    Inbound,
    /// At the target.
    Served,
    /// Its reply is on its way.
    Outbound,
    /// Its path was cut; about to be dispatched again.
    Lost,
}

/// One request, which is one command.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// When it was meant to start.
    pub(super) start_ns: u64,
    /// When it has left the link that it is on, or was on last; 0 while it waits for one.
    pub(super) leaves_ns: u64,
    pub(super) charge: Charge,
    pub(super) thread: u32,
    pub(super) worker: u32,
    pub(super) bytes: u32,
    /// Raised when what is planned for it shall not happen.
    pub(super) generation: u32,
    /// Behind it in the list that it is in.
    pub(super) next: u32,
    pub(super) path: u16,
    pub(super) op: OpClass,
    pub(super) stage: Stage,
}

impl Slot {
    pub(super) fn new(thread: u32, worker: u32) -> Slot {
        Slot {
            start_ns: 0,
            leaves_ns: 0,
            charge: Charge::NONE,
            thread,
            worker,
            bytes: 0,
            generation: 0,
            next: NONE,
            path: 0,
            op: OpClass::Other,
            stage: Stage::Idle,
        }
    }

    /// Whether it is given to a path.
    pub(super) fn is_on_path(&self, path: usize) -> bool {
        let on =
            matches!(self.stage, Stage::Waiting | Stage::Inbound | Stage::Served | Stage::Outbound);
        on && usize::from(self.path) == path
    }
}

/// First come, first served.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl List {
    pub(super) const EMPTY: List = List { first: NONE, last: NONE };

    #[inline]
    pub(super) fn push(&mut self, slots: &mut [Slot], slot: u32) {
        slots[slot as usize].next = NONE;
        match self.last {
            NONE => self.first = slot,
            last => slots[last as usize].next = slot,
        }
        self.last = slot;
    }

    #[inline]
    pub(super) fn pop(&mut self, slots: &[Slot]) -> Option<u32> {
        if self.first == NONE {
            return None;
        }
        let slot = self.first;
        self.first = slots[slot as usize].next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(slot)
    }
}
