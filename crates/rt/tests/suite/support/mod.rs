//! An engine that does what a test says and tells the test what it saw.

#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use anabranch_proto::machine::{
    BufRef, Buffers, CloseCause, CloseHow, ConnId, DiskId, Endpoint, Gather, Input, ListenerId,
    Machine, Output, Peer, SocketOptions, SystemError, Time, WorkerId,
};
use anabranch_rt::{Config, Group};
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Far longer than anything here takes; it only ends a test that hangs.
pub const LIMIT: Duration = Duration::from_secs(20);

pub type Out = Output<u64, Box<dyn Any + Send>, Seen>;
pub type Verb = Box<dyn FnOnce(&mut Engine, &mut dyn Buffers) -> Box<dyn Any + Send> + Send>;

/// What an engine saw, as an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Timeout,
    Connected(ConnId),
    Accepted(ListenerId, ConnId, Option<Peer>),
    Listening(ListenerId, Endpoint),
    Unlistened(ListenerId, Option<SystemError>),
    Received(ConnId, Vec<u8>),
    ReceivedInto(ConnId, u32),
    Transmitted(ConnId),
    Looked(ConnId),
    Closed(ConnId, CloseCause),
    DiskDone(DiskId, Result<u32, SystemError>),
    Mail(WorkerId, u64),
}

/// A unit has up to so many bytes of copies.
const UNIT_COPY: usize = 256;

/// Something to send.
#[derive(Clone, Debug)]
pub enum Piece {
    Copy(Vec<u8>),
    Payload(BufRef),
}

/// What an engine does by itself.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Send back what comes.
    pub echo: bool,
    /// Hand accepted connections to this worker.
    pub hand_to: Option<WorkerId>,
    /// Hand this connection to that worker when one of another connection brings bytes.
    pub hand_over: Option<(ConnId, WorkerId)>,
    /// After each receive aim the next one here.
    pub into: Option<BufRef>,
    /// Only when a connection is accepted.
    pub aim_accepted_only: bool,
    /// Only after receives that were not aimed themselves.
    pub into_seldom: bool,
    /// Free these when the connection is closed.
    pub free_at_close: Vec<BufRef>,
    /// Say nothing of received bytes.
    pub quiet: bool,
}

#[derive(Default)]
pub struct Engine {
    pub now: Time,
    pub outputs: VecDeque<Out>,
    pub pending: HashMap<ConnId, VecDeque<Piece>>,
    pub sending: HashMap<ConnId, bool>,
    pub rules: Rules,
    pub timer: Option<Time>,
    pub last_timeout: Option<(Time, Time)>,
}

impl Engine {
    pub fn send(&mut self, conn: ConnId, piece: Piece) {
        let pending = self.pending.entry(conn).or_default();
        match piece {
            Piece::Copy(bytes) => {
                pending.extend(bytes.chunks(UNIT_COPY).map(|part| Piece::Copy(part.to_vec())));
            }
            Piece::Payload(_) => pending.push_back(piece),
        }
        self.outputs.push_back(Output::Transmit { conn });
    }

    /// Whether everything for `conn` has left.
    pub fn all_sent(&self, conn: ConnId) -> bool {
        !self.sending.get(&conn).is_some_and(|sending| *sending)
            && self.pending.get(&conn).is_none_or(|pending| pending.is_empty())
    }

    pub fn out(&mut self, output: Out) {
        self.outputs.push_back(output);
    }

    pub fn listen(&mut self, listener: u32, at: Endpoint) {
        let options = SocketOptions::default();
        self.out(Output::Listen { listener: ListenerId(listener), at, options });
    }

    pub fn connect(&mut self, conn: ConnId, to: Endpoint) {
        self.out(Output::Connect { conn, to, options: SocketOptions::default() });
    }

    pub fn close(&mut self, conn: ConnId, how: CloseHow) {
        self.out(Output::Close { conn, how });
    }

    fn received(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some((conn, to)) = self.rules.hand_over.take_if(|(other, _)| *other != conn) {
            self.out(Output::HandOver { conn, listener: ListenerId(7), to });
        }
        if self.rules.echo {
            self.send(conn, Piece::Copy(bytes.to_vec()));
        }
        if !self.rules.quiet {
            self.out(Output::Event(Seen::Received(conn, bytes.to_vec())));
        }
        if !self.rules.aim_accepted_only {
            self.aim(conn);
        }
    }

    fn aim(&mut self, conn: ConnId) {
        if let Some(buf) = self.rules.into {
            self.out(Output::ReceiveInto { conn, buf });
        }
    }
}

impl Machine for Engine {
    type Mail = u64;
    type Verb = Verb;
    type Reply = Box<dyn Any + Send>;
    type Event = Seen;

    fn handle(&mut self, now: Time, input: Input<'_, Verb, u64>, bufs: &mut dyn Buffers) {
        assert!(now >= self.now, "time goes forward");
        self.now = now;
        let seen = match input {
            Input::Start => return,
            Input::Timeout => {
                if let Some(named) = self.timer.take() {
                    self.last_timeout = Some((named, now));
                }
                Seen::Timeout
            }
            Input::Connected { conn, .. } => {
                self.aim(conn);
                Seen::Connected(conn)
            }
            Input::Accepted { listener, conn, peer } => {
                if let Some(to) = self.rules.hand_to {
                    return self.out(Output::HandOver { conn, listener, to });
                }
                self.aim(conn);
                Seen::Accepted(listener, conn, peer)
            }
            Input::Listening { listener, at } => Seen::Listening(listener, at),
            Input::Unlistened { listener, error } => Seen::Unlistened(listener, error),
            Input::Received { conn, bytes } => return self.received(conn, bytes),
            Input::ReceivedInto { conn, len } => {
                let buf = self.rules.into.expect("only where it was asked for");
                let bytes = bufs.bytes(buf.slice(0, len)).to_vec();
                self.out(Output::Event(Seen::ReceivedInto(conn, len)));
                if self.rules.into_seldom {
                    return self.out(Output::Event(Seen::Received(conn, bytes)));
                }
                return self.received(conn, &bytes);
            }
            Input::Transmitted { conn } => {
                self.sending.insert(conn, false);
                Seen::Transmitted(conn)
            }
            Input::Looked { conn } => Seen::Looked(conn),
            Input::Closed { conn, cause } => {
                self.pending.remove(&conn);
                self.sending.remove(&conn);
                for buf in self.rules.free_at_close.drain(..) {
                    bufs.free(buf);
                }
                Seen::Closed(conn, cause)
            }
            Input::DiskDone { id, result } => Seen::DiskDone(id, result),
            Input::Mail { from, mail } => Seen::Mail(from, mail),
            Input::Verb { id, verb } => {
                let reply = verb(self, bufs);
                return self.out(Output::Reply { id, reply });
            }
        };
        self.out(Output::Event(seen));
    }

    fn poll_output(&mut self) -> Option<Out> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        let Some(pending) = self.pending.get_mut(&conn) else { return };
        if !pending.is_empty() {
            let before = self.sending.insert(conn, true);
            assert!(before != Some(true), "one send at a time");
        }
        while batch.has_room() {
            match pending.pop_front() {
                None => return,
                Some(Piece::Payload(buf)) => batch.payload(buf, &*bufs),
                Some(Piece::Copy(bytes)) => batch.copy(&bytes),
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.timer
    }
}

/// A group of such engines, and what they saw.
pub struct Rig {
    pub group: Group<Engine>,
    seen: Receiver<(WorkerId, Seen)>,
    kept: Vec<(WorkerId, Seen)>,
}

impl Rig {
    pub fn new(workers: usize) -> Rig {
        Rig::with(Config::named("test"), workers)
    }

    pub fn with(config: Config, workers: usize) -> Rig {
        let (send, seen) = channel();
        let send = Mutex::new(send);
        let engines = (0..workers).map(|_| Engine::default()).collect();
        let sink = Box::new(move |worker, event| {
            let _ = send.lock().unwrap().send((worker, event));
        });
        let group = Group::start(config, engines, sink).expect("the group starts");
        Rig { group, seen, kept: Vec::new() }
    }

    /// Runs `f` inside the engine of `worker`.
    pub fn ask<T: Send + 'static>(
        &self,
        worker: u16,
        f: impl FnOnce(&mut Engine, &mut dyn Buffers) -> T + Send + 'static,
    ) -> T {
        let verb: Verb = Box::new(move |engine, bufs| Box::new(f(engine, bufs)));
        let reply = self.group.verb(WorkerId(worker), verb, LIMIT).expect("an answer");
        *reply.downcast::<T>().expect("the type asked for")
    }

    /// The next event of `worker` for which `f` gives something; others are kept for later.
    pub fn wait<T>(&mut self, worker: u16, mut f: impl FnMut(&Seen) -> Option<T>) -> T {
        for i in 0..self.kept.len() {
            if self.kept[i].0 == WorkerId(worker)
                && let Some(found) = f(&self.kept[i].1)
            {
                self.kept.remove(i);
                return found;
            }
        }
        loop {
            let (at, seen) = self.seen.recv_timeout(LIMIT).unwrap_or_else(|e| {
                panic!("nothing came ({e}); kept: {:?}", self.kept);
            });
            if at == WorkerId(worker)
                && let Some(found) = f(&seen)
            {
                return found;
            }
            self.kept.push((at, seen));
        }
    }

    /// Waits for exactly this event.
    pub fn expect(&mut self, worker: u16, event: &Seen) {
        self.wait(worker, |seen| (seen == event).then_some(()));
    }

    /// Whether this event has come already (it is not waited for).
    pub fn has(&mut self, worker: u16, event: &Seen) -> bool {
        self.any(worker, |seen| seen == event)
    }

    pub fn any(&mut self, worker: u16, is_it: impl Fn(&Seen) -> bool) -> bool {
        self.kept.extend(self.seen.try_iter());
        self.kept.iter().any(|(at, seen)| *at == WorkerId(worker) && is_it(seen))
    }

    pub fn listen(&mut self, worker: u16, at: Endpoint) -> Endpoint {
        self.ask(worker, move |engine, _| engine.listen(7, at));
        self.wait(worker, |seen| match seen {
            Seen::Listening(_, at) => Some(at.clone()),
            Seen::Unlistened(_, error) => panic!("listening failed: {error:?}"),
            _ => None,
        })
    }

    pub fn connect(&mut self, worker: u16, conn: ConnId, to: Endpoint) {
        self.ask(worker, move |engine, _| engine.connect(conn, to));
        self.expect(worker, &Seen::Connected(conn));
    }

    pub fn accepted(&mut self, worker: u16) -> ConnId {
        self.accepted_of(worker).0
    }

    /// And who that is.
    pub fn accepted_of(&mut self, worker: u16) -> (ConnId, Option<Peer>) {
        self.wait(worker, |seen| match seen {
            Seen::Accepted(_, conn, peer) => Some((*conn, *peer)),
            _ => None,
        })
    }

    pub fn closed(&mut self, worker: u16, conn: ConnId) -> CloseCause {
        self.wait(worker, |seen| match seen {
            Seen::Closed(at, cause) if *at == conn => Some(*cause),
            _ => None,
        })
    }

    /// Received bytes of `conn` until there are `len`.
    pub fn bytes(&mut self, worker: u16, conn: ConnId, len: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(len);
        while all.len() < len {
            let more = self.wait(worker, |seen| match seen {
                Seen::Received(at, bytes) if *at == conn => Some(bytes.clone()),
                _ => None,
            });
            all.extend_from_slice(&more);
        }
        all
    }

    /// Waits until everything for `conn` has left.
    pub fn sent(&mut self, worker: u16, conn: ConnId) {
        while !self.ask(worker, move |engine, _| engine.all_sent(conn)) {
            self.expect(worker, &Seen::Transmitted(conn));
        }
    }

    pub fn stop(self) {
        self.group.stop().expect("an orderly end");
    }
}

pub fn loopback() -> Endpoint {
    Endpoint::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
}

pub fn tcp(at: &Endpoint) -> SocketAddr {
    match at {
        Endpoint::Tcp(addr) => *addr,
        Endpoint::Unix(path) => panic!("{path} is no TCP address"),
    }
}

/// A directory that goes away with the value.
pub struct Dir(pub std::path::PathBuf);

impl Dir {
    pub fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("anabranch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Dir(path)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a text path").to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A seeded generator (splitmix64). The seed is printed: a failure can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn new() -> Random {
        let seed = std::env::var("SEED")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| anabranch_rt::now().ns() ^ u64::from(std::process::id()) << 32);
        println!("SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

pub type Shared<T> = Arc<Mutex<T>>;
