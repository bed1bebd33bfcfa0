//! One direction of a port: a [`Link`] that all connections of the port share fairly.
//!
//! Each connection has a lane, and lanes take turns ([`Turns`]). What the link has served is in
//! transit until its time comes. Nothing here holds bytes: entries name a command of a lane.
//!
//! Bounded: a lane holds at most one entry per command slot of its connection.

use crate::link::{Link, Shape, Turns};
use crate::rng::Rng;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use core::cmp::Reverse;
use core::time::Duration;

/// From so many entries on, those of connections that are gone are dropped when they are half.
const SWEEP: usize = 4096;

/// Something that waits for the link.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    slot: u16,
    extra: Duration,
    since: Time,
}

#[derive(Clone, Debug, Default)]
struct Lane {
    /// Bumped when the connection goes: what is in transit for the old one is dropped.
    generation: u32,
    /// Entries of the present connection in transit.
    in_transit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Transit {
    at: Time,
    order: u64,
    lane: u32,
    generation: u32,
    slot: u16,
}

/// One direction of a port.
#[derive(Debug)]
pub(crate) struct Pipe {
    link: Link,
    lanes: Vec<Lane>,
    turns: Turns<Waiting>,
    transit: BinaryHeap<Reverse<Transit>>,
    order: u64,
    /// Entries in transit whose connection is gone.
    stale: usize,
}

impl Pipe {
    pub(crate) fn new(link: Link) -> Pipe {
        Pipe {
            link,
            lanes: Vec::new(),
            turns: Turns::default(),
            transit: BinaryHeap::new(),
            order: 0,
            stale: 0,
        }
    }

    /// Whether an entry would come out at once, so that it need not go in.
    pub(crate) fn is_transparent(&self) -> bool {
        self.link.is_transparent() && self.turns.is_empty() && self.transit.is_empty()
    }

    /// Makes room for a connection's lane with up to `slots` entries.
    pub(crate) fn attach(&mut self, lane: u32, slots: u16) {
        let index = lane as usize;
        if self.lanes.len() <= index {
            self.lanes.resize(index + 1, Lane::default());
        }
        self.turns.attach(lane);
        self.widen(lane, slots);
    }

    /// The connection may have this many commands from now on.
    pub(crate) fn widen(&mut self, lane: u32, slots: u16) {
        if !self.link.is_transparent() {
            self.turns.reserve(lane, usize::from(slots));
            self.transit.reserve(usize::from(slots));
        }
    }

    /// Drops everything of a connection.
    pub(crate) fn detach(&mut self, lane: u32) {
        self.turns.clear(lane);
        if let Some(lane) = self.lanes.get_mut(lane as usize) {
            lane.generation = lane.generation.wrapping_add(1);
            self.stale += core::mem::take(&mut lane.in_transit);
        }
        if self.transit.len() >= SWEEP && self.stale > self.transit.len() / 2 {
            let lanes = &self.lanes;
            self.transit
                .retain(|Reverse(entry)| lanes[entry.lane as usize].generation == entry.generation);
            self.stale = 0;
        }
    }

    /// Another shape from now on; what waits goes by the new one, what is in transit stays.
    pub(crate) fn replace(&mut self, link: Link) {
        self.link = link;
    }

    /// Hands `bytes` bytes of a command to the link; `extra` delays the arrival further.
    pub(crate) fn push(&mut self, now: Time, lane: u32, slot: u16, bytes: u64, extra: Duration) {
        self.turns.push(lane, bytes, Waiting { slot, extra, since: now });
    }

    /// Lets the link serve what it could have begun to serve by now.
    pub(crate) fn serve(&mut self, now: Time, rng: &mut Rng) {
        while self.link.free_at() <= now {
            let Some((lane, bytes, Waiting { slot, extra, since })) = self.turns.pop() else {
                break;
            };
            let at = self.link.depart(since, bytes, rng).after(extra);
            let entry = &mut self.lanes[lane as usize];
            entry.in_transit += 1;
            let generation = entry.generation;
            let order = self.order;
            self.order += 1;
            self.transit.push(Reverse(Transit { at, order, lane, generation, slot }));
        }
    }

    /// The next entry that has arrived: its lane and slot.
    pub(crate) fn arrived(&mut self, now: Time) -> Option<(u32, u16)> {
        while let Some(Reverse(first)) = self.transit.peek().copied() {
            let stale = self.lanes[first.lane as usize].generation != first.generation;
            if !stale && first.at > now {
                return None;
            }
            self.transit.pop();
            if !stale {
                self.lanes[first.lane as usize].in_transit -= 1;
                return Some((first.lane, first.slot));
            }
            self.stale -= 1;
        }
        None
    }

    /// When to call again.
    pub(crate) fn next(&self) -> Option<Time> {
        let serve = (!self.turns.is_empty()).then(|| self.link.free_at());
        let arrive = self.transit.peek().map(|first| first.0.at);
        match (serve, arrive) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Both directions of a port.
#[derive(Debug)]
pub(crate) struct Shaper {
    pub(crate) shape: Shape,
    pub(crate) inbound: Pipe,
    pub(crate) outbound: Pipe,
}

impl Shaper {
    pub(crate) fn new(shape: Shape, now: Time) -> Shaper {
        let inbound = Pipe::new(Link::inbound(&shape, now));
        let outbound = Pipe::new(Link::outbound(&shape, now));
        Shaper { shape, inbound, outbound }
    }

    pub(crate) fn reshape(&mut self, shape: Shape, now: Time) {
        self.inbound.replace(Link::inbound(&shape, now));
        self.outbound.replace(Link::outbound(&shape, now));
        self.shape = shape;
    }

    pub(crate) fn next(&self) -> Option<Time> {
        match (self.inbound.next(), self.outbound.next()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests;
