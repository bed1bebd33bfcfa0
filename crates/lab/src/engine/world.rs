//! Hosts, a target, and everything between them: calm, and lean.
//!
//! Everything travels for [`TRAVEL_NS`](super::TRAVEL_NS), so that one queue in the order of time
//! holds nearly all that happens; only timers, and what stolen processor time puts off, need a
//! heap.

use super::core::{Core, Due, Late, Node};
use super::memory::Memory;
use super::net::{Batch, EndState, Piece};
use super::stolen::Stolen;
use super::store::Store;
use crate::sim::cast::{Never, cast};
use anabranch_proto::machine::{
    BufRef, Buffers, CloseCause, DiskId, Endpoint, Input, ListenerId, Machine, Output, SystemError,
    Time, VerbId, WorkerId,
};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::mem::take;

/// Payload from here on goes from buffer to buffer, the receiver's own being named in its hint.
const LARGE: u32 = 16 << 10;

/// What an engine has said, that the world answers at once.
enum Loose<R, E> {
    Reply(VerbId, R),
    Event(E),
    Listening(ListenerId, Endpoint),
    Unlistened(ListenerId),
    DiskDone(DiskId, Result<u32, SystemError>),
}

/// Replies of one kind of engine, by verb.
type Replies<R> = BTreeMap<u64, R>;

/// Some hosts, each a group of workers, one target with one file, and everything between them.
pub(super) struct World<H: Machine, T: Machine> {
    core: Core<H::Mail>,
    hosts: Vec<H>,
    target: T,
    memory: Memory,
    target_memory: Memory,
    store: Store,
    stolen: Stolen,
    replies: Replies<H::Reply>,
    target_replies: Replies<T::Reply>,
    events: Vec<(Time, usize, H::Event)>,
    next_verb: u64,
    loose: VecDeque<Loose<H::Reply, H::Event>>,
    target_loose: VecDeque<Loose<T::Reply, T::Event>>,
    scratch: Vec<u8>,
}

impl<H: Machine, T: Machine> World<H, T> {
    /// A world at time zero; every engine has been given `Start`. `hosts` are the workers of all
    /// hosts, `group` of each.
    pub(super) fn new(hosts: Vec<H>, group: usize, target: T, store: Store) -> World<H, T> {
        let mut nodes = Vec::new();
        nodes.resize_with(hosts.len() + 1, Node::default);
        let workers = hosts.len() as u32;
        let mut world = World {
            core: Core {
                now: 0,
                queue: VecDeque::with_capacity(4096),
                late: BinaryHeap::new(),
                order: 0,
                timers: BinaryHeap::with_capacity(1024),
                nodes,
                streams: Vec::new(),
                free: Vec::new(),
                serial: 0,
                listeners: Vec::new(),
                near: Vec::new(),
                target: workers,
                group: group as u32,
            },
            hosts,
            target,
            memory: Memory::default(),
            target_memory: Memory::default(),
            store,
            stolen: Stolen::default(),
            replies: Replies::new(),
            target_replies: Replies::new(),
            events: Vec::new(),
            next_verb: 0,
            loose: VecDeque::new(),
            target_loose: VecDeque::new(),
            scratch: Vec::with_capacity(512 << 10),
        };
        world.give_target(Input::Start);
        for node in 0..workers {
            world.give_host(node, Input::Start);
        }
        world
    }

    /// Through network devices of which NUMA nodes hosts reach which ports.
    pub(super) fn near(&mut self, nodes: Vec<(Endpoint, u32)>) {
        self.core.near = nodes;
    }

    pub(super) fn now(&self) -> Time {
        Time::from_ns(self.core.now)
    }

    /// What workers of hosts have reported since the last call: when, which host, what.
    pub(super) fn take_events(&mut self) -> Vec<(Time, usize, H::Event)> {
        take(&mut self.events)
    }

    /// Buffers allocated in the memory of all hosts, and in that of the target.
    pub(super) fn buffers(&self) -> (usize, usize) {
        (self.memory.live(), self.target_memory.live())
    }

    /// Whose processor time is stolen, and when, from now on.
    pub(super) fn steal(&mut self, stolen: Stolen) {
        self.stolen = stolen;
    }

    /// Gives a verb to a host's control worker; its reply is found by what is returned.
    pub(super) fn host_verb(&mut self, host: usize, verb: H::Verb) -> VerbId {
        self.next_verb += 1;
        let id = VerbId(self.next_verb);
        self.give_host(host as u32 * self.core.group, Input::Verb { id, verb });
        id
    }

    pub(super) fn take_reply(&mut self, id: VerbId) -> Option<H::Reply> {
        self.replies.remove(&id.0)
    }

    /// Gives a verb to the target, which answers at once if it needs no disk.
    pub(super) fn target_verb(&mut self, verb: T::Verb) -> Option<T::Reply> {
        self.next_verb += 1;
        let id = VerbId(self.next_verb);
        self.give_target(Input::Verb { id, verb });
        self.target_replies.remove(&id.0)
    }

    /// Lets happen what is due until then, and at it.
    pub(super) fn run_until(&mut self, end_ns: u64) {
        while self.step(end_ns) {}
        self.core.now = self.core.now.max(end_ns);
    }

    /// The next thing that is due, if it is by then.
    fn step(&mut self, end_ns: u64) -> bool {
        let core = &mut self.core;
        let queued = core.queue.front().map_or(u64::MAX, |next| next.at);
        let late = core.late.peek().map_or(u64::MAX, |next| next.at);
        let timer = core.timers.peek().map_or(u64::MAX, |next| next.0.0);
        let next = queued.min(late).min(timer);
        if next > end_ns || next == u64::MAX {
            return false;
        }
        core.now = core.now.max(next);
        let due = if late == next {
            core.late.pop().map(|next| next.due)
        } else if queued == next {
            core.queue.pop_front().map(|next| next.due)
        } else {
            core.due_timer()
        };
        if let Some(due) = due {
            self.happen(due);
        }
        true
    }

    fn happen(&mut self, due: Due<H::Mail>) {
        if self.stolen.any()
            && let Some(node) = self.core.receiver(&due)
        {
            let free_at = self.stolen.free_at(node, self.core.now);
            if free_at > self.core.now {
                self.core.order += 1;
                let order = self.core.order;
                return self.core.late.push(Late { at: free_at, order, due });
            }
        }
        match due {
            Due::Arrive { stream, serial, end } => self.arrive(stream, serial, end.into()),
            Due::Sent { stream, serial, end } => self.sent(stream, serial, end.into()),
            Due::Fin { stream, serial, end } => {
                if self.core.known(stream, serial) {
                    let (end, requested) = (usize::from(end), CloseCause::Requested);
                    self.core.end_over(stream, 1 - end, CloseCause::PeerClosed);
                    self.core.end_over(stream, end, requested);
                }
            }
            Due::Established { stream, serial } => self.established(stream, serial),
            Due::Over { stream, serial, end, cause } => {
                self.over(stream, serial, end.into(), cause);
            }
            Due::Mail { node, from, mail } => self.give_host(node, Input::Mail { from, mail }),
            Due::Timeout { node } => self.timeout(node),
        }
    }

    fn timeout(&mut self, node: u32) {
        let due = if node == self.core.target {
            self.target.poll_timeout()
        } else {
            self.hosts[node as usize].poll_timeout()
        };
        match due {
            Some(at) if at.ns() <= self.core.now => self.give(node, Input::Timeout),
            Some(at) => self.core.timer_at(node, at.ns()),
            None => {}
        }
    }

    fn give(&mut self, node: u32, input: Input<'_, Never, Never>) {
        if node == self.core.target {
            self.give_target(cast(input));
        } else {
            self.give_host(node, cast(input));
        }
    }

    fn give_host(&mut self, node: u32, input: Input<'_, H::Verb, H::Mail>) {
        let (core, host) = (&mut self.core, &mut self.hosts[node as usize]);
        let mail = |core: &mut Core<H::Mail>, to: WorkerId, mail| core.mail(node, to, mail);
        drive(core, node, host, input, &mut self.memory, &mut self.loose, &mail, None);
        while let Some(loose) = self.loose.pop_front() {
            match loose {
                Loose::Reply(id, reply) => {
                    self.replies.insert(id.0, reply);
                }
                Loose::Event(event) => {
                    let host = (node / self.core.group) as usize;
                    self.events.push((Time::from_ns(self.core.now), host, event));
                }
                Loose::Listening(..) | Loose::Unlistened(_) | Loose::DiskDone(..) => {
                    unreachable!("hosts neither listen nor have disks here")
                }
            }
        }
        flush(&mut self.core, node, &mut self.hosts[node as usize], &mut self.memory);
    }

    fn give_target(&mut self, input: Input<'_, T::Verb, T::Mail>) {
        let node = self.core.target;
        let mut next = Some(input);
        let no_mail = |_: &mut Core<H::Mail>, _, _| unreachable!("a target is alone in its group");
        while let Some(input) = next.take() {
            let (core, target, memory) =
                (&mut self.core, &mut self.target, &mut self.target_memory);
            let store = Some(&mut self.store);
            drive(core, node, target, input, memory, &mut self.target_loose, &no_mail, store);
            while next.is_none()
                && let Some(loose) = self.target_loose.pop_front()
            {
                match loose {
                    Loose::Reply(id, reply) => {
                        self.target_replies.insert(id.0, reply);
                    }
                    Loose::Event(_) => {}
                    Loose::Listening(listener, at) => {
                        next = Some(Input::Listening { listener, at });
                    }
                    Loose::Unlistened(listener) => {
                        next = Some(Input::Unlistened { listener, error: None });
                    }
                    Loose::DiskDone(id, result) => next = Some(Input::DiskDone { id, result }),
                }
            }
        }
        flush(&mut self.core, node, &mut self.target, &mut self.target_memory);
    }

    /// A batch has arrived: the other end gets it, piece by piece where a piece is large.
    fn arrive(&mut self, stream: u32, serial: u32, end: usize) {
        let Some(s) = self.core.stream(stream, serial) else { return };
        if s.ends[end].state == EndState::Over {
            return;
        }
        if s.ends[1 - end].paused && s.ends[1 - end].state == EndState::Open {
            s.ends[end].parked = true;
            return;
        }
        let mut batch = take(&mut s.ends[end].batch);
        let mut scratch = take(&mut self.scratch);
        scratch.clear();
        let mut copied = 0;
        for &piece in &batch.pieces {
            match piece {
                Piece::Copied(len) => {
                    let next = copied + len as usize;
                    scratch.extend_from_slice(&batch.copied[copied..next]);
                    copied = next;
                }
                Piece::Payload(buf) if buf.len() < LARGE => {
                    scratch.extend_from_slice(self.sender_memory(end).bytes(buf));
                }
                Piece::Payload(buf) => {
                    self.receive(stream, serial, 1 - end, &scratch);
                    scratch.clear();
                    if !self.place(stream, serial, 1 - end, buf) {
                        scratch.extend_from_slice(self.sender_memory(end).bytes(buf));
                    }
                }
            }
        }
        self.receive(stream, serial, 1 - end, &scratch);
        self.scratch = scratch;
        batch.clear();
        let Some(s) = self.core.stream(stream, serial) else { return };
        s.ends[end].batch = batch;
        let (order, node) = (Due::Sent { stream, serial, end: end as u8 }, s.ends[end].node);
        let free_at = self.stolen.free_at(node, self.core.now);
        if free_at > self.core.now {
            self.core.order += 1;
            self.core.late.push(Late { at: free_at, order: self.core.order, due: order });
        } else {
            self.sent(stream, serial, end);
        }
    }

    /// The sender's payload is its own again, and it may send the next batch.
    fn sent(&mut self, stream: u32, serial: u32, end: usize) {
        let Some(s) = self.core.stream(stream, serial) else { return };
        let this = &mut s.ends[end];
        this.sending = false;
        if this.state == EndState::Over {
            return;
        }
        let (node, conn) = (this.node, this.conn);
        if this.wants_transmit {
            self.core.nodes[node as usize].touched.push(conn);
        }
        self.give(node, Input::Transmitted { conn });
        self.core.fin_if_done(stream, serial, end);
    }

    fn sender_memory(&self, end: usize) -> &Memory {
        if end == 0 { &self.memory } else { &self.target_memory }
    }

    fn receive(&mut self, stream: u32, serial: u32, end: usize, bytes: &[u8]) {
        let Some(s) = self.core.stream(stream, serial) else { return };
        let this = &mut s.ends[end];
        if bytes.is_empty() || this.state != EndState::Open {
            return;
        }
        this.hint = None;
        let (node, conn) = (this.node, this.conn);
        self.give(node, Input::Received { conn, bytes });
    }

    /// Puts a large payload straight into the receiver's buffer, if it named one: of each block
    /// only the stamp, the rest is never looked at.
    fn place(&mut self, stream: u32, serial: u32, end: usize, from: BufRef) -> bool {
        let Some(s) = self.core.stream(stream, serial) else { return true };
        let this = &mut s.ends[end];
        if this.state != EndState::Open {
            return true;
        }
        let Some(into) = this.hint.filter(|hint| hint.len() >= from.len()) else { return false };
        this.hint = None;
        let (node, conn, len) = (this.node, this.conn, from.len());
        let (source, sink) = if end == 1 {
            (&self.memory, &mut self.target_memory)
        } else {
            (&self.target_memory, &mut self.memory)
        };
        self.store.copy_stamps(source.bytes(from), sink.bytes_mut(into.slice(0, len)));
        self.give(node, Input::ReceivedInto { conn, len });
        true
    }

    fn established(&mut self, stream: u32, serial: u32) {
        let target = self.core.target;
        let Some(s) = self.core.stream(stream, serial) else { return };
        if s.ends[0].state != EndState::Connecting {
            return;
        }
        let to = s.to.clone();
        let found = self.core.listeners.iter().find(|(_, at)| *at == to).map(|(id, _)| *id);
        let Some(s) = self.core.stream(stream, serial) else { return };
        let Some(listener) = found else {
            // Nobody was told of the other end.
            s.ends[1].state = EndState::Over;
            s.ends[1].told = true;
            return self.core.end_over(stream, 0, CloseCause::Failed(SystemError::REFUSED));
        };
        s.ends.iter_mut().for_each(|end| end.state = EndState::Open);
        let (node, conn, peer) = (s.ends[0].node, s.ends[0].conn, s.ends[1].conn);
        self.give(target, Input::Accepted { listener, conn: peer, peer: None });
        let near = self.core.near.iter().find(|(at, _)| *at == to).map(|(_, node)| *node);
        self.give(node, Input::Connected { conn, local: None, node: near });
    }

    fn over(&mut self, stream: u32, serial: u32, end: usize, cause: CloseCause) {
        let Some(s) = self.core.stream(stream, serial) else { return };
        s.ends[end].told = true;
        let (node, conn) = (s.ends[end].node, s.ends[end].conn);
        if s.ends.iter().all(|end| end.told) {
            self.core.streams[stream as usize] = None;
            self.core.free.push(stream);
        }
        if end == 0 {
            self.core.nodes[node as usize].opened[conn.index() as usize] = None;
        }
        self.give(node, Input::Closed { conn, cause });
    }
}

/// What takes an engine's mail to its group.
type Posting<'a, HM, M> = dyn Fn(&mut Core<HM>, WorkerId, M) + 'a;

/// One input, then all outputs. Batches are pulled by [`flush`].
#[allow(clippy::too_many_arguments, reason = "the parts of the world that an engine may touch")]
#[inline]
fn drive<M: Machine, HM>(
    core: &mut Core<HM>,
    node: u32,
    machine: &mut M,
    input: Input<'_, M::Verb, M::Mail>,
    memory: &mut Memory,
    loose: &mut VecDeque<Loose<M::Reply, M::Event>>,
    mail: &Posting<'_, HM, M::Mail>,
    mut store: Option<&mut Store>,
) {
    machine.handle(Time::from_ns(core.now), input, memory);
    while let Some(output) = machine.poll_output() {
        match output {
            Output::Transmit { conn } => core.nodes[node as usize].touched.push(conn),
            Output::ReceiveInto { conn, buf } => {
                core.with_end(node, conn, |end| end.hint = Some(buf));
            }
            Output::Disk { id, op, .. } => {
                if let Some(store) = &mut store {
                    loose.push_back(Loose::DiskDone(id, store.disk(op, memory)));
                }
            }
            Output::Mail { to, mail: said } => mail(core, to, said),
            Output::Reply { id, reply } => loose.push_back(Loose::Reply(id, reply)),
            Output::Event(event) => loose.push_back(Loose::Event(event)),
            Output::Listen { listener, at, .. } => {
                core.listeners.push((listener, at.clone()));
                loose.push_back(Loose::Listening(listener, at));
            }
            Output::Unlisten { listener } => {
                core.listeners.retain(|(id, _)| *id != listener);
                loose.push_back(Loose::Unlistened(listener));
            }
            Output::Connect { conn, to, .. } => core.connect(node, conn, to),
            // Nobody here watches what it does not read.
            Output::Pause { conn, .. } => core.with_end(node, conn, |end| end.paused = true),
            Output::Resume { conn } => core.resume(node, conn),
            Output::Close { conn, how } => core.close(node, conn, how),
            // Nothing is acknowledged late here.
            Output::Acknowledge { .. } => {}
            Output::Look { .. } => unreachable!("nobody looks for a peer here"),
            Output::HandOver { .. } => unreachable!("nothing is handed over here"),
        }
    }
}

/// Pulls the batches that were asked for and can leave, and sets the timer.
#[inline]
fn flush<M: Machine, HM>(core: &mut Core<HM>, node: u32, machine: &mut M, memory: &mut Memory) {
    let now = Time::from_ns(core.now);
    let mut touched = take(&mut core.nodes[node as usize].touched);
    for conn in touched.drain(..) {
        let Some((stream, end)) = core.place_of(node, conn) else { continue };
        let Some(s) = core.streams[stream as usize].as_deref_mut() else { continue };
        let (serial, this) = (s.serial, &mut s.ends[end]);
        this.wants_transmit = true;
        if !this.may_send() {
            continue;
        }
        this.wants_transmit = false;
        let mut batch: Batch = take(&mut this.batch);
        machine.poll_transmit(now, conn, &mut batch, memory);
        let sending = !batch.is_empty();
        this.batch = batch;
        if sending {
            this.sending = true;
            core.after(Due::Arrive { stream, serial, end: end as u8 });
        } else {
            core.fin_if_done(stream, serial, end);
        }
    }
    core.nodes[node as usize].touched = touched;
    if let Some(at) = machine.poll_timeout() {
        core.timer_at(node, at.ns());
    }
}
