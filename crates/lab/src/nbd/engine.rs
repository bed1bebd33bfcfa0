//! All connections of one worker.

use super::connection::Connection;
use super::negotiation::Opened;
use super::{
    CLOSE_TIMEOUT, MAX_CONNECTIONS, MAX_DEPTH, MAX_NAME_BYTES, NEGOTIATION_TIMEOUT, SILENCE_TIMEOUT,
};
use crate::load::{Device, Job, JobError, LoadReport, Share, Work};
use anabranch_proto::machine::{
    Buffers, CloseCause, ConnId, Endpoint, Gather, Input, Machine, Output, SocketOptions, Time,
    VerbId,
};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

/// How often silence is looked for.
const TICK: Duration = Duration::from_secs(1);

/// What can be asked. One after the other: open, then start and stop as often as wanted, then
/// close.
#[derive(Clone, Debug)]
pub enum NbdLoadVerb {
    /// Connect and negotiate. Answered `Opened` when all connections are.
    Open {
        /// The server.
        to: Endpoint,
        /// The export's name.
        export: String,
        /// How many connections, 1 to [`MAX_CONNECTIONS`].
        connections: u16,
    },
    /// Begin: one job on each connection (the job's `jobs` does not count here).
    Start {
        /// What to do.
        job: Box<Job>,
        /// The first connection is this one among all workers'.
        first: u16,
        /// Connections of all workers.
        of: u16,
    },
    /// Submit nothing more, wait for what is in flight, report.
    Stop,
    /// Leave.
    Close,
}

/// The answer.
#[derive(Clone, Debug)]
pub enum NbdLoadReply {
    /// The export.
    Opened(Opened),
    /// The load runs.
    Started,
    /// Figures of this worker.
    Report(Box<LoadReport>),
    /// All connections are closed.
    Closed,
    /// Why not.
    Failed(String),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdLoadEvent {
    /// A connection with a load on it is lost, for this reason.
    Lost(String),
}

impl fmt::Display for NbdLoadEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdLoadEvent::Lost(why) => write!(f, "a connection is lost: {why}"),
        }
    }
}

pub(super) type Outputs = VecDeque<Output<Infallible, NbdLoadReply, NbdLoadEvent>>;

#[derive(Clone, Copy)]
enum State {
    New,
    Opening {
        verb: VerbId,
        until: Time,
    },
    Open,
    Running {
        tick: Time,
    },
    Stopping {
        verb: VerbId,
        tick: Time,
    },
    Closing {
        verb: VerbId,
        until: Time,
    },
    /// The export could not be opened, or all is closed.
    Over,
}

/// The load through NBD on one worker.
pub struct NbdLoad {
    state: State,
    connections: Vec<Connection>,
    outputs: Outputs,
    /// What has happened to a connection since the start.
    failure: Option<String>,
    /// Requests that a lost connection has left without a reply.
    unanswered: u64,
    /// The earliest end of a pause.
    wake: Option<Time>,
}

impl Default for NbdLoad {
    fn default() -> NbdLoad {
        NbdLoad::new()
    }
}

impl NbdLoad {
    /// A load that waits for its first verb.
    #[must_use]
    pub fn new() -> NbdLoad {
        NbdLoad {
            state: State::New,
            connections: Vec::new(),
            outputs: VecDeque::with_capacity(64),
            failure: None,
            unanswered: 0,
            wake: None,
        }
    }

    fn reply(&mut self, id: VerbId, reply: NbdLoadReply) {
        self.outputs.push_back(Output::Reply { id, reply });
    }

    fn verb(&mut self, now: Time, id: VerbId, verb: NbdLoadVerb, bufs: &mut dyn Buffers) {
        let refused = match (verb, self.state) {
            (NbdLoadVerb::Open { to, export, connections }, State::New) => {
                self.open(now, id, &to, &export, connections).err()
            }
            (NbdLoadVerb::Start { job, first, of }, State::Open) => {
                let started = self.start(now, &job, first, of, bufs);
                if started.is_ok() {
                    self.reply(id, NbdLoadReply::Started);
                }
                started.err().map(|error| error.0)
            }
            (NbdLoadVerb::Stop, State::Running { tick }) => {
                self.connections.iter_mut().for_each(Connection::stop);
                self.state = State::Stopping { verb: id, tick };
                self.settle(bufs);
                None
            }
            (NbdLoadVerb::Close, State::Open) => {
                self.state = State::Closing { verb: id, until: now.after(CLOSE_TIMEOUT) };
                self.connections.iter_mut().for_each(|it| it.leave(&mut self.outputs));
                self.settle(bufs);
                None
            }
            (verb, _) => Some(format!("out of order: {verb:?}")),
        };
        if let Some(why) = refused {
            self.reply(id, NbdLoadReply::Failed(why));
        }
    }

    fn open(
        &mut self,
        now: Time,
        verb: VerbId,
        to: &Endpoint,
        export: &str,
        connections: u16,
    ) -> Result<(), String> {
        if !(1..=MAX_CONNECTIONS).contains(&connections) {
            return Err(format!("{connections} connections, 1 to {MAX_CONNECTIONS} are possible"));
        }
        if export.len() > MAX_NAME_BYTES {
            let length = export.len();
            return Err(format!("the export's name has {length} bytes, at most {MAX_NAME_BYTES}"));
        }
        for index in 0..connections {
            let conn = ConnId::opened(index.into());
            self.connections.push(Connection::new(conn, export));
            let (to, options) = (to.clone(), SocketOptions::default());
            self.outputs.push_back(Output::Connect { conn, to, options });
        }
        self.state = State::Opening { verb, until: now.after(NEGOTIATION_TIMEOUT) };
        Ok(())
    }

    fn start(
        &mut self,
        now: Time,
        job: &Job,
        first: u16,
        of: u16,
        bufs: &mut dyn Buffers,
    ) -> Result<(), JobError> {
        let fail = |text: String| Err(JobError(text));
        if let Some(lost) = &self.failure {
            return fail(lost.clone());
        }
        let Some(export) = self.connections.first().and_then(Connection::opened) else {
            return fail("no connection is open".to_owned());
        };
        let (largest, most) = (job.largest(), export.max_request_bytes.min(bufs.max_alloc()));
        if largest > most {
            return fail(format!(
                "bs {largest} exceeds the {most} bytes that one request can have"
            ));
        }
        if export.read_only && job.read_percent < 100 {
            return fail("the export is read-only, the load writes".to_owned());
        }
        if job.depth > MAX_DEPTH {
            return fail(format!("iodepth {} exceeds {MAX_DEPTH}", job.depth));
        }
        let block_bytes = export.block_bytes;
        let device = Device { block_bytes, blocks: export.bytes / u64::from(block_bytes) };
        for (index, connection) in (first..).zip(&mut self.connections) {
            let share = Share { index, of };
            let ready =
                Work::new(job.clone(), share, device, now).and_then(|work| {
                    match connection.prepare(work, job.depth, largest, bufs) {
                        true => Ok(()),
                        false => Err(JobError("iodepth times bs exceeds the buffer memory".into())),
                    }
                });
            if ready.is_err() {
                self.connections.iter_mut().for_each(|it| drop(it.finish(bufs)));
                return ready;
            }
        }
        self.state = State::Running { tick: now.after(TICK) };
        for index in 0..self.connections.len() {
            self.connections[index].run(now, &mut self.outputs, bufs);
            self.note_pause(index);
        }
        Ok(())
    }

    fn note_pause(&mut self, index: usize) {
        if let Some(at) = self.connections[index].wake() {
            self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
        }
    }

    /// Something came for a connection, well or not.
    fn after(&mut self, index: usize, came: Result<(), String>, bufs: &mut dyn Buffers) {
        match came {
            Ok(()) => self.note_pause(index),
            Err(why) => self.lose(index, why),
        }
        self.settle(bufs);
    }

    fn lose(&mut self, index: usize, why: String) {
        let in_flight = self.connections[index].in_flight();
        self.connections[index].give_up(&mut self.outputs);
        self.lost(in_flight, why);
    }

    fn lost(&mut self, in_flight: usize, why: String) {
        if matches!(self.state, State::Running { .. } | State::Stopping { .. })
            && self.failure.is_none()
        {
            self.outputs.push_back(Output::Event(NbdLoadEvent::Lost(why.clone())));
        }
        self.unanswered += in_flight as u64;
        self.failure.get_or_insert(why);
    }

    /// Goes on to the next state when what is waited for has come.
    fn settle(&mut self, bufs: &mut dyn Buffers) {
        match self.state {
            State::Opening { verb, .. } => {
                if let Some(why) = self.failure.clone() {
                    self.connections.iter_mut().for_each(|it| it.give_up(&mut self.outputs));
                    self.state = State::Over;
                    return self.reply(verb, NbdLoadReply::Failed(why));
                }
                let mut exports = self.connections.iter().map(Connection::opened);
                let Some(Some(first)) = exports.next() else { return };
                let mut alike = true;
                for export in exports {
                    let Some(export) = export else { return };
                    alike &= export == first;
                }
                if !alike {
                    self.failure = Some("it describes the export differently each time".to_owned());
                    return self.settle(bufs);
                }
                self.state = State::Open;
                self.reply(verb, NbdLoadReply::Opened(first));
            }
            State::Stopping { verb, .. } if self.connections.iter().all(Connection::is_idle) => {
                let report = self.finish(bufs);
                self.state = State::Open;
                self.reply(verb, NbdLoadReply::Report(Box::new(report)));
            }
            State::Closing { verb, .. } if self.connections.iter().all(Connection::is_closed) => {
                self.state = State::Over;
                self.reply(verb, NbdLoadReply::Closed);
            }
            _ => {}
        }
    }

    fn finish(&mut self, bufs: &mut dyn Buffers) -> LoadReport {
        let mut sum = LoadReport::default();
        for connection in &mut self.connections {
            sum.merge(&connection.finish(bufs));
        }
        self.wake = None;
        if let Some(why) = &self.failure {
            sum.errors += self.unanswered.max(1);
            sum.first_error = Some(why.clone());
        }
        sum
    }

    fn timeout(&mut self, now: Time, bufs: &mut dyn Buffers) {
        match &mut self.state {
            State::Opening { until, .. } if *until <= now => {
                let s = NEGOTIATION_TIMEOUT.as_secs();
                self.failure
                    .get_or_insert(format!("nothing there has opened an export as NBD in {s} s"));
            }
            State::Closing { until, .. } if *until <= now => {
                *until = now.after(CLOSE_TIMEOUT);
                self.connections.iter_mut().for_each(|it| it.give_up(&mut self.outputs));
            }
            State::Running { tick } | State::Stopping { tick, .. } if *tick <= now => {
                *tick = now.after(TICK);
                self.find_silence(now);
            }
            _ => {}
        }
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            for index in 0..self.connections.len() {
                self.connections[index].advance(now, &mut self.outputs, bufs);
                self.note_pause(index);
            }
        }
        self.settle(bufs);
    }

    fn find_silence(&mut self, now: Time) {
        for index in 0..self.connections.len() {
            let since = self.connections[index].silent_since();
            if since.is_some_and(|since| now.since(since) >= SILENCE_TIMEOUT) {
                let s = SILENCE_TIMEOUT.as_secs();
                self.lose(index, format!("no reply came for {s} s"));
            }
        }
    }

    fn closed(&mut self, conn: ConnId, cause: CloseCause, bufs: &mut dyn Buffers) {
        let index = conn.index() as usize;
        let Some(connection) = self.connections.get_mut(index) else { return };
        let in_flight = connection.in_flight();
        let asked_for = connection.closed(bufs);
        if !asked_for {
            let why = match cause {
                CloseCause::PeerClosed => "the server closed the connection".to_owned(),
                CloseCause::Requested | CloseCause::Failed(_) => cause.to_string(),
            };
            self.lost(in_flight, why);
        }
        self.settle(bufs);
    }
}

impl Machine for NbdLoad {
    type Mail = Infallible;
    type Verb = NbdLoadVerb;
    type Reply = NbdLoadReply;
    type Event = NbdLoadEvent;

    fn handle(
        &mut self,
        now: Time,
        input: Input<'_, NbdLoadVerb, Infallible>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Verb { id, verb } => self.verb(now, id, verb, bufs),
            Input::Timeout => self.timeout(now, bufs),
            Input::Received { conn, bytes } => {
                let index = conn.index() as usize;
                let Some(connection) = self.connections.get_mut(index) else { return };
                let came = connection.received(now, bytes, &mut self.outputs, bufs);
                self.after(index, came, bufs);
            }
            Input::ReceivedInto { conn, len } => {
                let index = conn.index() as usize;
                let Some(connection) = self.connections.get_mut(index) else { return };
                let came = connection.received_into(now, len, &mut self.outputs, bufs);
                self.after(index, came, bufs);
            }
            Input::Transmitted { conn } => {
                let index = conn.index() as usize;
                let Some(connection) = self.connections.get_mut(index) else { return };
                connection.transmitted(now, &mut self.outputs, bufs);
                self.after(index, Ok(()), bufs);
            }
            Input::Closed { conn, cause } => self.closed(conn, cause, bufs),
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Option<Output<Infallible, NbdLoadReply, NbdLoadEvent>> {
        self.outputs.pop_front()
    }

    fn poll_transmit(
        &mut self,
        _now: Time,
        conn: ConnId,
        batch: &mut dyn Gather,
        bufs: &mut dyn Buffers,
    ) {
        if let Some(connection) = self.connections.get_mut(conn.index() as usize) {
            connection.poll_transmit(batch, bufs);
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        let due = match self.state {
            State::Opening { until, .. } | State::Closing { until, .. } => Some(until),
            State::Running { tick } | State::Stopping { tick, .. } => Some(tick),
            State::New | State::Open | State::Over => None,
        };
        match (due, self.wake) {
            (Some(due), Some(wake)) => Some(due.min(wake)),
            (due, wake) => due.or(wake),
        }
    }
}
