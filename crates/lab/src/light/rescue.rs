//! What is stuck on a path that has fallen silent goes by another one, as in the host.

use super::events::What;
use super::sim::Sim;
use super::slots::{List, NONE, Slot, Stage};
use anabranch_policy::{Charge, OpClass, Policy, overdue_at_ns};

/// Paths are looked at as often as this, ns, and when one is overdue.
const LOOK_NS: u64 = 50_000_000;
/// What could not be sent elsewhere is tried again after this, ns.
const AGAIN_NS: u64 = 10_000_000;

impl Sim<'_> {
    /// Every worker looks at its paths from now on, if its policy takes anything off them.
    pub(super) fn plan_looks(&mut self) {
        if self.cell.variant.parameters.policy == Policy::FinishTime {
            for worker in 0..self.workers.len() as u32 {
                self.events.plan(self.now + LOOK_NS, What::Look, worker, 0);
            }
        }
    }

    /// A worker looks whether what it has in flight is overdue.
    pub(super) fn look(&mut self, worker: u32) {
        let mut next = self.now + LOOK_NS;
        for path in 0..self.ports.len() {
            match self.overdue_at_ns(worker, path) {
                Some(at_ns) if at_ns > self.now => next = next.min(at_ns),
                Some(_) => {
                    self.rescue(worker, path);
                    next = next.min(self.now + AGAIN_NS);
                }
                None => {}
            }
        }
        self.events.plan(next, What::Look, worker, 0);
    }

    fn overdue_at_ns(&self, worker: u32, path: usize) -> Option<u64> {
        overdue_at_ns(self.workers[worker as usize].paths[path].load)
    }

    fn rescue(&mut self, worker: u32, path: usize) {
        self.take_all_back(self.workers[worker as usize].queues as usize + path, path);
        // Without probes nothing is sent twice.
        if !self.cell.variant.parameters.finish_time.probes {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            let entry = &self.slots[slot as usize];
            let sent = matches!(entry.stage, Stage::Inbound | Stage::Served | Stage::Outbound);
            let read = entry.thread != NONE && entry.op == OpClass::Read;
            if sent && read && entry.worker == worker && entry.is_on_path(path) {
                self.send_again(slot, path);
            }
        }
    }

    /// What was never sent is dispatched again.
    pub(super) fn take_all_back(&mut self, queue: usize, path: usize) {
        let mut waiting = std::mem::replace(&mut self.queues[queue].waiting, List::EMPTY);
        while let Some(slot) = waiting.pop(&self.slots) {
            self.take_back(slot, path);
            self.submit(slot);
        }
    }

    /// A command was not executed.
    pub(super) fn take_back(&mut self, slot: u32, path: usize) {
        let entry = &mut self.slots[slot as usize];
        let load = self.workers[entry.worker as usize].paths[path].load;
        anabranch_policy::finish(entry.charge.take(), load);
        if entry.thread == NONE {
            return;
        }
        self.books.commands_lost += 1;
        self.ports[path].in_flight.down(self.now);
    }

    /// The request of a read goes on elsewhere, if there is a better path. Nobody waits for the
    /// command any more: its slot is free when it ends.
    fn send_again(&mut self, slot: u32, path: usize) {
        let entry = &self.slots[slot as usize];
        let (index, op, bytes) = (entry.worker, entry.op, entry.bytes);
        let worker = &mut self.workers[index as usize];
        let parameters = &self.cell.variant.parameters;
        let choice = worker.selector.select(parameters, &worker.paths, op, bytes, self.now);
        let Some(choice) = choice.filter(|choice| choice.index != path) else { return };
        if self.overdue_at_ns(index, choice.index).is_some_and(|at_ns| at_ns <= self.now) {
            return;
        }
        let entry = &mut self.slots[slot as usize];
        let request = Slot { charge: Charge::NONE, ..entry.clone() };
        entry.thread = NONE;
        self.books.commands_lost += 1;
        self.ports[path].in_flight.down(self.now);
        let slot = self.free.pop(&self.slots).unwrap_or_else(|| {
            self.slots.push(request.clone());
            self.slots.len() as u32 - 1
        });
        let generation = self.slots[slot as usize].generation;
        self.slots[slot as usize] = Slot { generation, ..request };
        self.carry(slot, choice.index);
    }
}
