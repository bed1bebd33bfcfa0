//! What passes between host and target, PDU by PDU: written down, and changed by rules.

use anabranch_lab::sim::{Passing, Tap};
use anabranch_proto::machine::{Endpoint, Time};
use anabranch_proto::nvme::{Cqe, Sqe, Status, opcode};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// PDU types (NVMe/TCP transport, PDU-Type).
pub(crate) mod kind {
    pub(crate) const IC_RESP: u8 = 1;
    pub(crate) const H2C_TERM_REQ: u8 = 2;
    pub(crate) const CAPSULE_CMD: u8 = 4;
    pub(crate) const CAPSULE_RESP: u8 = 5;
    pub(crate) const H2C_DATA: u8 = 6;
    pub(crate) const C2H_DATA: u8 = 7;
}

/// A PDU that has left its sender.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) at: Time,
    /// The host worker at whose end it is, 0 for admin connections.
    pub(crate) worker: u16,
    /// The target's port.
    pub(crate) port: u16,
    /// The connection.
    pub(crate) serial: u32,
    pub(crate) to_target: bool,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Bytes on the wire.
    pub(crate) len: usize,
    /// The command that it carries, belongs to, or answers.
    pub(crate) sqe: Option<Sqe>,
    /// What a rule may change; empty = it does not arrive. Not kept in the record.
    pub(crate) bytes: Vec<u8>,
}

impl Pdu {
    /// A command capsule of an I/O queue, Connect not counted.
    pub(crate) fn is_io(&self) -> bool {
        self.kind == kind::CAPSULE_CMD
            && self.worker > 0
            && self.sqe.is_some_and(|sqe| !sqe.is_fabrics())
    }

    /// An admin command with this opcode.
    pub(crate) fn is_admin(&self, opcode: u8) -> bool {
        self.kind == kind::CAPSULE_CMD
            && self.worker == 0
            && self.sqe.is_some_and(|sqe| sqe.opcode() == opcode)
    }

    /// The answer to an I/O command with this opcode.
    pub(crate) fn answers(&self, opcode: u8) -> bool {
        self.is_io_answer() && self.sqe.is_some_and(|sqe| sqe.opcode() == opcode)
    }

    /// The answer to any I/O command.
    pub(crate) fn is_io_answer(&self) -> bool {
        self.kind == kind::CAPSULE_RESP
            && self.worker > 0
            && self.sqe.is_some_and(|sqe| !sqe.is_fabrics())
    }

    /// What a response says.
    pub(crate) fn status(&self) -> Status {
        assert_eq!(self.kind, kind::CAPSULE_RESP);
        Cqe::from_bytes(self.bytes[8..24].try_into().expect("a CQE has 16 bytes")).status
    }

    /// Makes a response say something else.
    pub(crate) fn answer(&mut self, status: Status) {
        assert_eq!(self.kind, kind::CAPSULE_RESP);
        let bytes: &[u8; 16] = self.bytes[8..24].try_into().expect("a CQE has 16 bytes");
        let cqe = Cqe { status, ..Cqe::from_bytes(bytes) };
        self.bytes[8..24].copy_from_slice(&cqe.to_bytes());
    }

    /// The command identifier that it names.
    pub(crate) fn cid(&self) -> u16 {
        let at = match self.kind {
            kind::CAPSULE_CMD => 10,
            kind::CAPSULE_RESP => 20,
            _ => 8,
        };
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

type Rule = Box<dyn FnMut(&mut Pdu)>;

/// The record of a run.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) seen: Vec<Pdu>,
    commands: BTreeMap<(u32, u16), Sqe>,
    rules: Vec<Rule>,
}

impl Wire {
    /// From now on every PDU goes through `rule`.
    pub(crate) fn rule(&mut self, rule: impl FnMut(&mut Pdu) + 'static) {
        self.rules.push(Box::new(rule));
    }

    /// No rule any more.
    pub(crate) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    pub(crate) fn listen(wire: &Rc<RefCell<Wire>>) -> Tap {
        let wire = Rc::clone(wire);
        Box::new(move |passing| wire.borrow_mut().batch(passing))
    }

    fn batch(&mut self, passing: &mut Passing<'_>) {
        let mut left = &passing.bytes[..];
        let mut out = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let len = u32::from_le_bytes(left[4..8].try_into().expect("four bytes")) as usize;
            let (pdu, rest) = left.split_at(len);
            left = rest;
            out.extend(self.pdu(passing, pdu.to_vec()));
        }
        *passing.bytes = out;
    }

    fn pdu(&mut self, passing: &Passing<'_>, bytes: Vec<u8>) -> Vec<u8> {
        let Endpoint::Tcp(to) = passing.to else { unreachable!("all ports are TCP") };
        let mut pdu = Pdu {
            at: passing.now,
            worker: passing.worker.0,
            port: to.port() - 4420,
            serial: passing.serial,
            to_target: passing.to_target,
            kind: bytes[0],
            flags: bytes[1],
            len: bytes.len(),
            sqe: None,
            bytes,
        };
        if pdu.kind == kind::CAPSULE_CMD {
            let sqe = Sqe::from_bytes(pdu.bytes[8..72].try_into().expect("an SQE has 64 bytes"));
            self.commands.insert((pdu.serial, sqe.cid()), sqe);
        }
        if pdu.kind >= kind::CAPSULE_CMD {
            pdu.sqe = self.commands.get(&(pdu.serial, pdu.cid())).copied();
        }
        self.seen.push(Pdu { bytes: Vec::new(), ..pdu.clone() });
        self.rules.iter_mut().for_each(|rule| {
            if !pdu.bytes.is_empty() {
                rule(&mut pdu);
            }
        });
        pdu.bytes
    }
}

/// A rule: controllers say how long to wait before a command is tried again, CRDT1 to CRDT3 of
/// Identify Controller (bytes 128 to 133), in units of 100 ms.
pub(crate) fn retry_delays(delays: [u16; 3]) -> impl FnMut(&mut Pdu) {
    move |pdu| {
        let of_controller =
            |sqe: Sqe| sqe.opcode() == opcode::admin::IDENTIFY && sqe.cdw(10) & 0xff == 1;
        if pdu.worker == 0 && pdu.kind == kind::C2H_DATA && pdu.sqe.is_some_and(of_controller) {
            for (index, delay) in delays.into_iter().enumerate() {
                let at = 24 + 128 + 2 * index;
                pdu.bytes[at..at + 2].copy_from_slice(&delay.to_le_bytes());
            }
        }
    }
}
