//! Choosing a path for a command and giving it to that path.

use super::Shard;
use super::command::{Carried, Command, Origin, Place, Work};
use super::explain::About;
use super::failed::Failed;
use super::head::{Carrier, HeadState, PathState};
use super::stats::StatsTable;
use super::wire;
use crate::by_id::ById;
use crate::mail::{Mail, PeerMail};
use crate::table::Key;
use crate::topology::{ControllerId, HeadId};
use crate::user::IoError;
use anabranch_policy::{Choice, Policy, Reason, SizeClass, start as start_charge, start_on_disk};
use anabranch_proto::host_queue::HostData;
use anabranch_proto::machine::{Buffers, Output, Time};
use anabranch_proto::nvme::sqe::Sqe;

impl Shard {
    /// One of three outcomes, as in Linux, for a new command ([`Shard::dispatch_again`] is for
    /// others): the command goes to a path, waits on the requeue list, or fails. `prefer` is taken
    /// if it is usable (a retry stays on its path); a path that has failed under the command is not
    /// taken while there is another one.
    pub(super) fn dispatch(
        &mut self,
        key: Key,
        prefer: Option<ControllerId>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        let command = &mut self.commands[key];
        let (head_id, failed) = (command.head, command.failed);
        let Origin::Own { work, .. } = &mut command.origin else {
            unreachable!("a peer's command never chooses a path here");
        };
        let Some(head) = self.heads.get_mut(head_id.0) else {
            return self.end_command(key, Err(IoError::Gone), now, bufs);
        };
        if head.gone {
            return self.end_command(key, Err(IoError::Gone), now, bufs);
        }
        if head.view.quiesced > 0 {
            command.place = Place::Requeued;
            return head.requeue.push_back(&mut self.commands, key);
        }
        match choose(head, &mut self.stats, work, (prefer, failed), now) {
            Some(index) => {
                let unused = head.selector.take_probe();
                self.send(key, index, now);
                // Behind the user's command, also in the mail to another worker.
                if let Some(unused) = unused {
                    self.want_probe(key, unused, now);
                }
            }
            None if head.may_come_back(&self.controllers) => {
                self.stats.heads[head.stats as usize].requeued_no_usable_path += 1;
                command.place = Place::Requeued;
                // From here on it waits; path errors in a row are counted from the start again.
                command.failovers = 0;
                command.doubts.forget_absences();
                command.failed = Failed::NONE;
                head.requeue.push_back(&mut self.commands, key);
            }
            None => {
                self.stats.heads[head.stats as usize].failed_no_available_path += 1;
                self.end_command(key, Err(IoError::NoPath), now, bufs);
            }
        }
    }

    /// Gives a command to the path at `index` of its head.
    #[inline]
    fn send(&mut self, key: Key, index: usize, now: Time) {
        if self.watch.rests {
            self.begin_watch(now);
        }
        let command = &mut self.commands[key];
        let Some(head) = self.heads.get(command.head.0) else { return };
        let path = &head.paths[index];
        command.controller = path.view.controller;
        command.stats = path.stats;
        // There are at most 1024 controllers.
        command.path = index as u16;
        command.started = path.doubt.sent(now);
        self.stats.paths[path.stats as usize].in_flight += 1;
        let Carrier::Own { slot } = *path.carriers.of(command.class()) else {
            return self.carry_away(key, now);
        };
        let Some(queue) = self.queues[usize::from(slot)].as_mut() else {
            unreachable!("a path that is reached through a queue pair has one");
        };
        // Kernel-exact it is charged with its tag, which none of a batch gets before all of them
        // have chosen.
        let at_start = head.view.parameters.charged_at_start();
        if !at_start {
            charge(command, (head, path), now);
        }
        if !at_start && queue.takes_at_once() {
            let form = wire_form(command, path);
            queue.submit((key, slot), form, now, &mut self.commands);
        } else {
            command.place = Place::Waiting { slot };
            queue.waiting.push_back(&mut self.commands, key);
        }
    }

    /// Gives a command, whose path has been chosen, to the worker that has the path's queue pair.
    #[inline(never)]
    fn carry_away(&mut self, key: Key, now: Time) {
        let command = &mut self.commands[key];
        let Some(head) = self.heads.get(command.head.0) else { return };
        let path = &head.paths[usize::from(command.path)];
        let Carrier::Peer { worker } = *path.carriers.of(command.class()) else {
            unreachable!("a usable path has a carrier");
        };
        charge(command, (head, path), now);
        command.place = Place::Carried;
        let (sqe, data) = wire_form(command, path);
        let controller = command.controller;
        let association = self
            .controllers
            .get(controller.0)
            .map(|entry| entry.view.association)
            .unwrap_or_else(|| unreachable!("a path has a controller"));
        let (head, token, epoch) = (command.head, key.token(), self.topology.epoch);
        let mail = PeerMail::Carry { controller, association, head, epoch, sqe, data, token };
        self.outputs.push_back(Output::Mail { to: worker, mail: Mail::Peer(mail) });
    }

    /// There is news of paths: tries every waiting command of a head again, in order. Requests that
    /// wait come behind them.
    pub(super) fn kick(&mut self, head: HeadId, now: Time, bufs: &mut dyn Buffers) {
        let Some(state) = self.heads.get_mut(head.0) else { return };
        if core::mem::take(&mut state.awaits_news) {
            self.issuing.push_back(head);
        }
        for _ in 0..state.requeue.len() {
            let Some(state) = self.heads.get_mut(head.0) else { return };
            let Some(key) = state.requeue.pop_front(&mut self.commands) else { return };
            self.dispatch_again(key, None, now, bufs);
        }
    }
}

/// The index of the path for this work. Each choice is counted, some are noted.
#[inline]
fn choose(
    head: &mut HeadState,
    stats: &mut StatsTable,
    work: &mut Work,
    (prefer, failed): (Option<ControllerId>, Failed),
    now: Time,
) -> Option<usize> {
    let (op, bytes) = (work.class(), work.bytes());
    let bound = prefer.is_some() || !failed.is_none() || matches!(work, Work::Flush { .. });
    let choice = if bound || head.noted.is_due() {
        choose_with_care(head, stats, work, (prefer, failed), now)?
    } else {
        let HeadState { view, selector, paths, .. } = head;
        selector.select(&view.parameters, paths, op, bytes, now.ns())?
    };
    head.noted.chosen();
    let choices = stats.choices(head.paths[choice.index].stats);
    choices.count(SizeClass::of(bytes), choice.reason);
    Some(choice.index)
}

/// The same where there is more to do than to ask the policy.
#[cold]
fn choose_with_care(
    head: &mut HeadState,
    stats: &mut StatsTable,
    work: &mut Work,
    (prefer, failed): (Option<ControllerId>, Failed),
    now: Time,
) -> Option<Choice> {
    let hidden = head.hide(failed, prefer);
    let about = About { head: head.view.id, op: work.class(), bytes: work.bytes(), at: now };
    let note = head.noted.is_due();
    if note {
        stats.ring.look(&head.view.parameters, &head.paths, about);
    }
    let choice = decide(head, work, prefer, now);
    if !hidden.is_empty() {
        head.show(&hidden);
        // Chosen around a path that can be used: for this command, not for those that follow, which
        // numa would keep there.
        if head.view.parameters.policy == Policy::Numa {
            head.selector.clear_cache();
        }
    }
    if let (true, Some(choice)) = (note, choice) {
        stats.note(head, about, choice);
    }
    choice
}

fn decide(
    head: &mut HeadState,
    work: &mut Work,
    prefer: Option<ControllerId>,
    now: Time,
) -> Option<Choice> {
    if let Work::Flush { owed: Some((controller, _)) } = *work
        && let Some(index) = head.flushes_through(controller)
    {
        return Some(Choice { index, reason: Reason::Flush });
    }
    let preferred = prefer.and_then(|controller| head.usable_through(controller));
    let choice = match preferred {
        Some(index) => Some(Choice { index, reason: Reason::Retry }),
        None => {
            let HeadState { view, selector, paths, .. } = head;
            selector.select(&view.parameters, paths, work.class(), work.bytes(), now.ns())
        }
    };
    if let (Work::Flush { owed }, Some(_)) = (work, choice) {
        // Its controller is out of reach: whichever now serves the namespace answers for it.
        *owed = None;
    }
    choice
}

/// A command gets its tag: the moment at which Linux charges it.
pub(super) fn start(command: &mut Command, heads: &ById<HeadState>, now: Time) -> (Sqe, HostData) {
    if let Origin::Peer(Carried { sqe, data, .. }) = command.origin {
        return (sqe, data);
    }
    let Some(head) = heads.get(command.head.0) else {
        unreachable!("a head stays while it has commands");
    };
    let Some(path) = head.path_of(command) else {
        unreachable!("commands without a tag leave a path when it goes");
    };
    if command.charge.is_none() {
        charge(command, (head, path), now);
    }
    wire_form(command, path)
}

/// `now` is when its time begins to count: it was given to the path, or kernel-exact it has its
/// tag.
#[inline]
fn charge(command: &mut Command, (head, path): (&HeadState, &PathState), now: Time) {
    let Origin::Own { work, .. } = &command.origin else { return };
    let (parameters, load, now_ns) = (&head.view.parameters, path.load(), now.ns());
    let charge = match work {
        Work::Flush { .. } | Work::WriteZeroes { .. } | Work::Discard { .. } => {
            start_on_disk(parameters, load, work.bytes(), now_ns)
        }
        Work::Read { .. } | Work::Write { .. } | Work::Compare { .. } => {
            start_charge(parameters, load, work.class(), work.bytes(), now_ns)
        }
    };
    command.charge = Some(charge.in_epoch(head.view.policy_epoch as u16));
}

#[inline]
fn wire_form(command: &Command, path: &PathState) -> (Sqe, HostData) {
    let Origin::Own { work, .. } = &command.origin else {
        unreachable!("only own commands are made here");
    };
    wire::form(work, &path.view)
}
