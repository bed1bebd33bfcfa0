//! The admin connection of one controller: its queue, and every command's purpose, deadline and
//! buffer.

use super::env::Env;
use super::scan::ScanRead;
use crate::config::ControllerOptions;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::host_queue::{Completion, Flaw, HostData, HostQueue, HostQueueConfig};
use anabranch_proto::machine::{
    BufRef, Buffers, CloseHow, ConnId, Endpoint, Gather, Output, SocketOptions, Time, VerbId,
};
use anabranch_proto::nvme::sqe::Sqe;
use anabranch_proto::nvme::status::Status;
use core::fmt;
use core::time::Duration;

/// Commands at once on an admin queue, without the event request: as in Linux (NVME_AQ_DEPTH is 32;
/// one entry always stays free, one is for the event request).
pub(super) const ADMIN_DEPTH: u16 = 30;

/// Tags that callers' commands leave to ours, without which the controller is lost: keep-alive, a
/// scan (nine at once), the ANA log, events, the shutdown. Linux keeps some back, too.
const KEPT_TAGS: u16 = 13;

/// In-capsule data of an admin queue in bytes (NVMe/TCP: fixed).
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// How long the peer may take to read our termination request and to close: its path is away all
/// that time. As on I/O queues.
const GRACE: Duration = Duration::from_millis(50);

/// What an admin command is for, and so who takes its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of the connect sequence.
    Setup,
    /// Keep Alive.
    KeepAlive,
    /// Asynchronous Event Request.
    Event,
    /// The ANA log, read while live.
    AnaLog,
    /// A command of the scan that has this number.
    Scan(u64, ScanRead),
    /// The list of changed namespaces, beside a scan.
    News,
    /// Clears an event whose log nobody else reads.
    ClearEvent,
    /// A step of the orderly shutdown.
    Shutdown,
    /// A step of reading the discovery log.
    Discovery,
    /// A caller asked for raw bytes.
    Raw(VerbId),
}

/// As in "no answer to …".
impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Purpose::Setup => "a step of the connect sequence",
            Purpose::KeepAlive => "Keep Alive",
            Purpose::Event => "an Asynchronous Event Request",
            Purpose::AnaLog => "Get Log Page (ANA)",
            Purpose::Scan(_, ScanRead::Clear) | Purpose::News => {
                "Get Log Page (changed namespaces)"
            }
            Purpose::Scan(_, ScanRead::List) => "Identify (list of active namespaces)",
            Purpose::Scan(_, ScanRead::Ids(nsid)) => {
                return write!(f, "Identify (identifiers of namespace {nsid})");
            }
            Purpose::Scan(_, ScanRead::Namespace(nsid)) => {
                return write!(f, "Identify (namespace {nsid})");
            }
            Purpose::ClearEvent => "Get Log Page (to clear an event)",
            Purpose::Shutdown => "a step of the orderly shutdown",
            Purpose::Discovery => "Get Log Page (discovery)",
            Purpose::Raw(_) => "a command that was asked for by hand",
        })
    }
}

/// Data of an admin command.
pub(super) enum Payload<'a> {
    None,
    /// Controller to host: this many bytes.
    In(u32),
    /// Host to controller.
    Out(&'a [u8]),
}

/// How an admin command ended.
pub(super) struct Answer {
    pub(super) purpose: Purpose,
    pub(super) status: Status,
    pub(super) result: u64,
    /// What makes the status one of ours.
    pub(super) flaw: Option<Flaw>,
    /// What a command with data to the host has read.
    pub(super) data: Vec<u8>,
    /// Since it was sent.
    pub(super) took: Duration,
}

impl Answer {
    /// How the command has ended, for people.
    pub(super) fn says(&self) -> String {
        match self.flaw {
            Some(flaw) => format!("{}: {flaw}", self.status),
            None => self.status.to_string(),
        }
    }
}

/// Why a command could not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotSent {
    /// No buffer, or every tag is in use.
    Busy,
    /// The connection is not open.
    Down,
}

impl NotSent {
    pub(super) const fn text(self) -> &'static str {
        match self {
            NotSent::Busy => "no buffer or tag is free for an admin command",
            NotSent::Down => "the admin queue is not connected",
        }
    }
}

struct Pending {
    user: u64,
    purpose: Purpose,
    sent: Time,
    deadline: Option<Time>,
    buf: Option<BufRef>,
    reads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    /// Waits for `Closed`; at the time given the connection is aborted.
    Closing(Option<Time>),
}

/// An admin connection from `Output::Connect` to `Input::Closed`.
pub(super) struct Link {
    conn: ConnId,
    queue: HostQueue,
    pending: Vec<Pending>,
    next_user: u64,
    state: State,
    /// When something came last.
    heard_at: Time,
}

impl Link {
    /// Starts to connect.
    pub(super) fn open(env: &mut Env, to: &Endpoint, options: &ControllerOptions) -> Link {
        let conn = env.conns.open();
        let socket = SocketOptions { tell_node: true, ..options.socket.clone() };
        env.output(Output::Connect { conn, to: to.clone(), options: socket });
        let queue = HostQueue::new(HostQueueConfig {
            qid: 0,
            depth: ADMIN_DEPTH,
            hdr_digest: options.hdr_digest,
            data_digest: options.data_digest,
            in_capsule_bytes: ADMIN_IN_CAPSULE_BYTES,
        });
        let pending = Vec::with_capacity(usize::from(ADMIN_DEPTH) + 1);
        Link { conn, queue, pending, next_user: 0, state: State::Opening, heard_at: Time::ZERO }
    }

    pub(super) fn conn(&self) -> ConnId {
        self.conn
    }

    /// Whether commands can be sent now.
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Open && self.queue.is_ready() && self.queue.fault().is_none()
    }

    /// Whether TCP came up.
    pub(super) fn was_connected(&self) -> bool {
        self.state != State::Opening
    }

    pub(super) fn connected(&mut self, env: &mut Env) {
        if self.state == State::Opening {
            self.state = State::Open;
            self.queue.connected();
            self.pump(env);
        }
    }

    pub(super) fn received(&mut self, now: Time, bytes: &[u8], bufs: &mut dyn Buffers) {
        self.heard_at = now;
        if self.state == State::Open {
            self.queue.received(bytes, bufs);
        }
    }

    pub(super) fn received_into(&mut self, now: Time, len: u32, bufs: &mut dyn Buffers) {
        self.heard_at = now;
        if self.state == State::Open {
            self.queue.received_into(len, bufs);
        }
    }

    pub(super) fn transmitted(&mut self) {
        self.queue.transmitted();
    }

    pub(super) fn poll_transmit(&mut self, batch: &mut dyn Gather, bufs: &mut dyn Buffers) {
        if self.state != State::Opening {
            self.queue.poll_transmit(batch, bufs);
        }
    }

    /// Why the queue gave up, if it did.
    pub(super) fn fault(&self) -> Option<String> {
        if self.state == State::Open { self.queue.fault().map(ToString::to_string) } else { None }
    }

    /// Asks for what the queue wants next; call after everything that may have changed it.
    pub(super) fn pump(&mut self, env: &mut Env) {
        let conn = self.conn;
        if self.state == State::Open
            && let Some(buf) = self.queue.receive_hint()
        {
            env.output(Output::ReceiveInto { conn, buf });
        }
        let awaits_status = self.queue.awaits_status();
        if self.state != State::Opening && self.queue.has_transmit() {
            env.output(Output::Transmit { conn });
        } else if awaits_status {
            env.output(Output::Acknowledge { conn });
        }
    }

    /// Sends a command that must be answered before `deadline`.
    pub(super) fn send(
        &mut self,
        env: &mut Env,
        bufs: &mut dyn Buffers,
        purpose: Purpose,
        (sqe, payload): (Sqe, Payload<'_>),
        deadline: Time,
    ) -> Result<(), NotSent> {
        if !self.is_ready() {
            return Err(NotSent::Down);
        }
        if matches!(purpose, Purpose::Raw(_)) && self.queue.free_tags() <= KEPT_TAGS {
            return Err(NotSent::Busy);
        }
        let (buf, reads) = match payload {
            Payload::None => (None, false),
            Payload::In(len) => (Some(bufs.alloc(len).ok_or(NotSent::Busy)?), true),
            Payload::Out(bytes) => {
                let len = u32::try_from(bytes.len()).map_err(|_| NotSent::Busy)?;
                let buf = bufs.alloc(len).ok_or(NotSent::Busy)?;
                bufs.bytes_mut(buf).copy_from_slice(bytes);
                (Some(buf), false)
            }
        };
        let data = match buf {
            None => HostData::None,
            Some(buf) if reads => HostData::In(buf),
            Some(buf) => HostData::Out(buf),
        };
        let user = self.new_user();
        if self.queue.submit(sqe, data, user).is_err() {
            buf.into_iter().for_each(|buf| bufs.free(buf));
            return Err(NotSent::Busy);
        }
        let (sent, deadline) = (env.now, Some(deadline));
        self.pending.push(Pending { user, purpose, sent, deadline, buf, reads });
        self.pump(env);
        Ok(())
    }

    /// Whether a command of this purpose has not been answered yet.
    pub(super) fn awaits(&self, purpose: Purpose) -> bool {
        self.pending.iter().any(|pending| pending.purpose == purpose)
    }

    /// Sends the one Asynchronous Event Request; it has no deadline and a tag of its own (B14).
    pub(super) fn send_event_request(&mut self, env: &mut Env) {
        if !self.is_ready() || self.awaits(Purpose::Event) {
            return;
        }
        let user = self.new_user();
        if self.queue.submit_event_request(user).is_ok() {
            let (purpose, sent) = (Purpose::Event, env.now);
            let (deadline, buf, reads) = (None, None, false);
            self.pending.push(Pending { user, purpose, sent, deadline, buf, reads });
            self.pump(env);
        }
    }

    fn new_user(&mut self) -> u64 {
        self.next_user += 1;
        self.next_user
    }

    /// The next command that has ended. Its buffer has gone back.
    pub(super) fn poll_answer(&mut self, now: Time, bufs: &mut dyn Buffers) -> Option<Answer> {
        while self.state == State::Open {
            let done = self.queue.poll_completion()?;
            let Some(at) = self.pending.iter().position(|p| p.user == done.user) else { continue };
            let pending = self.pending.swap_remove(at);
            let data = match pending.buf {
                Some(buf) if pending.reads => bufs.bytes(buf).to_vec(),
                _ => Vec::new(),
            };
            pending.buf.into_iter().for_each(|buf| bufs.free(buf));
            let Pending { purpose, sent, .. } = pending;
            let took = now.since(sent);
            let Completion { status, result, flaw, .. } = done;
            return Some(Answer { purpose, status, result, flaw, data, took });
        }
        None
    }

    /// The earliest time at which [`Link::expired`] has something to say.
    pub(super) fn due(&self) -> Option<Time> {
        match self.state {
            State::Closing(abort_at) => abort_at,
            _ => self.pending.iter().filter_map(|pending| pending.deadline).min(),
        }
    }

    /// Commands of this purpose have at least so much time where something has come for longer than
    /// a quarter of it since they were sent: here, or elsewhere by `heard_at`. (What comes right
    /// behind them was on its way before.)
    pub(super) fn prolong(&mut self, purpose: Purpose, heard_at: Time, limit: Duration) {
        let heard_at = heard_at.max(self.heard_at);
        for pending in self.pending.iter_mut().filter(|pending| pending.purpose == purpose) {
            if heard_at <= pending.sent.after(limit / 4) {
                continue;
            }
            let by = pending.sent.after(limit);
            pending.deadline = pending.deadline.map(|deadline| deadline.max(by));
        }
    }

    /// When something has come last.
    pub(super) fn heard_at(&self) -> Time {
        self.heard_at
    }

    /// A command that should have been answered by now, and how long it has had: each is told of
    /// once. Aborts a connection that closes too slowly.
    pub(super) fn expired(&mut self, env: &mut Env) -> Option<(Purpose, Duration)> {
        let now = env.now;
        match self.state {
            State::Closing(Some(abort_at)) if abort_at <= now => {
                self.state = State::Closing(None);
                env.output(Output::Close { conn: self.conn, how: CloseHow::Abort });
                None
            }
            State::Closing(_) => None,
            _ => self.pending.iter_mut().find_map(|pending| {
                let deadline = pending.deadline.take_if(|deadline| *deadline <= now)?;
                Some((pending.purpose, deadline.since(pending.sent)))
            }),
        }
    }

    /// Ends the connection. A termination request that is queued goes out first.
    pub(super) fn close(&mut self, env: &mut Env) {
        if matches!(self.state, State::Closing(_)) {
            return;
        }
        let graceful = self.state == State::Open && self.queue.fault().is_some();
        let (how, abort_at) = if graceful {
            (CloseHow::Graceful, Some(env.now.after(GRACE)))
        } else {
            (CloseHow::Abort, None)
        };
        self.state = State::Closing(abort_at);
        env.output(Output::Close { conn: self.conn, how });
        self.pump(env);
    }

    /// The connection is over: buffers go back; the callers who wait for raw bytes are returned.
    pub(super) fn closed(mut self, bufs: &mut dyn Buffers) -> Vec<VerbId> {
        while self.queue.drain().is_some() {}
        let mut callers = Vec::new();
        for pending in self.pending {
            pending.buf.into_iter().for_each(|buf| bufs.free(buf));
            if let Purpose::Raw(id) = pending.purpose {
                callers.push(id);
            }
        }
        callers
    }
}
