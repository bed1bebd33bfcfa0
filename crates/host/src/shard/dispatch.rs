//! Choosing a path for a command and giving it to that path.

use super::Shard;
use super::command::{Command, Origin, Place, Work};
use super::head::{Carrier, ControllerEntry, HeadState};
use super::wire;
use crate::mail::{Mail, PeerMail};
use crate::table::Key;
use crate::topology::ControllerId;
use crate::user::IoError;
use alloc::boxed::Box;
use anabranch_policy::start as start_charge;
use anabranch_proto::host_queue::HostData;
use anabranch_proto::machine::{Buffers, Output, Time};
use anabranch_proto::nvme::sqe::Sqe;

impl Shard {
    /// One of three outcomes, as in Linux: the command goes to a path, waits on the requeue list,
    /// or fails. `prefer` is taken if it is usable (a retry stays on its path), `avoid` is not
    /// taken.
    pub(super) fn dispatch(
        &mut self,
        key: Key,
        prefer: Option<ControllerId>,
        avoid: Option<ControllerId>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        let command = &mut self.commands[key];
        let head_id = command.head;
        let Origin::Own { work, .. } = &mut command.origin else {
            unreachable!("a peer's command never chooses a path here");
        };
        let Some(head) = self.heads[head_id.0 as usize].as_mut() else {
            return self.end_command(key, Err(IoError::Gone), now, bufs);
        };
        if head.gone {
            return self.end_command(key, Err(IoError::Gone), now, bufs);
        }
        if head.view.quiesced > 0 {
            command.place = Place::Requeued;
            return head.requeue.push_back(&mut self.commands, key);
        }
        match choose(head, work, prefer, avoid) {
            Some(path) => self.send(key, path, now),
            None if head.may_come_back(&self.controllers) => {
                self.stats.heads[head.stats as usize].requeued_no_usable_path += 1;
                command.place = Place::Requeued;
                // From here on it waits; path errors in a row are counted from the start again.
                command.failovers = 0;
                head.requeue.push_back(&mut self.commands, key);
            }
            None => {
                self.stats.heads[head.stats as usize].failed_no_available_path += 1;
                self.end_command(key, Err(IoError::NoPath), now, bufs);
            }
        }
    }

    /// Gives a command to the path at `index` of its head.
    fn send(&mut self, key: Key, index: usize, now: Time) {
        let command = &mut self.commands[key];
        let Some(head) = self.heads[command.head.0 as usize].as_mut() else { return };
        let path = &head.paths[index];
        command.controller = path.view.controller;
        command.stats = path.stats;
        command.started = now;
        self.stats.paths[path.stats as usize].in_flight += 1;
        match path.carrier {
            Carrier::Own { slot } => {
                if !head.view.kernel_exact {
                    charge(command, head, &mut self.controllers);
                }
                command.place = Place::Waiting { slot };
                let Some(queue) = self.queues[usize::from(slot)].as_mut() else {
                    unreachable!("a path that is reached through a queue pair has one");
                };
                queue.waiting.push_back(&mut self.commands, key);
            }
            Carrier::Peer { worker } => {
                charge(command, head, &mut self.controllers);
                command.place = Place::Carried;
                let (sqe, data) = wire_form(command, head);
                let controller = command.controller;
                let association = self.controllers[controller.0 as usize]
                    .as_ref()
                    .map(|entry| entry.view.association)
                    .unwrap_or_else(|| unreachable!("a path has a controller"));
                let token = key.token();
                let head = command.head;
                let mail = PeerMail::Carry { controller, association, head, sqe, data, token };
                self.outputs.push_back(Output::Mail { to: worker, mail: Mail::Peer(mail) });
            }
            Carrier::None => unreachable!("a usable path has a carrier"),
        }
    }

    /// Tries every waiting command of a head again, in order.
    pub(super) fn kick(&mut self, head: usize, now: Time, bufs: &mut dyn Buffers) {
        let Some(state) = self.heads[head].as_mut() else { return };
        for _ in 0..state.requeue.len() {
            let Some(state) = self.heads[head].as_mut() else { return };
            let Some(key) = state.requeue.pop_front(&mut self.commands) else { return };
            self.dispatch(key, None, None, now, bufs);
        }
    }
}

fn choose(
    head: &mut HeadState,
    work: &mut Work,
    prefer: Option<ControllerId>,
    avoid: Option<ControllerId>,
) -> Option<usize> {
    if let Work::Flush { only: Some(only), .. } = *work {
        match head.usable_through(only) {
            Some(path) if avoid != Some(only) => return Some(path),
            // Its controller is out of reach: whichever now serves the namespace answers for it.
            _ => *work = Work::Flush { only: None, mark: None },
        }
    }
    if let Some(path) = prefer.and_then(|controller| head.usable_through(controller)) {
        return Some(path);
    }
    let hidden = avoid.and_then(|controller| head.usable_through(controller));
    if let Some(path) = hidden {
        head.paths[path].usable = false;
    }
    let (policy, exact) = (head.view.policy, head.view.kernel_exact);
    let path = head.selector.select(policy, exact, &head.paths, work.class(), work.bytes());
    if let Some(path) = hidden {
        head.paths[path].usable = true;
    }
    path
}

/// A command gets its tag: the moment at which Linux charges it.
pub(super) fn start(
    command: &mut Command,
    heads: &[Option<Box<HeadState>>],
    controllers: &mut [Option<ControllerEntry>],
) -> (Sqe, HostData) {
    if let Origin::Peer { sqe, data, .. } = &command.origin {
        return (*sqe, *data);
    }
    let Some(head) = heads[command.head.0 as usize].as_deref() else {
        unreachable!("a head stays while it has commands");
    };
    if command.charge.is_none() {
        charge(command, head, controllers);
    }
    wire_form(command, head)
}

fn charge(command: &mut Command, head: &HeadState, controllers: &mut [Option<ControllerEntry>]) {
    let Origin::Own { work, .. } = &command.origin else { return };
    let Some(entry) = controllers[command.controller.0 as usize].as_mut() else { return };
    entry.charges += 1;
    let started_ns = command.started.ns();
    let charge = start_charge(head.view.policy, &entry.view.ledger, work.bytes(), started_ns);
    command.charge = Some(charge.for_op(work.class()).in_epoch(head.view.policy_epoch as u16));
}

fn wire_form(command: &Command, head: &HeadState) -> (Sqe, HostData) {
    let Origin::Own { work, .. } = &command.origin else {
        unreachable!("only own commands are made here");
    };
    let path = head.paths.iter().find(|path| path.view.controller == command.controller);
    let Some(path) = path else {
        unreachable!("a waiting command's path is still there");
    };
    wire::form(work, path.view.nsid)
}
