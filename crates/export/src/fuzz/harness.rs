//! One data worker's server with its clients, in memory: a driver that keeps the contract of
//! [`anabranch_proto::machine`] and uses the freedom that it leaves.

use super::MemoryHost;
use crate::nbd::{MAX_BUFFER_BYTES, Nbd, NbdConfig, NbdEvent, NbdMail, NbdReply, NbdVerb};
use anabranch_host::user::User;
use anabranch_proto::machine::{
    BufRef, Buffers, CloseCause, CloseHow, ConnId, Input, ListenerId, Output, Peer, SystemError,
    Time, VerbId, WorkerId,
};
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// See the module.
pub struct Harness {
    /// The server.
    pub nbd: Nbd,
    /// What it submits to.
    pub host: MemoryHost,
    /// Payload memory.
    pub pool: MemoryBuffers,
    /// Bytes are received in portions of this size.
    pub portion: usize,
    /// The host completes what was submitted without being told.
    pub complete_at_once: bool,
    /// Batches count as sent only when told.
    pub hold_transmissions: bool,
    /// `ReceiveInto` is honoured.
    pub aims: bool,
    /// A portion is still delivered after `Pause`, as the contract allows.
    pub late: bool,
    /// Neither the driver nor other workers answer who asks whether clients are there.
    pub hold_looks: bool,
    /// What it told.
    pub events: Vec<NbdEvent>,
    /// What it mailed.
    pub mail: Vec<(WorkerId, NbdMail)>,
    /// What it answered.
    pub replies: Vec<(VerbId, NbdReply)>,
    /// Other outputs, as text.
    pub others: Vec<String>,
    /// How often the next receive was aimed at a buffer.
    pub aimed: usize,
    /// How many clients it has told the control worker to be gone.
    pub gone: usize,
    now: Time,
    clients: BTreeMap<ConnId, Client>,
    /// What the server has sent and nobody has taken.
    received: BTreeMap<ConnId, Vec<u8>>,
    /// Whom it wants looked at.
    looks: Vec<ConnId>,
    /// Which workers it has asked, and in which round.
    rounds: Vec<(WorkerId, u64)>,
    next_conn: u32,
}

#[derive(Default)]
struct Client {
    /// On its way to the server.
    inbox: VecDeque<u8>,
    paused: bool,
    watched: bool,
    late_used: bool,
    gone: bool,
    aim: Option<BufRef>,
    wants_transmit: bool,
    sending: bool,
    close: Option<CloseHow>,
}

impl Harness {
    /// A started server on data worker 1, with this much payload memory.
    #[must_use]
    pub fn new(config: NbdConfig, pool_bytes: u64) -> Harness {
        Harness::on_worker(1, config, pool_bytes)
    }

    /// A started server on any worker.
    #[must_use]
    pub fn on_worker(worker: u16, config: NbdConfig, pool_bytes: u64) -> Harness {
        let mut harness = Harness {
            nbd: Nbd::new(config),
            host: MemoryHost::new(worker),
            pool: MemoryBuffers::with_limit(pool_bytes),
            portion: 16 << 10,
            complete_at_once: true,
            hold_transmissions: false,
            aims: true,
            late: true,
            hold_looks: false,
            events: Vec::new(),
            mail: Vec::new(),
            replies: Vec::new(),
            others: Vec::new(),
            aimed: 0,
            gone: 0,
            now: Time::ZERO,
            clients: BTreeMap::new(),
            received: BTreeMap::new(),
            looks: Vec::new(),
            rounds: Vec::new(),
            next_conn: 0,
        };
        harness.input(Input::Start);
        harness
    }

    /// Gives one input and carries out what follows from it.
    pub fn input(&mut self, input: Input<'_, NbdVerb, NbdMail>) {
        self.nbd.handle(self.now, input, &mut self.host, &mut self.pool);
        self.settle();
    }

    /// A client connects to where the exports of the start are offered.
    pub fn connect(&mut self) -> ConnId {
        self.connect_at(ListenerId(0))
    }

    /// A client connects to a listener.
    pub fn connect_at(&mut self, listener: ListenerId) -> ConnId {
        self.connect_as(listener, None)
    }

    /// A certain client connects to a listener.
    pub fn connect_as(&mut self, listener: ListenerId, peer: Option<Peer>) -> ConnId {
        let conn = ConnId::accepted(self.next_conn);
        self.next_conn += 1;
        self.clients.insert(conn, Client::default());
        self.input(Input::Accepted { listener, conn, peer });
        conn
    }

    /// A client sends bytes. They arrive unless the server has paused.
    pub fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.inbox.extend(bytes);
        }
        self.settle();
    }

    /// Takes what the server has sent to a client, which may have left.
    pub fn take(&mut self, conn: ConnId) -> Vec<u8> {
        self.received.remove(&conn).unwrap_or_default()
    }

    /// Whether the connection still exists.
    #[must_use]
    pub fn is_connected(&self, conn: ConnId) -> bool {
        self.clients.contains_key(&conn)
    }

    /// Whether the server does not read this client.
    #[must_use]
    pub fn is_paused(&self, conn: ConnId) -> bool {
        self.clients.get(&conn).is_some_and(|client| client.paused)
    }

    /// Whether the server hears of the end of this client: it reads it, or watches it.
    #[must_use]
    pub fn is_watched(&self, conn: ConnId) -> bool {
        self.clients.get(&conn).is_some_and(|client| !client.paused || client.watched)
    }

    /// Bytes that the server has not read yet.
    #[must_use]
    pub fn unread(&self, conn: ConnId) -> usize {
        self.clients.get(&conn).map_or(0, |client| client.inbox.len())
    }

    /// A client vanishes, and its end waits to be read.
    pub fn vanish(&mut self, conn: ConnId) {
        self.client(conn).gone = true;
    }

    /// Whoever asks whether clients are there is answered again.
    pub fn release_looks(&mut self) {
        self.hold_looks = false;
        self.settle();
    }

    /// A client vanishes.
    pub fn disconnect(&mut self, conn: ConnId) {
        self.close(conn, CloseCause::PeerClosed);
        self.settle();
    }

    /// The connection of a client breaks.
    pub fn break_off(&mut self, conn: ConnId) {
        // ECONNRESET.
        self.close(conn, CloseCause::Failed(SystemError(104)));
        self.settle();
    }

    /// The host completes one pending request, the last one when `index` is beyond.
    pub fn complete_one(&mut self, index: usize) {
        if let Some(done) = self.host.complete(index, &mut self.pool) {
            self.nbd.completed(self.now, done, &mut self.host, &mut self.pool);
        }
        self.settle();
    }

    /// The host completes everything, and all batches leave.
    pub fn complete_all(&mut self) {
        while self.host.pending() > 0 || self.clients.values().any(|client| client.sending) {
            self.complete_one(0);
            self.release_transmissions();
        }
    }

    /// Batches that were held back have left.
    pub fn release_transmissions(&mut self) {
        let sending: Vec<ConnId> =
            self.clients.iter().filter(|(_, it)| it.sending).map(|(conn, _)| *conn).collect();
        for conn in sending {
            self.transmitted(conn);
        }
        self.settle();
    }

    /// Time passes until the next time-out, which comes.
    pub fn pass_time(&mut self) {
        if let Some(at) = self.nbd.poll_timeout() {
            self.now = self.now.max(at);
            self.input(Input::Timeout);
        }
    }

    /// Time passes; all time-outs in it come.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some(at) = self.nbd.poll_timeout().filter(|&at| at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    /// Heads have changed.
    pub fn heads_changed(&mut self) {
        self.nbd.heads_changed(self.now, &mut self.host, &mut self.pool);
        self.settle();
    }

    /// Requests of others have ended.
    pub fn room_made(&mut self) {
        self.nbd.room_made(self.now, &mut self.host, &mut self.pool);
        self.settle();
    }

    /// # Panics
    /// When one client holds more memory than it may.
    pub fn check_bounds(&self) {
        let limit = u64::from(MAX_BUFFER_BYTES) * self.clients.len().max(1) as u64;
        assert!(self.pool.in_use_bytes() <= limit, "memory is bounded");
    }

    /// # Panics
    /// When anything is left of any client.
    pub fn check_empty(&mut self) {
        assert_eq!(self.pool.in_use_bytes(), 0, "every buffer came back");
        assert_eq!(self.nbd.clients(), 0, "every client is forgotten");
        assert_eq!(self.gone, self.next_conn as usize, "of each it was told once");
        assert_eq!(self.nbd.poll_timeout(), None, "nothing is waited for");
    }

    /// Carries out outputs, sends, receives and completes until nothing moves.
    fn settle(&mut self) {
        loop {
            let mut moved = self.outputs();
            moved |= self.looked();
            moved |= self.transmit();
            moved |= self.deliver();
            if self.complete_at_once
                && let Some(done) = self.host.complete(0, &mut self.pool)
            {
                self.nbd.completed(self.now, done, &mut self.host, &mut self.pool);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.nbd.poll_output() {
            moved = true;
            match output {
                Output::Transmit { conn } => self.client(conn).wants_transmit = true,
                Output::ReceiveInto { conn, buf } => {
                    self.aimed += 1;
                    // The memory must be there, whether it is used or not.
                    assert!(!self.pool.bytes(buf).is_empty());
                    if self.aims {
                        self.client(conn).aim = Some(buf);
                    }
                }
                Output::Pause { conn, watch } => {
                    let client = self.client(conn);
                    (client.paused, client.watched, client.late_used) = (true, watch, false);
                }
                Output::Resume { conn } => self.client(conn).paused = false,
                Output::Look { conn } => self.looks.push(conn),
                Output::Close { conn, how } => self.client(conn).close = Some(how),
                Output::Mail { to, mail: NbdMail::Look { round, .. } } => {
                    self.rounds.push((to, round));
                }
                Output::Mail { to: WorkerId(0), mail: NbdMail::Gone } => self.gone += 1,
                Output::Mail { to, mail } => self.mail.push((to, mail)),
                Output::Reply { id, reply } => self.replies.push((id, reply)),
                Output::Event(event) => self.events.push(event),
                other => self.others.push(format!("{other:?}")),
            }
        }
        moved
    }

    /// Tells of the clients that were looked at and are there, and what other workers say.
    fn looked(&mut self) -> bool {
        if self.hold_looks {
            return false;
        }
        let rounds = std::mem::take(&mut self.rounds);
        self.answer_looks(rounds)
    }

    /// Of those who have asked, the first is answered; the others go on waiting.
    pub fn release_first_look(&mut self) {
        let first = self.rounds.iter().map(|&(_, round)| round).min();
        let (answered, rest) =
            std::mem::take(&mut self.rounds).into_iter().partition(|it| Some(it.1) == first);
        self.rounds = rest;
        self.answer_looks(answered);
        self.settle();
    }

    fn answer_looks(&mut self, rounds: Vec<(WorkerId, u64)>) -> bool {
        let conns = std::mem::take(&mut self.looks);
        let moved = !conns.is_empty() || !rounds.is_empty();
        for conn in conns {
            if self.clients.get(&conn).is_some_and(|client| !client.gone) {
                self.nbd.handle(self.now, Input::Looked { conn }, &mut self.host, &mut self.pool);
            }
        }
        for (from, round) in rounds {
            let input = Input::Mail { from, mail: NbdMail::Looked { round } };
            self.nbd.handle(self.now, input, &mut self.host, &mut self.pool);
        }
        moved
    }

    fn client(&mut self, conn: ConnId) -> &mut Client {
        self.clients.get_mut(&conn).expect("outputs name live connections")
    }

    fn transmit(&mut self) -> bool {
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        let mut moved = false;
        for conn in conns {
            let client = self.client(conn);
            let closing = client.close;
            if closing == Some(CloseHow::Abort) {
                self.close(conn, CloseCause::Requested);
                moved = true;
                continue;
            }
            if client.sending || !(client.wants_transmit || closing.is_some()) {
                continue;
            }
            client.wants_transmit = false;
            let mut batch = VecGather::with_room(3);
            self.nbd.poll_transmit(self.now, conn, &mut batch, &mut self.pool);
            moved |= !batch.is_empty();
            if batch.is_empty() {
                if closing.is_some() {
                    self.close(conn, CloseCause::Requested);
                    moved = true;
                }
                continue;
            }
            let sent = batch.take();
            self.received.entry(conn).or_default().extend_from_slice(&sent);
            self.client(conn).sending = true;
            if !self.hold_transmissions {
                self.transmitted(conn);
            }
        }
        moved
    }

    fn transmitted(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.sending = false;
            // A batch may not have had room for everything.
            client.wants_transmit = true;
            let input = Input::Transmitted { conn };
            self.nbd.handle(self.now, input, &mut self.host, &mut self.pool);
        }
    }

    /// One portion for each client that is read.
    fn deliver(&mut self) -> bool {
        let conns: Vec<ConnId> = self.clients.keys().copied().collect();
        let mut moved = false;
        for conn in conns {
            let (portion, late) = (self.portion, self.late);
            let client = self.client(conn);
            let blocked = client.paused && (!late || client.late_used);
            if client.inbox.is_empty() || blocked || client.close.is_some() {
                continue;
            }
            client.late_used = client.paused;
            moved = true;
            let aim = client.aim.take();
            let most = aim.map_or(portion, |buf| buf.len() as usize);
            let len = client.inbox.len().min(most).min(portion);
            let bytes: Vec<u8> = client.inbox.drain(..len).collect();
            let input = match aim {
                Some(buf) => {
                    // `len` is at most the buffer's length.
                    let len = len as u32;
                    self.pool.bytes_mut(buf.slice(0, len)).copy_from_slice(&bytes);
                    Input::ReceivedInto { conn, len }
                }
                None => Input::Received { conn, bytes: &bytes },
            };
            self.nbd.handle(self.now, input, &mut self.host, &mut self.pool);
        }
        moved
    }

    fn close(&mut self, conn: ConnId, cause: CloseCause) {
        if self.clients.remove(&conn).is_some() {
            let input = Input::Closed { conn, cause };
            self.nbd.handle(self.now, input, &mut self.host, &mut self.pool);
        }
    }
}
