//! Fuzz body: a controller that answers admin commands plausibly, wrongly, or with any bytes.
//!
//! An ordinary function, so that tests run it over seeds and a fuzzer over its corpus.

use super::{Control, ControlOutput};
use crate::config::{ConnectRequest, ControllerOptions, HostConfig};
use crate::mail::{OpenQueue, ToControl, ToShard};
use crate::topology::ControllerState;
use crate::verb::{Selection, Verb};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use anabranch_policy::Policy;
use anabranch_proto::machine::{
    CloseCause, ConnId, Endpoint, Input, Output, SystemError, Time, VerbId, WorkerId,
};
use anabranch_proto::nvme::identify::{
    self, ActiveNamespaceList, Controller, ControllerKind, Identify, Namespace,
    NamespaceIdDescriptors, cns,
};
use anabranch_proto::nvme::log::{Ana, AnaGroup, GetLogPage, lid};
use anabranch_proto::nvme::opcode::{admin, fabrics};
use anabranch_proto::nvme::property::{CAP, CSTS, Cap, VS, Vs};
use anabranch_proto::nvme::{AnaState, Nqn, Sqe, Uuid};
use anabranch_proto::testing::{MemoryBuffers, VecGather};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;

/// Steps of one run; what is left of the input is not used.
const MAX_STEPS: usize = 2_000;
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
}

#[derive(Default)]
struct Peer {
    sent: Vec<u8>,
    commands: VecDeque<Sqe>,
}

struct Driver {
    control: Control,
    bufs: MemoryBuffers,
    now: Time,
    peers: BTreeMap<ConnId, Peer>,
    closed: VecDeque<ConnId>,
    mail: VecDeque<(WorkerId, ToControl)>,
    asked: u64,
    answered: u64,
    controllers: Vec<ControllerState>,
    was_live: bool,
}

/// Runs one script. After it the controllers are removed; then nothing may be left over. Gives back
/// whether a controller was live at some time, to tell scripts that get far.
///
/// # Panics
/// When control breaks a promise: a panic inside, outputs without end, a verb that is not answered,
/// a buffer or a connection left behind.
pub fn admin_answers(bytes: &[u8]) -> bool {
    let mut script = Script(bytes);
    let mut driver = Driver::new();
    for port in [1, 2] {
        driver.connect(port);
    }
    for _ in 0..MAX_STEPS {
        if script.0.is_empty() {
            break;
        }
        driver.step(&mut script);
    }
    driver.verb(Verb::Disconnect(Selection::All));
    for _ in 0..1_000 {
        driver.let_time_pass();
    }
    assert_eq!(driver.asked, driver.answered, "every verb is answered once");
    assert!(driver.controllers.is_empty(), "every controller is gone");
    assert!(driver.peers.is_empty(), "no connection is left");
    assert_eq!(driver.bufs.in_use_bytes(), 0, "no buffer is left");
    driver.was_live
}

fn nqn() -> Nqn {
    Nqn::from_uuid(Uuid([3; 16]))
}

impl Driver {
    fn new() -> Driver {
        let config = HostConfig {
            host_nqn: Nqn::from_uuid(Uuid([1; 16])),
            host_id: Uuid([1; 16]),
            data_workers: 2,
            shared_queue: false,
            default_policy: Policy::RoundRobin,
            subsystems: Vec::new(),
            kernel_exact: false,
            max_requests: 16,
            worker_nodes: vec![0, 0],
            distances: Vec::new(),
            shutdown_timeout: Duration::from_secs(1),
        };
        let mut driver = Driver {
            control: Control::new(config),
            bufs: MemoryBuffers::new(),
            now: Time::ZERO,
            peers: BTreeMap::new(),
            closed: VecDeque::new(),
            mail: VecDeque::new(),
            asked: 0,
            answered: 0,
            controllers: Vec::new(),
            was_live: false,
        };
        driver.input(Input::Start);
        driver
    }

    fn connect(&mut self, port: u16) {
        let request = ConnectRequest {
            subsystem_nqn: nqn(),
            to: Endpoint::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            options: ControllerOptions {
                reconnect_delay: Duration::from_millis(100),
                ..ControllerOptions::default()
            },
            keep_trying: true,
        };
        self.verb(Verb::Connect(Box::new(request)));
    }

    fn verb(&mut self, verb: Verb<core::convert::Infallible>) {
        self.asked += 1;
        self.input(Input::Verb { id: VerbId(self.asked), verb });
    }

    /// Gives one input and everything that follows from it without time passing.
    fn input(&mut self, input: Input<'_, Verb<core::convert::Infallible>, ToControl>) {
        self.give(input);
        for _ in 0..MAX_OUTPUTS {
            if let Some(conn) = self.closed.pop_front() {
                if self.peers.remove(&conn).is_some() {
                    self.give(Input::Closed { conn, cause: CloseCause::Requested });
                }
            } else if let Some((from, mail)) = self.mail.pop_front() {
                self.give(Input::Mail { from, mail });
            } else {
                return;
            }
        }
        panic!("control does not come to rest");
    }

    fn give(&mut self, input: Input<'_, Verb<core::convert::Infallible>, ToControl>) {
        self.control.handle(self.now, input, &mut self.bufs);
        for _ in 0..MAX_OUTPUTS {
            let Some(output) = self.control.poll_output() else { return };
            self.output(output);
        }
        panic!("outputs without end");
    }

    fn output(&mut self, output: ControlOutput) {
        match output {
            Output::Connect { conn, .. } => {
                assert!(self.peers.insert(conn, Peer::default()).is_none(), "a name in use");
            }
            Output::Close { conn, .. } => self.closed.push_back(conn),
            Output::Reply { .. } => self.answered += 1,
            Output::Mail { to, mail } => self.shard(to, mail),
            Output::Transmit { .. }
            | Output::Acknowledge { .. }
            | Output::ReceiveInto { .. }
            | Output::Event(_) => {}
            other => panic!("control has no business with {other:?}"),
        }
    }

    /// A shard that does as it is told.
    fn shard(&mut self, to: WorkerId, mail: ToShard) {
        let answer = match mail {
            ToShard::Topology(topology) => {
                self.controllers = topology.controllers.iter().map(|view| view.state).collect();
                self.was_live |= self.controllers.contains(&ControllerState::Live);
                return;
            }
            ToShard::OpenQueue(open) => {
                let OpenQueue { controller, association, qid, .. } = *open;
                ToControl::QueueOpen { controller, association, qid }
            }
            ToShard::StopQueue { controller, association } => {
                ToControl::QueueStopped { controller, association }
            }
            ToShard::ReportStats { id, .. } => ToControl::Stats { id, stats: Box::default() },
            ToShard::Drain => ToControl::Drained,
        };
        self.mail.push_back((to, answer));
    }

    fn let_time_pass(&mut self) {
        if let Some(due) = self.control.poll_timeout() {
            self.now = self.now.max(due);
            self.input(Input::Timeout);
        }
    }

    fn step(&mut self, script: &mut Script<'_>) {
        let op = script.byte();
        if op >= 0xf0 {
            return self.let_time_pass();
        }
        let at = usize::from(op & 1);
        let Some(conn) = self.peers.keys().nth(at.min(self.peers.len().saturating_sub(1))) else {
            return self.let_time_pass();
        };
        let conn = *conn;
        self.collect(conn);
        match op >> 1 & 0xf {
            0 => self.input(Input::Connected { conn, local: None, node: None }),
            1 => {
                let mut response = [0; 128];
                (response[0], response[2], response[4], response[13]) = (1, 128, 128, 0x10);
                self.input(Input::Received { conn, bytes: &response });
            }
            2 => {
                let bytes: Vec<u8> = (0..script.byte()).map(|_| script.byte()).collect();
                if !bytes.is_empty() {
                    self.input(Input::Received { conn, bytes: &bytes });
                }
            }
            3 => {
                let cause = CloseCause::Failed(SystemError::RESET);
                self.peers.remove(&conn);
                self.input(Input::Closed { conn, cause });
            }
            4 => {
                let status = script.u16() & 0x7fff;
                self.answer(conn, |_| (Vec::new(), 0, status));
            }
            5 => {
                let (mutations, result) = (script.byte() % 8, u64::from(script.u16()));
                let changes: Vec<(u16, u8)> =
                    (0..mutations).map(|_| (script.u16(), script.byte())).collect();
                self.answer(conn, |sqe| {
                    let (mut data, honest) = plausible(sqe);
                    for (at, value) in changes {
                        let at = usize::from(at) % data.len().max(1);
                        data.iter_mut().skip(at).take(1).for_each(|byte| *byte = value);
                    }
                    (data, honest ^ result, 0)
                });
            }
            _ => self.answer(conn, |sqe| {
                let (data, result) = plausible(sqe);
                (data, result, 0)
            }),
        }
    }

    /// Takes what the host wants to send and finds the commands in it.
    fn collect(&mut self, conn: ConnId) {
        let mut batch = VecGather::new();
        self.control.poll_transmit(self.now, conn, &mut batch, &mut self.bufs);
        let bytes = batch.take();
        if bytes.is_empty() {
            return;
        }
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        peer.sent.extend_from_slice(&bytes);
        while let Some(length) = peer.sent.get(4..8) {
            let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
            if length < 8 || peer.sent.len() < length {
                break;
            }
            let pdu: Vec<u8> = peer.sent.drain(..length).collect();
            if let (4, Some(sqe)) = (pdu[0], pdu.get(8..72).and_then(|sqe| sqe.try_into().ok())) {
                peer.commands.push_back(Sqe::from_bytes(sqe));
            }
        }
        self.input(Input::Transmitted { conn });
    }

    /// Answers the oldest command: data, result and status.
    fn answer(&mut self, conn: ConnId, say: impl FnOnce(&Sqe) -> (Vec<u8>, u64, u16)) {
        let Some(sqe) = self.peers.get_mut(&conn).and_then(|peer| peer.commands.pop_front()) else {
            return;
        };
        let (mut data, result, status) = say(&sqe);
        let mut bytes = Vec::new();
        if !data.is_empty() {
            let length = sqe.sgl().length();
            data.resize(length as usize, 0);
            let mut pdu = vec![0; 24];
            (pdu[0], pdu[1], pdu[2], pdu[3]) = (7, 4, 24, 24);
            pdu[4..8].copy_from_slice(&length.saturating_add(24).to_le_bytes());
            pdu[8..10].copy_from_slice(&sqe.cid().to_le_bytes());
            pdu[16..20].copy_from_slice(&length.to_le_bytes());
            bytes.extend(pdu);
            bytes.extend(data);
        }
        let mut pdu = vec![0; 24];
        (pdu[0], pdu[2], pdu[4]) = (5, 24, 24);
        pdu[8..16].copy_from_slice(&result.to_le_bytes());
        pdu[20..22].copy_from_slice(&sqe.cid().to_le_bytes());
        pdu[22..24].copy_from_slice(&(status << 1).to_le_bytes());
        bytes.extend(pdu);
        self.input(Input::Received { conn, bytes: &bytes });
    }
}

/// What a well-behaved controller says: data and result.
fn plausible(sqe: &Sqe) -> (Vec<u8>, u64) {
    match (sqe.opcode(), sqe.fctype()) {
        (fabrics::FABRICS, fabrics::CONNECT) => (Vec::new(), 1),
        (fabrics::FABRICS, fabrics::PROPERTY_GET) => match sqe.cdw(11) {
            CAP => (Vec::new(), Cap::new(128, 500).0),
            VS => (Vec::new(), Vs::V2_0.0.into()),
            CSTS => (Vec::new(), 1),
            _ => (Vec::new(), 0),
        },
        (admin::IDENTIFY, _) => (identify_answer(Identify::parse(sqe)), 0),
        (admin::GET_LOG_PAGE, _) => {
            let log = GetLogPage::parse(sqe).map(|log| log.lid);
            let group =
                |id| AnaGroup { id, state: AnaState::Optimized, change_count: 0, nsids: vec![id] };
            let ana = Ana { change_count: 1, groups: vec![group(1), group(2)] };
            let data = if log == Ok(lid::ANA) { ana.to_bytes(false) } else { vec![0; 512] };
            (data, 0)
        }
        (admin::SET_FEATURES, _) => (Vec::new(), 0x0001_0001),
        _ => (Vec::new(), 0x0003_0302),
    }
}

fn identify_answer(what: Identify) -> Vec<u8> {
    let mut data = vec![0; identify::BYTES];
    match what.cns {
        cns::CONTROLLER => {
            let controller = Controller {
                sn: String::from("FUZZ"),
                mn: String::from("fuzz"),
                cmic: Controller::CMIC_MULTI_CONTROLLER | Controller::CMIC_ANA,
                oaes: 1 << 8 | 1 << 11,
                anagrpmax: 4,
                nanagrpid: 4,
                nn: 8,
                mnan: 8,
                subnqn: Some(nqn()),
                ..Controller::new(ControllerKind::Io)
            };
            controller.emit(&mut data);
        }
        cns::ACTIVE_NAMESPACES => ActiveNamespaceList::page([1, 2], what.nsid).emit(&mut data),
        cns::DESCRIPTORS => {
            let uuid = Some(Uuid([what.nsid.to_le_bytes()[0]; 16]));
            NamespaceIdDescriptors { uuid, ..Default::default() }.emit(&mut data);
        }
        cns::NAMESPACE => {
            let anagrpid = what.nsid;
            Namespace { anagrpid, ..Namespace::new(100, 9) }.emit(&mut data);
        }
        _ => {}
    }
    data
}
