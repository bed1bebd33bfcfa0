//! A whole host and a target in virtual time, with a script for a user and the wire in view.

use crate::script::{Batch, Op, Outcome, Script};
use crate::setup;
use crate::wire::{Pdu, Wire};
use anabranch_host::Worker;
use anabranch_host::config::{ControllerOptions, HostConfig};
use anabranch_host::load::Charged;
use anabranch_host::topology::ControllerState;
use anabranch_host::verb::{
    ControllerSnapshot, HeadSnapshot, HostSnapshot, PathSnapshot, Reply, Selection, Verb,
};
use anabranch_lab::sim::{LinkTimes, World};
use anabranch_policy::Policy;
use anabranch_proto::machine::{Time, VerbId, WorkerId};
use anabranch_proto::nvme::AnaState;
use anabranch_target::config::{NamespaceConfig, PortConfig};
use anabranch_target::{Target, TargetConfig, TargetVerb};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// How long anything may take when nothing is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a test starts from: two ports, one data worker, round-robin, blocks of 512 bytes.
pub(crate) struct Setup {
    pub(crate) ports: u16,
    pub(crate) options: ControllerOptions,
    pub(crate) host: HostConfig,
    pub(crate) target: TargetConfig,
    pub(crate) times: LinkTimes,
}

impl Setup {
    pub(crate) fn new(ports: u16, data_workers: u16) -> Setup {
        let options = ControllerOptions { reconnect_delay: MS * 100, ..Default::default() };
        let listen = (0..ports).map(|index| PortConfig::new(setup::port(index))).collect();
        Setup {
            ports,
            options,
            host: setup::host(data_workers, Policy::RoundRobin),
            target: setup::target(listen, vec![setup::namespace(1, 512)]),
            times: LinkTimes::default(),
        }
    }

    pub(crate) fn namespaces(&mut self) -> &mut Vec<NamespaceConfig> {
        &mut self.target.subsystems[0].namespaces
    }

    /// Everything is made; nothing is connected.
    pub(crate) fn build(self) -> Rig {
        let workers = Worker::group(&self.host, |_| Script::default());
        let target = Target::new(self.target, 1).expect("a valid configuration");
        let mut world = World::new(workers, vec![target], self.times, 1);
        let wire = Rc::new(RefCell::new(Wire::default()));
        world.tap(Wire::listen(&wire));
        let workers = self.host.data_workers;
        Rig { world, wire, options: self.options, workers, next: 0 }
    }

    /// Every port is connected, in order: port N is controller `nvmeN`.
    pub(crate) fn connect(self) -> Rig {
        let ports = self.ports;
        let mut rig = self.build();
        (0..ports).for_each(|port| rig.connect(port));
        rig
    }
}

/// A running pair.
pub(crate) struct Rig {
    pub(crate) world: World<Worker<Script>, Target>,
    wire: Rc<RefCell<Wire>>,
    pub(crate) options: ControllerOptions,
    workers: u16,
    next: u64,
}

impl Rig {
    pub(crate) fn connect(&mut self, port: u16) {
        let mut request = setup::connect(port, &self.options);
        // So that the answer means: it is live.
        request.keep_trying = false;
        let reply = self.ask(Verb::Connect(Box::new(request)));
        assert!(matches!(reply, Reply::Connected(..)), "{reply:?}");
        // The other workers hear of it a moment later.
        self.run(MS);
    }

    /// Removes the controller of a port.
    pub(crate) fn done_disconnecting(&mut self, port: u16) {
        let selection = Selection::Controller(format!("nvme{port}"));
        let reply = self.ask(Verb::Disconnect(selection));
        assert!(matches!(reply, Reply::Disconnected(1)), "{reply:?}");
    }

    pub(crate) fn now(&self) -> Time {
        self.world.now()
    }

    pub(crate) fn run(&mut self, stretch: Duration) {
        self.world.run(stretch);
    }

    /// Runs until something holds.
    pub(crate) fn wait(
        &mut self,
        limit: Duration,
        what: &str,
        mut holds: impl FnMut(&mut Rig) -> bool,
    ) {
        let end = self.now().after(limit);
        while !holds(self) {
            assert!(self.now() < end, "in {limit:?} there was no {what}");
            self.run(MS);
        }
    }

    /// Gives a verb and does not wait.
    pub(crate) fn start(&mut self, verb: Verb<Batch>) -> VerbId {
        self.world.host_verb(verb)
    }

    pub(crate) fn ask(&mut self, verb: Verb<Batch>) -> Reply<()> {
        let id = self.world.host_verb(verb);
        self.world.host_answer(id, PATIENCE).expect("verbs are answered")
    }

    pub(crate) fn done(&mut self, verb: Verb<Batch>) {
        let reply = self.ask(verb);
        assert!(matches!(reply, Reply::Done), "{reply:?}");
    }

    pub(crate) fn get(&mut self, object: &str, attribute: &str) -> String {
        let (object, attribute) = (object.to_owned(), attribute.to_owned());
        match self.ask(Verb::Get { object, attribute }) {
            Reply::Value(text) => text,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(&mut self, object: &str, attribute: &str, value: &str) {
        let [object, attribute, value] = [object, attribute, value].map(str::to_owned);
        self.done(Verb::Set { object, attribute, value });
    }

    pub(crate) fn target(&mut self, verb: TargetVerb) {
        let id = self.world.target_verb(0, verb);
        self.run(MS);
        let reply = self.world.take_target_reply(id).expect("the target answers at once");
        assert!(reply.is_ok(), "{reply:?}");
    }

    pub(crate) fn ana(&mut self, port: u16, state: AnaState) {
        self.target(TargetVerb::Ana { port, group: 1, state });
    }

    /// Submits without waiting; gives back the requests' names.
    pub(crate) fn submit_to(
        &mut self,
        worker: u16,
        device: &str,
        ops: impl IntoIterator<Item = Op>,
    ) -> Vec<u64> {
        let first = self.next;
        let ops: Vec<(u64, Op)> = (first..).zip(ops).collect();
        self.next += ops.len() as u64;
        let batch = Batch { worker: WorkerId(worker), device: device.to_owned(), ops };
        self.world.host_verb(Verb::User(batch));
        (first..self.next).collect()
    }

    /// The same on the first worker and the first device.
    pub(crate) fn submit(&mut self, ops: impl IntoIterator<Item = Op>) -> Vec<u64> {
        self.submit_to(1, "nvme0n1", ops)
    }

    pub(crate) fn outcome(&self, name: u64) -> Option<&Outcome> {
        let mut workers = (1..=self.workers).map(WorkerId);
        workers.find_map(|worker| self.world.host(worker).user().outcomes.get(&name))
    }

    pub(crate) fn answered(&self, names: &[u64]) -> usize {
        names.iter().filter(|&&name| self.outcome(name).is_some()).count()
    }

    /// Waits until all are answered.
    pub(crate) fn answers(&mut self, names: &[u64]) -> Vec<Outcome> {
        let end = self.now().after(PATIENCE);
        for &name in names {
            while self.outcome(name).is_none() {
                assert!(self.now() < end, "{} of {} answered", self.answered(names), names.len());
                self.run(MS / 10);
            }
        }
        names.iter().filter_map(|&name| self.outcome(name).cloned()).collect()
    }

    /// Waits until all are answered, well.
    pub(crate) fn succeed(&mut self, names: &[u64]) -> Vec<Outcome> {
        let outcomes = self.answers(names);
        for outcome in &outcomes {
            assert_eq!(outcome.result, Ok(()));
        }
        outcomes
    }

    /// Submits and waits: everything succeeds.
    pub(crate) fn io(&mut self, ops: impl IntoIterator<Item = Op>) -> Vec<Outcome> {
        let names = self.submit(ops);
        self.succeed(&names)
    }

    pub(crate) fn wire(&self) -> std::cell::RefMut<'_, Wire> {
        self.wire.borrow_mut()
    }

    /// PDUs seen so far that fit.
    pub(crate) fn seen(&self, fits: impl Fn(&Pdu) -> bool) -> Vec<Pdu> {
        self.wire().seen.iter().filter(|pdu| fits(pdu)).cloned().collect()
    }

    /// I/O commands that were sent to a port so far.
    pub(crate) fn sent(&self, port: u16) -> usize {
        self.seen(|pdu| pdu.is_io() && pdu.port == port).len()
    }

    pub(crate) fn snapshot(&mut self) -> HostSnapshot {
        match self.ask(Verb::Snapshot) {
            Reply::Snapshot(snapshot) => *snapshot,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn head(&mut self) -> HeadSnapshot {
        self.snapshot().subsystems[0].heads[0].clone()
    }

    /// The path through a port.
    pub(crate) fn path(&mut self, port: u16) -> PathSnapshot {
        let controller = format!("nvme{port}");
        let paths = self.head().paths.into_iter();
        paths.clone().find(|path| path.controller == controller).expect("the path is there")
    }

    pub(crate) fn controller(&mut self, port: u16) -> Option<ControllerSnapshot> {
        let name = format!("nvme{port}");
        let controllers = self.snapshot().subsystems.into_iter().flat_map(|s| s.controllers);
        controllers.into_iter().find(|controller| controller.name == name)
    }

    pub(crate) fn is_live(&mut self, port: u16) -> bool {
        self.controller(port).is_some_and(|c| c.state == ControllerState::Live)
    }

    pub(crate) fn wait_live(&mut self, port: u16) {
        self.wait(PATIENCE, "live controller", |rig| rig.is_live(port));
        self.run(MS);
    }

    /// Events of the host so far, in words.
    pub(crate) fn events(&self) -> Vec<(Time, String)> {
        let events = self.world.host_events().iter();
        events.map(|(at, event)| (*at, event.to_string())).collect()
    }

    /// When an event with this text was told first after a moment.
    pub(crate) fn event(&self, after: Time, text: &str) -> Option<Time> {
        let mut events = self.events().into_iter();
        events.find(|(at, event)| *at >= after && event.contains(text)).map(|(at, _)| at)
    }

    /// Nothing is in flight, every charge came back, and an orderly end leaves no buffer behind.
    pub(crate) fn finish(mut self) {
        for subsystem in self.snapshot().subsystems {
            for head in subsystem.heads {
                assert_eq!(head.in_flight, 0, "{}", head.name);
                for path in head.paths {
                    assert_eq!((path.in_flight, path.queue_depth), (0, 0), "{}", path.name);
                    assert_eq!(path.charged, Charged::default(), "{}", path.name);
                }
            }
        }
        let reply = self.ask(Verb::Shutdown);
        assert!(matches!(reply, Reply::ShutDown { unanswered: 0 }), "{reply:?}");
        self.run(SECOND * 10);
        assert_eq!(self.world.host_buffers(), 0, "every buffer of the host came back");
    }
}

/// `count` writes of one block each, side by side, filled with `fill`.
pub(crate) fn writes(count: u64, fill: u8) -> impl Iterator<Item = Op> {
    (0..count).map(move |lba| Op::Write { lba, blocks: 1, fill })
}

/// `count` reads of one block each, side by side.
pub(crate) fn reads(count: u64) -> impl Iterator<Item = Op> {
    (0..count).map(|lba| Op::Read { lba, blocks: 1 })
}
