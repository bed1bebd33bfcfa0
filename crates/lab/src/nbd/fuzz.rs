//! Test support: a driver in memory, a server whose every byte can be chosen, and the fuzz body.
//! Not for production.

use super::{NbdLoad, NbdLoadEvent, NbdLoadReply, NbdLoadVerb};
use crate::load::{BlockSize, Job};
use anabranch_export::nbd::wire::{self, command, export_flag, greeting, info, option_reply};
use anabranch_proto::machine::{
    BufRef, Buffers, CloseCause, CloseHow, ConnId, Endpoint, Input, Machine, Output, SystemError,
    Time, VerbId,
};
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[derive(Default)]
struct Stream {
    connected: bool,
    /// On its way to the client.
    inbox: VecDeque<u8>,
    /// What the client has sent and nobody has taken.
    sent: Vec<u8>,
    aim: Option<BufRef>,
    wants_transmit: bool,
    /// A batch is under way.
    sending: bool,
    close: Option<CloseHow>,
}

/// A driver that keeps the contract of [`anabranch_proto::machine`] and uses the freedom that it
/// leaves. The other ends of the streams belong to the caller.
pub struct Stage {
    /// The client.
    pub load: NbdLoad,
    /// Its memory.
    pub pool: MemoryBuffers,
    /// What it answered.
    pub replies: Vec<(VerbId, NbdLoadReply)>,
    /// What it told.
    pub events: Vec<NbdLoadEvent>,
    /// Bytes arrive in portions of at most this size.
    pub portion: usize,
    /// `ReceiveInto` is honoured.
    pub aims: bool,
    /// Batches count as sent only when told ([`Stage::release`]).
    pub hold: bool,
    /// How often the next receive was aimed at a buffer.
    pub aimed: usize,
    now: Time,
    streams: BTreeMap<ConnId, Stream>,
    verbs: u64,
}

impl Stage {
    /// With this much payload memory.
    #[must_use]
    pub fn new(pool_bytes: u64) -> Stage {
        Stage {
            load: NbdLoad::new(),
            pool: MemoryBuffers::with_limit(pool_bytes),
            replies: Vec::new(),
            events: Vec::new(),
            portion: 16 << 10,
            aims: true,
            hold: false,
            aimed: 0,
            now: Time::ZERO,
            streams: BTreeMap::new(),
            verbs: 0,
        }
    }

    /// Asks something.
    pub fn verb(&mut self, verb: NbdLoadVerb) -> VerbId {
        self.verbs += 1;
        let id = VerbId(self.verbs);
        self.input(Input::Verb { id, verb });
        id
    }

    /// Takes an answer.
    pub fn answer(&mut self, id: VerbId) -> Option<NbdLoadReply> {
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.remove(at).1)
    }

    /// Asks for an export, and lets every attempt to connect succeed.
    pub fn open(&mut self, export: &str, connections: u16) -> VerbId {
        let to = Endpoint::Tcp(([127, 0, 0, 1], 10809).into());
        let id = self.verb(NbdLoadVerb::Open { to, export: export.to_owned(), connections });
        for conn in self.conns() {
            self.stream(conn).connected = true;
            self.input(Input::Connected { conn, local: None, node: None });
        }
        id
    }

    /// The streams that are not closed.
    #[must_use]
    pub fn conns(&self) -> Vec<ConnId> {
        self.streams.keys().copied().collect()
    }

    /// The server says something.
    pub fn say(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(stream) = self.streams.get_mut(&conn) {
            stream.inbox.extend(bytes);
        }
        self.settle();
    }

    /// The server greets, hears the option, and opens an export of this size.
    pub fn welcome(&mut self, conn: ConnId, bytes: u64) {
        self.say(conn, &greet());
        self.release();
        self.say(conn, &opened(bytes));
    }

    /// Takes what the client has sent.
    pub fn take(&mut self, conn: ConnId) -> Vec<u8> {
        self.streams.get_mut(&conn).map(|it| std::mem::take(&mut it.sent)).unwrap_or_default()
    }

    /// The server goes away.
    pub fn close(&mut self, conn: ConnId, cause: CloseCause) {
        if self.streams.remove(&conn).is_some() {
            self.input(Input::Closed { conn, cause });
        }
    }

    /// Batches that were held back have left.
    pub fn release(&mut self) {
        for conn in self.conns() {
            if self.streams.get(&conn).is_some_and(|stream| stream.sending) {
                self.transmitted(conn);
            }
        }
        self.settle();
    }

    /// Time passes; all time-outs in it come.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now.after(span);
        let mut rounds = 0;
        while let Some(at) = self.load.poll_timeout().filter(|&at| at <= end) {
            rounds += 1;
            assert!(rounds < 100_000, "time-outs come to an end");
            self.now = self.now.max(at);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    fn input(&mut self, input: Input<'_, NbdLoadVerb, std::convert::Infallible>) {
        self.load.handle(self.now, input, &mut self.pool);
        self.settle();
    }

    fn stream(&mut self, conn: ConnId) -> &mut Stream {
        self.streams.get_mut(&conn).expect("outputs name live connections")
    }

    fn settle(&mut self) {
        loop {
            let mut moved = self.outputs();
            for conn in self.conns() {
                moved |= self.transmit(conn);
                moved |= self.deliver(conn);
            }
            if !moved {
                return;
            }
        }
    }

    fn outputs(&mut self) -> bool {
        let mut moved = false;
        while let Some(output) = self.load.poll_output() {
            moved = true;
            match output {
                Output::Connect { conn, .. } => {
                    let known = self.streams.insert(conn, Stream::default());
                    assert!(known.is_none(), "a name in use");
                }
                Output::Transmit { conn } => self.stream(conn).wants_transmit = true,
                Output::ReceiveInto { conn, buf } => {
                    // The memory must be there, whether it is used or not.
                    assert!(!self.pool.bytes(buf).is_empty());
                    self.aimed += 1;
                    if self.aims {
                        self.stream(conn).aim = Some(buf);
                    }
                }
                Output::Close { conn, how } => self.stream(conn).close = Some(how),
                Output::Reply { id, reply } => {
                    assert!(self.replies.iter().all(|(of, _)| *of != id), "answered twice");
                    self.replies.push((id, reply));
                }
                Output::Event(event) => self.events.push(event),
                other => panic!("unexpected output {other:?}"),
            }
        }
        moved
    }

    fn transmit(&mut self, conn: ConnId) -> bool {
        let stream = self.stream(conn);
        let closing = stream.close;
        if closing == Some(CloseHow::Abort) {
            self.streams.remove(&conn);
            let (cause, now) = (CloseCause::Requested, self.now);
            self.load.handle(now, Input::Closed { conn, cause }, &mut self.pool);
            return true;
        }
        if stream.sending || !stream.connected || !(stream.wants_transmit || closing.is_some()) {
            return false;
        }
        stream.wants_transmit = false;
        let mut batch = VecGather::with_room(3);
        self.load.poll_transmit(self.now, conn, &mut batch, &mut self.pool);
        if batch.is_empty() {
            if closing.is_some() {
                self.streams.remove(&conn);
                let (cause, now) = (CloseCause::Requested, self.now);
                self.load.handle(now, Input::Closed { conn, cause }, &mut self.pool);
            }
            return closing.is_some();
        }
        let sent = batch.take();
        let stream = self.stream(conn);
        stream.sent.extend_from_slice(&sent);
        stream.sending = true;
        if !self.hold {
            self.transmitted(conn);
        }
        true
    }

    fn transmitted(&mut self, conn: ConnId) {
        let stream = self.stream(conn);
        stream.sending = false;
        // A batch may not have had room for everything.
        stream.wants_transmit = true;
        self.load.handle(self.now, Input::Transmitted { conn }, &mut self.pool);
    }

    fn deliver(&mut self, conn: ConnId) -> bool {
        let portion = self.portion;
        let Some(stream) = self.streams.get_mut(&conn) else { return false };
        if stream.inbox.is_empty() || stream.close.is_some() || !stream.connected {
            return false;
        }
        let aim = stream.aim.take();
        let most = aim.map_or(portion, |buf| buf.len() as usize);
        let len = stream.inbox.len().min(most).min(portion);
        let bytes: Vec<u8> = stream.inbox.drain(..len).collect();
        let input = match aim {
            Some(buf) => {
                // `len` is at most the buffer's length.
                let len = len as u32;
                self.pool.bytes_mut(buf.slice(0, len)).copy_from_slice(&bytes);
                Input::ReceivedInto { conn, len }
            }
            None => Input::Received { conn, bytes: &bytes },
        };
        self.load.handle(self.now, input, &mut self.pool);
        true
    }
}

/// A server's greeting.
#[must_use]
pub fn greet() -> Vec<u8> {
    let mut bytes = wire::NBD_MAGIC.to_be_bytes().to_vec();
    bytes.extend(wire::OPTION_MAGIC.to_be_bytes());
    bytes.extend((greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES).to_be_bytes());
    bytes
}

/// A reply to `NBD_OPT_GO`.
#[must_use]
pub fn option_reply(kind: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = wire::OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(wire::option::GO.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u32::try_from(payload.len()).expect("short").to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The payload that tells size and flags.
#[must_use]
pub fn export_info(bytes: u64, flags: u16) -> Vec<u8> {
    let mut payload = info::EXPORT.to_be_bytes().to_vec();
    payload.extend(bytes.to_be_bytes());
    payload.extend((export_flag::HAS_FLAGS | flags).to_be_bytes());
    payload
}

/// The payload that tells block sizes.
#[must_use]
pub fn block_info(least: u32, most: u32) -> Vec<u8> {
    let mut payload = info::BLOCK_SIZE.to_be_bytes().to_vec();
    [least, 4096, most].iter().for_each(|bytes| payload.extend(bytes.to_be_bytes()));
    payload
}

/// Everything that a server says behind its greeting until the export is open.
#[must_use]
pub fn opened(bytes: u64) -> Vec<u8> {
    [
        option_reply(option_reply::INFO, &export_info(bytes, export_flag::CAN_MULTI_CONN)),
        option_reply(option_reply::INFO, &block_info(512, 1 << 20)),
        option_reply(option_reply::ACK, &[]),
    ]
    .concat()
}

/// A request as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Command.
    pub command: u16,
    /// Cookie.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
}

/// Takes whole requests off the front of what a client has sent.
///
/// # Panics
/// When these are no requests.
pub fn requests(bytes: &mut Vec<u8>) -> Vec<Seen> {
    let mut seen = Vec::new();
    while bytes.len() >= wire::REQUEST_BYTES {
        let be = |at: usize, len: usize| {
            bytes[at..at + len].iter().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        assert_eq!(be(0, 4), u64::from(wire::REQUEST_MAGIC));
        // The fields have these sizes.
        let (command, length) = (be(6, 2) as u16, be(24, 4) as u32);
        let payload = if command == command::WRITE { length as usize } else { 0 };
        if bytes.len() < wire::REQUEST_BYTES + payload {
            break;
        }
        seen.push(Seen { command, cookie: be(8, 8), offset: be(16, 8), bytes: length });
        bytes.drain(..wire::REQUEST_BYTES + payload);
    }
    seen
}

/// A simple reply, with zeroes for the data of a read that went well.
#[must_use]
pub fn reply(to: &Seen, errno: u32) -> Vec<u8> {
    let mut bytes = wire::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend(errno.to_be_bytes());
    bytes.extend(to.cookie.to_be_bytes());
    if to.command == command::READ && errno == 0 {
        bytes.resize(bytes.len() + to.bytes as usize, 0);
    }
    bytes
}

/// A job for tests.
#[must_use]
pub fn job(read_percent: u32, sizes: &[u32], depth: u32, verify: bool) -> Job {
    Job {
        device: String::new(),
        read_percent,
        random: true,
        sizes: sizes.iter().map(|&bytes| BlockSize { bytes, weight: 1 }).collect(),
        depth,
        jobs: 1,
        offset: 0,
        size: None,
        number_ios: None,
        thinktime: Duration::ZERO,
        verify,
        seed: 7,
    }
}

/// Fuzz body: a server that says these bytes, among good replies and bad ones. The client must not
/// panic, must answer every verb once, and must give back all memory.
///
/// The first four bytes say how: what goes before, in what portions bytes arrive, the load.
///
/// # Panics
/// When the client misbehaves.
pub fn fuzz_nbd_client(bytes: &[u8]) {
    let Some((&[mode, portion, load, pool], rest)) = bytes.split_first_chunk::<4>() else { return };
    let mut stage = Stage::new(64 << 10 << (pool % 8));
    stage.portion = usize::from(portion) * 37 + 1;
    (stage.aims, stage.hold) = (mode & 1 != 0, mode & 2 != 0);
    let open = stage.open("disk", u16::from(mode >> 2 & 1) + 1);
    if mode & 8 != 0 {
        stage.conns().into_iter().for_each(|conn| stage.welcome(conn, 1 << 20));
    }
    let sizes: &[u32] = if load & 1 == 0 { &[512] } else { &[4096, 512, 40960] };
    let job =
        Box::new(job(u32::from(load % 5) * 25, sizes, u32::from(load % 7) + 1, mode & 16 != 0));
    let start = stage.verb(NbdLoadVerb::Start { job, first: 0, of: 2 });
    let mut waiting: BTreeMap<ConnId, (Vec<u8>, VecDeque<Seen>)> = BTreeMap::new();
    let mut script = rest.iter();
    while let Some(&step) = script.next() {
        let conns = stage.conns();
        let Some(&conn) = conns.get(usize::from(step >> 7) % conns.len().max(1)) else { break };
        let (bytes, seen) = waiting.entry(conn).or_default();
        bytes.extend(stage.take(conn));
        if mode & 8 != 0 && bytes.len() > 64 {
            // Behind flags and one option.
            let at = bytes.windows(4).position(|four| four == wire::REQUEST_MAGIC.to_be_bytes());
            if seen.is_empty() && at.is_some_and(|at| at < 64) {
                bytes.drain(..at.unwrap_or(0));
            }
            if bytes.starts_with(&wire::REQUEST_MAGIC.to_be_bytes()) {
                seen.extend(requests(bytes));
            }
        }
        match step % 8 {
            0..=3 => {
                if let Some(to) = seen.remove(usize::from(step / 8) % seen.len().max(1)) {
                    let errno = if step % 8 == 3 { u32::from(step) } else { 0 };
                    stage.say(conn, &reply(&to, errno));
                }
            }
            4 => stage.release(),
            5 => stage.pass(Duration::from_millis(u64::from(step) * 40)),
            6 if step > 250 => stage.close(conn, CloseCause::Failed(SystemError::RESET)),
            _ => {
                let raw: Vec<u8> = script.by_ref().take(usize::from(step / 8)).copied().collect();
                stage.say(conn, &raw);
            }
        }
    }
    let stop = stage.verb(NbdLoadVerb::Stop);
    stage.release();
    for conn in stage.conns() {
        stage.close(conn, CloseCause::PeerClosed);
    }
    for id in [open, start, stop] {
        assert!(stage.answer(id).is_some(), "{id:?} was answered");
    }
    assert_eq!(stage.pool.in_use_bytes(), 0, "every buffer came back");
    assert_eq!(stage.load.poll_timeout(), None, "nothing is waited for");
}
