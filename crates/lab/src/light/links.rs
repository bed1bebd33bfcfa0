//! The links of the ports: what is given to one that is busy waits for its turn.

use super::events::What;
use super::port::{bytes_in, bytes_out};
use super::sim::Sim;
use super::slots::Stage;

/// Which link of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    In,
    Out,
}

impl Sim<'_> {
    /// The inbound link takes a command.
    pub(super) fn command_departs(&mut self, slot: u32) {
        self.slots[slot as usize].stage = Stage::Inbound;
        self.give_to_link(slot, Way::In);
    }

    /// The outbound link takes a reply.
    pub(super) fn reply_departs(&mut self, slot: u32) {
        self.slots[slot as usize].stage = Stage::Outbound;
        self.give_to_link(slot, Way::Out);
    }

    /// The link carries it at once, or it waits in its queue pair's lane.
    fn give_to_link(&mut self, slot: u32, way: Way) {
        let entry = &mut self.slots[slot as usize];
        let path = usize::from(entry.path);
        let bytes = match way {
            Way::In => bytes_in(entry.op, entry.bytes),
            Way::Out => bytes_out(entry.op, entry.bytes),
        };
        let direction = self.ports[path].link(way);
        if direction.is_free(self.now) {
            return self.carry_by_link(slot, bytes, way);
        }
        entry.leaves_ns = 0;
        let lane = self.workers[entry.worker as usize].queues / self.ports.len() as u32;
        let direction = self.ports[path].link(way);
        let first = direction.turns.is_empty();
        direction.turns.push(lane, bytes, slot);
        if first {
            self.plan_turn(path, way);
        }
    }

    /// Plans when the next that waits for this link is carried.
    fn plan_turn(&mut self, path: usize, way: Way) {
        let direction = self.ports[path].link(way);
        let what = if way == Way::In { What::FreeIn } else { What::FreeOut };
        let (at, generation) = (direction.free_at_ns().max(self.now), direction.generation);
        self.events.plan(at, what, path as u32, generation);
    }

    /// A link may have finished with what it carried.
    pub(super) fn link_is_free(&mut self, path: usize, way: Way, generation: u32) {
        if self.ports[path].link(way).generation == generation {
            self.serve_link(path, way);
        }
    }

    /// The link carries what it can begin with now; the rest goes on waiting.
    pub(super) fn serve_link(&mut self, path: usize, way: Way) {
        loop {
            let direction = self.ports[path].link(way);
            if direction.turns.is_empty() {
                return;
            }
            if direction.free_at_ns() > self.now {
                return self.plan_turn(path, way);
            }
            if let Some((_, bytes, slot)) = direction.turns.pop() {
                self.carry_by_link(slot, bytes, way);
            }
        }
    }

    fn carry_by_link(&mut self, slot: u32, bytes: u64, way: Way) {
        let entry = &mut self.slots[slot as usize];
        let port = &mut self.ports[usize::from(entry.path)];
        let (what, extra) = match way {
            Way::In => (What::Arrive, port.extra_ns(entry.bytes)),
            Way::Out => (What::Replied, 0),
        };
        let (leaves, at) = port.link(way).depart(self.now, bytes);
        entry.leaves_ns = leaves;
        self.events.plan(at + extra, what, slot, entry.generation);
    }
}
