//! Runs control in virtual time against scripted controllers and shards that do as they are told.

use crate::fake::Fake;
use anabranch_host::config::{ConnectRequest, ControllerOptions, HostConfig};
use anabranch_host::control::{Control, ControlOutput};
use anabranch_host::mail::{Detail, OpenQueue, ShardStats, ToControl, ToShard};
use anabranch_host::topology::{
    ControllerState, ControllerView, HeadId, HeadView, PathView, Topology,
};
use anabranch_host::verb::{HostSnapshot, Reply, Verb, VerbError};
use anabranch_policy::Policy;
use anabranch_proto::machine::{
    BufRef, Buffers, CloseCause, CloseHow, ConnId, Endpoint, Input, Output, SystemError, Time,
    VerbId, WorkerId,
};
use anabranch_proto::nvme::ids::Uuid;
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NQN: &str = "nqn.2024-01.test:one";

type HostReply = Reply<Infallible>;
type HostVerb = Verb<Infallible>;

/// What a shard does with mail that expects an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shards {
    /// Answers at once.
    Obey,
    /// Says nothing.
    Hang,
    /// Cannot open a queue.
    FailToOpen,
    /// Answers at once, but does not let go of a queue.
    KeepQueues,
}

enum Happening {
    Connected(ConnId),
    Received(ConnId, Vec<u8>),
    Transmitted(ConnId),
    Closed(ConnId, CloseCause),
    Mail(WorkerId, ToControl),
}

pub(crate) struct Rig {
    pub(crate) control: Control,
    pub(crate) bufs: MemoryBuffers,
    pub(crate) now: Time,
    fakes: BTreeMap<u16, Rc<RefCell<Fake>>>,
    /// NUMA nodes of the network devices that lead to ports, where known.
    pub(crate) nodes: BTreeMap<u16, u32>,
    /// Open connections: the port they lead to.
    conns: BTreeMap<ConnId, u16>,
    /// Where control wants the next bytes of a connection.
    aimed: BTreeMap<ConnId, BufRef>,
    /// Bytes that come from a controller at once.
    pub(crate) piece: usize,
    /// How often some went where control wanted them.
    pub(crate) received_into: usize,
    queue: VecDeque<Happening>,
    pub(crate) shards: Shards,
    /// `Drain` is never answered.
    pub(crate) drain_never_ends: bool,
    pub(crate) stats: BTreeMap<u16, ShardStats>,
    /// How often control has wanted to acknowledge at once what had come.
    pub(crate) acknowledged: u32,
    /// Which figures shards were asked for.
    pub(crate) details: Vec<Detail>,
    /// Whose figures were asked for each time.
    pub(crate) asked_of: Vec<RangeInclusive<HeadId>>,
    pub(crate) topology: Arc<Topology>,
    /// Everything mailed to shards: the worker, the variant.
    pub(crate) mailed: Vec<(WorkerId, &'static str)>,
    pub(crate) opened: Vec<OpenQueue>,
    pub(crate) events: Vec<String>,
    /// How many of them a log need not have.
    pub(crate) no_news: usize,
    replies: BTreeMap<u64, HostReply>,
    /// Verbs whose answer a test has taken.
    taken: BTreeSet<u64>,
    next_verb: u64,
}

impl Rig {
    pub(crate) fn new(data_workers: u16) -> Rig {
        Rig::with(config(data_workers))
    }

    pub(crate) fn with(config: HostConfig) -> Rig {
        let mut rig = Rig {
            control: Control::new(config),
            nodes: BTreeMap::new(),
            bufs: MemoryBuffers::new(),
            now: Time::from_ns(1_000_000_000),
            fakes: BTreeMap::new(),
            conns: BTreeMap::new(),
            aimed: BTreeMap::new(),
            piece: usize::MAX,
            received_into: 0,
            queue: VecDeque::new(),
            shards: Shards::Obey,
            drain_never_ends: false,
            stats: BTreeMap::new(),
            details: Vec::new(),
            asked_of: Vec::new(),
            acknowledged: 0,
            topology: Arc::default(),
            mailed: Vec::new(),
            opened: Vec::new(),
            events: Vec::new(),
            no_news: 0,
            replies: BTreeMap::new(),
            taken: BTreeSet::new(),
            next_verb: 0,
        };
        rig.input(Input::Start);
        rig.run();
        rig
    }

    /// One live path on port 1 to `NQN`.
    pub(crate) fn connected(data_workers: u16) -> Rig {
        let mut rig = Rig::new(data_workers);
        rig.put(1, Fake::new(NQN, 1));
        rig.connect_ok(1, |_| ());
        rig
    }

    /// Two live paths on ports 1 and 2.
    pub(crate) fn connected_twice(data_workers: u16) -> Rig {
        let mut rig = Rig::connected(data_workers);
        rig.put(2, Fake::new(NQN, 2));
        rig.connect_ok(2, |_| ());
        rig
    }

    pub(crate) fn put(&mut self, port: u16, fake: Fake) {
        self.fakes.insert(port, Rc::new(RefCell::new(fake)));
    }

    pub(crate) fn fake(&self, port: u16) -> RefMut<'_, Fake> {
        self.fakes[&port].borrow_mut()
    }

    fn input(&mut self, input: Input<'_, HostVerb, ToControl>) {
        self.control.handle(self.now, input, &mut self.bufs);
        while let Some(output) = self.control.poll_output() {
            self.output(output);
        }
    }

    fn output(&mut self, output: ControlOutput) {
        match output {
            Output::Connect { conn, to, .. } => {
                let Endpoint::Tcp(at) = to else { panic!("TCP only") };
                self.conns.insert(conn, at.port());
                let Some(fake) = self.fakes.get(&at.port()) else {
                    return self.close(conn, CloseCause::Failed(SystemError::REFUSED));
                };
                let fake = fake.borrow();
                if fake.refuse {
                    let why = SystemError(fake.refuse_with);
                    drop(fake);
                    self.close(conn, CloseCause::Failed(why));
                } else if !fake.black_hole {
                    self.queue.push_back(Happening::Connected(conn));
                }
            }
            Output::Transmit { conn } => self.transmit(conn),
            Output::Close { conn, how } => {
                if how == CloseHow::Graceful {
                    self.transmit(conn);
                    let port = self.conns.get(&conn).copied();
                    if port.is_some_and(|port| self.fake(port).never_closes) {
                        return;
                    }
                }
                self.close(conn, CloseCause::Requested);
            }
            Output::Mail { to, mail } => self.mail(to, mail),
            Output::Reply { id, reply } => {
                let twice = self.replies.insert(id.0, reply);
                assert!(twice.is_none(), "verb {} is answered once", id.0);
            }
            Output::Event(event) => {
                self.no_news += usize::from(!event.is_news());
                self.events.push(event.to_string());
            }
            Output::ReceiveInto { conn, buf } => {
                self.aimed.insert(conn, buf);
            }
            Output::Acknowledge { .. } => self.acknowledged += 1,
            other => panic!("control has no business with {other:?}"),
        }
    }

    fn close(&mut self, conn: ConnId, cause: CloseCause) {
        if self.conns.contains_key(&conn) {
            self.queue.push_back(Happening::Closed(conn, cause));
        }
    }

    fn transmit(&mut self, conn: ConnId) {
        let Some(&port) = self.conns.get(&conn) else { return };
        let mut batch = VecGather::new();
        self.control.poll_transmit(self.now, conn, &mut batch, &mut self.bufs);
        if batch.is_empty() {
            return;
        }
        self.queue.push_back(Happening::Transmitted(conn));
        let fake = self.fakes[&port].clone();
        if fake.borrow().wants_tls {
            return self.close(conn, CloseCause::Failed(SystemError::RESET));
        }
        fake.borrow_mut().receive(&batch.take());
        self.deliver(port);
    }

    /// Brings what a controller has to say to the host.
    pub(crate) fn deliver(&mut self, port: u16) {
        let bytes = self.fake(port).take_outbox();
        let conn = self.conns.iter().rev().find(|(_, at)| **at == port).map(|(conn, _)| *conn);
        if let Some(conn) = conn {
            for piece in bytes.chunks(self.piece) {
                self.queue.push_back(Happening::Received(conn, piece.to_vec()));
            }
        }
    }

    fn mail(&mut self, to: WorkerId, mail: ToShard) {
        self.mailed.push((to, variant(&mail)));
        let obey = matches!(self.shards, Shards::Obey | Shards::KeepQueues);
        match mail {
            ToShard::Topology(topology) => {
                assert!(topology.epoch > self.topology.epoch || to.0 > 1, "epochs grow");
                if obey {
                    let quiesced = topology.heads.iter().filter(|head| head.quiesced > 0);
                    for head in quiesced.map(|head| head.id).collect::<Vec<_>>() {
                        self.post(to, ToControl::Quiesced { head, epoch: topology.epoch });
                    }
                }
                self.topology = topology;
            }
            ToShard::OpenQueue(open) => {
                let OpenQueue { controller, association, qid, .. } = *open;
                self.opened.push(*open);
                match self.shards {
                    Shards::Obey | Shards::KeepQueues => {
                        self.post(to, ToControl::QueueOpen { controller, association, qid });
                    }
                    Shards::FailToOpen => {
                        let why = "connection refused".to_string();
                        self.post(to, ToControl::QueueFailed { controller, association, qid, why });
                    }
                    Shards::Hang => {}
                }
            }
            ToShard::StopQueue { controller, association } => {
                if !matches!(self.shards, Shards::Hang | Shards::KeepQueues) {
                    self.post(to, ToControl::QueueStopped { controller, association });
                }
            }
            ToShard::ReportStats { id, of, detail } => {
                self.details.push(detail);
                let mut stats = self.stats.get(&to.0).cloned().unwrap_or_default();
                stats.paths.retain(|path| of.contains(&path.head));
                stats.heads.retain(|head| of.contains(&head.head));
                self.asked_of.push(of);
                let stats = Box::new(stats);
                if obey {
                    self.post(to, ToControl::Stats { id, stats });
                }
            }
            ToShard::Drain => {
                if obey && !self.drain_never_ends {
                    self.post(to, ToControl::Drained);
                }
            }
        }
    }

    pub(crate) fn post(&mut self, from: WorkerId, mail: ToControl) {
        self.queue.push_back(Happening::Mail(from, mail));
    }

    /// What has come together while control was at other things.
    pub(crate) fn post_together(&mut self, mail: Vec<ToControl>) {
        for mail in mail {
            self.input(Input::Mail { from: WorkerId(1), mail });
        }
        assert!(self.control.poll_timeout().is_some_and(|due| due <= self.now), "nothing to tell");
        self.input(Input::Timeout);
    }

    /// Until nothing happens any more without time passing.
    pub(crate) fn run(&mut self) {
        let mut steps = 0;
        while let Some(happening) = self.queue.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "the host does not come to rest");
            self.happen(happening);
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Connected(conn) => {
                let Some(&port) = self.conns.get(&conn) else { return };
                self.fake(port).connected();
                let local = Some("127.0.0.1:40000".parse().unwrap());
                let node = self.nodes.get(&port).copied();
                self.input(Input::Connected { conn, local, node });
            }
            Happening::Received(conn, bytes) => {
                if self.conns.contains_key(&conn) {
                    self.receive(conn, &bytes);
                }
            }
            Happening::Transmitted(conn) => {
                if self.conns.contains_key(&conn) {
                    self.input(Input::Transmitted { conn });
                    self.transmit(conn);
                }
            }
            Happening::Closed(conn, cause) => {
                self.aimed.remove(&conn);
                if self.conns.remove(&conn).is_some() {
                    self.input(Input::Closed { conn, cause });
                }
            }
            Happening::Mail(from, mail) => {
                self.input(Input::Mail { from, mail });
                // What came of it may be told with whatever else has come: that was all.
                if self.control.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.input(Input::Timeout);
                }
            }
        }
    }

    /// Bytes go where control wants them, if it does; the rest as they are.
    fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        let aimed = self.aimed.remove(&conn).map_or(0, |buf| {
            let len = bytes.len().min(buf.len() as usize);
            self.bufs.bytes_mut(buf.slice(0, len as u32)).copy_from_slice(&bytes[..len]);
            len
        });
        if aimed > 0 {
            self.received_into += 1;
            self.input(Input::ReceivedInto { conn, len: aimed as u32 });
        }
        if aimed < bytes.len() {
            self.input(Input::Received { conn, bytes: &bytes[aimed..] });
        }
    }

    /// Lets time pass, stopping at every time-out on the way.
    pub(crate) fn advance(&mut self, stretch: Duration) {
        let end = self.now.after(stretch);
        let mut at_once = 0;
        loop {
            self.run();
            let Some(due) = self.control.poll_timeout().filter(|due| *due <= end) else { break };
            at_once = if due <= self.now { at_once + 1 } else { 0 };
            assert!(at_once < 100, "a time-out that is never over");
            self.now = self.now.max(due);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    pub(crate) fn advance_s(&mut self, seconds: u64) {
        self.advance(Duration::from_secs(seconds));
    }

    /// The peer on this port resets its connection.
    pub(crate) fn cut(&mut self, port: u16) {
        let conns: Vec<ConnId> =
            self.conns.iter().filter(|(_, at)| **at == port).map(|(conn, _)| *conn).collect();
        for conn in conns {
            self.close(conn, CloseCause::Failed(SystemError::RESET));
        }
        self.run();
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.conns.len()
    }

    pub(crate) fn verb(&mut self, verb: HostVerb) -> u64 {
        self.next_verb += 1;
        let id = self.next_verb;
        self.input(Input::Verb { id: VerbId(id), verb });
        self.run();
        id
    }

    /// Every verb has had its one answer.
    pub(crate) fn assert_all_answered(&self) {
        for id in 1..=self.next_verb {
            let taken = self.taken.contains(&id);
            assert!(taken || self.replies.contains_key(&id), "verb {id} was never answered");
        }
    }

    pub(crate) fn reply(&mut self, id: u64) -> Option<HostReply> {
        let reply = self.replies.remove(&id);
        if reply.is_some() {
            self.taken.insert(id);
        }
        reply
    }

    /// A verb that is answered without time passing.
    pub(crate) fn ask(&mut self, verb: HostVerb) -> HostReply {
        let id = self.verb(verb);
        self.reply(id).expect("an answer")
    }

    pub(crate) fn request(port: u16) -> ConnectRequest {
        ConnectRequest {
            subsystem_nqn: NQN.parse().unwrap(),
            to: Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], port))),
            options: ControllerOptions::default(),
            keep_trying: false,
        }
    }

    pub(crate) fn connect(&mut self, port: u16, change: impl FnOnce(&mut ConnectRequest)) -> u64 {
        let mut request = Rig::request(port);
        change(&mut request);
        self.verb(Verb::Connect(Box::new(request)))
    }

    pub(crate) fn connect_ok(
        &mut self,
        port: u16,
        change: impl FnOnce(&mut ConnectRequest),
    ) -> String {
        self.connect_told(port, change).0
    }

    /// The name of a controller, and why of what it has something is of no use.
    pub(crate) fn connect_told(
        &mut self,
        port: u16,
        change: impl FnOnce(&mut ConnectRequest),
    ) -> (String, Vec<String>) {
        let id = self.connect(port, change);
        // CSTS may be looked at more than once.
        self.advance(Duration::from_millis(200));
        match self.reply(id) {
            Some(Reply::Connected(name, ignored)) => {
                let why = ignored.into_iter().map(|it| format!("nsid {}: {}", it.nsid, it.why));
                (name, why.collect())
            }
            other => panic!("not connected: {other:?}; {:#?}", self.events),
        }
    }

    pub(crate) fn connect_fails(
        &mut self,
        port: u16,
        change: impl FnOnce(&mut ConnectRequest),
    ) -> String {
        let id = self.connect(port, change);
        self.advance_s(100);
        match self.reply(id) {
            Some(Reply::Error(error)) => error.to_string(),
            other => panic!("should have failed: {other:?}"),
        }
    }

    pub(crate) fn get(&mut self, object: &str, attribute: &str) -> Result<String, VerbError> {
        let (object, attribute) = (object.to_string(), attribute.to_string());
        match self.ask(Verb::Get { object, attribute }) {
            Reply::Value(text) => Ok(text),
            Reply::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn set(
        &mut self,
        object: &str,
        attribute: &str,
        value: &str,
    ) -> Result<(), VerbError> {
        let (object, attribute) = (object.to_string(), attribute.to_string());
        match self.ask(Verb::Set { object, attribute, value: value.to_string() }) {
            Reply::Done => Ok(()),
            Reply::Error(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn snapshot(&mut self) -> HostSnapshot {
        match self.ask(Verb::Snapshot) {
            Reply::Snapshot(snapshot) => *snapshot,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn controller(&self, id: u32) -> Option<Arc<ControllerView>> {
        self.topology.controllers.iter().find(|view| view.id.0 == id).cloned()
    }

    pub(crate) fn state(&self, id: u32) -> Option<ControllerState> {
        self.controller(id).map(|view| view.state)
    }

    pub(crate) fn heads(&self) -> Vec<Arc<HeadView>> {
        self.topology.heads.clone()
    }

    pub(crate) fn head(&self, name: &str) -> Option<Arc<HeadView>> {
        self.topology.heads.iter().find(|head| head.name == name).cloned()
    }

    pub(crate) fn path(&self, head: &str, controller: u32) -> Option<PathView> {
        let head = self.head(head)?;
        head.paths.iter().find(|path| path.controller.0 == controller).cloned()
    }

    /// Raises an event on a controller and lets it be handled.
    pub(crate) fn raise(&mut self, port: u16, result: u64) {
        self.fake(port).raise(result);
        self.deliver(port);
        self.run();
    }

    pub(crate) fn event_count(&self, part: &str) -> usize {
        self.events.iter().filter(|event| event.contains(part)).count()
    }

    pub(crate) fn mail_count(&self, what: &str) -> usize {
        self.mailed.iter().filter(|(_, mail)| *mail == what).count()
    }
}

/// What a mail is called.
fn variant(mail: &ToShard) -> &'static str {
    match mail {
        ToShard::Topology(_) => "Topology",
        ToShard::OpenQueue(_) => "OpenQueue",
        ToShard::StopQueue { .. } => "StopQueue",
        ToShard::ReportStats { .. } => "ReportStats",
        ToShard::Drain => "Drain",
    }
}

/// Notice: namespace attributes changed.
pub(crate) const NAMESPACES_CHANGED: u64 = 0x04_00_02;
/// Notice: asymmetric namespace access changed.
pub(crate) const ANA_CHANGED: u64 = 0x0c_03_02;

pub(crate) fn config(data_workers: u16) -> HostConfig {
    HostConfig {
        host_nqn: "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
            .parse()
            .unwrap(),
        host_id: Uuid([7; 16]),
        data_workers,
        shared_queue: false,
        default_policy: Policy::QueueDepth,
        subsystems: Vec::new(),
        kernel_exact: false,
        max_requests: 64,
        worker_nodes: vec![0; data_workers.into()],
        distances: Vec::new(),
        shutdown_timeout: Duration::from_secs(5),
    }
}
