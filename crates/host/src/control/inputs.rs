//! Inputs find the controller that they concern.

use super::Control;
use super::controller::Controller;
use super::env::Env;
use super::lifecycle::Phase;
use super::link::{Answer, Purpose};
use super::waits::Stop;
use crate::event::HostEvent;
use crate::mail::{RequestFailed, Rescued, ToControl};
use crate::topology::{Association, ControllerId, HeadId};
use crate::verb::Verb;
use alloc::format;
use alloc::string::String;
use anabranch_proto::machine::{Buffers, ConnId, Input, WorkerId};
use anabranch_proto::nvme::status::Status;
use core::convert::Infallible;

impl Control {
    pub(super) fn input(
        &mut self,
        input: Input<'_, Verb<Infallible>, ToControl>,
        bufs: &mut dyn Buffers,
    ) {
        match input {
            Input::Start => self.env.dirty = true,
            Input::Timeout => self.timeout(bufs),
            Input::Verb { id, verb } => self.verb(id, verb, bufs),
            Input::Mail { from, mail } => self.mail(from, mail, bufs),
            Input::Connected { conn, local, node } => {
                self.with(conn, |controller, env| controller.connected(env, local, node));
            }
            Input::Received { conn, bytes } => {
                self.with(conn, |controller, env| {
                    if let Some(link) = &mut controller.link {
                        link.received(env.now, bytes, bufs);
                    }
                    controller.after_bytes(env, bufs);
                });
            }
            Input::ReceivedInto { conn, len } => {
                self.with(conn, |controller, env| {
                    if let Some(link) = &mut controller.link {
                        link.received_into(env.now, len, bufs);
                    }
                    controller.after_bytes(env, bufs);
                });
            }
            Input::Transmitted { conn } => {
                self.with(conn, |controller, env| {
                    if let Some(link) = &mut controller.link {
                        link.transmitted();
                    }
                    controller.after_bytes(env, bufs);
                });
            }
            Input::Closed { conn, cause } => {
                self.env.conns.closed(conn);
                self.with(conn, |controller, env| controller.closed(env, cause, bufs));
            }
            // Accepted connections, listeners and files belong to the user of this worker.
            Input::Accepted { .. }
            | Input::Looked { .. }
            | Input::Listening { .. }
            | Input::Unlistened { .. }
            | Input::DiskDone { .. } => {}
        }
    }

    fn with(&mut self, conn: ConnId, act: impl FnOnce(&mut Controller, &mut Env)) {
        let found = self
            .controllers
            .values_mut()
            .find(|controller| controller.link.as_ref().is_some_and(|link| link.conn() == conn));
        if let Some(controller) = found {
            act(controller, &mut self.env);
        }
    }

    fn timeout(&mut self, bufs: &mut dyn Buffers) {
        let now = self.env.now;
        let is_due = |controller: &&mut Controller| controller.due().is_some_and(|at| at <= now);
        for controller in self.controllers.values_mut().filter(is_due) {
            controller.timeout(&mut self.env, bufs);
        }
        let over = |head: &super::subsystem::Head| head.remove_at.is_some_and(|at| at <= now);
        for index in 0..self.subsystems.len() {
            let heads = &mut self.subsystems[index].heads;
            // The next picture has their sizes.
            self.env.dirty |= heads.iter().any(|head| head.due().is_some_and(|at| at <= now));
            for head in heads.iter_mut() {
                self.retry_refused |= head.take_owed(now);
            }
            if heads.iter().any(over) {
                self.drop_heads(index);
            }
        }
        self.drop_empty_subsystems();
        self.waits_timeout();
    }

    /// The controller, when the mail speaks of its present association.
    fn current(&mut self, id: ControllerId, association: Association) -> Option<&mut Controller> {
        self.controllers.get_mut(&id).filter(|controller| controller.association == association)
    }

    fn mail(&mut self, from: WorkerId, mail: ToControl, bufs: &mut dyn Buffers) {
        match mail {
            ToControl::QueueOpen { controller, association, qid } => {
                self.about(controller, association, |controller, env| {
                    controller.queue_open(env, qid, bufs);
                });
            }
            ToControl::QueueFailed { controller, association, qid, why } => {
                self.about(controller, association, |controller, env| {
                    if matches!(controller.phase, Phase::Queues { .. }) {
                        // Whatever was said to Connect: see `Step::ends_for_good`.
                        controller.fail(env, format!("I/O queue {qid}: {why}"), false);
                    }
                });
            }
            ToControl::QueueLost { controller, association, qid, why } => {
                self.about(controller, association, |controller, env| {
                    controller.queue_lost(env, bufs, format!("I/O queue {qid}: {why}"));
                });
            }
            ToControl::QueueStopped { controller, association } => {
                self.about(controller, association, |controller, env| {
                    if controller.awaits_stop() {
                        controller.queues.stopped(from);
                        controller.check_stopped(env);
                    }
                });
            }
            ToControl::AnaError { controller, association, head, status } => {
                self.ana_error((controller, association), head, status, bufs);
            }
            ToControl::Rescued(rescued) => self.rescued(*rescued),
            ToControl::Flawed { head, controller, flaw, untold } => {
                if let Some(path) = self.name_of_path(head, controller) {
                    self.env.event(HostEvent::Flawed { path, flaw, untold });
                }
            }
            ToControl::RequestFailed(failed) => self.request_failed(&failed),
            ToControl::LossSuspected { head, controller, status } => {
                let Some(head) = self.name_of(head) else { return };
                let controller = self.controllers.get(&controller).map(Controller::name);
                self.env.event(HostEvent::LossSuspected { head, status, controller });
            }
            ToControl::ZeroesRefused { head, controller, status } => {
                self.zeroes_refused(head, controller, status);
            }
            ToControl::NamespaceSuspect { controller, association, head } => {
                // Whoever says so of an earlier association has yet to take the picture of the
                // present one, in which everything was looked at again.
                if self.current(controller, association).is_some() {
                    self.doubt_path(controller, head);
                }
                self.about(controller, association, |controller, env| {
                    controller.suspect_namespaces(env, bufs);
                });
            }
            ToControl::Stats { id, stats } => self.stats_arrived(from, id, *stats, bufs),
            ToControl::Frozen { head, epoch } => self.stopped(from, Stop::Freeze, head, epoch),
            ToControl::Quiesced { head, epoch } => {
                self.stopped(from, Stop::Quiesce, head, epoch);
            }
            ToControl::Drained => self.drained(from),
        }
    }

    fn about(
        &mut self,
        id: ControllerId,
        association: Association,
        act: impl FnOnce(&mut Controller, &mut Env),
    ) {
        let found = self.controllers.get_mut(&id);
        if let Some(controller) = found.filter(|found| found.association == association) {
            act(controller, &mut self.env);
        }
    }

    fn name_of(&self, id: HeadId) -> Option<String> {
        self.subsystems.iter().find_map(|subsystem| {
            let head = subsystem.heads.iter().find(|head| head.id == id)?;
            Some(subsystem.head_name(head))
        })
    }

    fn request_failed(&mut self, failed: &RequestFailed) {
        let Some(head) = self.name_of(failed.head) else { return };
        let controller = failed.controller.and_then(|id| self.controllers.get(&id));
        self.env.event(HostEvent::RequestFailed {
            head,
            op: failed.op,
            error: failed.error,
            flaw: failed.flaw,
            controller: controller.map(Controller::name),
            untold: failed.untold,
        });
    }

    /// A head makes no zeroes after all: no worker asks it to any more, and new users are told.
    fn zeroes_refused(&mut self, id: HeadId, controller: ControllerId, status: Status) {
        let Control { subsystems, controllers, env, .. } = self;
        for subsystem in subsystems {
            let Some(head) = subsystem.heads.iter_mut().find(|head| head.id == id) else {
                continue;
            };
            if core::mem::replace(&mut head.zeroes_refused, true) {
                return;
            }
            env.dirty = true;
            let head = &*head;
            env.event(HostEvent::ZeroesRefused {
                head: format!("nvme{}n{}", subsystem.instance, head.instance),
                status,
                controller: controllers.get(&controller).map(Controller::name),
            });
        }
    }

    /// `nvmeXcYnZ` of a head's path by a controller.
    fn name_of_path(&self, head: HeadId, controller: ControllerId) -> Option<String> {
        let subsystem = &self.subsystems[self.subsystem_of(controller)?];
        let head = subsystem.heads.iter().find(|candidate| candidate.id == head)?;
        Some(subsystem.path_name(head, head.path(controller)?.controller_instance))
    }

    fn rescued(&mut self, rescued: Rescued) {
        let Rescued { head, controller, silent_ns, reads, unsent } = rescued;
        if let Some(path) = self.name_of_path(head, controller) {
            self.env.event(HostEvent::Rescued { path, silent_ns, reads, unsent });
        }
    }

    fn ana_error(
        &mut self,
        (id, association): (ControllerId, Association),
        head: HeadId,
        status: Status,
        bufs: &mut dyn Buffers,
    ) {
        if self.current(id, association).is_none() {
            return;
        }
        let found = self.subsystem_of(id).and_then(|index| {
            let subsystem = &self.subsystems[index];
            let head = subsystem.heads.iter().find(|candidate| candidate.id == head)?;
            let path = head.path(id)?;
            Some((path.nsid, subsystem.path_name(head, path.controller_instance)))
        });
        if let (Some(path), Some(controller)) = (found, self.controllers.get_mut(&id)) {
            controller.ana_error(&mut self.env, bufs, path, status);
        }
    }
}

impl Controller {
    fn awaits_stop(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    /// Whether an error is one: what a user asked for himself is his, and what only newer
    /// controllers know is asked of all.
    fn must_succeed(&self, answer: &Answer) -> bool {
        match (answer.purpose, self.phase) {
            (Purpose::Raw(_), _) => false,
            (Purpose::Setup, Phase::Setup { step, .. }) => !step.may_fail(),
            _ => true,
        }
    }

    /// The admin connection has moved on: answers, faults, things to send.
    fn after_bytes(&mut self, env: &mut Env, bufs: &mut dyn Buffers) {
        self.check_opened(env, bufs);
        while let Some(answer) = self.link.as_mut().and_then(|link| link.poll_answer(env.now, bufs))
        {
            self.answered(env, bufs, answer);
        }
        if let Some(why) = self.link.as_ref().and_then(super::link::Link::fault) {
            self.fail(env, why, false);
        }
        if let Some(link) = &mut self.link {
            link.pump(env);
        }
    }

    fn answered(&mut self, env: &mut Env, bufs: &mut dyn Buffers, answer: Answer) {
        if !answer.status.is_success() && self.must_succeed(&answer) {
            self.admin_errors += 1;
        }
        match answer.purpose {
            Purpose::Setup => self.setup_answered(env, bufs, &answer),
            Purpose::KeepAlive => self.keep_alive_answered(env, bufs, &answer),
            Purpose::Event => self.event_answered(env, bufs, &answer),
            Purpose::AnaLog => self.ana_log_answered(env, bufs, &answer),
            Purpose::Scan(number, read) => self.scan_answered(env, bufs, (number, read), &answer),
            Purpose::News => self.news_answered(env, bufs, &answer),
            Purpose::ClearEvent => {}
            Purpose::Shutdown => self.shutdown_answered(env, &answer),
            Purpose::Discovery => self.discovery_answered(env, bufs, &answer),
            Purpose::Raw(id) => self.raw_answered(env, bufs, id, answer),
        }
    }
}
