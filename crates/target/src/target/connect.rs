//! Fabrics Connect and Disconnect: how a connection becomes a queue of a controller.

use super::Target;
use super::command::Step;
use super::lifecycle::{ADMIN_CAPSULE_BYTES, CLOSE_LIMIT, number};
use crate::config::MAX_CNTLID;
use crate::conn::{Answer, AnswerData, Role, SlotId};
use crate::controller::{Controller, NewController, Of};
use crate::verb::{Asked, TargetEvent};
use alloc::boxed::Box;
use anabranch_proto::machine::{Buffers, Time};
use anabranch_proto::nvme::fabrics::{
    CNTLID_DYNAMIC, ConnectCommand, ConnectData, ConnectRefusal, ConnectResponse, Disconnect,
    offset,
};
use anabranch_proto::nvme::opcode::fabrics;
use anabranch_proto::nvme::{Sqe, Status};

/// An admin queue may always have this many entries: the Linux host asks for 32.
const ADMIN_ENTRIES: u16 = 128;

/// A refusal, and what to tell a human.
type Refused = (ConnectRefusal, &'static str);

const fn refused(status: Status) -> ConnectRefusal {
    ConnectRefusal { status: status.with_dnr(), parameter: None }
}

/// What a human reads of a Connect that does not parse, from the parameter that the host is told.
const fn what_is_wrong(refusal: ConnectRefusal) -> &'static str {
    match refusal.parameter {
        Some((offset::HOSTNQN, true)) => "the host NQN is empty or not valid",
        Some((offset::SUBNQN, true)) => "the subsystem NQN is empty or not valid",
        Some((offset::SQSIZE, false)) => "the queue size is too small",
        Some((offset::SGL, false)) => "the data is shorter than 1024 bytes",
        _ => "the command is not one that this version of the format has",
    }
}

impl Target {
    /// A command on a connection that has no queue yet: only Connect may come (C23).
    pub(super) fn connect(
        &mut self,
        now: Time,
        place: u32,
        slot: SlotId,
        bufs: &mut dyn Buffers,
    ) -> Step {
        let Some(sqe) = self.sqe(place, slot) else { return Step::refuse(Status::INTERNAL_ERROR) };
        if !sqe.is_fabrics() || sqe.fctype() != fabrics::CONNECT {
            return Step::refuse(Status::COMMAND_SEQUENCE_ERROR);
        }
        let command = match ConnectCommand::parse(&sqe) {
            Ok(command) => command,
            Err(refusal) => {
                return self.refuse_connect(place, None, refusal, what_is_wrong(refusal));
            }
        };
        let need = u32::try_from(ConnectData::BYTES).unwrap_or(u32::MAX);
        let data = match self.host_data(place, slot, need) {
            Ok(buf) => ConnectData::parse(bufs.bytes(buf)),
            Err(step) => return step,
        };
        let data = match data {
            Ok(data) => data,
            Err(refusal) => {
                return self.refuse_connect(place, None, refusal, what_is_wrong(refusal));
            }
        };
        let asked = Asked { host: data.hostnqn.clone(), subsystem: data.subnqn.clone() };
        let joined = if command.qid == 0 {
            self.connect_admin(now, place, command, data)
        } else {
            self.connect_io(now, place, command, &data)
        };
        match joined {
            Ok(cntlid) => Step::Done(Answer::result(ConnectResponse::new(cntlid).result())),
            Err((refusal, reason)) => self.refuse_connect(place, Some(asked), refusal, reason),
        }
    }

    fn refuse_connect(
        &mut self,
        place: u32,
        asked: Option<Asked>,
        refusal: ConnectRefusal,
        reason: &'static str,
    ) -> Step {
        let conn = self.conns.get(place);
        let (port, peer) = conn.map_or((0, None), |conn| (conn.port, conn.peer));
        let (port, asked) = (number(port), asked.map(Box::new));
        self.tell(TargetEvent::ConnectRefused { port, peer, asked, reason });
        let (status, result) = (refusal.status, refusal.result());
        Step::Done(Answer { status, result, data: AnswerData::None })
    }

    fn find_subsystem(&self, data: &ConnectData) -> Result<Of, Refused> {
        if data.subnqn.is_discovery() {
            return Ok(Of::Discovery);
        }
        let found = self.subsystems.iter().position(|subsystem| subsystem.nqn == data.subnqn);
        let at = found.ok_or((ConnectRefusal::data(offset::SUBNQN), "unknown subsystem"))?;
        if !self.subsystems[at].allows(&data.hostnqn) {
            return Err((refused(Status::CONNECT_INVALID_HOST), "host not allowed"));
        }
        Ok(Of::Subsystem(at))
    }

    fn connect_admin(
        &mut self,
        now: Time,
        place: u32,
        command: ConnectCommand,
        data: ConnectData,
    ) -> Result<u16, Refused> {
        if data.hostid.is_zero() {
            // The discovery log does not offer that either (TREQ).
            return Err((ConnectRefusal::data(offset::HOSTID), "the host identifier is zero"));
        }
        let of = self.find_subsystem(&data)?;
        if data.cntlid != CNTLID_DYNAMIC {
            return Err((ConnectRefusal::data(offset::CNTLID), "controllers are dynamic"));
        }
        let entries = command.sqsize.saturating_add(1);
        if entries > self.limits.queue_depth.max(ADMIN_ENTRIES) {
            return Err((ConnectRefusal::command(offset::SQSIZE), "admin queue too large"));
        }
        let clash = self.controllers.iter().flatten().any(|other| {
            !other.is_discovery() && other.host_id == data.hostid && other.host != data.hostnqn
        });
        if of != Of::Discovery && clash {
            return Err((refused(Status::CONNECT_INVALID_HOST), "host identifier of another host"));
        }
        let cntlid = self.free_cntlid();
        let cntlid = cntlid.ok_or((
            ConnectRefusal { status: Status::CONNECT_CONTROLLER_BUSY, parameter: None },
            "too many controllers",
        ))?;
        let port = self.conns.get(place).map_or(0, |conn| conn.port);
        let reported = self.has_heard(of, data.hostid);
        self.tell(TargetEvent::ControllerUp {
            cntlid,
            port: number(port),
            host: data.hostnqn.clone(),
            subsystem: data.subnqn,
        });
        let controller = Controller::new(
            NewController {
                cntlid,
                of,
                port,
                host: data.hostnqn,
                host_id: data.hostid,
                kato_ms: command.kato_ms,
                max_queues: self.limits.io_queues,
                admin: place,
                reported,
            },
            now,
        );
        if let Some(deadline) = controller.timer_ends() {
            self.check_by(deadline);
        }
        let free = self.controllers.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.controllers.push(None);
            self.controllers.len() - 1
        });
        self.controllers[at] = Some(controller);
        self.join(place, Role::Admin(at), entries, &command);
        Ok(cntlid)
    }

    fn connect_io(
        &mut self,
        now: Time,
        place: u32,
        command: ConnectCommand,
        data: &ConnectData,
    ) -> Result<u16, Refused> {
        let of = self.find_subsystem(data)?;
        let port = self.conns.get(place).map_or(0, |conn| conn.port);
        let (depth, granted) = (self.limits.queue_depth, self.limits.io_queues);
        let mut all = self.controllers.iter_mut().enumerate();
        let found = all.find_map(|(at, controller)| {
            let controller = controller.as_mut()?;
            let same =
                controller.cntlid == data.cntlid && controller.of == of && controller.port == port;
            same.then_some((at, controller))
        });
        let Some((at, controller)) = found else {
            return Err((ConnectRefusal::data(offset::CNTLID), "no such controller"));
        };
        if controller.is_discovery() {
            return Err((ConnectRefusal::command(offset::QID), "discovery has no I/O queues"));
        }
        if controller.host != data.hostnqn {
            return Err((ConnectRefusal::data(offset::HOSTNQN), "controller of another host"));
        }
        // Zero is no claim (Base 6.3, "Host Identifier").
        if !data.hostid.is_zero() && controller.host_id != data.hostid {
            return Err((ConnectRefusal::data(offset::HOSTID), "controller of another host"));
        }
        if !controller.takes_commands() {
            // By the command, none of its parameters is better than another (Base 6.3).
            return Err((ConnectRefusal::command(offset::QID), "controller not enabled"));
        }
        if command.qid > controller.granted_queues.min(granted) {
            return Err((ConnectRefusal::command(offset::QID), "more I/O queues than granted"));
        }
        if controller.io_queue(command.qid).is_some() {
            // Not a bad parameter: the queue was created before (Base 6.3).
            return Err((refused(Status::COMMAND_SEQUENCE_ERROR), "I/O queue connected twice"));
        }
        let entries = command.sqsize.saturating_add(1);
        if entries > depth {
            return Err((ConnectRefusal::command(offset::SQSIZE), "I/O queue too large"));
        }
        controller.io_queues.push((command.qid, place));
        controller.last_seen = now;
        let cntlid = controller.cntlid;
        self.join(place, Role::Io(at), entries, &command);
        Ok(cntlid)
    }

    /// Gives a connection its role, and room for its commands: from here on the way of an I/O
    /// needs no memory of its own.
    fn join(&mut self, place: u32, role: Role, entries: u16, command: &ConnectCommand) {
        let Some(conn) = self.conns.get_mut(place) else { return };
        conn.role = role;
        conn.deadline = None;
        conn.entries.resize_with(entries.into(), || None);
        let in_capsule = match role {
            Role::Io(_) => self.limits.in_capsule_bytes,
            _ => ADMIN_CAPSULE_BYTES,
        };
        conn.queue.set_limits(entries, in_capsule);
        conn.queue.set_sq_flow_control(!command.disable_sq_flow);
        let port = &mut self.ports[conn.port];
        port.shaper.inbound.widen(place, entries);
        port.shaper.outbound.widen(place, entries);
        // And for a look at the end of a file.
        self.disk.reserve(usize::from(entries) + 1);
        conn.waiting.reserve(entries.into());
        let connections = self.conns.len();
        self.waiting.reserve(connections.saturating_sub(self.waiting.len()));
    }

    /// The next identifier in turn that no living controller has.
    fn free_cntlid(&mut self) -> Option<u16> {
        for _ in 0..MAX_CNTLID {
            let cntlid = self.next_cntlid;
            self.next_cntlid = if cntlid == MAX_CNTLID { 1 } else { cntlid + 1 };
            if !self.controllers.iter().flatten().any(|other| other.cntlid == cntlid) {
                return Some(cntlid);
            }
        }
        None
    }

    /// The end of one I/O queue (Fabrics, "Disconnect"). Whoever reads its answer may send what was
    /// not answered elsewhere, so that is the last of the queue: what was not begun is aborted, and
    /// what was ends first. Then the host closes the connection, or we do.
    pub(super) fn disconnect(&mut self, now: Time, place: u32, slot: SlotId, sqe: &Sqe) -> Step {
        if let Err(status) = Disconnect::parse(sqe) {
            return Step::Done(Answer::status(status));
        }
        let Some(conn) = self.conns.get_mut(place) else {
            return Step::refuse(Status::INTERNAL_ERROR);
        };
        let deadline = now.after(CLOSE_LIMIT);
        conn.deadline = Some(deadline);
        conn.last = Some(slot);
        let mut is_alone = true;
        for (_, entry) in (0..).zip(&mut conn.entries).filter(|(other, _)| *other != slot) {
            let Some(entry) = entry else { continue };
            is_alone = false;
            entry.verdict = entry.verdict.or(Some(Status::ABORTED_SQ_DELETION));
        }
        self.check_by(deadline);
        if is_alone { Step::Done(Answer::status(Status::SUCCESS)) } else { Step::Last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PortConfig, TargetConfig};
    use alloc::vec;
    use anabranch_proto::machine::Endpoint;
    use anabranch_proto::nvme::{Nqn, Uuid};

    #[test]
    fn controller_identifiers_come_round_and_pass_by_those_that_live() {
        let port = PortConfig::new(Endpoint::Tcp("127.0.0.1:0".parse().expect("an address")));
        let config = TargetConfig { ports: vec![port], ..TargetConfig::default() };
        let mut target = Target::new(config, 1).expect("a target");
        let living = NewController {
            cntlid: 1,
            of: Of::Discovery,
            port: 0,
            host: Nqn::discovery(),
            host_id: Uuid([1; 16]),
            kato_ms: 0,
            max_queues: 1,
            admin: 0,
            reported: vec![],
        };
        target.controllers.push(Some(Controller::new(living, Time::ZERO)));
        target.next_cntlid = MAX_CNTLID - 1;
        let given = [(); 3].map(|()| target.free_cntlid());
        assert_eq!(given, [Some(MAX_CNTLID - 1), Some(MAX_CNTLID), Some(2)]);
    }
}
