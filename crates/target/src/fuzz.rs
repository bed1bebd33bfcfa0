//! Fuzz body: arbitrary commands, verbs and mishaps against connected controllers.
//!
//! An ordinary function, so that tests run it over seeds and a fuzzer over its corpus.

use crate::config::{
    BackendConfig, Limits, NamespaceConfig, PortConfig, SubsystemConfig, TargetConfig,
};
use crate::{Shape, Target, TargetEvent, TargetOutput, TargetVerb};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use anabranch_proto::machine::{
    Buffers, CloseCause, ConnId, DiskId, Endpoint, FileId, Input, ListenerId, Machine, Output,
    SystemError, Time, VerbId,
};
use anabranch_proto::nvme::fabrics::{ConnectCommand, ConnectData, PropertySet};
use anabranch_proto::nvme::property::Cc;
use anabranch_proto::nvme::{AnaState, Nqn, Sgl, Sqe, Uuid};
use anabranch_proto::pdu::{CapsuleCmd, Format, H2cData, IcReq};
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

const BYTES: u64 = 1 << 20;
/// Data of one H2CData PDU.
const PIECE: u32 = 128 << 10;
/// Outputs that one input may leave: far above what any of them needs.
const MAX_OUTPUTS: usize = 10_000;

/// The input, eaten from the front; zeroes when it is used up.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }
}

struct Driver {
    target: Target,
    bufs: MemoryBuffers,
    now: Time,
    listeners: BTreeMap<ListenerId, ()>,
    conns: Vec<ConnId>,
    disk: VecDeque<DiskId>,
    /// Data that was asked for: connection, command, transfer tag, length.
    asked: VecDeque<(ConnId, u16, u16, u32)>,
    opened: u32,
    /// The controller that came up last.
    cntlid: u16,
    replies: u64,
    verbs: u64,
}

/// Runs what `bytes` say and checks that nothing panics, that outputs are bounded, that each verb
/// is answered once, and that every buffer comes back when all connections are gone.
///
/// # Panics
/// When a promise is broken.
pub fn commands(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut driver = Driver::new();
    let mut queues = [driver.connect(0), driver.connect(1)];
    while !script.0.is_empty() {
        driver.step(&mut script, &mut queues);
    }
    driver.end();
}

fn config() -> Option<TargetConfig> {
    let port = || PortConfig::new(Endpoint::Tcp(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)));
    let namespace = |nsid, backend| NamespaceConfig {
        nsid,
        backend,
        block_bytes: if nsid == 1 { 512 } else { 4096 },
        uuid: None,
        nguid: None,
        ana_group: nsid,
    };
    Some(TargetConfig {
        subsystems: vec![SubsystemConfig {
            nqn: subsystem()?,
            serial: "1".into(),
            model: "fuzz".into(),
            namespaces: vec![
                namespace(1, BackendConfig::Memory { bytes: BYTES }),
                namespace(2, BackendConfig::File { file: FileId(0), bytes: BYTES }),
            ],
            allowed_hosts: vec![],
        }],
        ports: vec![port(), port()],
        limits: Limits { connections: 64, ..Limits::default() },
        first_cntlid: None,
    })
}

fn subsystem() -> Option<Nqn> {
    "nqn.2026-11.org.example:fuzz".parse().ok()
}

/// Finds R2Ts among whole PDUs.
fn note_requests(bytes: &[u8], conn: ConnId, asked: &mut VecDeque<(ConnId, u16, u16, u32)>) {
    const R2T: u8 = 0x09;
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == R2T {
            asked.push_back((conn, u16_at(at + 8), u16_at(at + 10), u32_at(at + 16)));
        }
        at += u32_at(at + 4) as usize;
    }
}

impl Driver {
    fn new() -> Driver {
        let target = config().map(|config| Target::new(config, 1));
        let Some(Ok(target)) = target else { panic!("the configuration is good") };
        let mut driver = Driver {
            target,
            bufs: MemoryBuffers::with_limit(4 << 20),
            now: Time::ZERO,
            listeners: BTreeMap::new(),
            conns: Vec::new(),
            disk: VecDeque::new(),
            asked: VecDeque::new(),
            opened: 0,
            cntlid: 0,
            replies: 0,
            verbs: 0,
        };
        driver.input(Input::Start);
        driver
    }

    fn input(&mut self, input: Input<'_, TargetVerb, core::convert::Infallible>) {
        self.target.handle(self.now, input, &mut self.bufs);
        let mut outputs = 0;
        while let Some(output) = self.target.poll_output() {
            outputs += 1;
            assert!(outputs < MAX_OUTPUTS, "outputs are bounded");
            self.output(output);
        }
    }

    fn output(&mut self, output: TargetOutput) {
        let cause = CloseCause::Requested;
        let target = &mut self.target;
        match output {
            Output::Listen { listener, at, .. } => {
                self.listeners.insert(listener, ());
                target.handle(self.now, Input::Listening { listener, at }, &mut self.bufs);
            }
            Output::Unlisten { listener } => {
                self.listeners.remove(&listener);
                let input = Input::Unlistened { listener, error: None };
                target.handle(self.now, input, &mut self.bufs);
            }
            Output::Transmit { conn } => {
                let mut batch = VecGather::new();
                target.poll_transmit(self.now, conn, &mut batch, &mut self.bufs);
                let bytes = batch.take();
                if !bytes.is_empty() {
                    note_requests(&bytes, conn, &mut self.asked);
                    target.handle(self.now, Input::Transmitted { conn }, &mut self.bufs);
                }
            }
            Output::Close { conn, .. } => {
                self.conns.retain(|open| *open != conn);
                target.handle(self.now, Input::Closed { conn, cause }, &mut self.bufs);
            }
            Output::Disk { id, .. } => self.disk.push_back(id),
            Output::Reply { .. } => self.replies += 1,
            Output::Event(TargetEvent::ControllerUp { cntlid, .. }) => self.cntlid = cntlid,
            _ => {}
        }
    }

    fn open(&mut self, port: usize) -> Option<ConnId> {
        let listener = *self.listeners.keys().nth(port)?;
        let conn = ConnId::accepted(self.opened);
        self.opened += 1;
        self.conns.push(conn);
        self.input(Input::Accepted { listener, conn, peer: None });
        let request = IcReq { hpda: 0, header_digest: false, data_digest: false, maxr2t: 0 };
        self.send(conn, request.emit().as_bytes());
        Some(conn)
    }

    fn send(&mut self, conn: ConnId, bytes: &[u8]) {
        if self.conns.contains(&conn) && !bytes.is_empty() {
            self.input(Input::Received { conn, bytes });
        }
    }

    fn command(&mut self, conn: ConnId, sqe: Sqe, data: &[u8]) {
        let in_capsule_bytes = u32::try_from(data.len()).unwrap_or(0);
        let capsule = CapsuleCmd { sqe, in_capsule_bytes };
        let mut bytes = capsule.emit(Format::default()).as_bytes().to_vec();
        bytes.extend_from_slice(data);
        self.send(conn, &bytes);
    }

    /// A controller with two I/O queues; all three connections.
    fn connect(&mut self, port: usize) -> Vec<ConnId> {
        let mut conns = Vec::new();
        for qid in 0..3 {
            let (Some(conn), Some(subnqn)) = (self.open(port), subsystem()) else { break };
            let data = ConnectData {
                hostid: Uuid([1; 16]),
                cntlid: if qid == 0 { 0xffff } else { self.cntlid },
                hostnqn: subnqn.clone(),
                subnqn,
            };
            let command =
                ConnectCommand { qid, sqsize: 31, disable_sq_flow: qid != 1, kato_ms: 60_000 };
            let sqe = command.sqe().with_sgl(Sgl::in_capsule(1024));
            self.command(conn, sqe, &data.to_bytes());
            if qid == 0 {
                let value = Cc::ENABLE.0.into();
                self.command(conn, PropertySet { offset: 0x14, wide: false, value }.sqe(), &[]);
            }
            conns.push(conn);
        }
        conns
    }

    fn step(&mut self, script: &mut Script<'_>, queues: &mut [Vec<ConnId>; 2]) {
        let what = script.byte();
        let which = script.byte();
        let (port, queue) = (usize::from(which & 1), usize::from(which >> 1) % 3);
        if !queues[port].iter().all(|conn| self.conns.contains(conn)) {
            for conn in core::mem::take(&mut queues[port]) {
                self.hang_up(conn);
            }
            self.verb(TargetVerb::Restore { port: u16::from(which & 1) });
            queues[port] = self.connect(port);
        }
        let Some(&conn) = queues[port].get(queue) else { return };
        match what {
            0..=159 => self.arbitrary_command(script, conn, what),
            160..=179 => {
                self.now = self.now.after(Duration::from_micros(script.u16().into()));
                if self.target.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.input(Input::Timeout);
                }
            }
            180..=219 => {
                if let Some(id) = self.disk.pop_front() {
                    let error = SystemError(i32::from(script.byte()).max(1));
                    let result = if what < 210 { Ok(4096) } else { Err(error) };
                    self.input(Input::DiskDone { id, result });
                }
            }
            220..=239 => self.arbitrary_verb(script),
            240 => {
                let len = usize::from(script.byte()).min(script.0.len());
                let (now, rest) = script.0.split_at(len);
                script.0 = rest;
                self.send(conn, now);
            }
            241 => self.hang_up(conn),
            242 => {
                self.open(usize::from(script.byte()) % 2);
            }
            _ => self.send_asked(script.byte()),
        }
    }

    fn send_asked(&mut self, fill: u8) {
        let Some((conn, cid, ttag, len)) = self.asked.pop_front() else { return };
        let mut offset = 0;
        while offset < len {
            let length = (len - offset).min(PIECE);
            let last = offset + length == len;
            let data = H2cData { cid, ttag, offset, length, last };
            let mut bytes = data.emit(Format::default()).as_bytes().to_vec();
            bytes.resize(bytes.len() + length as usize, fill);
            self.send(conn, &bytes);
            offset += length;
        }
    }

    fn hang_up(&mut self, conn: ConnId) {
        if self.conns.contains(&conn) {
            self.conns.retain(|open| *open != conn);
            self.input(Input::Closed { conn, cause: CloseCause::PeerClosed });
        }
    }

    /// A command that is often nearly right: a known opcode, small numbers, a fitting descriptor.
    fn arbitrary_command(&mut self, script: &mut Script<'_>, conn: ConnId, what: u8) {
        const OPCODES: [u8; 16] =
            [0, 1, 2, 5, 8, 9, 0x7f, 0x06, 0x02, 0x0a, 0x09, 0x0c, 0x18, 0x08, 0x01, 0x02];
        let opcode = if what < 150 { OPCODES[usize::from(what % 16)] } else { script.byte() };
        let mut sqe = Sqe::new(opcode).with_cid(script.u16() % 64);
        sqe = sqe.with_nsid(if what < 140 { u32::from(what % 4) } else { script.u32() });
        let wild = script.byte();
        for number in 10..16 {
            // Dword 11 is the upper half of an LBA, but the attributes of Dataset Management.
            let small = if number == 11 && opcode != 9 { 0 } else { u32::from(script.byte()) };
            let small = if number == 12 { small % 20 } else { small };
            let odd = wild & 0xc0 == 0 && wild & 1 << (number - 10) != 0;
            let value = if odd { script.u32() } else { small };
            sqe = sqe.with_cdw(number, value);
        }
        let len = usize::from(script.u16() % 8200);
        match script.byte() {
            0..=99 => {
                let data = vec![script.byte(); len];
                let described = u32::try_from(len).unwrap_or(0);
                self.command(conn, sqe.with_sgl(Sgl::in_capsule(described)), &data);
            }
            100..=219 => {
                let described = script.u32() % (2 << 20);
                self.command(conn, sqe.with_sgl(Sgl::transport(described)), &[]);
            }
            identifier => {
                let sgl = Sgl::from_raw(script.byte().into(), script.u32(), identifier);
                self.command(conn, sqe.with_sgl(sgl), &[]);
            }
        }
    }

    fn arbitrary_verb(&mut self, script: &mut Script<'_>) {
        let Some(nqn) = subsystem() else { return };
        let port = u16::from(script.byte() % 3);
        let nsid = u32::from(script.byte() % 4);
        let state = AnaState::ALL[usize::from(script.byte()) % 5];
        let bytes = u64::from(script.u16()) << 9;
        let verb = match script.byte() % 12 {
            0 => TargetVerb::Ana { port, group: nsid, state },
            1 => TargetVerb::Cut { port },
            2 => TargetVerb::Stall { port },
            3 | 4 => TargetVerb::Restore { port },
            5 => {
                let rate = Some(u64::from(script.u32()).max(1_000));
                let delay = Duration::from_micros(script.u16().into());
                TargetVerb::Shape {
                    port,
                    shape: Shape { rate_out: rate, delay, ..Shape::default() },
                }
            }
            6 => TargetVerb::NamespaceRemove { subsystem: nqn, nsid },
            7 => {
                let config = NamespaceConfig {
                    nsid,
                    backend: BackendConfig::Memory { bytes },
                    block_bytes: 512,
                    uuid: None,
                    nguid: None,
                    ana_group: 1,
                };
                TargetVerb::NamespaceAdd { subsystem: nqn, config }
            }
            8 => TargetVerb::NamespaceResize { subsystem: nqn, nsid, bytes },
            9 => TargetVerb::Corrupt { subsystem: nqn, nsid, lba: bytes },
            10 => TargetVerb::Shape { port, shape: Shape::default() },
            _ => TargetVerb::Status,
        };
        self.verb(verb);
    }

    fn verb(&mut self, verb: TargetVerb) {
        let id = VerbId(self.verbs);
        self.verbs += 1;
        self.input(Input::Verb { id, verb });
    }

    /// Everything ends; nothing may be left.
    fn end(mut self) {
        for conn in core::mem::take(&mut self.conns) {
            self.input(Input::Closed { conn, cause: CloseCause::PeerClosed });
        }
        while let Some(id) = self.disk.pop_front() {
            self.input(Input::DiskDone { id, result: Err(SystemError::IO) });
        }
        assert_eq!(self.bufs.in_use_bytes(), 0, "every buffer comes back");
        assert_eq!(self.replies, self.verbs, "one reply per verb");
        // What Buffers hands out is still whole.
        assert!(self.bufs.alloc(4096).is_some());
    }
}
