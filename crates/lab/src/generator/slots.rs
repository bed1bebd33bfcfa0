//! The table of requests of one worker.

use anabranch_policy::OpClass;
use anabranch_proto::machine::BufRef;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The most requests of open loops that one worker keeps open. Arrivals that find so many are
/// refused and counted.
pub const MAX_OPEN: usize = 65_536;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nowhere: the slot is free.
    Free,
    /// Drawn; meant to start later.
    Planned,
    /// It has begun, and the host has not taken it yet.
    Ready,
    /// The host has it.
    InFlight,
}

/// One request. Times are nanoseconds since the beginning.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// When it was meant to start.
    pub(super) start_ns: u64,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    /// Payload; trims have none.
    pub(super) bytes: u32,
    /// The thread that it belongs to: its place among those of this worker.
    pub(super) lane: u32,
    pub(super) op: OpClass,
    pub(super) stage: Stage,
    /// As long as the longest payload that the slot may have; kept until the run is over.
    pub(super) buf: BufRef,
}

impl Slot {
    pub(super) fn new(lane: u32) -> Slot {
        Slot {
            start_ns: 0,
            lba: 0,
            blocks: 0,
            bytes: 0,
            lane,
            op: OpClass::Other,
            stage: Stage::Free,
            buf: BufRef::EMPTY,
        }
    }
}

/// Requests that are meant to start later, by time; at the same time in the order of planning.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    planned: u64,
}

impl Timers {
    pub(super) fn with_capacity(capacity: usize) -> Timers {
        Timers { heap: BinaryHeap::with_capacity(capacity), planned: 0 }
    }

    pub(super) fn plan(&mut self, at_ns: u64, slot: u32) {
        self.planned += 1;
        self.heap.push(Reverse((at_ns, self.planned, slot)));
    }

    /// When the next is due.
    #[inline]
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// The next that is due by then, and when it was meant to start.
    #[inline]
    pub(super) fn pop(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|Reverse((at_ns, _, slot))| (at_ns, slot))
    }
}
