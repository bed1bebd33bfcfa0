//! A controller whose ANA log is read in parts, and that changes, tells, fails and answers late as
//! chance has it. It masks its events as the specification has it: none follows another before the
//! log was read without RAE. Whatever happens, in the end the path is in the state of the log and
//! waits for nothing, and it is never in use again by a log that was begun before its ANA status.
//! `ANABRANCH_SEEDS` says how many seeds, `ANABRANCH_FIRST_SEED` which is the first.

use crate::ana_parts::large;
use crate::fake::{Command, Say};
use crate::rig::{ANA_CHANGED, Rig};
use crate::storm::Rng;
use anabranch_host::mail::ToControl;
use anabranch_host::topology::{ControllerId, ControllerState};
use anabranch_proto::machine::WorkerId;
use anabranch_proto::nvme::status::Status;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// How long it changes, ms, and how long it then rests.
const BUSY_MS: u64 = 20_000;
const REST_MS: u64 = 150_000;

/// So long one ANA status is apart from the next, ms: in a row they mean something else.
const BETWEEN_STATUSES_MS: u64 = 3_100;

/// What the controller knows.
struct Model {
    log: Vec<u8>,
    /// The next change may be told of.
    unmasked: bool,
    /// A change is to be told of.
    untold: bool,
    /// Counts what happens: changes, statuses, readings of the log.
    clock: u64,
    /// When the first part of the log was last read.
    read_at: u64,
}

impl Model {
    fn read(&mut self, command: &Command) -> Vec<u8> {
        self.clock += 1;
        // RAE.
        if command.cdw10 >> 15 & 1 == 0 {
            (self.unmasked, self.untold, self.read_at) = (true, false, self.clock);
        }
        self.log[command.log_offset()..].to_vec()
    }

    /// Where the state of the namespace's group stands: the last one's.
    fn state_at(&self) -> usize {
        self.log.len() - 4 - 32 + 16
    }

    fn change(&mut self, rng: &mut Rng, counts: bool) {
        self.clock += 1;
        let at = if rng.below(2) == 0 { self.state_at() } else { 16 + 16 };
        self.log[at] = 1 + rng.below(3) as u8;
        if counts {
            self.log[..8].copy_from_slice(&self.clock.to_le_bytes());
        }
        self.untold |= self.unmasked;
    }
}

type Held = VecDeque<(Command, Option<Vec<u8>>)>;

/// One run.
struct World {
    rig: Rig,
    rng: Rng,
    model: Rc<RefCell<Model>>,
    /// Reads of the log that are not answered yet; some with what they read when they came.
    held: Rc<RefCell<Held>>,
    answer_at: Option<u64>,
    connections: u32,
    status_at: u64,
    status_ms: u64,
    was_pending: bool,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng(seed);
        let mut rig = Rig::new(1);
        rig.put(1, large(2));
        rig.connect_ok(1, |request| request.keep_trying = true);
        let log = large(2).ana_log();
        let model = Model { log, unmasked: true, untold: false, clock: 0, read_at: 0 };
        let (model, held) = (Rc::new(RefCell::new(model)), Rc::<RefCell<Held>>::default());
        let (of, to, on_arrival) = (Rc::clone(&model), Rc::clone(&held), rng.below(2) == 0);
        rig.fake(1).hook = Some(Box::new(move |c| {
            c.is_log(0x0c).then(|| {
                let data = on_arrival.then(|| of.borrow_mut().read(c));
                to.borrow_mut().push_back((*c, data));
                Say::Nothing
            })
        }));
        let connections = rig.fake(1).connections;
        let (answer_at, status_at, status_ms, was_pending) = (None, 0, 0, false);
        World { rig, rng, model, held, answer_at, connections, status_at, status_ms, was_pending }
    }

    /// A new connection has an event to come, and what the former one was asked is gone.
    fn look_for_reset(&mut self) {
        let connections = self.rig.fake(1).connections;
        if connections != self.connections {
            self.connections = connections;
            let mut model = self.model.borrow_mut();
            (model.unmasked, model.untold) = (true, false);
            let mut held = self.held.borrow_mut();
            let former = held.len().saturating_sub(1);
            held.drain(..former);
            self.answer_at = None;
        }
    }

    fn tell(&mut self) {
        let mut model = self.model.borrow_mut();
        if model.untold && self.rig.fake(1).has_event_request() {
            (model.untold, model.unmasked) = (false, false);
            self.rig.fake(1).raise(ANA_CHANGED);
        }
    }

    /// A command meets an ANA status.
    fn meet_status(&mut self, ms: u64) {
        let Some(head) = self.rig.head("nvme0n1").map(|head| head.id) else { return };
        let controllers = &self.rig.topology.controllers;
        let live = |it: &&std::sync::Arc<anabranch_host::topology::ControllerView>| {
            it.id == ControllerId(0) && it.state == ControllerState::Live
        };
        let Some(association) = controllers.iter().find(live).map(|it| it.association) else {
            return;
        };
        {
            let mut model = self.model.borrow_mut();
            model.clock += 1;
            (self.status_at, self.status_ms) = (model.clock, ms);
        }
        let (controller, status) = (ControllerId(0), Status::ANA_TRANSITION);
        self.rig.post(WorkerId(1), ToControl::AnaError { controller, association, head, status });
    }

    fn answer(&mut self, ms: u64, lag: u64, fails: bool) {
        let waits = !self.held.borrow().is_empty();
        if self.answer_at.is_none() && waits {
            self.answer_at = Some(ms + self.rng.below(2 * lag));
        }
        if self.answer_at.is_none_or(|at| at > ms) {
            return;
        }
        self.answer_at = None;
        let Some((command, data)) = self.held.borrow_mut().pop_front() else { return };
        let data = data.unwrap_or_else(|| self.model.borrow_mut().read(&command));
        let said = if fails { Say::Status(0x006) } else { Say::Data(data) };
        self.rig.fake(1).say(&command, said);
    }

    fn check(&mut self, seed: u64) {
        if let Some(path) = self.rig.path("nvme0n1", 0) {
            let stale = self.model.borrow().read_at < self.status_at;
            let cleared = self.was_pending && !path.ana_pending;
            assert!(!cleared || !stale, "seed {seed}: cleared by a log begun before the status");
            self.was_pending = path.ana_pending;
        }
    }
}

fn one_of(rng: &mut Rng, all: &[u64]) -> u64 {
    all[rng.below(all.len() as u64) as usize]
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let (counts, lag) = (world.rng.below(2) == 0, one_of(&mut world.rng, &[1, 5, 20, 100, 400]));
    let change = one_of(&mut world.rng, &[3, 10, 50, 300, 2_000]);
    let failure = one_of(&mut world.rng, &[u64::MAX, 200, 20]);
    let rest = (BUSY_MS..BUSY_MS + REST_MS).step_by(10);
    for ms in (0..BUSY_MS).chain(rest) {
        let busy = ms < BUSY_MS;
        world.rig.advance(Duration::from_millis(if busy { 1 } else { 10 }));
        world.look_for_reset();
        if busy && world.rng.below(change) == 0 {
            world.model.borrow_mut().change(&mut world.rng, counts);
        }
        world.tell();
        if busy && ms > world.status_ms + BETWEEN_STATUSES_MS && world.rng.below(200) == 0 {
            world.meet_status(ms);
        }
        let fails = busy && world.rng.below(failure) == 0;
        world.answer(ms, lag, fails);
        world.rig.deliver(1);
        world.rig.run();
        world.check(seed);
    }
    let path = world.rig.path("nvme0n1", 0).expect("a path");
    let model = world.model.borrow();
    let state = match path.ana_state.as_str() {
        "optimized" => 1,
        "non-optimized" => 2,
        "inaccessible" => 3,
        other => panic!("seed {seed}: {other}"),
    };
    assert_eq!((path.ana_pending, state), (false, model.log[model.state_at()]), "seed {seed}");
    assert_eq!(world.rig.state(0), Some(ControllerState::Live), "seed {seed}");
}

#[test]
fn f21_whatever_becomes_of_a_log_its_path_comes_to_rest_as_it_says() {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("ANABRANCH_FIRST_SEED").unwrap_or(1);
    for seed in first..first + number("ANABRANCH_SEEDS").unwrap_or(60) {
        run(seed);
    }
}
