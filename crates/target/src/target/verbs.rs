//! Verbs: changes to a running target, and its status.

use super::Target;
use super::lifecycle::number;
use crate::aer::Notice;
use crate::backend::Backend;
use crate::config::{MAX_ANA_GROUP, NamespaceConfig, check_size, uuid_taken};
use crate::controller::Of;
use crate::link::Shape;
use crate::namespace::Namespace;
use crate::port::{Listener, PortFault};
use crate::status::{ControllerStatus, NamespaceStatus, PortStatus, SubsystemStatus, TargetStatus};
use crate::verb::{TargetError, TargetEvent, TargetReply, TargetVerb};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use anabranch_proto::machine::{Buffers, CloseHow, Output, Time, VerbId};
use anabranch_proto::nvme::{AnaState, Nqn};

/// What a damaged block of a file is overwritten with.
const DAMAGE: u8 = 0xa5;

type Reply = Result<TargetReply, TargetError>;

impl Target {
    pub(super) fn verb(&mut self, now: Time, id: VerbId, verb: TargetVerb, bufs: &mut dyn Buffers) {
        let reply = match verb {
            TargetVerb::Corrupt { subsystem, nsid, lba } => {
                match self.corrupt(id, &subsystem, nsid, lba, bufs) {
                    Some(reply) => reply,
                    None => return,
                }
            }
            verb => self.change(now, verb, bufs),
        };
        self.outputs.push_back(Output::Reply { id, reply });
    }

    fn change(&mut self, now: Time, verb: TargetVerb, bufs: &mut dyn Buffers) -> Reply {
        match verb {
            TargetVerb::Ana { port, group, state } => self.set_ana(now, port, group, state, bufs),
            TargetVerb::Shape { port, shape } => self.set_shape(now, port, shape),
            TargetVerb::Brownout { port, brownout } => {
                let at = self.port_at(port)?;
                if let Some(problem) = brownout.and_then(|brownout| brownout.problem()) {
                    return Err(TargetError::OutOfBounds(problem.to_string()));
                }
                self.ports[at].brownout = brownout;
                Ok(TargetReply::Done)
            }
            TargetVerb::Service(service) => self.set_service(now, service, bufs),
            TargetVerb::Cut { port } => self.cut(now, port, bufs),
            TargetVerb::Stall { port } => self.stall(port),
            TargetVerb::Restore { port } => self.restore(now, port, bufs),
            TargetVerb::Advertise { port, visible } => {
                let at = self.port_at(port)?;
                if core::mem::replace(&mut self.ports[at].visible, visible) != visible {
                    self.discovery_changed(now, bufs);
                }
                Ok(TargetReply::Done)
            }
            TargetVerb::AllowHost { subsystem, host } => {
                self.set_allowed(now, &subsystem, host, true, bufs)
            }
            TargetVerb::DenyHost { subsystem, host } => {
                self.set_allowed(now, &subsystem, host, false, bufs)
            }
            TargetVerb::NamespaceAdd { subsystem, config } => {
                self.add_namespace(now, &subsystem, &config, bufs)
            }
            TargetVerb::NamespaceRemove { subsystem, nsid } => {
                let at = self.subsystem_at(&subsystem)?;
                let removed = self.subsystems[at].remove(nsid);
                let group = removed.ok_or(TargetError::NoSuchNamespace { nsid })?.ana_group;
                self.refuse_begun(at, nsid);
                self.members_changed(now, at, nsid, &[group], bufs);
                Ok(TargetReply::Done)
            }
            TargetVerb::NamespaceResize { subsystem, nsid, bytes } => {
                let at = self.subsystem_at(&subsystem)?;
                let namespace = self.namespace_at(at, nsid)?;
                check_size(nsid, bytes, namespace.block_bytes())
                    .map_err(|error| TargetError::OutOfBounds(error.to_string()))?;
                namespace.resize(bytes);
                self.namespace_changed(now, at, nsid, bufs);
                Ok(TargetReply::Done)
            }
            TargetVerb::NamespaceGroup { subsystem, nsid, group } => {
                check_group(group)?;
                let at = self.subsystem_at(&subsystem)?;
                let namespace = self.namespace_at(at, nsid)?;
                let before = core::mem::replace(&mut namespace.ana_group, group);
                if before != group {
                    // The ANA log says so; the notice of changed attributes is not for this
                    // (Base, Attached Namespace Attribute Changed).
                    self.log_members_changed(&[before, group]);
                    let concerned = |c: &crate::controller::Controller| c.of == Of::Subsystem(at);
                    self.notify(now, Notice::Ana, concerned, bufs);
                }
                Ok(TargetReply::Done)
            }
            TargetVerb::Status | TargetVerb::Corrupt { .. } => {
                Ok(TargetReply::Status(Box::new(self.status())))
            }
        }
    }

    fn port_at(&self, port: u16) -> Result<usize, TargetError> {
        let ports = number(self.ports.len());
        (port < ports).then_some(port.into()).ok_or(TargetError::NoSuchPort { port, ports })
    }

    fn subsystem_at(&self, nqn: &Nqn) -> Result<usize, TargetError> {
        let found = self.subsystems.iter().position(|subsystem| subsystem.nqn == *nqn);
        found.ok_or_else(|| TargetError::NoSuchSubsystem(nqn.clone()))
    }

    fn namespace_at(&mut self, at: usize, nsid: u32) -> Result<&mut Namespace, TargetError> {
        self.subsystems[at].namespace_mut(nsid).ok_or(TargetError::NoSuchNamespace { nsid })
    }

    fn set_ana(
        &mut self,
        now: Time,
        port: u16,
        group: u32,
        state: AnaState,
        bufs: &mut dyn Buffers,
    ) -> Reply {
        let at = self.port_at(port)?;
        check_group(group)?;
        if self.ports[at].ana.set(group, state) {
            let concerned = |c: &crate::controller::Controller| c.port == at;
            self.notify(now, Notice::Ana, concerned, bufs);
        }
        Ok(TargetReply::Done)
    }

    fn set_shape(&mut self, now: Time, port: u16, shape: Shape) -> Reply {
        let at = self.port_at(port)?;
        shape.check().map_err(|error| TargetError::OutOfBounds(error.to_string()))?;
        self.ports[at].shaper.reshape(shape, now);
        self.ports[at].touched = true;
        for place in self.places_on(at) {
            let slots = self.conns.get(place).map_or(0, |conn| conn.entries.len());
            let slots = u16::try_from(slots).unwrap_or(u16::MAX);
            self.ports[at].shaper.inbound.widen(place, slots);
            self.ports[at].shaper.outbound.widen(place, slots);
        }
        Ok(TargetReply::Done)
    }

    fn places_on(&self, at: usize) -> Vec<u32> {
        let on = self.conns.iter().filter(|(_, conn)| conn.port == at);
        on.map(|(place, _)| place).collect()
    }

    fn cut(&mut self, now: Time, port: u16, bufs: &mut dyn Buffers) -> Reply {
        let at = self.port_at(port)?;
        if self.ports[at].fault == PortFault::Stalled {
            self.end_stall(now, at, false, bufs);
        }
        let port = &mut self.ports[at];
        if port.fault == PortFault::Cut {
            return Ok(TargetReply::Done);
        }
        port.fault = PortFault::Cut;
        if let Listener::Up(listener) = port.listener {
            port.listener = Listener::Stopping(listener);
            self.outputs.push_back(Output::Unlisten { listener });
        }
        for place in self.places_on(at) {
            self.close(place, CloseHow::Abort);
            self.forget(place, "its port was cut");
        }
        self.tell(TargetEvent::PortCut { port: number(at) });
        Ok(TargetReply::Done)
    }

    fn stall(&mut self, port: u16) -> Reply {
        let at = self.port_at(port)?;
        match self.ports[at].fault {
            PortFault::Stalled => {}
            PortFault::Cut => {
                // Who asked names ports another way than we do: no number here.
                let why = "the port is cut: restore it before a stall";
                return Err(TargetError::OutOfBounds(String::from(why)));
            }
            PortFault::None => {
                self.ports[at].fault = PortFault::Stalled;
                for place in self.places_on(at) {
                    self.pause(place);
                }
            }
        }
        Ok(TargetReply::Done)
    }

    fn restore(&mut self, now: Time, port: u16, bufs: &mut dyn Buffers) -> Reply {
        let at = self.port_at(port)?;
        match self.ports[at].fault {
            PortFault::None => {}
            PortFault::Stalled => self.end_stall(now, at, true, bufs),
            PortFault::Cut => self.ports[at].fault = PortFault::None,
        }
        if matches!(self.ports[at].listener, Listener::Idle | Listener::Failed(_)) {
            self.listen(at);
        }
        Ok(TargetReply::Done)
    }

    /// Ends a stall. Connections that ended meanwhile are reset now; with `go_on`, the others do
    /// what the stall has caught.
    fn end_stall(&mut self, now: Time, at: usize, go_on: bool, bufs: &mut dyn Buffers) {
        self.ports[at].fault = PortFault::None;
        for place in self.places_on(at) {
            let Some(conn) = self.conns.get(place) else { continue };
            if conn.closing {
                self.end_now(place);
            } else if go_on {
                self.resume(place);
                self.announce(place);
            }
        }
        if go_on {
            self.release_held(now, at, bufs);
            self.ports[at].touched = true;
        } else {
            self.ports[at].held.clear();
        }
    }

    fn add_namespace(
        &mut self,
        now: Time,
        subsystem: &Nqn,
        config: &NamespaceConfig,
        bufs: &mut dyn Buffers,
    ) -> Reply {
        let at = self.subsystem_at(subsystem)?;
        config.check().map_err(|error| TargetError::OutOfBounds(error.to_string()))?;
        self.next_generation += 1;
        let namespace = Namespace::new(config, subsystem, self.next_generation);
        let taken = self.subsystems.iter().enumerate().find_map(|(of, subsystem)| {
            let others = subsystem.namespaces.iter();
            let mut others = others.filter(|n| of != at || n.nsid != config.nsid);
            let other = others.find(|other| other.uuid == namespace.uuid)?;
            Some((other.nsid, (of != at).then_some(&subsystem.nqn)))
        });
        if let Some((other, elsewhere)) = taken {
            let error = uuid_taken(config.nsid, other, elsewhere);
            return Err(TargetError::OutOfBounds(error.to_string()));
        }
        if !self.subsystems[at].add(namespace) {
            return Err(TargetError::NamespaceExists { nsid: config.nsid });
        }
        self.members_changed(now, at, config.nsid, &[config.ana_group], bufs);
        Ok(TargetReply::Done)
    }

    /// Other namespaces are in these groups: their change counts grow.
    fn log_members_changed(&mut self, groups: &[u32]) {
        for port in &mut self.ports {
            groups.iter().for_each(|group| port.ana.members_changed(*group));
        }
    }

    /// A namespace came or went: the ANA logs changed too.
    fn members_changed(
        &mut self,
        now: Time,
        at: usize,
        nsid: u32,
        groups: &[u32],
        bufs: &mut dyn Buffers,
    ) {
        self.log_members_changed(groups);
        self.namespace_changed(now, at, nsid, bufs);
    }

    fn namespace_changed(&mut self, now: Time, at: usize, nsid: u32, bufs: &mut dyn Buffers) {
        let concerned = |c: &crate::controller::Controller| c.of == Of::Subsystem(at);
        for controller in self.controllers.iter_mut().flatten().filter(|c| concerned(c)) {
            controller.namespace_changed(nsid);
        }
        self.notify(now, Notice::Namespaces, concerned, bufs);
    }

    /// What the discovery log says has changed: one step of its generation.
    fn discovery_changed(&mut self, now: Time, bufs: &mut dyn Buffers) {
        self.discovery_generation += 1;
        let concerned = crate::controller::Controller::is_discovery;
        self.notify(now, Notice::Discovery, concerned, bufs);
    }

    fn set_allowed(
        &mut self,
        now: Time,
        subsystem: &Nqn,
        host: Nqn,
        allow: bool,
        bufs: &mut dyn Buffers,
    ) -> Reply {
        let at = self.subsystem_at(subsystem)?;
        let subsystem = &mut self.subsystems[at];
        if !allow && subsystem.allow_any {
            return Err(TargetError::OutOfBounds(format!(
                "every host is allowed; allow one by name before {host} is denied"
            )));
        }
        if subsystem.allowed_hosts.contains(&host) == allow {
            return Ok(TargetReply::Done);
        }
        if allow {
            subsystem.allow_any = false;
            subsystem.allowed_hosts.push(host);
        } else {
            subsystem.allowed_hosts.retain(|allowed| *allowed != host);
        }
        self.end_disallowed(at);
        self.discovery_changed(now, bufs);
        Ok(TargetReply::Done)
    }

    fn end_disallowed(&mut self, subsystem: usize) {
        for at in 0..self.controllers.len() {
            let out = self.controllers[at].as_ref().is_some_and(|c| {
                c.of == Of::Subsystem(subsystem) && !self.subsystems[subsystem].allows(&c.host)
            });
            if out {
                self.end_controller(at, "its host is no longer allowed");
            }
        }
    }

    /// `None` when the answer comes later.
    fn corrupt(
        &mut self,
        id: VerbId,
        subsystem: &Nqn,
        nsid: u32,
        lba: u64,
        bufs: &mut dyn Buffers,
    ) -> Option<Reply> {
        let namespace = match self.subsystem_at(subsystem) {
            Ok(at) => self.namespace_at(at, nsid),
            Err(error) => return Some(Err(error)),
        };
        let namespace = match namespace {
            Ok(namespace) => namespace,
            Err(error) => return Some(Err(error)),
        };
        if lba >= namespace.blocks {
            let text = format!("LBA {lba} is not below the {} blocks", namespace.blocks);
            return Some(Err(TargetError::OutOfBounds(text)));
        }
        let offset = lba << namespace.block_shift;
        let block_bytes = namespace.block_bytes();
        match &mut namespace.backend {
            Backend::Memory(memory) => {
                let done = memory.invert(offset, block_bytes.into());
                Some(done.map(|()| TargetReply::Done).map_err(|_| TargetError::NoMemory))
            }
            Backend::File(store) => {
                let file = store.file;
                let Some(buf) = bufs.alloc(block_bytes) else {
                    return Some(Err(TargetError::NoMemory));
                };
                bufs.bytes_mut(buf).fill(DAMAGE);
                self.submit_corruption(file, id, offset, buf);
                None
            }
        }
    }

    fn status(&self) -> TargetStatus {
        let mut controllers: Vec<_> =
            self.controllers.iter().flatten().map(|c| self.of_controller(c)).collect();
        controllers.sort_by_key(|controller| controller.cntlid);
        TargetStatus {
            ports: (0..self.ports.len()).map(|at| self.port_status(at)).collect(),
            subsystems: self.subsystems.iter().map(subsystem_status).collect(),
            controllers,
            discovery_generation: self.discovery_generation,
            waiting_for_buffer: u32::try_from(self.waiting_count()).unwrap_or(u32::MAX),
        }
    }

    fn port_status(&self, at: usize) -> PortStatus {
        let port = &self.ports[at];
        let mut ana: Vec<(u32, AnaState)> = port.ana.named().collect();
        for namespace in self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces) {
            let group = namespace.ana_group;
            if let Err(place) = ana.binary_search_by_key(&group, |(group, _)| *group) {
                ana.insert(place, (group, port.ana.state(group)));
            }
        }
        PortStatus {
            port: number(at),
            at: port.at.clone(),
            advertised: port.reachable_at(),
            visible: port.visible,
            listening: matches!(port.listener, Listener::Up(_)),
            error: match port.listener {
                Listener::Failed(error) => Some(error),
                _ => None,
            },
            fault: port.fault,
            shape: port.shaper.shape.clone(),
            ana,
            connections: port.connections,
            commands: port.commands,
            damaged_commands: port.damaged_commands,
            bytes_in: port.bytes_in,
            bytes_out: port.bytes_out,
        }
    }

    fn of_controller(&self, controller: &crate::controller::Controller) -> ControllerStatus {
        ControllerStatus {
            cntlid: controller.cntlid,
            port: number(controller.port),
            subsystem: match controller.of {
                Of::Discovery => Nqn::discovery(),
                Of::Subsystem(at) => self.subsystems[at].nqn.clone(),
            },
            host: controller.host.clone(),
            host_id: controller.host_id,
            ready: controller.ready,
            io_queues: number(controller.io_queues.len()),
            keep_alive_ms: controller.kato_ms,
            ios: controller.ios,
            damaged_commands: controller.damaged_commands,
        }
    }
}

fn subsystem_status(subsystem: &crate::subsystem::Subsystem) -> SubsystemStatus {
    SubsystemStatus {
        nqn: subsystem.nqn.clone(),
        allow_any: subsystem.allow_any,
        allowed_hosts: subsystem.allowed_hosts.clone(),
        namespaces: subsystem
            .namespaces
            .iter()
            .map(|namespace| NamespaceStatus {
                nsid: namespace.nsid,
                uuid: namespace.uuid,
                nguid: namespace.nguid,
                block_bytes: namespace.block_bytes(),
                blocks: namespace.blocks,
                ana_group: namespace.ana_group,
                resident_bytes: namespace.backend.resident_bytes(),
                counters: namespace.counters,
            })
            .collect(),
    }
}

fn check_group(group: u32) -> Result<(), TargetError> {
    if (1..=MAX_ANA_GROUP).contains(&group) {
        return Ok(());
    }
    Err(TargetError::OutOfBounds(format!(
        "ANA group {group} must lie between 1 and {MAX_ANA_GROUP}"
    )))
}
