//! The world: engines, streams, mail and one heap of events.

use super::cast::{Never, cast};
use super::disk::Disk;
use super::faults::{Passing, Tap};
use super::memory::SimBuffers;
use super::net::{BROKEN, End, EndState, LinkTimes, NodeId, SimGather, Stream, draw};
use crate::rng::Rng;
use anabranch_proto::digest::crc32c;
use anabranch_proto::machine::{
    CloseCause, CloseHow, ConnId, DiskId, DiskOp, Endpoint, FileId, Input, ListenerId, Machine,
    Output, SystemError, Time, VerbId, WorkerId,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

/// Nothing more will ever happen, but what was waited for has not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck;

/// What is due.
pub(super) enum Due<HM> {
    /// Look at a node's timer.
    Timer(NodeId),
    /// The send in flight of an end has left.
    Sent { stream: usize, end: usize },
    /// The engine is told so.
    Told { stream: usize, end: usize },
    /// Bytes arrive at an end.
    Arrive { stream: usize, end: usize, bytes: Vec<u8> },
    /// The peer's end of stream arrives at an end.
    Fin { stream: usize, end: usize },
    /// Deliver what has arrived.
    Deliver { stream: usize, end: usize },
    /// A connection is set up, or refused.
    Established { stream: usize },
    /// An end is over.
    Over { stream: usize, end: usize, cause: CloseCause },
    /// Mail for a host worker.
    Mail { to: WorkerId, from: WorkerId, mail: HM },
    /// A target's operation on a file ends, unless it has lost its power since.
    Disk { target: usize, life: u32, work: (DiskId, FileId, DiskOp) },
}

struct Heaped<HM> {
    at: Time,
    order: u64,
    due: Due<HM>,
}

impl<HM> PartialEq for Heaped<HM> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl<HM> Eq for Heaped<HM> {}
impl<HM> PartialOrd for Heaped<HM> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<HM> Ord for Heaped<HM> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// What does not depend on the engines' types.
pub(super) struct Core<HM> {
    pub(super) now: Time,
    pub(super) rng: Rng,
    times: LinkTimes,
    heap: BinaryHeap<Reverse<Heaped<HM>>>,
    order: u64,
    pub(super) streams: Vec<Option<Stream>>,
    /// Which end a node's connection is.
    conns: BTreeMap<(NodeId, ConnId), (usize, usize)>,
    listeners: BTreeMap<(NodeId, ListenerId), Endpoint>,
    /// The earliest timer event on the heap per node.
    pub(super) timers: BTreeMap<NodeId, Time>,
    accepted: u32,
    pub(super) acknowledged: u64,
    /// Sees and may change what passes.
    pub(super) tap: Option<Tap>,
    hash: u64,
    steps: u64,
}

/// Outputs that only the world can place.
enum Loose<M, R, E> {
    Mail(WorkerId, M),
    Reply(VerbId, R),
    Event(E),
    Disk(DiskId, FileId, DiskOp),
    Listening(ListenerId, Endpoint),
    Unlistened(ListenerId),
}

/// Host workers of one group, targets, and everything between them.
pub struct World<H: Machine, T: Machine> {
    pub(super) core: Core<H::Mail>,
    pub(super) hosts: Vec<H>,
    pub(super) targets: Vec<T>,
    host_memory: SimBuffers,
    /// The worker with nothing left in its pool.
    exhausted: Option<WorkerId>,
    pub(super) target_memory: Vec<SimBuffers>,
    /// Files, by target.
    pub(super) disks: BTreeMap<(usize, FileId), Disk>,
    /// How often each target has lost its power.
    pub(super) lives: Vec<u32>,
    host_replies: BTreeMap<u64, H::Reply>,
    target_replies: BTreeMap<u64, T::Reply>,
    host_events: Vec<(Time, H::Event)>,
    next_verb: u64,
    last_mail: BTreeMap<(WorkerId, WorkerId), Time>,
    /// Until when each host worker is asleep.
    pub(super) asleep: Vec<Time>,
}

impl<H: Machine, T: Machine> World<H, T> {
    /// A world at time zero; every engine has been given `Start`.
    pub fn new(hosts: Vec<H>, targets: Vec<T>, times: LinkTimes, seed: u64) -> World<H, T> {
        let count = targets.len();
        let asleep = vec![Time::ZERO; hosts.len()];
        let mut world = World {
            core: Core {
                now: Time::ZERO,
                rng: Rng::new(seed),
                times,
                heap: BinaryHeap::new(),
                order: 0,
                streams: Vec::new(),
                conns: BTreeMap::new(),
                listeners: BTreeMap::new(),
                timers: BTreeMap::new(),
                accepted: 0,
                acknowledged: 0,
                tap: None,
                hash: 0xcbf2_9ce4_8422_2325,
                steps: 0,
            },
            hosts,
            targets,
            host_memory: SimBuffers::default(),
            exhausted: None,
            target_memory: (0..count).map(|_| SimBuffers::default()).collect(),
            disks: BTreeMap::new(),
            lives: vec![0; count],
            host_replies: BTreeMap::new(),
            target_replies: BTreeMap::new(),
            host_events: Vec::new(),
            next_verb: 0,
            last_mail: BTreeMap::new(),
            asleep,
        };
        for target in 0..count {
            world.give_target(target, Input::Start);
        }
        for host in 0..world.hosts.len() {
            world.give_host(host, Input::Start);
        }
        world
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.core.now
    }

    /// Sums up everything that has happened: equal for equal seeds.
    pub fn trace_hash(&self) -> u64 {
        self.core.hash
    }

    /// Inputs given so far.
    pub fn steps(&self) -> u64 {
        self.core.steps
    }

    /// The world's own chance, for whoever makes faults.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.core.rng
    }

    /// A host worker, to look at.
    pub fn host(&self, worker: WorkerId) -> &H {
        &self.hosts[usize::from(worker.0)]
    }

    /// What host workers have reported.
    pub fn host_events(&self) -> &[(Time, H::Event)] {
        &self.host_events
    }

    /// Buffers allocated in the host's memory now.
    pub fn host_buffers(&self) -> usize {
        self.host_memory.live()
    }

    /// From now on there is nothing left in the pool of this worker, as though everything in it
    /// were lent; `None`: every pool gives again.
    pub fn exhaust_pool(&mut self, worker: Option<WorkerId>) {
        self.exhausted = worker;
    }

    /// Gives a verb to the control worker; its reply is found by the name that is returned.
    pub fn host_verb(&mut self, verb: H::Verb) -> VerbId {
        self.next_verb += 1;
        let id = VerbId(self.next_verb);
        self.give_host(0, Input::Verb { id, verb });
        id
    }

    /// Gives a verb to a target.
    pub fn target_verb(&mut self, target: usize, verb: T::Verb) -> VerbId {
        self.next_verb += 1;
        let id = VerbId(self.next_verb);
        self.give_target(target, Input::Verb { id, verb });
        id
    }

    /// The reply to a host verb, once it has come.
    pub fn take_host_reply(&mut self, id: VerbId) -> Option<H::Reply> {
        self.host_replies.remove(&id.0)
    }

    /// The reply to a target verb, once it has come.
    pub fn take_target_reply(&mut self, id: VerbId) -> Option<T::Reply> {
        self.target_replies.remove(&id.0)
    }

    /// Runs until the host has answered.
    ///
    /// # Errors
    /// [`Stuck`] when it has not within `limit` of virtual time.
    pub fn host_answer(&mut self, id: VerbId, limit: Duration) -> Result<H::Reply, Stuck> {
        let end = self.core.now.after(limit);
        loop {
            if let Some(reply) = self.take_host_reply(id) {
                return Ok(reply);
            }
            if self.core.now > end || !self.step() {
                return Err(Stuck);
            }
        }
    }

    /// Runs for a stretch of virtual time.
    pub fn run(&mut self, stretch: Duration) {
        let end = self.core.now.after(stretch);
        while self.core.heap.peek().is_some_and(|next| next.0.at <= end) {
            self.step();
        }
        self.core.now = end;
    }

    /// Lets the next event happen; `false` when there is none.
    pub fn step(&mut self) -> bool {
        let Some(Reverse(next)) = self.core.heap.pop() else { return false };
        self.core.now = self.core.now.max(next.at);
        if let Some(until) = self.sleeps(&next.due) {
            self.core.put_off(until, next.due);
            return true;
        }
        match next.due {
            Due::Timer(node) => self.timer(node),
            Due::Sent { stream, end } => self.sent(stream, end),
            Due::Told { stream, end } => {
                self.still_lent(stream, end);
                self.told(stream, end);
            }
            Due::Arrive { stream, end, bytes } => self.core.arrive(stream, end, &bytes),
            Due::Fin { stream, end } => self.core.fin(stream, end),
            Due::Deliver { stream, end } => self.deliver(stream, end),
            Due::Established { stream } => self.established(stream),
            Due::Over { stream, end, cause } => self.over(stream, end, cause),
            Due::Mail { to, from, mail } => {
                self.core.note(&[7, u64::from(from.0), u64::from(to.0)]);
                self.give_host(usize::from(to.0), Input::Mail { from, mail });
            }
            Due::Disk { target, life, work } if life == self.lives[target] => {
                self.disk_done(target, work);
            }
            Due::Disk { .. } => {}
        }
        true
    }

    fn timer(&mut self, node: NodeId) {
        let now = self.core.now;
        if self.core.timers.get(&node) != Some(&now) {
            return;
        }
        self.core.timers.remove(&node);
        let due = match node.0.checked_sub(self.hosts.len()) {
            None => self.hosts[node.0].poll_timeout(),
            Some(target) => self.targets[target].poll_timeout(),
        };
        match due {
            Some(at) if at <= now => self.give(node, Input::Timeout),
            Some(at) => self.core.timer_at(node, at),
            None => {}
        }
    }

    fn give(&mut self, node: NodeId, input: Input<'_, Never, Never>) {
        if node.0 < self.hosts.len() {
            self.give_host(node.0, cast(input));
        } else {
            self.give_target(node.0 - self.hosts.len(), cast(input));
        }
    }

    fn give_host(&mut self, index: usize, input: Input<'_, H::Verb, H::Mail>) {
        let node = NodeId(index);
        let host = &mut self.hosts[index];
        self.host_memory.exhausted = self.exhausted == Some(WorkerId(index as u16));
        let loose = drive(&mut self.core, node, host, input, &mut self.host_memory);
        for loose in loose {
            match loose {
                Loose::Mail(to, mail) => {
                    let from = WorkerId(index as u16);
                    let travel = draw(&mut self.core.rng, self.core.times.mail);
                    let last = self.last_mail.entry((from, to)).or_insert(Time::ZERO);
                    *last = self.core.now.after(travel).max(*last);
                    let at = *last;
                    self.core.schedule(at, Due::Mail { to, from, mail });
                }
                Loose::Reply(id, reply) => {
                    self.host_replies.insert(id.0, reply);
                }
                Loose::Event(event) => self.host_events.push((self.core.now, event)),
                Loose::Disk(..) => unreachable!("hosts have no files"),
                Loose::Listening(listener, at) => {
                    self.give_host(index, Input::Listening { listener, at });
                }
                Loose::Unlistened(listener) => {
                    self.give_host(index, Input::Unlistened { listener, error: None });
                }
            }
        }
    }

    fn disk_done(&mut self, target: usize, (id, file, op): (DiskId, FileId, DiskOp)) {
        let result = match self.disks.get_mut(&(target, file)) {
            Some(disk) => disk.end(op, &mut self.target_memory[target]),
            None => Err(SystemError::IO),
        };
        self.core.note(&[8, target as u64, id.0]);
        self.give_target(target, Input::DiskDone { id, result });
    }

    pub(super) fn give_target(&mut self, index: usize, input: Input<'_, T::Verb, T::Mail>) {
        let node = NodeId(self.hosts.len() + index);
        let target = &mut self.targets[index];
        let loose = drive(&mut self.core, node, target, input, &mut self.target_memory[index]);
        for loose in loose {
            match loose {
                Loose::Mail(..) => unreachable!("a target is alone in its group"),
                Loose::Reply(id, reply) => {
                    self.target_replies.insert(id.0, reply);
                }
                Loose::Event(_) => {}
                Loose::Disk(id, file, op) => {
                    self.disks.entry((index, file)).and_modify(|disk| disk.begin(op));
                    let took = draw(&mut self.core.rng, self.core.times.disk);
                    let (target, life, at) = (index, self.lives[index], self.core.now.after(took));
                    self.core.schedule(at, Due::Disk { target, life, work: (id, file, op) });
                }
                Loose::Listening(listener, at) => {
                    self.give_target(index, Input::Listening { listener, at });
                }
                Loose::Unlistened(listener) => {
                    self.give_target(index, Input::Unlistened { listener, error: None });
                }
            }
        }
    }

    fn memory(&self, node: NodeId) -> &SimBuffers {
        match node.0.checked_sub(self.hosts.len()) {
            None => &self.host_memory,
            Some(target) => &self.target_memory[target],
        }
    }

    fn memory_mut(&mut self, node: NodeId) -> &mut SimBuffers {
        match node.0.checked_sub(self.hosts.len()) {
            None => &mut self.host_memory,
            Some(target) => &mut self.target_memory[target],
        }
    }

    /// A batch has left: its bytes are what memory holds now.
    fn sent(&mut self, stream: usize, end: usize) {
        let Some(s) = self.core.streams[stream].as_ref() else { return };
        let this = &s.ends[end];
        let Some(batch) = this.in_flight.as_ref() else { return };
        let bytes = batch.resolve(self.memory(this.node));
        self.core.travel(stream, end, bytes);
        match self.core.times.telling {
            (_, Duration::ZERO) if self.sleeps(&Due::Told { stream, end }).is_none() => {
                self.told(stream, end);
            }
            telling => {
                let at = self.core.now.after(draw(&mut self.core.rng, telling));
                self.core.schedule(at, Due::Told { stream, end });
            }
        }
    }

    /// Until the engine hears that a batch has left its buffers belong to the driver, which may
    /// still look at them.
    fn still_lent(&self, stream: usize, end: usize) {
        let end = self.core.streams[stream].as_ref().map(|s| &s.ends[end]);
        if let Some((end, batch)) = end.and_then(|end| Some((end, end.in_flight.as_ref()?))) {
            batch.resolve(self.memory(end.node));
        }
    }

    fn told(&mut self, stream: usize, end: usize) {
        let Some(s) = self.core.streams[stream].as_mut() else { return };
        let this = &mut s.ends[end];
        if this.in_flight.take().is_none() {
            return;
        }
        let (node, conn) = (this.node, this.conn);
        self.give(node, Input::Transmitted { conn });
        self.core.fin_if_done(stream, end);
    }

    /// Gives an end a piece of what has arrived.
    fn deliver(&mut self, stream: usize, end: usize) {
        use anabranch_proto::machine::Buffers;
        let core = &mut self.core;
        let Some(s) = core.streams[stream].as_mut() else { return };
        let this = &mut s.ends[end];
        if this.state == EndState::Closing {
            this.inbox.clear();
        }
        if this.state != EndState::Open || this.paused {
            return;
        }
        let (node, conn) = (this.node, this.conn);
        if this.inbox.is_empty() {
            if this.peer_done {
                core.end_over(stream, end, CloseCause::PeerClosed);
            }
            return;
        }
        let hint = this.hint.take().filter(|_| core.rng.percent(50));
        let most = hint.map_or(this.inbox.len(), |buf| this.inbox.len().min(buf.len() as usize));
        // Whole more often than torn, so that runs are not all fragments.
        let take =
            if core.rng.percent(70) { most } else { 1 + core.rng.below(most as u64) as usize };
        let bytes = this.take(take);
        let (at, id) = (core.now, u64::from(conn.index()));
        core.note_bytes(&[1, node.0 as u64, id], &bytes);
        core.schedule(at, Due::Deliver { stream, end });
        match hint {
            Some(buf) => {
                let len = take as u32;
                let memory = self.memory_mut(node);
                memory.bytes_mut(buf.slice(0, len)).copy_from_slice(&bytes);
                self.give(node, Input::ReceivedInto { conn, len });
            }
            None => self.give(node, Input::Received { conn, bytes: &bytes }),
        }
    }

    fn established(&mut self, stream: usize) {
        let Some(s) = self.core.streams[stream].as_mut() else { return };
        if s.ends[0].state != EndState::Connecting {
            return;
        }
        let (node, conn) = (s.ends[0].node, s.ends[0].conn);
        let (peer, peer_conn) = (s.ends[1].node, s.ends[1].conn);
        let listener = self.core.listening(stream);
        let Some(listener) = listener else {
            let cause = CloseCause::Failed(SystemError::REFUSED);
            self.core.end_over(stream, 1, cause);
            return self.core.end_over(stream, 0, cause);
        };
        let Some(s) = self.core.streams[stream].as_mut() else { return };
        s.ends.iter_mut().for_each(|end| end.state = EndState::Open);
        self.core.conns.insert((peer, peer_conn), (stream, 1));
        self.core.note(&[2, node.0 as u64, u64::from(conn.index())]);
        self.give(peer, Input::Accepted { listener, conn: peer_conn, peer: None });
        self.give(node, Input::Connected { conn, local: None, node: None });
    }

    fn over(&mut self, stream: usize, end: usize, cause: CloseCause) {
        let Some(s) = self.core.streams[stream].as_ref() else { return };
        let (node, conn) = (s.ends[end].node, s.ends[end].conn);
        let other = (s.ends[1 - end].node, s.ends[1 - end].conn);
        if self.core.conns.remove(&(node, conn)).is_none() {
            return;
        }
        if !self.core.conns.contains_key(&other) {
            self.core.streams[stream] = None;
        }
        self.core.note(&[3, node.0 as u64, u64::from(conn.index())]);
        self.give(node, Input::Closed { conn, cause });
    }
}

/// One input, then all outputs, then batches, then the timer: the contract's five steps.
fn drive<M: Machine, HM>(
    core: &mut Core<HM>,
    node: NodeId,
    machine: &mut M,
    input: Input<'_, M::Verb, M::Mail>,
    memory: &mut SimBuffers,
) -> Vec<Loose<M::Mail, M::Reply, M::Event>> {
    core.steps += 1;
    machine.handle(core.now, input, memory);
    let mut loose = Vec::new();
    let mut touched = VecDeque::new();
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Mail { to, mail } => loose.push(Loose::Mail(to, mail)),
            Output::Reply { id, reply } => loose.push(Loose::Reply(id, reply)),
            Output::Event(event) => loose.push(Loose::Event(event)),
            Output::Listen { listener, at, .. } => {
                core.listeners.insert((node, listener), at.clone());
                loose.push(Loose::Listening(listener, at));
            }
            Output::Unlisten { listener } => {
                core.listeners.remove(&(node, listener));
                loose.push(Loose::Unlistened(listener));
            }
            Output::Connect { conn, to, .. } => core.connect(node, conn, &to),
            Output::Transmit { conn } => touched.push_back(conn),
            Output::ReceiveInto { conn, buf } => core.with_end(node, conn, |end| {
                end.hint = Some(buf);
            }),
            // Nobody here watches what it does not read.
            Output::Pause { conn, .. } => core.with_end(node, conn, |end| end.paused = true),
            Output::Resume { conn } => core.resume(node, conn),
            Output::Close { conn, how } => core.close(node, conn, how),
            Output::Disk { id, file, op } => loose.push(Loose::Disk(id, file, op)),
            Output::Acknowledge { .. } => core.acknowledged += 1,
            Output::Look { .. } => unreachable!("nobody looks for a peer here"),
            Output::HandOver { .. } => unreachable!("hand-over is not simulated"),
        }
    }
    for conn in touched {
        core.with_end(node, conn, |end| end.wants_transmit = true);
    }
    for (stream, end) in core.ready_to_send(node) {
        let conn = core.streams[stream].as_ref().map(|s| s.ends[end].conn);
        let Some(conn) = conn else { continue };
        let mut batch = SimGather::default();
        machine.poll_transmit(core.now, conn, &mut batch, memory);
        core.batch(stream, end, batch);
    }
    if let Some(at) = machine.poll_timeout() {
        core.timer_at(node, at);
    }
    loose
}

impl<HM> Core<HM> {
    /// Nothing that a node had set out is its own any more.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.conns.retain(|(owner, _), _| *owner != node);
        self.listeners.retain(|(owner, _), _| *owner != node);
        self.timers.remove(&node);
    }

    pub(super) fn schedule(&mut self, at: Time, due: Due<HM>) {
        self.order += 1;
        self.heap.push(Reverse(Heaped { at, order: self.order, due }));
    }

    pub(super) fn timer_at(&mut self, node: NodeId, at: Time) {
        let at = at.max(self.now);
        if self.timers.get(&node).is_none_or(|&known| at < known) {
            self.timers.insert(node, at);
            self.schedule(at, Due::Timer(node));
        }
    }

    fn note(&mut self, words: &[u64]) {
        self.note_bytes(words, &[]);
    }

    fn note_bytes(&mut self, words: &[u64], bytes: &[u8]) {
        // FNV-1a over words; the bytes of a piece go in by their own digest.
        let digest = u64::from(crc32c(bytes));
        for word in words.iter().copied().chain([self.now.ns(), bytes.len() as u64, digest]) {
            self.hash = (self.hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
        }
    }

    fn with_end(&mut self, node: NodeId, conn: ConnId, change: impl FnOnce(&mut End)) {
        if let Some(&(stream, end)) = self.conns.get(&(node, conn))
            && let Some(stream) = self.streams[stream].as_mut()
        {
            change(&mut stream.ends[end]);
        }
    }

    fn connect(&mut self, node: NodeId, conn: ConnId, to: &Endpoint) {
        let found = self.listeners.iter().find(|(_, at)| *at == to).map(|(&key, _)| key);
        let peer = found.map_or(NodeId(usize::MAX), |(peer, _)| peer);
        self.accepted += 1;
        let ends = [
            End::new(node, conn, EndState::Connecting),
            End::new(peer, ConnId::accepted(self.accepted), EndState::Connecting),
        ];
        let stream = Stream {
            ends,
            to: to.clone(),
            serial: self.accepted,
            stalled_until: Time::ZERO,
            blocked_until: Time::ZERO,
            silent: false,
            slow: Duration::ZERO,
            torn: None,
        };
        // Never the place of an earlier one: what that one still has on the way is its own.
        let index = self.streams.len();
        self.streams.push(Some(stream));
        self.conns.insert((node, conn), (index, 0));
        let at = self.now.after(draw(&mut self.rng, self.times.travel));
        self.schedule(at, Due::Established { stream: index });
    }

    /// The listener that a stream under way leads to, if it still listens.
    fn listening(&self, stream: usize) -> Option<ListenerId> {
        let stream = self.streams[stream].as_ref()?;
        let peer = stream.ends[1].node;
        let at_peer = self.listeners.iter().filter(|((node, _), _)| *node == peer);
        at_peer.filter(|(_, at)| **at == stream.to).map(|(&(_, listener), _)| listener).next()
    }

    fn ready_to_send(&self, node: NodeId) -> Vec<(usize, usize)> {
        self.conns
            .range((node, ConnId::opened(0))..)
            .take_while(|((owner, _), _)| *owner == node)
            .map(|(_, &place)| place)
            .filter(|&(stream, end)| {
                self.streams[stream].as_ref().is_some_and(|s| {
                    let end = &s.ends[end];
                    end.wants_transmit
                        && end.in_flight.is_none()
                        && matches!(end.state, EndState::Open | EndState::Closing)
                })
            })
            .collect()
    }

    fn batch(&mut self, stream: usize, end: usize, batch: SimGather) {
        let Some(s) = self.streams[stream].as_mut() else { return };
        s.ends[end].wants_transmit = false;
        if batch.is_empty() {
            return self.fin_if_done(stream, end);
        }
        s.ends[end].in_flight = Some(batch);
        let mut at = self.now.after(Duration::from_nanos(500 + self.rng.below(5_000)));
        if end == 0 {
            at = at.max(s.blocked_until);
        }
        self.schedule(at, Due::Sent { stream, end });
    }

    /// Bytes set out for the other end.
    fn travel(&mut self, stream: usize, end: usize, mut bytes: Vec<u8>) {
        let time = draw(&mut self.rng, self.times.travel);
        let Some(s) = self.streams[stream].as_mut() else { return };
        if let Some(tap) = &mut self.tap {
            let worker = WorkerId(s.ends[0].node.0 as u16);
            let to_target = end == 0;
            let (now, serial) = (self.now, s.serial);
            tap(&mut Passing { now, worker, to: &s.to, serial, to_target, bytes: &mut bytes });
        }
        let to = &mut s.ends[1 - end];
        if s.silent || to.state == EndState::Over {
            return;
        }
        let at = self.now.after(time + s.slow).max(s.stalled_until).max(to.last_arrival);
        to.last_arrival = at;
        if end == 1
            && let Some(stretch) = s.torn.take_if(|_| bytes.len() > 1)
        {
            let cut = 1 + self.rng.below(bytes.len() as u64 - 1) as usize;
            let rest = bytes.split_off(cut);
            let later = at.after(stretch);
            to.last_arrival = later;
            s.stalled_until = s.stalled_until.max(later);
            self.schedule(later, Due::Arrive { stream, end: 0, bytes: rest });
        }
        self.schedule(at, Due::Arrive { stream, end: 1 - end, bytes });
    }

    fn arrive(&mut self, stream: usize, end: usize, bytes: &[u8]) {
        let Some(s) = self.streams[stream].as_mut() else { return };
        if s.silent {
            return;
        }
        s.ends[end].inbox.extend(bytes);
        let at = self.now;
        self.schedule(at, Due::Deliver { stream, end });
    }

    fn fin(&mut self, stream: usize, end: usize) {
        let Some(s) = self.streams[stream].as_mut() else { return };
        let this = &mut s.ends[end];
        this.peer_done = true;
        match this.state {
            EndState::Closing if this.sent_fin => {
                self.end_over(stream, end, CloseCause::Requested);
            }
            _ => {
                let at = self.now;
                self.schedule(at, Due::Deliver { stream, end });
            }
        }
    }

    /// An orderly end goes out once everything before it has.
    fn fin_if_done(&mut self, stream: usize, end: usize) {
        let time = draw(&mut self.rng, self.times.travel);
        let Some(s) = self.streams[stream].as_mut() else { return };
        let silent = s.silent;
        let stalled = s.stalled_until;
        let this = &mut s.ends[end];
        if this.state != EndState::Closing
            || this.sent_fin
            || this.in_flight.is_some()
            || this.wants_transmit
        {
            return;
        }
        this.sent_fin = true;
        if this.peer_done {
            self.end_over(stream, end, CloseCause::Requested);
        }
        if silent {
            return;
        }
        let Some(s) = self.streams[stream].as_mut() else { return };
        let to = &mut s.ends[1 - end];
        let at = self.now.after(time).max(stalled).max(to.last_arrival);
        to.last_arrival = at;
        self.schedule(at, Due::Fin { stream, end: 1 - end });
    }

    fn resume(&mut self, node: NodeId, conn: ConnId) {
        self.with_end(node, conn, |end| end.paused = false);
        if let Some(&(stream, end)) = self.conns.get(&(node, conn)) {
            let at = self.now;
            self.schedule(at, Due::Deliver { stream, end });
        }
    }

    fn close(&mut self, node: NodeId, conn: ConnId, how: CloseHow) {
        let Some(&(stream, end)) = self.conns.get(&(node, conn)) else { return };
        let Some(s) = self.streams[stream].as_mut() else { return };
        match how {
            CloseHow::Graceful if s.ends[end].state == EndState::Open => {
                s.ends[end].state = EndState::Closing;
                // Whatever the engine still has is pulled before the end goes out.
                s.ends[end].wants_transmit = true;
            }
            _ => {
                let silent = s.silent;
                self.end_over(stream, end, CloseCause::Requested);
                if !silent {
                    self.end_over(stream, 1 - end, CloseCause::Failed(BROKEN));
                }
            }
        }
    }

    /// An end is over: what it had on the way stays where it is, `Closed` follows soon.
    pub(super) fn end_over(&mut self, stream: usize, end: usize, cause: CloseCause) {
        let Some(s) = self.streams[stream].as_mut() else { return };
        let this = &mut s.ends[end];
        if this.state == EndState::Over {
            return;
        }
        let unheard = this.state == EndState::Connecting && end == 1;
        this.state = EndState::Over;
        this.in_flight = None;
        this.hint = None;
        if unheard {
            return;
        }
        let at = self.now.after(draw(&mut self.rng, self.times.closing));
        self.schedule(at, Due::Over { stream, end, cause });
    }
}
