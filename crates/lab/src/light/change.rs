//! What happens to paths while a run goes on.

use super::events::What;
use super::ledgers::rank;
use super::links::Way;
use super::port::{Condition, bytes_in, bytes_out};
use super::sim::Sim;
use super::slots::{List, NONE, Stage};
use crate::scenario::{Alteration, AnaState, PathState};
use anabranch_policy::{AnaRank, failed_over, rejoined};
use anabranch_target::link::Shape;

impl Sim<'_> {
    pub(super) fn change(&mut self, index: usize) {
        let scenario = self.cell.scenario;
        let change = &scenario.changes[index];
        let path = change.path;
        match &change.what {
            Alteration::Shape(shape) => self.reshape(path, shape),
            Alteration::Brownout(brownout) => self.ports[path].brownout = *brownout,
            Alteration::Ana(ana) => self.set_ana(path, *ana),
            Alteration::State(PathState::Up) => self.bring_up(path),
            Alteration::State(PathState::Cut) => self.cut(path),
            Alteration::State(PathState::Silent) => {
                let port = &mut self.ports[path];
                if port.condition == Condition::Up {
                    port.condition = Condition::Silent;
                    port.spell += 1;
                    let at = self.now.saturating_add(scenario.hosts.detect_ns);
                    self.events.plan(at, What::Detect, path as u32, port.spell);
                }
            }
        }
    }

    /// Hosts notice a silence, unless it was over before.
    pub(super) fn detect(&mut self, path: usize, spell: u32) {
        let port = &self.ports[path];
        if port.condition == Condition::Silent && port.spell == spell {
            self.cut(path);
        }
    }

    /// New links, also for what waited for the old ones.
    fn reshape(&mut self, path: usize, shape: &Shape) {
        self.ports[path].reshape(shape, self.now);
        self.serve_link(path, Way::In);
        self.serve_link(path, Way::Out);
    }

    /// Whether a link carries it at this moment.
    fn is_on_link(&self, slot: u32, path: usize) -> bool {
        let entry = &self.slots[slot as usize];
        entry.is_on_path(path)
            && matches!(entry.stage, Stage::Inbound | Stage::Outbound)
            && entry.leaves_ns > self.now
    }

    /// What is planned for it does not happen, and the link has not carried it.
    fn take_off_link(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.generation += 1;
        let port = &mut self.ports[usize::from(entry.path)];
        match entry.stage {
            Stage::Inbound => port.inbound.bytes -= bytes_in(entry.op, entry.bytes),
            _ => port.outbound.bytes -= bytes_out(entry.op, entry.bytes),
        }
    }

    fn set_ana(&mut self, path: usize, ana: AnaState) {
        self.ports[path].ana = ana;
        self.tell_hosts(path);
        if ana != AnaState::Inaccessible {
            return;
        }
        for queue in (path..self.queues.len()).step_by(self.ports.len()) {
            self.take_all_back(queue, path);
        }
    }

    /// A command has reached a path that is inaccessible: it is dispatched again.
    pub(super) fn refuse(&mut self, slot: u32, path: usize) {
        self.take_back(slot, path);
        self.free_tag(slot);
        let entry = &mut self.slots[slot as usize];
        if entry.thread == NONE {
            entry.stage = Stage::Idle;
            return self.free.push(&mut self.slots, slot);
        }
        self.submit(slot);
    }

    fn bring_up(&mut self, path: usize) {
        let port = &mut self.ports[path];
        port.spell += 1;
        match std::mem::replace(&mut port.condition, Condition::Up) {
            Condition::Up => {}
            Condition::Silent => {
                // Nobody has noticed: what was held goes on.
                let held = std::mem::take(&mut port.held);
                for (what, slot, generation) in held {
                    if self.slots[slot as usize].generation != generation {
                        continue;
                    }
                    match what {
                        What::Arrive => self.enter(slot),
                        What::Executed => self.reply_departs(slot),
                        _ => self.receive(slot),
                    }
                }
            }
            Condition::Cut => {
                port.fresh_links(self.now);
                for worker in &self.workers {
                    rejoined(&self.cell.variant.parameters, worker.paths[path].load);
                }
                self.tell_hosts(path);
            }
        }
    }

    /// The connections of a path are gone: its commands are dispatched again, the path is out.
    fn cut(&mut self, path: usize) {
        if self.ports[path].condition == Condition::Cut {
            return;
        }
        let mut lost = false;
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].is_on_path(path) {
                lost = true;
                self.lose(slot, path);
            }
        }
        let port = &mut self.ports[path];
        port.condition = Condition::Cut;
        port.spell += 1;
        port.held.clear();
        port.fresh_links(self.now);
        for queue in self.queues.iter_mut().skip(path).step_by(self.ports.len()) {
            queue.free = self.cell.scenario.hosts.tags();
            queue.waiting = List::EMPTY;
        }
        self.tell_hosts(path);
        if !lost {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            if self.slots[slot as usize].stage == Stage::Lost {
                self.submit(slot);
            }
        }
    }

    fn lose(&mut self, slot: u32, path: usize) {
        if self.is_on_link(slot, path) {
            self.take_off_link(slot);
        }
        let entry = &mut self.slots[slot as usize];
        entry.generation += 1;
        entry.stage = Stage::Lost;
        let worker = &mut self.workers[entry.worker as usize];
        let load = worker.paths[path].load;
        let charge = entry.charge.take();
        anabranch_policy::finish(charge, load);
        if entry.thread == NONE {
            entry.stage = Stage::Idle;
            return self.free.push(&mut self.slots, slot);
        }
        worker.selector.forget_path(path);
        failed_over(&self.cell.variant.parameters, load);
        self.books.commands_lost += 1;
        self.ports[path].in_flight.down(self.now);
    }

    /// All workers learn what a path is worth now, and try again what waits for a path.
    fn tell_hosts(&mut self, path: usize) {
        let port = &self.ports[path];
        let (usable, rank) = (port.is_usable(), rank(port.ana));
        let parameters = &self.cell.variant.parameters;
        // As in the host, a path is not dropped for its ANA state alone.
        let is_kept = parameters.kernel_exact && port.condition != Condition::Cut;
        for worker in &mut self.workers {
            let it = &mut worker.paths[path];
            let was_optimized = it.usable && it.rank == AnaRank::Optimized;
            (it.usable, it.rank) = (usable, rank);
            if usable && rank == AnaRank::Optimized && !was_optimized {
                worker.selector.path_live(parameters, &worker.paths);
            }
            if !usable && !is_kept {
                worker.selector.forget_path(path);
            }
        }
        if !usable {
            return;
        }
        for worker in 0..self.workers.len() {
            let mut list = std::mem::replace(&mut self.workers[worker].requeue, List::EMPTY);
            while let Some(slot) = list.pop(&self.slots) {
                self.submit(slot);
            }
        }
    }
}
