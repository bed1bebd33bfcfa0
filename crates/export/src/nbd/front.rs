//! All clients of a worker.

use super::connection::{Connection, Life, Out, Outputs};
use super::control::Control;
use super::exports::{Catalog, FIRST_LISTENER};
use super::looks::Looks;
use super::memory::{Memory, Shares};
use super::transfer::{self, Seat};
use super::waiting::{Waiting, Want};
use super::{
    ADDRESS_SHARE, CLOSE_TIMEOUT, DEVICE_TIMEOUT, Export, HANDSHAKE_TIMEOUT, MAX_CONNECTIONS,
    NEGOTIATION_TIME, NbdConfig, NbdError, NbdEvent, NbdMail, NbdReply, NbdVerb, RETRY_DELAY,
};
use anabranch_host::topology::HeadId;
use anabranch_host::user::{Done, IoError, Submit, User};
use anabranch_proto::machine::{
    Buffers, CloseCause, CloseHow, ConnId, Gather, Input, ListenerId, Output, Peer, SocketAccess,
    Time, VerbId, WorkerId, network,
};
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The NBD server of one worker. See the [module](super) documentation.
pub struct Nbd {
    config: NbdConfig,
    /// On the control worker, after the start.
    control: Option<Control>,
    exports: Arc<Vec<(ListenerId, Export)>>,
    outputs: Outputs,
    /// Clients by key. A key is used again only when nothing of its client is left.
    connections: Vec<Entry>,
    free: Vec<u32>,
    keys: HashMap<ConnId, u32>,
    /// How many may be there at once.
    at_most: usize,
    /// How the devices share the payload memory.
    shares: Shares,
    /// Clients that wait for something that they share.
    waiting: Waiting,
    /// Who looks for clients that have left.
    looks: Looks,
    /// When to look for memory again.
    retry_at: Option<Time>,
    /// When to look again whether what others have left behind has ended: other workers have it.
    rest_at: Option<Time>,
    /// When to look whether a client goes on negotiating, or still closes.
    handshakes: VecDeque<Deadline>,
    /// When to tell a client that its device has not come.
    absences: VecDeque<Deadline>,
    endings: VecDeque<Deadline>,
    /// How long an end may take. It only grows, so that `endings` stay in order.
    close_timeout: Duration,
    /// No new client is let in.
    draining: bool,
    /// The control worker waits to hear that no client is left.
    drain_owed: bool,
}

#[derive(Default)]
struct Entry {
    connection: Option<Box<Connection>>,
    /// Counts the clients that had this key.
    serial: u32,
    /// How many options it had sent when we looked last.
    options: u32,
    /// In which line of `waiting` it is.
    waits: Option<Want>,
    /// It was told of: nobody waits for a device twice.
    awaited: bool,
    /// Is in `endings`.
    ends: bool,
    /// The control worker has not been told that it is gone.
    has_place: bool,
}

/// What the control worker is told once of each client that it has handed to us.
const GONE: Out = Output::Mail { to: WorkerId(0), mail: NbdMail::Gone };

#[derive(Clone, Copy)]
struct Deadline {
    at: Time,
    key: u32,
    serial: u32,
}

impl Nbd {
    /// The instance for one worker; every worker's instance gets the same configuration. Which
    /// worker it is on it learns with the first input.
    #[must_use]
    pub fn new(config: NbdConfig) -> Nbd {
        let first = config.exports.iter().map(|export| (FIRST_LISTENER, export.clone()));
        let exports = Arc::new(first.collect());
        Nbd {
            config,
            control: None,
            exports,
            outputs: VecDeque::new(),
            connections: Vec::new(),
            free: Vec::new(),
            keys: HashMap::new(),
            at_most: MAX_CONNECTIONS,
            shares: Shares::default(),
            waiting: Waiting::default(),
            looks: Looks::default(),
            retry_at: None,
            rest_at: None,
            handshakes: VecDeque::new(),
            absences: VecDeque::new(),
            endings: VecDeque::new(),
            close_timeout: CLOSE_TIMEOUT,
            draining: false,
            drain_owed: false,
        }
    }

    /// Lets in fewer clients at once than [`MAX_CONNECTIONS`], but one at least.
    #[must_use]
    pub fn with_at_most(mut self, clients: usize) -> Nbd {
        self.at_most = clients.clamp(1, MAX_CONNECTIONS);
        self
    }

    /// Clients that are connected or of which requests are still in progress.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// A request that somebody else submitted beside us has ended: there may be room for ours.
    pub fn room_made(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        if !self.waiting.is_empty() {
            let mut place = Place { now, host, bufs };
            self.retry(&mut place);
            self.wake(&mut place);
        }
    }

    fn start(&mut self, host: &dyn Submit, bufs: &dyn Buffers) {
        self.shares = Shares::new(bufs.capacity());
        if host.worker() != WorkerId(0) {
            return;
        }
        let data_workers = host.workers().saturating_sub(1).max(1);
        let mut control = Control::new(data_workers, &self.exports);
        if let Some(at) = self.config.listen.take() {
            control.listen(FIRST_LISTENER, at, SocketAccess::default(), &mut self.outputs);
        }
        self.control = Some(control);
    }

    fn accepted(
        &mut self,
        listener: ListenerId,
        conn: ConnId,
        peer: Option<Peer>,
        place: &mut Place<'_>,
    ) {
        if let Some(control) = &mut self.control {
            return control.accepted(listener, conn, &mut self.outputs);
        }
        // At the end nobody makes room for one who cannot come in.
        let crowded = if self.draining { None } else { self.crowded(peer, place) };
        let turned_away = crowded.is_some() || self.draining;
        self.outputs.extend(crowded.map(Output::Event));
        if turned_away {
            // Not in `keys`: what still comes of it is ignored.
            self.outputs.push_back(Output::Close { conn, how: CloseHow::Abort });
            self.outputs.push_back(GONE);
            return;
        }
        let key = self.free.pop().unwrap_or_else(|| {
            self.connections.push(Entry::default());
            // Bounded by MAX_CONNECTIONS and what the host has in progress.
            (self.connections.len() - 1) as u32
        });
        let entry = &mut self.connections[key as usize];
        entry.serial = entry.serial.wrapping_add(1);
        entry.has_place = true;
        entry.connection = Some(Box::new(Connection::new(conn, listener, key, peer)));
        let deadline =
            Deadline { at: place.now.after(HANDSHAKE_TIMEOUT), key, serial: entry.serial };
        self.handshakes.push_back(deadline);
        self.keys.insert(conn, key);
    }

    /// Why one more client cannot come in. One network address does not take all the places, and
    /// whoever does not go on to negotiate makes room, the oldest first: nobody keeps the others
    /// out for long.
    fn crowded(&mut self, peer: Option<Peer>, place: &mut Place<'_>) -> Option<NbdEvent> {
        let worker = place.host.worker();
        if let Some(Peer::Address(from)) = peer {
            let theirs = network(from.ip());
            let is_theirs = |entry: &&Entry| {
                let peer = entry.connection.as_ref().and_then(|connection| connection.peer());
                matches!(peer, Some(Peer::Address(other)) if network(other.ip()) == theirs)
            };
            let clients = self.connections.iter().filter(is_theirs).count();
            let (parts, of) = ADDRESS_SHARE;
            if clients >= self.at_most.div_ceil(of) * parts {
                return Some(NbdEvent::Crowded { worker, clients, network: Some(theirs) });
            }
        }
        // Those that have left and are not done have their places.
        let has_left =
            |entry: &&Entry| entry.connection.as_ref().is_some_and(|it| it.life() == Life::Left);
        let clients = self.keys.len() + self.connections.iter().filter(has_left).count();
        if clients < self.at_most {
            return None;
        }
        // Many who come at once have time to negotiate.
        let until = place.now.after(HANDSHAKE_TIMEOUT - NEGOTIATION_TIME);
        let is_slow = |deadline: &mut Deadline| deadline.at <= until;
        while let Some(oldest) = self.handshakes.pop_front_if(is_slow) {
            if self.is_negotiating(oldest) {
                let what = "it was still negotiating, and another one wanted its place";
                self.outputs.push_back(Output::Event(NbdEvent::Violation { what }));
                self.cut_off(oldest.key, place);
                return None;
            }
        }
        Some(NbdEvent::Crowded { worker, clients, network: None })
    }

    /// Does something with a client, and keeps the lists of clients in order.
    fn with(
        &mut self,
        key: u32,
        place: &mut Place<'_>,
        act: impl FnOnce(&mut Connection, &mut Seat<'_>, &mut Outputs),
    ) {
        let Some(entry) = self.connections.get_mut(key as usize) else { return };
        let Some(connection) = &mut entry.connection else { return };
        let now = place.now;
        let memory = Memory { bufs: place.bufs, shares: &mut self.shares };
        let exports = self.exports.as_slice();
        // At the end nobody can come back, and what is unanswered then is to be counted.
        let may_return = !self.draining;
        let mut seat = Seat { now, host: place.host, memory, exports, may_return };
        act(connection, &mut seat, &mut self.outputs);
        if let Some(want) = connection.wants()
            && entry.waits != Some(want)
        {
            if let Some(other) = entry.waits.replace(want) {
                self.waiting.remove(other, key);
            }
            self.waiting.push(want, key);
            if want == Want::Memory {
                self.retry_at.get_or_insert(now.after(RETRY_DELAY));
            }
        }
        if let Some(head) = connection.wants_look() {
            self.looks.want((key, entry.serial), head);
            let at = now.after(DEVICE_TIMEOUT);
            self.absences.push_back(Deadline { at, key, serial: entry.serial });
        }
        let tells = !entry.awaited && !connection.awaits_look();
        if tells && (connection.awaits_device() || connection.awaits_rest()) {
            entry.awaited = true;
            let export = connection.awaited().map(|name| String::from_utf8_lossy(name).into());
            let event = export.map(|export| match connection.awaits_rest() {
                true => NbdEvent::WaitsForRest { export },
                false => NbdEvent::Waits { export },
            });
            self.outputs.extend(event.map(Output::Event));
            if connection.awaits_device() {
                let at = now.after(DEVICE_TIMEOUT);
                self.absences.push_back(Deadline { at, key, serial: entry.serial });
            }
        }
        if connection.awaits_rest() {
            self.rest_at.get_or_insert(now.after(RETRY_DELAY));
        }
        match connection.life() {
            Life::Open => {}
            Life::Ending | Life::Closing if entry.ends => {}
            Life::Ending | Life::Closing => {
                entry.ends = true;
                let at = now.after(self.close_timeout);
                self.endings.push_back(Deadline { at, key, serial: entry.serial });
            }
            // Its time runs since it has said that it leaves.
            Life::Left => {}
            Life::Dead => {
                if std::mem::take(&mut entry.has_place) {
                    self.outputs.push_back(GONE);
                }
                if connection.is_forgotten() {
                    self.forget(key);
                }
            }
        }
    }

    /// Nothing is left of a client.
    fn forget(&mut self, key: u32) {
        let entry = &mut self.connections[key as usize];
        if let Some(want) = entry.waits {
            self.waiting.remove(want, key);
            self.retry_at = self.retry_at.filter(|_| self.waiting.is_wanted(Want::Memory));
        }
        *entry = Entry { serial: entry.serial, ..Entry::default() };
        self.free.push(key);
        self.tell_drained();
    }

    /// Lets those go on that wait for what they share: in each line the longest waiting first,
    /// until one has to wait on. Who got something goes to the end of its line for more: a device's
    /// share may be less than one client can use.
    fn retry(&mut self, place: &mut Place<'_>) {
        self.shares.take_freed();
        for line in 0..self.waiting.lines() {
            for _ in 0..self.waiting.len(line) {
                let Some((key, want)) = self.waiting.pop(line) else { break };
                self.connections[key as usize].waits = None;
                let before = self.granted(key);
                self.with(key, place, |connection, seat, out| connection.resume(seat, out));
                if self.connections[key as usize].waits == Some(want) {
                    if self.granted(key) == before {
                        self.waiting.is_first_again(want);
                    }
                    break;
                }
            }
        }
        let memory = self.waiting.is_wanted(Want::Memory);
        self.retry_at = memory.then(|| place.now.after(RETRY_DELAY));
    }

    fn granted(&self, key: u32) -> u64 {
        let connection = &self.connections[key as usize].connection;
        connection.as_ref().map_or(0, |connection| connection.granted())
    }

    /// Memory has come back: who waits may have it.
    fn wake(&mut self, place: &mut Place<'_>) {
        while self.shares.take_freed() && !self.waiting.is_empty() {
            self.retry(place);
        }
    }

    fn mail(&mut self, from: WorkerId, mail: NbdMail, place: &mut Place<'_>) {
        if let Some(control) = &mut self.control {
            return control.mail(from, &mail, &mut self.outputs);
        }
        match mail {
            NbdMail::Offer { epoch, exports } => {
                self.exports = exports;
                self.follow(place);
                self.retry(place);
                let mail = NbdMail::Offered { epoch };
                self.outputs.push_back(Output::Mail { to: WorkerId(0), mail });
            }
            NbdMail::Drain(within) => {
                self.draining = true;
                self.close_timeout = CLOSE_TIMEOUT.max(within);
                self.drain_owed = true;
                self.each(place, |connection, seat, out| connection.end(seat, out));
                self.tell_drained();
            }
            NbdMail::Look { round, head } => self.look(from, round, head),
            NbdMail::Looked { round } => self.looks.answered(round),
            NbdMail::Offered { .. } | NbdMail::Drained | NbdMail::Gone => {}
        }
    }

    /// Has the driver look at our clients of a head, for a worker that has to know who has left.
    fn look(&mut self, to: WorkerId, round: u64, head: HeadId) {
        let connections = self.connections.iter().filter_map(|it| it.connection.as_deref());
        let theirs = connections.filter(|it| it.is_of(head)).map(|it| it.conn);
        let conns: Vec<ConnId> = theirs.collect();
        self.outputs.extend(conns.iter().map(|&conn| Output::Look { conn }));
        self.looks.owe(to, round, conns);
    }

    /// Asks for those that want to know who has left, answers those who have asked, and lets go on
    /// who has been answered.
    fn look_on(&mut self, place: &mut Place<'_>) {
        let me = place.host.worker();
        while let Some((round, head)) = self.looks.ask(place.host.workers()) {
            for to in (1..place.host.workers()).map(WorkerId).filter(|&to| to != me) {
                let mail = NbdMail::Look { round, head };
                self.outputs.push_back(Output::Mail { to, mail });
            }
            self.look(me, round, head);
        }
        while let Some((to, round)) = self.looks.settled() {
            if to == me {
                self.looks.answered(round);
            } else {
                let mail = NbdMail::Looked { round };
                self.outputs.push_back(Output::Mail { to, mail });
            }
        }
        while let Some((key, serial)) = self.looks.known() {
            if self.connections[key as usize].serial == serial {
                self.with(key, place, Connection::looked);
            }
        }
    }

    /// Lets every client see what has changed of the exports and heads.
    fn follow(&mut self, place: &mut Place<'_>) {
        let (exports, heads) = (self.exports.as_slice(), place.host.heads());
        Catalog { listener: FIRST_LISTENER, exports, heads, heard: None }.bind();
        self.each(place, |connection, seat, out| connection.follow(seat, out));
    }

    fn each(
        &mut self,
        place: &mut Place<'_>,
        act: impl Fn(&mut Connection, &mut Seat<'_>, &mut Outputs),
    ) {
        // Keys are indices, fewer than 2^32.
        for key in 0..self.connections.len() as u32 {
            self.with(key, place, &act);
        }
    }

    fn tell_drained(&mut self) {
        if self.drain_owed && self.clients() == 0 {
            self.drain_owed = false;
            self.outputs.push_back(Output::Mail { to: WorkerId(0), mail: NbdMail::Drained });
        }
    }

    fn timeout(&mut self, place: &mut Place<'_>) {
        let now = place.now;
        let due = |deadline: &mut Deadline| deadline.at <= now;
        while let Some(deadline) = self.handshakes.pop_front_if(due) {
            self.look_at_negotiation(deadline, place);
        }
        while let Some(deadline) = self.absences.pop_front_if(due) {
            if self.awaits_device(deadline) {
                self.with(deadline.key, place, Connection::lose_patience);
            }
        }
        while let Some(deadline) = self.endings.pop_front_if(due) {
            if self.is_ending(deadline) {
                self.cut_off(deadline.key, place);
            }
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry(place);
        }
        if self.rest_at.take_if(|at| *at <= now).is_some() {
            self.each(place, |connection, seat, out| {
                if connection.awaits_rest() {
                    connection.resume(seat, out);
                }
            });
        }
    }

    /// Who has sent another option since we looked last may go on: one that asks about hundreds of
    /// exports takes its time. How many options there may be is bounded, too.
    fn look_at_negotiation(&mut self, deadline: Deadline, place: &mut Place<'_>) {
        if !self.is_negotiating(deadline) {
            return;
        }
        let entry = &mut self.connections[deadline.key as usize];
        let options = entry.connection.as_ref().map_or(0, |it| it.options());
        if std::mem::replace(&mut entry.options, options) != options {
            let at = place.now.after(HANDSHAKE_TIMEOUT);
            self.handshakes.push_back(Deadline { at, ..deadline });
            return;
        }
        let what = "it did not go on to negotiate";
        self.outputs.push_back(Output::Event(NbdEvent::Violation { what }));
        self.cut_off(deadline.key, place);
    }

    fn cut_off(&mut self, key: u32, place: &mut Place<'_>) {
        self.with(key, place, Connection::cut_off);
    }

    fn live(&self, deadline: Deadline) -> Option<&Connection> {
        let entry = &self.connections[deadline.key as usize];
        entry.connection.as_deref().filter(|_| entry.serial == deadline.serial)
    }

    fn is_negotiating(&self, deadline: Deadline) -> bool {
        self.live(deadline).is_some_and(|it| it.is_negotiating() && it.life() == Life::Open)
    }

    fn awaits_device(&self, deadline: Deadline) -> bool {
        self.live(deadline).is_some_and(Connection::awaits_device)
    }

    fn is_ending(&self, deadline: Deadline) -> bool {
        let life = self.live(deadline).map(Connection::life);
        matches!(life, Some(Life::Ending | Life::Closing | Life::Left))
    }

    fn closed(&mut self, conn: ConnId, cause: CloseCause, place: &mut Place<'_>) {
        if let Some(control) = &mut self.control {
            return control.closed(conn);
        }
        // The driver may use the identifier again, even while the host still has requests.
        let Some(key) = self.keys.remove(&conn) else { return };
        self.with(key, place, |connection, seat, out| connection.closed(cause, seat, out));
        self.looks.gone(conn);
    }

    fn verb(&mut self, id: VerbId, verb: NbdVerb) {
        match &mut self.control {
            Some(control) => control.verb(id, verb, &mut self.outputs),
            None => {
                let reply = NbdReply::Error(NbdError::NotControl);
                self.outputs.push_back(Output::Reply { id, reply });
            }
        }
    }

    /// What happened on a client's connection.
    fn connection_input(
        &mut self,
        conn: ConnId,
        place: &mut Place<'_>,
        act: impl FnOnce(&mut Connection, &mut Seat<'_>, &mut Outputs),
    ) {
        if let Some(&key) = self.keys.get(&conn) {
            self.with(key, place, act);
        }
    }
}

/// What an input comes with.
struct Place<'a> {
    now: Time,
    host: &'a mut dyn Submit,
    bufs: &'a mut dyn Buffers,
}

impl User for Nbd {
    type Mail = NbdMail;
    type Verb = NbdVerb;
    type Reply = NbdReply;
    type Event = NbdEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, NbdVerb, NbdMail>,
        host: &mut dyn Submit,
        bufs: &mut dyn Buffers,
    ) {
        let mut place = Place { now, host, bufs };
        match input {
            Input::Start => self.start(place.host, place.bufs),
            Input::Timeout => self.timeout(&mut place),
            Input::Accepted { listener, conn, peer } => {
                self.accepted(listener, conn, peer, &mut place);
                self.connection_input(conn, &mut place, Connection::settle);
            }
            Input::Listening { listener, at } => {
                if let Some(control) = &mut self.control {
                    control.listening(listener, at, &mut self.outputs);
                }
            }
            Input::Unlistened { listener, error } => {
                if let Some(control) = &mut self.control {
                    control.unlistened(listener, error, &mut self.outputs);
                }
            }
            Input::Received { conn, bytes } => {
                self.connection_input(conn, &mut place, |connection, seat, out| {
                    connection.received(bytes, seat, out);
                });
            }
            Input::ReceivedInto { conn, len } => {
                self.connection_input(conn, &mut place, |connection, seat, out| {
                    connection.received_into(len, seat, out);
                });
            }
            Input::Transmitted { conn } => {
                self.connection_input(conn, &mut place, |connection, seat, out| {
                    connection.transmitted(seat);
                    connection.resume(seat, out);
                });
            }
            Input::Closed { conn, cause } => self.closed(conn, cause, &mut place),
            Input::Looked { conn } => self.looks.seen(conn),
            Input::Mail { from, mail } => self.mail(from, mail, &mut place),
            Input::Verb { id, verb } => self.verb(id, verb),
            // Nothing is opened and no file is used here.
            Input::Connected { .. } | Input::DiskDone { .. } => {}
        }
        self.look_on(&mut place);
        self.wake(&mut place);
    }

    fn completed(&mut self, now: Time, done: Done, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let mut place = Place { now, host, bufs };
        let (key, piece) = transfer::split_tag(done.tag);
        let gone = matches!(done.result, Err(IoError::NoPath | IoError::Gone));
        let ends = self.draining && gone;
        self.with(key, &mut place, |connection, seat, out| {
            if ends && connection.life() != Life::Closing {
                // It is we who end: who is told nothing asks the next server again.
                connection.close(CloseHow::Graceful, seat, out);
            }
            connection.completed(piece, done.result, seat);
        });
        if !self.waiting.is_empty() {
            self.retry(&mut place);
        }
        self.with(key, &mut place, |connection, seat, out| connection.resume(seat, out));
        self.wake(&mut place);
    }

    fn heads_changed(&mut self, now: Time, host: &mut dyn Submit, bufs: &mut dyn Buffers) {
        let mut place = Place { now, host, bufs };
        self.follow(&mut place);
        self.look_on(&mut place);
        self.retry(&mut place);
        self.wake(&mut place);
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
        let key = self.keys.get(&conn).copied();
        let entry = key.and_then(|key| self.connections.get_mut(key as usize));
        if let Some(connection) = entry.and_then(|entry| entry.connection.as_mut()) {
            connection.poll_transmit(batch, bufs);
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        while self.handshakes.front().is_some_and(|&it| !self.is_negotiating(it)) {
            self.handshakes.pop_front();
        }
        while self.absences.front().is_some_and(|&it| !self.awaits_device(it)) {
            self.absences.pop_front();
        }
        while self.endings.front().is_some_and(|&it| !self.is_ending(it)) {
            self.endings.pop_front();
        }
        let first = |list: &VecDeque<Deadline>| list.front().map(|deadline| deadline.at);
        let lists = [&self.handshakes, &self.absences, &self.endings].map(first);
        lists.into_iter().chain([self.retry_at, self.rest_at]).flatten().min()
    }
}
