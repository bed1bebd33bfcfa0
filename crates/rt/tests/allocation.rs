//! In steady state nothing on the way of an I/O allocates or frees heap memory.

#[path = "../../../tests/support/heap.rs"]
mod heap;

use anabranch_proto::machine::{
    BufRef, Buffers, ConnId, Endpoint, Gather, Input, ListenerId, Machine, Output, SocketOptions,
    Time, VerbId, WorkerId,
};
use anabranch_rt::{Config, Group};
use std::collections::VecDeque;
use std::sync::mpsc::channel;
use std::time::Duration;

const CONN: ConnId = ConnId::opened(0);
const SMALL: usize = 72;
const LARGE: u32 = 64 << 10;
const DEPTH: usize = 16;

/// Plays ball with its peer: small copied messages, or large referenced ones received into a
/// buffer; every round also allocates and frees a pool buffer.
struct Player {
    peer: Option<ConnId>,
    large: bool,
    received: usize,
    owed: usize,
    rounds: u64,
    until: Option<(VerbId, u64)>,
    buf: Option<BufRef>,
    into: Option<BufRef>,
    outputs: VecDeque<Output<u64, u64, Option<Endpoint>>>,
}

/// What to do: `None` listens; otherwise connect there.
enum Ask {
    Listen,
    Connect(Endpoint),
    Serve(usize),
    Rounds(u64),
}

impl Player {
    fn new(large: bool) -> Player {
        Player {
            peer: None,
            large,
            received: 0,
            owed: 0,
            rounds: 0,
            until: None,
            buf: None,
            into: None,
            outputs: VecDeque::with_capacity(256),
        }
    }

    fn unit(&self) -> usize {
        if self.large { LARGE as usize } else { SMALL }
    }

    fn ready(&mut self, conn: ConnId, bufs: &mut dyn Buffers) {
        self.peer = Some(conn);
        self.buf = bufs.alloc(LARGE);
        self.into = bufs.alloc(LARGE);
        self.aim(conn);
    }

    fn aim(&mut self, conn: ConnId) {
        if let (true, Some(buf)) = (self.large, self.into) {
            self.outputs.push_back(Output::ReceiveInto { conn, buf });
        }
    }

    fn came(&mut self, conn: ConnId, len: usize, bufs: &mut dyn Buffers) {
        self.received += len;
        while self.received >= self.unit() {
            self.received -= self.unit();
            self.owed += 1;
            self.rounds += 1;
            let buf = bufs.alloc(8192).expect("a buffer");
            bufs.bytes_mut(buf)[0] = 1;
            bufs.free(buf);
        }
        self.aim(conn);
        self.outputs.push_back(Output::Transmit { conn });
        if let Some((id, at)) = self.until
            && self.rounds >= at
        {
            self.until = None;
            self.outputs.push_back(Output::Reply { id, reply: self.rounds });
        }
    }
}

impl Machine for Player {
    type Mail = u64;
    type Verb = Ask;
    type Reply = u64;
    type Event = Option<Endpoint>;

    fn handle(&mut self, _: Time, input: Input<'_, Ask, u64>, bufs: &mut dyn Buffers) {
        let options = SocketOptions::default();
        match input {
            Input::Listening { at, .. } => self.outputs.push_back(Output::Event(Some(at))),
            Input::Accepted { conn, .. } => self.ready(conn, bufs),
            Input::Connected { conn, .. } => {
                self.ready(conn, bufs);
                self.outputs.push_back(Output::Event(None));
            }
            Input::Received { conn, bytes } => self.came(conn, bytes.len(), bufs),
            Input::ReceivedInto { conn, len } => self.came(conn, len as usize, bufs),
            Input::Verb { id, verb } => {
                match verb {
                    Ask::Listen => {
                        let at = Endpoint::Tcp(([127, 0, 0, 1], 0).into());
                        let listener = ListenerId(0);
                        self.outputs.push_back(Output::Listen { listener, at, options });
                    }
                    Ask::Connect(to) => {
                        self.outputs.push_back(Output::Connect { conn: CONN, to, options });
                    }
                    Ask::Serve(balls) => {
                        self.owed += balls;
                        self.outputs.push_back(Output::Transmit { conn: CONN });
                    }
                    Ask::Rounds(more) => {
                        self.until = Some((id, self.rounds + more));
                        return;
                    }
                }
                self.outputs.push_back(Output::Reply { id, reply: 0 });
            }
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<u64, u64, Option<Endpoint>>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _: Time,
        _: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        while self.owed > 0 && batch.has_room() {
            self.owed -= 1;
            match (self.large, self.buf) {
                (true, Some(buf)) => batch.payload(buf, &*bufs),
                _ => batch.copy(&[7; SMALL]),
            }
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        None
    }
}

const LIMIT: Duration = Duration::from_secs(60);

/// One game; returns heap operations and system calls per round of both sides together.
fn play(large: bool, balls: usize, rounds: u64) -> (u64, f64) {
    let (send, events) = channel();
    let send = std::sync::Mutex::new(send);
    let sink = Box::new(move |_, event| {
        let _ = send.lock().unwrap().send(event);
    });
    let config = Config::named("play");
    let group =
        Group::start(config, vec![Player::new(large), Player::new(large)], sink).expect("started");
    let ask = |worker, ask| group.verb(WorkerId(worker), ask, LIMIT).expect("an answer");
    ask(0, Ask::Listen);
    let at = events.recv_timeout(LIMIT).expect("listening").expect("an address");
    ask(1, Ask::Connect(at));
    events.recv_timeout(LIMIT).expect("connected");
    ask(1, Ask::Serve(balls));
    let calls = || -> u64 {
        [0, 1].map(|w| group.stats(WorkerId(w)).expect("stats").system_calls).iter().sum()
    };
    // Queues grow to their size first. A request itself allocates (its answer's channel): the
    // smallest of several measurements has none of it but a constant.
    ask(1, Ask::Rounds(rounds));
    let calls_before = calls();
    let one_request = (0..5).map(|_| heap_of(|| ask(1, Ask::Rounds(1)))).min().unwrap_or(0);
    let many = (0..5).map(|_| heap_of(|| ask(1, Ask::Rounds(rounds)))).min().unwrap_or(u64::MAX);
    let per_round = (calls() - calls_before) as f64 / (5 * (rounds + 1)) as f64;
    group.stop().expect("an orderly end");
    println!("large {large}, {balls} balls: heap {one_request} / {many}, calls {per_round:.3}");
    (many.saturating_sub(one_request), per_round)
}

fn heap_of(f: impl FnOnce() -> u64) -> u64 {
    let before = heap::operations();
    f();
    heap::operations() - before
}

/// One test, so that nothing else runs in the process.
#[test]
fn none_in_steady_state_and_few_system_calls() {
    let rounds = 5000;
    for (large, balls) in [(false, 1), (false, DEPTH), (true, 1), (true, 2)] {
        let (heap, _) = play(large, balls, rounds);
        assert!(heap < rounds / 500, "{heap} heap operations in {rounds} rounds");
    }
    let (_, calls) = play(false, 128, 50_000);
    assert!(calls < 0.5, "{calls} system calls per message of a batch");
}
