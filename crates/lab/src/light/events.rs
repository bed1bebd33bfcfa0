//! What is to happen, in order of time; at the same time in order of having been planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A command reaches the target.
    Arrive,
    /// A command is executed.
    Executed,
    /// The reply of a command reaches the host.
    Replied,
    /// The host handles that reply: it had no CPU for it before.
    Handled,
    /// The host dispatches a request, likewise.
    Dispatch,
    /// The inbound link has time for what waits for it: `slot` is the path.
    FreeIn,
    /// The outbound link, likewise.
    FreeOut,
    /// A thread's next request starts, in this slot.
    Start,
    /// A request of an open loop: `slot` is the job's place.
    Intended,
    /// `slot` is the place of the change.
    Change,
    /// Hosts notice that a path is silent: `slot` is the path.
    Detect,
    /// A worker looks for overdue commands: `slot` is the worker.
    Look,
    /// A window of the time series ends.
    Window,
    /// The ramp is over.
    Measure,
    /// The run is over.
    End,
}

const WHATS: [What; 15] = [
    What::Arrive,
    What::Executed,
    What::Replied,
    What::Handled,
    What::Dispatch,
    What::FreeIn,
    What::FreeOut,
    What::Start,
    What::Intended,
    What::Change,
    What::Detect,
    What::Look,
    What::Window,
    What::Measure,
    What::End,
];

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at_ns: u64,
    /// The number of the plan, below it the station, below that what happens.
    order: u64,
    pub(super) slot: u32,
    /// Of the slot, or of the link, when it was planned: a command that was lost meanwhile has
    /// another one.
    pub(super) generation: u32,
}

const WHAT_BITS: u32 = 4;
const STATION_BITS: u32 = 8;

impl Event {
    /// Where the server is that has executed the command.
    #[inline]
    pub(super) fn station(&self) -> usize {
        (self.order >> WHAT_BITS & ((1 << STATION_BITS) - 1)) as usize
    }

    #[inline]
    pub(super) fn what(&self) -> What {
        WHATS[(self.order & ((1 << WHAT_BITS) - 1)) as usize]
    }
}

impl Ord for Event {
    #[inline]
    fn cmp(&self, other: &Event) -> Ordering {
        // Turned around: the heap gives the largest first.
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl PartialOrd for Event {
    #[inline]
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Event>,
    planned: u64,
}

impl Events {
    pub(super) fn with_capacity(capacity: usize) -> Events {
        Events { heap: BinaryHeap::with_capacity(capacity), planned: 0 }
    }

    #[inline]
    pub(super) fn plan(&mut self, at_ns: u64, what: What, slot: u32, generation: u32) {
        self.plan_at_station(at_ns, what, 0, slot, generation);
    }

    #[inline]
    pub(super) fn plan_at_station(
        &mut self,
        at_ns: u64,
        what: What,
        station: usize,
        slot: u32,
        generation: u32,
    ) {
        self.planned += 1;
        let place = (station as u64) << WHAT_BITS | what as u64;
        let order = self.planned << (WHAT_BITS + STATION_BITS) | place;
        self.heap.push(Event { at_ns, order, slot, generation });
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Event> {
        self.heap.pop()
    }
}
