//! A target with plain memory, virtual time and a host that is nothing but bytes.
//!
//! The host side reads the wire by hand, offsets and all, so that a mistake in the target's PDUs
//! does not hide behind the same mistake in a shared parser.

use anabranch_proto::digest::crc32c;
use anabranch_proto::machine::{
    CloseCause, CloseHow, ConnId, DiskId, DiskOp, Endpoint, FileId, Input, ListenerId, Machine,
    Output, Peer, SystemError, Time, VerbId,
};
use anabranch_proto::nvme::fabrics::{ConnectCommand, ConnectData, PropertyGet, PropertySet};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{Nqn, Sgl, Sqe, Status, Uuid};
use anabranch_proto::pdu::{CapsuleCmd, Format, H2cData, Head, IcReq};
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use anabranch_target::config::{
    BackendConfig, Limits, NamespaceConfig, PortConfig, SubsystemConfig,
};
use anabranch_target::{
    Target, TargetConfig, TargetError, TargetEvent, TargetReply, TargetStatus, TargetVerb,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.org.example:volume";
pub(crate) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:8a7a1b5e-7d1c-4a4e-9d0f-0123456789ab";
pub(crate) const OTHER_HOST: &str = "nqn.2026-11.org.example:other-host";
pub(crate) const HOST_ID: Uuid = Uuid([7; 16]);
pub(crate) const MIB: u64 = 1 << 20;
/// What a driver hands in at once.
const RECEIVED_AT_ONCE: usize = 128 << 10;
/// As Linux before 5.17, which sends all that was asked for at once.
const MAX_H2C_DATA: u32 = 1 << 20;

pub(crate) fn nqn(text: &str) -> Nqn {
    text.parse().unwrap()
}

pub(crate) fn memory_namespace(nsid: u32, bytes: u64) -> NamespaceConfig {
    NamespaceConfig {
        nsid,
        backend: BackendConfig::Memory { bytes },
        block_bytes: 4096,
        uuid: None,
        nguid: None,
        ana_group: 1,
    }
}

pub(crate) fn file_namespace(nsid: u32, bytes: u64) -> NamespaceConfig {
    NamespaceConfig {
        backend: BackendConfig::File { file: FileId(9), bytes },
        ..memory_namespace(nsid, bytes)
    }
}

/// Two ports, one subsystem with one namespace of 16 MiB in memory.
pub(crate) fn config() -> TargetConfig {
    let port = || PortConfig::new(Endpoint::Tcp("127.0.0.1:0".parse().unwrap()));
    TargetConfig {
        subsystems: vec![SubsystemConfig {
            nqn: nqn(SUBSYSTEM),
            serial: "A1".into(),
            model: "Anabranch".into(),
            namespaces: vec![memory_namespace(1, 16 * MIB)],
            allowed_hosts: vec![],
        }],
        ports: vec![port(), port()],
        limits: Limits::default(),
        first_cntlid: None,
    }
}

/// What came for a command.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) status: Status,
    pub(crate) result: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) at: Time,
    /// Submission queue head; FFFFh also when data came with the SUCCESS flag, which has none.
    pub(crate) sqhd: u16,
}

#[derive(Debug, Default)]
pub(crate) struct Wire {
    rx: Vec<u8>,
    pub(crate) done: BTreeMap<u16, Done>,
    data: BTreeMap<u16, Vec<u8>>,
    /// Outstanding requests for data: cid, ttag, offset, length.
    pub(crate) r2t: Vec<(u16, u16, u32, u32)>,
    /// FES and FEI of a terminate request.
    pub(crate) term: Option<(u16, u32)>,
    pub(crate) closed: bool,
    pub(crate) paused: bool,
    /// Its end would be told of although it is paused.
    pub(crate) watched: bool,
    pub(crate) ready: bool,
}

pub(crate) struct Rig {
    pub(crate) target: Target,
    pub(crate) bufs: MemoryBuffers,
    pub(crate) now: Time,
    pub(crate) wires: BTreeMap<ConnId, Wire>,
    pub(crate) listeners: BTreeMap<ListenerId, Endpoint>,
    pub(crate) disk: VecDeque<(DiskId, FileId, DiskOp)>,
    pub(crate) events: Vec<TargetEvent>,
    replies: BTreeMap<VerbId, Result<TargetReply, TargetError>>,
    transmit: BTreeSet<ConnId>,
    next_port: u16,
    next_conn: u32,
    next_verb: u64,
    next_cid: u16,
    /// Data for R2Ts, by connection and cid.
    outgoing: BTreeMap<(ConnId, u16), Vec<u8>>,
    pub(crate) answer_r2t: bool,
    /// Listeners neither begin nor end yet.
    pub(crate) slow_listeners: bool,
    /// Those that are to end.
    pub(crate) ending: Vec<ListenerId>,
    /// Timers that are due at once wait for [`Rig::timer`].
    pub(crate) slow_timers: bool,
    /// What has been asked to close has not yet.
    pub(crate) slow_closing: bool,
    pub(crate) closes: Vec<(ConnId, CloseHow)>,
    /// Where connections come from.
    pub(crate) peer: Option<std::net::SocketAddr>,
    /// Connections that nobody reads: what is to be sent there stays.
    unread: BTreeSet<ConnId>,
    /// What comes on a connection that is paused stays with its host; otherwise it was on its way.
    pub(crate) obeys_pause: bool,
    /// Connections that are opened offer data digests, and get them: all of them, or none.
    pub(crate) data_digest: bool,
    /// Data from hosts is damaged on its way.
    pub(crate) damages_data: bool,
    /// Such bytes.
    unsent: BTreeMap<ConnId, Vec<u8>>,
}

impl Rig {
    pub(crate) fn new(config: TargetConfig) -> Rig {
        Rig::with_buffers(config, MemoryBuffers::new())
    }

    pub(crate) fn with_buffers(config: TargetConfig, bufs: MemoryBuffers) -> Rig {
        let mut rig = Rig {
            target: Target::new(config, 1).unwrap(),
            bufs,
            now: Time::from_ns(1_000_000_000),
            wires: BTreeMap::new(),
            listeners: BTreeMap::new(),
            disk: VecDeque::new(),
            events: vec![],
            replies: BTreeMap::new(),
            transmit: BTreeSet::new(),
            next_port: 4420,
            next_conn: 0,
            next_verb: 0,
            next_cid: 1,
            outgoing: BTreeMap::new(),
            answer_r2t: true,
            slow_listeners: false,
            ending: vec![],
            slow_timers: false,
            slow_closing: false,
            closes: vec![],
            peer: None,
            unread: BTreeSet::new(),
            obeys_pause: false,
            data_digest: false,
            damages_data: false,
            unsent: BTreeMap::new(),
        };
        rig.input(Input::Start);
        rig
    }

    /// One input, then everything that follows from it.
    pub(crate) fn input(&mut self, input: Input<'_, TargetVerb, std::convert::Infallible>) {
        self.target.handle(self.now, input, &mut self.bufs);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let mut more = vec![];
            while let Some(output) = self.target.poll_output() {
                self.output(output, &mut more);
            }
            for input in more {
                self.target.handle(self.now, input, &mut self.bufs);
            }
            let is_read = |conn: &ConnId| !self.unread.contains(conn);
            let ready: Vec<ConnId> = self.transmit.iter().copied().filter(is_read).collect();
            self.transmit.retain(|conn| !ready.contains(conn));
            let idle = ready.is_empty() && !self.send_on();
            for conn in ready {
                let mut batch = VecGather::new();
                self.target.poll_transmit(self.now, conn, &mut batch, &mut self.bufs);
                let bytes = batch.take();
                let Some(wire) = self.wires.get_mut(&conn) else { continue };
                if bytes.is_empty() || wire.closed {
                    continue;
                }
                wire.rx.extend_from_slice(&bytes);
                self.target.handle(self.now, Input::Transmitted { conn }, &mut self.bufs);
                self.read(conn);
            }
            if idle {
                // A timer that is due at once belongs to this step.
                match self.target.poll_timeout() {
                    Some(at) if at <= self.now && !self.slow_timers => {
                        self.target.handle(self.now, Input::Timeout, &mut self.bufs);
                    }
                    _ => {
                        if let Some(output) = self.target.poll_output() {
                            let mut more = vec![];
                            self.output(output, &mut more);
                            for input in more {
                                self.target.handle(self.now, input, &mut self.bufs);
                            }
                            continue;
                        }
                        return;
                    }
                }
            }
        }
    }

    fn output(
        &mut self,
        output: anabranch_target::TargetOutput,
        more: &mut Vec<Input<'static, TargetVerb, std::convert::Infallible>>,
    ) {
        match output {
            Output::Listen { listener, at, .. } if self.slow_listeners => {
                self.listeners.insert(listener, at);
            }
            Output::Listen { listener, at, .. } => {
                let at = match at {
                    Endpoint::Tcp(mut addr) if addr.port() == 0 => {
                        addr.set_port(self.next_port);
                        self.next_port += 1;
                        Endpoint::Tcp(addr)
                    }
                    at => at,
                };
                self.listeners.insert(listener, at.clone());
                more.push(Input::Listening { listener, at });
            }
            Output::Unlisten { listener } if self.slow_listeners => self.ending.push(listener),
            Output::Unlisten { listener } => {
                self.listeners.remove(&listener);
                more.push(Input::Unlistened { listener, error: None });
            }
            Output::Transmit { conn } => {
                self.transmit.insert(conn);
            }
            Output::Pause { conn, watch } => {
                let wire = self.wires.get_mut(&conn).unwrap();
                (wire.paused, wire.watched) = (true, watch);
            }
            Output::Resume { conn } => self.wires.get_mut(&conn).unwrap().paused = false,
            Output::Close { conn, how } => {
                self.closes.push((conn, how));
                if how == CloseHow::Graceful {
                    let mut batch = VecGather::new();
                    self.target.poll_transmit(self.now, conn, &mut batch, &mut self.bufs);
                    let bytes = batch.take();
                    self.wires.get_mut(&conn).unwrap().rx.extend_from_slice(&bytes);
                    self.read(conn);
                }
                self.wires.get_mut(&conn).unwrap().closed = true;
                if !self.slow_closing {
                    more.push(Input::Closed { conn, cause: CloseCause::Requested });
                }
            }
            Output::Disk { id, file, op } => self.disk.push_back((id, file, op)),
            Output::Reply { id, reply } => {
                assert!(self.replies.insert(id, reply).is_none(), "one reply per verb");
            }
            Output::Event(event) => self.events.push(event),
            Output::ReceiveInto { .. } => {}
            Output::Connect { .. }
            | Output::Acknowledge { .. }
            | Output::HandOver { .. }
            | Output::Look { .. }
            | Output::Mail { .. } => {
                panic!("a target does not do that")
            }
        }
    }

    /// Reads whole PDUs off a wire, and answers R2Ts.
    fn read(&mut self, conn: ConnId) {
        loop {
            let wire = self.wires.get_mut(&conn).unwrap();
            let rx = &wire.rx;
            if rx.len() < 8 {
                return;
            }
            let u16_at = |at: usize| u16::from_le_bytes([rx[at], rx[at + 1]]);
            let u32_at = |at: usize| u32::from_le_bytes(rx[at..at + 4].try_into().unwrap());
            let plen = u32_at(4) as usize;
            if rx.len() < plen {
                return;
            }
            match rx[0] {
                0x01 => wire.ready = true,
                0x03 => wire.term = Some((u16_at(8), u32_at(10))),
                0x05 => {
                    let result = u64::from_le_bytes(rx[8..16].try_into().unwrap());
                    let cid = u16_at(20);
                    let status = Status::from_bits(u16_at(22) >> 1);
                    let data = wire.data.remove(&cid).unwrap_or_default();
                    let (at, sqhd) = (self.now, u16_at(16));
                    let done = Done { status, result, data, at, sqhd };
                    assert!(wire.done.insert(cid, done).is_none(), "completed twice: {cid}");
                }
                0x07 => {
                    let (cid, offset, pdo) = (u16_at(8), u32_at(12) as usize, usize::from(rx[3]));
                    let bytes = rx[pdo..pdo + u32_at(16) as usize].to_vec();
                    let flags = rx[1];
                    let data = wire.data.entry(cid).or_default();
                    assert_eq!(data.len(), offset, "data in order");
                    data.extend_from_slice(&bytes);
                    if flags & 8 != 0 {
                        assert!(flags & 4 != 0, "SUCCESS only with LAST");
                        let data = wire.data.remove(&cid).unwrap();
                        let (status, at, sqhd) = (Status::SUCCESS, self.now, 0xffff);
                        wire.done.insert(cid, Done { status, result: 0, data, at, sqhd });
                    }
                }
                0x09 => {
                    let r2t = (u16_at(8), u16_at(10), u32_at(12), u32_at(16));
                    wire.r2t.push(r2t);
                }
                other => panic!("PDU type {other:#x}"),
            }
            wire.rx.drain(..plen);
            if self.answer_r2t {
                self.send_asked(conn);
            }
        }
    }

    /// Sends what R2Ts have asked for.
    pub(crate) fn send_asked(&mut self, conn: ConnId) {
        let asked = std::mem::take(&mut self.wires.get_mut(&conn).unwrap().r2t);
        for (cid, ttag, offset, length) in asked {
            let Some(data) = self.outgoing.get(&(conn, cid)).cloned() else {
                // A host that announces data and has none.
                self.wires.get_mut(&conn).unwrap().r2t.push((cid, ttag, offset, length));
                continue;
            };
            let end = offset + length;
            let mut at = offset;
            while at < end {
                let length = (end - at).min(MAX_H2C_DATA);
                let last = at + length == end;
                let head = H2cData { cid, ttag, offset: at, length, last };
                let head = head.emit(self.format());
                let bytes = self.framed(head, &data[at as usize..(at + length) as usize]);
                self.deliver(conn, &bytes);
                at += length;
            }
        }
    }

    /// Lets virtual time pass, timers included.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now.after(by);
        while let Some(at) = self.target.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    pub(crate) fn verb(&mut self, verb: TargetVerb) -> Result<TargetReply, TargetError> {
        let id = VerbId(self.next_verb);
        self.next_verb += 1;
        self.input(Input::Verb { id, verb });
        self.replies.remove(&id).expect("a reply at once")
    }

    /// A verb that is answered later, see [`Rig::reply`].
    pub(crate) fn later(&mut self, verb: TargetVerb) {
        let id = VerbId(self.next_verb);
        self.next_verb += 1;
        self.input(Input::Verb { id, verb });
        assert!(self.replies.is_empty(), "no reply yet");
    }

    pub(crate) fn reply(&mut self) -> Result<TargetReply, TargetError> {
        self.replies.pop_first().expect("a reply").1
    }

    /// Gives a timer that is due what it waits for, once; false when none is.
    pub(crate) fn timer(&mut self) -> bool {
        let due = self.target.poll_timeout().is_some_and(|at| at <= self.now);
        if due {
            self.input(Input::Timeout);
        }
        due
    }

    pub(crate) fn target_timeout(&mut self) -> Option<Time> {
        self.target.poll_timeout()
    }

    pub(crate) fn ok(&mut self, verb: TargetVerb) {
        assert_eq!(self.verb(verb), Ok(TargetReply::Done));
    }

    pub(crate) fn status(&mut self) -> TargetStatus {
        match self.verb(TargetVerb::Status) {
            Ok(TargetReply::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// A TCP connection to a port, by its place in the configuration.
    pub(crate) fn dial(&mut self, port: u16) -> Option<ConnId> {
        let at = self.status().ports[usize::from(port)].at.clone();
        let listener = *self.listeners.iter().find(|(_, l)| **l == at)?.0;
        Some(self.accept(listener))
    }

    pub(crate) fn accept(&mut self, listener: ListenerId) -> ConnId {
        let conn = ConnId::accepted(self.next_conn);
        self.next_conn += 1;
        self.wires.insert(conn, Wire::default());
        self.input(Input::Accepted { listener, conn, peer: self.peer.map(Peer::Address) });
        conn
    }

    pub(crate) fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        self.deliver(conn, bytes);
        self.settle();
    }

    fn deliver(&mut self, conn: ConnId, bytes: &[u8]) {
        if self.obeys_pause && (self.wires[&conn].paused || self.unsent.contains_key(&conn)) {
            self.unsent.entry(conn).or_default().extend_from_slice(bytes);
        } else {
            self.target.handle(self.now, Input::Received { conn, bytes }, &mut self.bufs);
        }
    }

    /// Lets through what has waited for a pause to end, a portion each; false when there is none.
    fn send_on(&mut self) -> bool {
        let is_read = |conn: &ConnId| self.wires.get(conn).is_some_and(|wire| !wire.paused);
        let conns: Vec<ConnId> = self.unsent.keys().copied().filter(is_read).collect();
        for &conn in &conns {
            let mut bytes = self.unsent.remove(&conn).unwrap_or_default();
            let rest = bytes.split_off(bytes.len().min(RECEIVED_AT_ONCE));
            if !rest.is_empty() {
                self.unsent.insert(conn, rest);
            }
            let input = Input::Received { conn, bytes: &bytes };
            self.target.handle(self.now, input, &mut self.bufs);
        }
        !conns.is_empty()
    }

    /// Whether the host of a connection reads what is sent to it.
    pub(crate) fn reads(&mut self, conn: ConnId, reads: bool) {
        if reads {
            self.unread.remove(&conn);
        } else {
            self.unread.insert(conn);
        }
        self.settle();
    }

    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        self.wires.get_mut(&conn).unwrap().closed = true;
        self.input(Input::Closed { conn, cause: CloseCause::PeerClosed });
    }

    /// What was asked to close is closed.
    pub(crate) fn end_closing(&mut self) {
        self.slow_closing = false;
        for (conn, _) in std::mem::take(&mut self.closes) {
            self.input(Input::Closed { conn, cause: CloseCause::Requested });
        }
    }

    /// A connection through ICReq and ICResp.
    pub(crate) fn open(&mut self, port: u16) -> ConnId {
        let conn = self.dial(port).expect("the port listens");
        let data_digest = self.data_digest;
        let request = IcReq { hpda: 0, header_digest: false, data_digest, maxr2t: 0 };
        self.send(conn, request.emit().as_bytes());
        assert!(self.wires[&conn].ready, "ICResp");
        conn
    }

    /// Sends a command as it is, with its own CID, and data in the capsule.
    pub(crate) fn raw(&mut self, conn: ConnId, sqe: Sqe, data: &[u8]) {
        let in_capsule_bytes = u32::try_from(data.len()).unwrap();
        let head = CapsuleCmd { sqe, in_capsule_bytes }.emit(self.format());
        let bytes = self.framed(head, data);
        self.send(conn, &bytes);
    }

    fn format(&self) -> Format {
        Format { data_digest: self.data_digest, ..Format::default() }
    }

    /// A PDU with its data, as it arrives.
    fn framed(&self, head: Head, data: &[u8]) -> Vec<u8> {
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        if self.data_digest && !data.is_empty() {
            bytes.extend_from_slice(&crc32c(data).to_le_bytes());
        }
        if self.damages_data && !data.is_empty() {
            bytes[head.as_bytes().len()] ^= 1;
        }
        bytes
    }

    pub(crate) fn cid(&mut self) -> u16 {
        self.next_cid += 1;
        self.next_cid
    }

    /// Starts a command whose data is for the host (`want` bytes), or none.
    pub(crate) fn start(&mut self, conn: ConnId, sqe: Sqe, want: u32) -> u16 {
        let cid = self.cid();
        self.raw(conn, sqe.with_cid(cid).with_sgl(Sgl::transport(want)), &[]);
        cid
    }

    /// Starts a command with data from the host: in the capsule up to 8 KiB, else by R2T.
    pub(crate) fn start_out(&mut self, conn: ConnId, sqe: Sqe, data: &[u8]) -> u16 {
        let cid = self.cid();
        let len = u32::try_from(data.len()).unwrap();
        if data.len() <= 8192 {
            self.raw(conn, sqe.with_cid(cid).with_sgl(Sgl::in_capsule(len)), data);
        } else {
            self.outgoing.insert((conn, cid), data.to_vec());
            self.raw(conn, sqe.with_cid(cid).with_sgl(Sgl::transport(len)), &[]);
        }
        cid
    }

    pub(crate) fn poll(&mut self, conn: ConnId, cid: u16) -> Option<Done> {
        self.wires.get_mut(&conn)?.done.remove(&cid)
    }

    pub(crate) fn run(&mut self, conn: ConnId, sqe: Sqe, want: u32) -> Done {
        let cid = self.start(conn, sqe, want);
        self.poll(conn, cid).expect("answered at once")
    }

    pub(crate) fn run_out(&mut self, conn: ConnId, sqe: Sqe, data: &[u8]) -> Done {
        let cid = self.start_out(conn, sqe, data);
        self.poll(conn, cid).expect("answered at once")
    }

    pub(crate) fn connect_with(
        &mut self,
        conn: ConnId,
        command: ConnectCommand,
        data: &[u8],
    ) -> Done {
        self.run_out(conn, command.sqe(), data)
    }

    /// An admin queue of a subsystem, not enabled yet.
    pub(crate) fn admin_of(&mut self, port: u16, subsystem: &str, kato_ms: u32) -> (ConnId, u16) {
        let conn = self.open(port);
        let command = ConnectCommand { qid: 0, sqsize: 31, disable_sq_flow: true, kato_ms };
        let done = self.connect_with(conn, command, &connect_data(0xffff, subsystem).to_bytes());
        assert_eq!(done.status, Status::SUCCESS);
        (conn, u16::try_from(done.result & 0xffff).unwrap())
    }

    pub(crate) fn set_cc(&mut self, conn: ConnId, cc: Cc) -> Done {
        let set = PropertySet { offset: 0x14, wide: false, value: cc.0.into() };
        self.run(conn, set.sqe(), 0)
    }

    pub(crate) fn csts(&mut self, conn: ConnId) -> u64 {
        let done = self.run(conn, PropertyGet { offset: 0x1c, wide: false }.sqe(), 0);
        assert_eq!(done.status, Status::SUCCESS);
        done.result
    }

    /// A controller that is enabled, with one I/O queue.
    pub(crate) fn controller(&mut self, port: u16) -> (ConnId, ConnId) {
        self.controller_with(port, 0)
    }

    pub(crate) fn controller_with(&mut self, port: u16, kato_ms: u32) -> (ConnId, ConnId) {
        let (admin, cntlid) = self.admin_of(port, SUBSYSTEM, kato_ms);
        assert_eq!(self.set_cc(admin, Cc::ENABLE).status, Status::SUCCESS);
        assert_eq!(self.csts(admin) & 1, 1, "ready");
        let io = self.io_queue(port, cntlid, 1);
        (admin, io)
    }

    /// A controller through a port whose link takes its time.
    pub(crate) fn controller_after_delay(&mut self, port: u16) -> (ConnId, ConnId) {
        let shape = self.status().ports[usize::from(port)].shape.clone();
        self.ok(TargetVerb::Shape { port, shape: Default::default() });
        let pair = self.controller(port);
        self.ok(TargetVerb::Shape { port, shape });
        pair
    }

    pub(crate) fn io_queue(&mut self, port: u16, cntlid: u16, qid: u16) -> ConnId {
        let io = self.open(port);
        let command = ConnectCommand { qid, sqsize: 127, disable_sq_flow: true, kato_ms: 0 };
        let done = self.connect_with(io, command, &connect_data(cntlid, SUBSYSTEM).to_bytes());
        assert_eq!(done.status, Status::SUCCESS);
        io
    }

    /// Everything is answered and every buffer is back.
    pub(crate) fn assert_no_leak(&self) {
        assert_eq!(self.bufs.in_use_bytes(), 0, "buffers leak");
    }

    pub(crate) fn finish_disk(&mut self, result: Result<u32, SystemError>) -> DiskOp {
        let (id, _, op) = self.disk.pop_front().expect("a file operation");
        self.input(Input::DiskDone { id, result });
        op
    }
}

/// A command with its data on the wire.
pub(crate) fn capsule(sqe: Sqe, data: &[u8]) -> Vec<u8> {
    let in_capsule_bytes = u32::try_from(data.len()).unwrap();
    let capsule = CapsuleCmd { sqe, in_capsule_bytes };
    let mut bytes = capsule.emit(Format::default()).as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

pub(crate) fn connect_data(cntlid: u16, subsystem: &str) -> ConnectData {
    ConnectData { hostid: HOST_ID, cntlid, subnqn: nqn(subsystem), hostnqn: nqn(HOST) }
}

pub(crate) fn read(lba: u64, blocks: u32) -> Sqe {
    anabranch_proto::nvme::io::read(1, lba, blocks)
}

pub(crate) fn write(lba: u64, blocks: u32) -> Sqe {
    anabranch_proto::nvme::io::write(1, lba, blocks, false)
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
