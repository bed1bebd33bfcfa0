//! The run: one command's way, from its start to its reply.

use super::events::{Event, Events, What};
use super::ledgers::Ledgers;
use super::level::Level;
use super::links::Way;
use super::port::{Condition, Port, charged};
use super::record::{Ended, Record};
use super::slots::{List, NONE, Slot, Stage};
use super::station::Station;
use crate::cell::Cell;
use crate::figures::{Books, Figures, SERIES_NS};
use crate::pace::{self, Chains, Source, Thread};
use crate::rng::Rng;
use crate::scenario::{AnaState, Arrival, Distribution, Stolen};
use anabranch_policy::{
    Candidate, OpClass, Sampled, Selector, compute_weights, finish, sample, start, start_probe,
};

/// The most requests that an open loop may leave open, beside those of closed loops.
const MAX_OPEN: u64 = 2_000_000;

/// One worker of one host: what it knows about the paths, and which queue pairs it uses.
pub(super) struct Worker<'a> {
    pub(super) selector: Selector,
    pub(super) paths: Vec<Candidate<'a>>,
    /// The first of its queue pairs, one per path.
    pub(super) queues: u32,
    /// Requests that found no usable path.
    pub(super) requeue: List,
    host: u32,
    /// What burners take of its time.
    stolen: Stolen,
}

/// A queue pair; several workers may share one.
#[derive(Clone, Copy)]
pub(super) struct Queue {
    /// Tags.
    pub(super) free: u32,
    /// Commands without one.
    pub(super) waiting: List,
}

/// All that a run changes.
pub(super) struct Sim<'a> {
    pub(super) cell: Cell<'a>,
    pub(super) now: u64,
    pub(super) events: Events,
    pub(super) slots: Vec<Slot>,
    /// Free slots of open loops and probes.
    pub(super) free: List,
    pub(super) workers: Vec<Worker<'a>>,
    /// Host by host, path by path for each set of queue pairs.
    pub(super) queues: Vec<Queue>,
    pub(super) ports: Vec<Port>,
    /// One, or one per path.
    stations: Vec<Station>,
    threads: Vec<Thread>,
    sources: Vec<Source>,
    service: Rng,
    open: Level,
    record: Record,
    pub(super) books: Books,
}

impl<'a> Sim<'a> {
    pub(super) fn new(cell: Cell<'a>, ledgers: &'a Ledgers) -> Sim<'a> {
        let mut chains = Chains::new(cell.seed, cell.paths().len());
        let (hosts, target) = (&cell.scenario.hosts, &cell.scenario.target);
        let queues_per_host = cell.variant.queues(hosts);
        let lanes = hosts.count * queues_per_host;
        let ports: Vec<Port> = cell
            .paths()
            .iter()
            .zip(&chains.ports)
            .map(|(path, seeds)| Port::new(path, *seeds, lanes))
            .collect();
        let stolen = Stolen::of_workers(cell.scenario, cell.seed);
        let mut workers = Vec::new();
        for host in 0..hosts.count {
            for worker in 0..cell.workers() {
                workers.push(Worker {
                    selector: Selector::new(),
                    paths: ledgers.candidates(cell, host as usize, worker),
                    queues: (host * queues_per_host + worker as u32 % queues_per_host)
                        * cell.paths().len() as u32,
                    requeue: List::EMPTY,
                    host,
                    stolen: stolen.get(workers.len()).copied().unwrap_or_default(),
                });
            }
        }
        let pairs = lanes as usize * cell.paths().len();
        let mut sim = Sim {
            cell,
            now: 0,
            events: Events::default(),
            slots: Vec::new(),
            free: List::EMPTY,
            workers,
            queues: vec![Queue { free: hosts.tags(), waiting: List::EMPTY }; pairs],
            ports,
            stations: Vec::new(),
            threads: Vec::new(),
            sources: Vec::new(),
            service: chains.service,
            open: Level::default(),
            record: Record::new(cell),
            books: Books::default(),
        };
        sim.add_load(&mut chains.load);
        let stations = if target.per_path { cell.paths().len() } else { 1 };
        let slots = sim.slots.len();
        sim.stations = (0..stations).map(|_| Station::new(target, slots)).collect();
        // One event per request and a few others.
        sim.events = Events::with_capacity(slots + cell.scenario.changes.len() + 64);
        sim
    }

    /// The threads of all hosts, each with a chain of draws of its own: what it asks for does not
    /// depend on the policy.
    fn add_load(&mut self, rng: &mut Rng) {
        let workers = self.cell.workers() as u32;
        let jobs = &self.cell.scenario.jobs;
        for host in 0..self.cell.scenario.hosts.count {
            let first = self.threads.len() as u32;
            let load = pace::load_of_host(jobs, workers, rng);
            for mut thread in load.threads {
                thread.worker += host * workers;
                let job = &jobs[thread.job as usize];
                if job.arrival == Arrival::Closed {
                    let slot = Slot::new(self.threads.len() as u32, thread.worker);
                    self.slots.extend((0..job.depth).map(|_| slot.clone()));
                }
                self.threads.push(thread);
            }
            for mut source in load.sources {
                source.first_thread += first;
                self.sources.push(source);
            }
        }
    }

    /// From the first request to the end of the window.
    pub(super) fn run(mut self, ledgers: &Ledgers) -> Figures {
        let cell = self.cell;
        self.events.plan(cell.scenario.run.ramp_ns, What::Measure, 0, 0);
        self.events.plan(cell.end_ns(), What::End, 0, 0);
        for index in 0..cell.scenario.changes.len() {
            self.events.plan(cell.change_ns(index), What::Change, index as u32, 0);
        }
        self.events.plan(SERIES_NS, What::Window, 0, 0);
        for slot in 0..self.slots.len() as u32 {
            self.next_request(slot);
        }
        for source in 0..self.sources.len() as u32 {
            self.plan_arrival(source);
        }
        self.plan_looks();
        while let Some(event) = self.events.next() {
            self.now = event.at_ns;
            match event.what() {
                What::Replied => self.replied(event),
                What::Handled => self.handled(event),
                What::Dispatch => self.dispatch(event.slot),
                What::Arrive => self.arrive(event),
                What::Executed => self.executed(event),
                What::FreeIn => self.link_is_free(event.slot as usize, Way::In, event.generation),
                What::FreeOut => self.link_is_free(event.slot as usize, Way::Out, event.generation),
                What::Start => self.start(event.slot),
                What::Intended => self.intended(event.slot),
                What::Change => self.change(event.slot as usize),
                What::Detect => self.detect(event.slot as usize, event.generation),
                What::Look => self.look(event.slot),
                What::Window => {
                    self.record.end_window(self.now, &self.ports);
                    self.events.plan(self.now + SERIES_NS, What::Window, 0, 0);
                }
                What::Measure => self.record.begin(self.now, &self.ports),
                What::End => break,
            }
        }
        self.end(ledgers)
    }

    /// Draws what the thread of this slot does next, and starts it now or when it may.
    fn next_request(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let thread = &mut self.threads[entry.thread as usize];
        let job = &self.cell.scenario.jobs[thread.job as usize];
        let asked = thread.next(job, self.now);
        (entry.op, entry.bytes) = (asked.op, asked.bytes);
        let at = match job.arrival {
            Arrival::Closed => asked.at_ns,
            Arrival::Poisson { .. } => self.now,
        };
        if at > self.now {
            self.events.plan(at, What::Start, slot, 0);
        } else {
            self.start(slot);
        }
    }

    /// A request begins.
    fn start(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.start_ns = self.now;
        self.books.requests_started += 1;
        self.books.bytes_started += u64::from(entry.bytes);
        self.open.up(self.now);
        self.submit(slot);
    }

    /// The worker dispatches a request as soon as it has the CPU.
    pub(super) fn submit(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let at = self.workers[entry.worker as usize].stolen.free_at(self.now);
        if at == self.now {
            return self.dispatch(slot);
        }
        entry.stage = Stage::Delayed;
        self.events.plan(at, What::Dispatch, slot, 0);
    }

    fn plan_arrival(&mut self, index: u32) {
        let at = self.sources[index as usize].next_ns();
        self.events.plan(at, What::Intended, index, 0);
    }

    /// A request of an open loop is meant to start now.
    fn intended(&mut self, index: u32) {
        let thread = self.sources[index as usize].next_thread();
        let worker = self.threads[thread as usize].worker;
        let slot = match self.free.pop(&self.slots) {
            Some(slot) => {
                let entry = &mut self.slots[slot as usize];
                (entry.thread, entry.worker) = (thread, worker);
                Some(slot)
            }
            None if (self.slots.len() as u64) < MAX_OPEN => {
                self.slots.push(Slot::new(thread, worker));
                Some(self.slots.len() as u32 - 1)
            }
            None => None,
        };
        match slot {
            Some(slot) => self.next_request(slot),
            None => self.books.requests_refused += 1,
        }
        self.plan_arrival(index);
    }

    /// Chooses a path; without one the request waits until there is.
    pub(super) fn dispatch(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let worker = &mut self.workers[entry.worker as usize];
        let parameters = &self.cell.variant.parameters;
        let bytes = charged(entry.op, entry.bytes);
        let choice = worker.selector.select(parameters, &worker.paths, entry.op, bytes, self.now);
        let Some(choice) = choice else {
            entry.stage = Stage::Requeued;
            return worker.requeue.push(&mut self.slots, slot);
        };
        self.carry(slot, choice.index);
    }

    /// Gives a request's command to a path.
    pub(super) fn carry(&mut self, slot: u32, path: usize) {
        let entry = &mut self.slots[slot as usize];
        let worker = &mut self.workers[entry.worker as usize];
        let parameters = &self.cell.variant.parameters;
        entry.path = path as u16;
        if !parameters.charged_at_start() {
            let load = worker.paths[path].load;
            let bytes = charged(entry.op, entry.bytes);
            entry.charge = start(parameters, load, entry.op, bytes, self.now);
        }
        self.books.commands_started += 1;
        self.ports[path].in_flight.up(self.now);
        if let Some(path) = worker.selector.take_probe() {
            let (worker, bytes) = (entry.worker, entry.bytes);
            self.probe(worker, path, bytes);
        }
        let entry = &mut self.slots[slot as usize];
        let worker = &self.workers[entry.worker as usize];
        let queue = &mut self.queues[worker.queues as usize + path];
        if queue.free == 0 {
            entry.stage = Stage::Waiting;
            return queue.waiting.push(&mut self.slots, slot);
        }
        queue.free -= 1;
        self.send(slot);
    }

    /// A read that nobody waits for, when there is a tag for it.
    #[cold]
    fn probe(&mut self, index: u32, path: usize, bytes: u32) {
        let worker = &self.workers[index as usize];
        let queue = &mut self.queues[worker.queues as usize + path];
        if queue.free == 0 {
            return;
        }
        queue.free -= 1;
        let slot = self.free.pop(&self.slots).unwrap_or_else(|| {
            self.slots.push(Slot::new(NONE, index));
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        (entry.thread, entry.worker, entry.path) = (NONE, index, path as u16);
        (entry.op, entry.bytes, entry.start_ns) = (OpClass::Read, bytes, self.now);
        entry.charge = start_probe(worker.paths[path].load, bytes, self.now);
        self.command_departs(slot);
    }

    /// A command has its tag.
    fn send(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let parameters = &self.cell.variant.parameters;
        if parameters.charged_at_start() {
            let load = self.workers[entry.worker as usize].paths[usize::from(entry.path)].load;
            let bytes = charged(entry.op, entry.bytes);
            entry.charge = start(parameters, load, entry.op, bytes, self.now);
        }
        self.command_departs(slot);
    }

    /// Whether what was planned for a command happens: it was not lost, its path not silent.
    fn is_due(&mut self, event: Event) -> bool {
        let entry = &self.slots[event.slot as usize];
        if entry.generation != event.generation {
            return false;
        }
        let port = &mut self.ports[usize::from(entry.path)];
        if port.condition == Condition::Up {
            return true;
        }
        port.held.push((event.what(), event.slot, event.generation));
        false
    }

    pub(super) fn arrive(&mut self, event: Event) {
        if self.is_due(event) {
            self.enter(event.slot);
        }
    }

    /// A command is at the target.
    pub(super) fn enter(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let path = usize::from(entry.path);
        if self.ports[path].ana == AnaState::Inaccessible {
            return self.refuse(slot, path);
        }
        entry.stage = Stage::Served;
        let station = path.min(self.stations.len() - 1);
        let generation = entry.generation;
        if self.stations[station].enter(slot, generation) {
            self.execute(station, slot, generation);
        }
    }

    fn execute(&mut self, station: usize, slot: u32, generation: u32) {
        let mut time = self.cell.service_ns(self.slots[slot as usize].op);
        if self.cell.scenario.target.distribution == Distribution::Exponential {
            time = pace::exponential_ns(&mut self.service, time);
        }
        let at = self.now + time;
        self.events.plan_at_station(at, What::Executed, station, slot, generation);
    }

    /// A server is free again, whatever has become of the command.
    fn executed(&mut self, event: Event) {
        let station = event.station();
        if self.is_due(event) {
            self.reply_departs(event.slot);
        }
        while let Some((slot, generation)) = self.stations[station].next() {
            if self.slots[slot as usize].generation == generation {
                self.execute(station, slot, generation);
                break;
            }
        }
    }

    fn replied(&mut self, event: Event) {
        if self.is_due(event) {
            self.receive(event.slot);
        }
    }

    /// A reply is at the host: the worker handles it as soon as it has the CPU.
    pub(super) fn receive(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        let at = self.workers[entry.worker as usize].stolen.free_at(self.now);
        if at == self.now {
            return self.complete(slot);
        }
        self.events.plan(at, What::Handled, slot, entry.generation);
    }

    fn handled(&mut self, event: Event) {
        if self.slots[event.slot as usize].generation == event.generation {
            self.complete(event.slot);
        }
    }

    /// A command has ended well: so has its request.
    fn complete(&mut self, slot: u32) {
        let now = self.now;
        let entry = &mut self.slots[slot as usize];
        let path = usize::from(entry.path);
        let worker = &mut self.workers[entry.worker as usize];
        let parameters = &self.cell.variant.parameters;
        let (charge, load) = (entry.charge.take(), worker.paths[path].load);
        finish(charge, load);
        if parameters.policy.measures()
            && let Sampled::BatchClosed(group) =
                sample(parameters, charge, load, worker.paths.len(), now)
        {
            compute_weights(parameters, &worker.paths, group);
        }
        entry.stage = Stage::Idle;
        if entry.thread == NONE {
            self.free_tag(slot);
            return self.free.push(&mut self.slots, slot);
        }
        let (latency, op, bytes) = (now - entry.start_ns, entry.op, entry.bytes);
        let host = worker.host as usize;
        self.books.requests_ended += 1;
        self.books.bytes_ended += u64::from(bytes);
        self.books.latency_ns += latency;
        self.books.commands_ended += 1;
        self.open.down(now);
        self.ports[path].in_flight.down(now);
        let job = self.threads[self.slots[slot as usize].thread as usize].job as usize;
        self.record.ended(Ended { path, host, job, op, bytes }, latency);
        self.free_tag(slot);
        match self.cell.scenario.jobs[job].arrival {
            Arrival::Closed => self.next_request(slot),
            Arrival::Poisson { .. } => self.free.push(&mut self.slots, slot),
        }
    }

    /// The tag of a command goes to the one that waits for it the longest.
    pub(super) fn free_tag(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        let first = self.workers[entry.worker as usize].queues as usize;
        let queue = &mut self.queues[first + usize::from(entry.path)];
        match queue.waiting.pop(&self.slots) {
            Some(next) => self.send(next),
            None => queue.free += 1,
        }
    }

    /// Closes the books: what is open is counted, and its charges are returned.
    fn end(mut self, ledgers: &Ledgers) -> Figures {
        let now = self.now;
        for index in 0..self.slots.len() {
            let entry = &mut self.slots[index];
            if entry.stage == Stage::Idle {
                continue;
            }
            if entry.thread == NONE {
                let path = usize::from(entry.path);
                finish(entry.charge.take(), self.workers[entry.worker as usize].paths[path].load);
                continue;
            }
            self.books.requests_open += 1;
            self.books.bytes_open += u64::from(entry.bytes);
            self.books.open_ns += now - entry.start_ns;
            if !matches!(entry.stage, Stage::Requeued | Stage::Delayed) {
                self.books.commands_open += 1;
                let path = usize::from(entry.path);
                finish(entry.charge.take(), self.workers[entry.worker as usize].paths[path].load);
            }
        }
        self.books.in_flight_ns = self.open.area(now);
        (self.books.charged_commands, self.books.charged_bytes) = ledgers.charged();
        self.record.end(now, &self.ports, self.books)
    }
}

const _: () = assert!(NONE as u64 > MAX_OPEN);
