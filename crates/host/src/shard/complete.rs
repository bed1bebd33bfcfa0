//! What becomes of a command that has ended: success, retry, failover or an error to the user.

use super::Shard;
use super::absence::Doubts;
use super::command::{Carried, Command, Origin, Place, Request, Work};
use super::doubt::MAX_DOUBTS;
use super::durable::may_tell_of_a_loss;
use super::head::{ControllerEntry, HeadState, PathState, entry};
use super::tally::Ended;
use crate::mail::{CommandOutcome, Mail, PeerMail, RequestFailed, ToControl};
use crate::table::Key;
use crate::topology::{ControllerId, ControllerState, HeadId};
use crate::user::{Done, IoError, RequestOp};
use alloc::boxed::Box;
use anabranch_proto::host_queue::{Attempt, Flaw};
use anabranch_proto::machine::{Buffers, Output, Time};
use anabranch_proto::nvme::status::Status;
use core::cmp::Reverse;
use core::time::Duration;

/// Pause before a command is sent again when more paths have failed under it in a row than the head
/// has: a controller that answers path errors as fast as it can must not make us spin.
const FAILOVER_PAUSE: Duration = Duration::from_millis(100);

/// More paths in a row are not counted: whatever waits for so many ends or pauses all the same.
const FAILOVERS_TOLD_APART: usize = u8::MAX as usize - 1;

/// Pause between two failed requests of a head that a worker tells the log: a device that fails
/// everything must not fill it.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Whoever has failed with a transient transport error so often on one controller fails for good
/// there (NVM Express Base Specification, Status Code 22h), for example by a data digest that
/// never matches. A flush has no data, and only that controller can say that its writes are safe.
const TRANSIENT_FAILURES: u8 = 4;

/// So answers who takes no command, or none of this queue, any more: nothing of it was begun,
/// whatever it says of retries. After CC.SHN Linux's target says the latter with DNR, and that may
/// be here before the picture that says so. SPDK's sets it without, then and for a queue pair whose
/// connection it is about to close, though over TCP no such answer of it was ever seen. At once and
/// there it would be tried in vain again. And so answers who holds a command for under way that we
/// have seen end: that one is wrong about the command identifier, not about any data.
const TAKES_NOTHING: [Status; 3] =
    [Status::ABORTED_SQ_DELETION, Status::COMMAND_SEQUENCE_ERROR, Status::COMMAND_ID_CONFLICT];

/// What it has begun it may give up so when it was told to shut down.
const GIVES_UP: [Status; 2] = [Status::ABORT_REQUESTED, Status::ABORTED_POWER_LOSS];

impl Command {
    /// Whether fewer paths have failed under it in a row than its head has.
    pub(super) fn has_failed_less_than(&self, paths: usize) -> bool {
        usize::from(self.failovers) < paths.min(FAILOVERS_TOLD_APART)
    }
}

impl Shard {
    /// The controller has answered a command that was on one of our queue pairs.
    pub(super) fn answered(
        &mut self,
        key: Key,
        (status, flaw): (Status, Option<Flaw>),
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        match self.commands[key].origin {
            Origin::Own { .. } => {}
            Origin::Peer(Carried { worker, token, .. }) => {
                let outcome = CommandOutcome::Answered { status, flaw };
                return self.answer_peer(key, worker, token, outcome);
            }
            Origin::Probe { .. } => return self.probe_answered(key, status, now),
            Origin::LeftBehind => return self.left_behind_answered(key, status, now),
        }
        if !status.is_success() {
            self.leave_path(key);
            self.commands[key].flaw = flaw;
            if let Some(flaw) = flaw {
                self.tell_flaw(key, flaw, now);
            }
            self.failed(key, status, now, bufs);
        } else if self.is_of_its_namespace(key) {
            self.succeeded(key, now, bufs);
        } else {
            self.doubt(key, now, bufs);
        }
    }

    pub(super) fn answer_peer(
        &mut self,
        key: Key,
        to: anabranch_proto::machine::WorkerId,
        token: u64,
        outcome: CommandOutcome,
    ) {
        self.commands.remove(key);
        let mail = Mail::Peer(PeerMail::Done { token, outcome });
        self.outputs.push_back(Output::Mail { to, mail });
    }

    /// A command's queue pair is gone.
    pub(super) fn lost(&mut self, key: Key, attempt: Attempt, now: Time, bufs: &mut dyn Buffers) {
        let command = &self.commands[key];
        let work = match &command.origin {
            &Origin::Peer(Carried { worker, token, association, .. }) => {
                let outcome = CommandOutcome::Lost { attempt, gone: Some(association) };
                return self.answer_peer(key, worker, token, outcome);
            }
            Origin::Probe { .. } => return self.probe_lost(key, attempt),
            Origin::LeftBehind => {
                self.end_left_behind(key);
                return;
            }
            Origin::Own { work, .. } => *work,
        };
        if self.was_withdrawn(&self.commands[key]) {
            self.leave_path(key);
            return self.end_command(key, Err(IoError::Withdrawn), now, bufs);
        }
        let command = &self.commands[key];
        if attempt == Attempt::Uncertain && work.changes_media() {
            self.stats.paths[command.stats as usize].uncertain_writes_resent += 1;
        }
        self.leave_path(key);
        self.fail_over(key, None, now, bufs);
    }

    pub(super) fn succeeded(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let Some(command) = self.commands.get_mut(key) else { return };
        let Origin::Own { request: request_key, work } = &command.origin else { return };
        let Some(head) = self.heads.get_mut(command.head.0) else {
            unreachable!("a head stays while it has commands");
        };
        let path = &mut self.stats.paths[command.stats as usize];
        path.left(command.charge.as_ref(), self.me);
        let ended = Ended::command(work, head.view.block_bytes, command.started, now);
        head.durable(command, work, self.topology.epoch);
        let weights_due = match command.charge {
            // How long the look took says nothing of the path.
            Some(charge)
                if head.view.parameters.policy.measures()
                    && !matches!(command.place, Place::Doubted { .. }) =>
            {
                head.measure(command, charge, now)
            }
            _ => None,
        };
        let request = self.requests.get(*request_key);
        let request = request.filter(|request| request.is_all_in(work, command.started));
        if let Some(&Request { head: head_id, tag, outstanding, error, .. }) = request {
            debug_assert!(outstanding == 1 && error.is_none(), "it is the only one");
            let request_key = *request_key;
            path.whole_ended(&mut self.stats.heads[head.stats as usize], &ended);
            self.request_shares.give(&mut head.requests);
            self.command_shares.give(&mut head.commands);
            self.commands.remove(key);
            self.own_commands -= 1;
            self.requests.remove(request_key);
            self.dones.push_back(Done { head: head_id, tag, result: Ok(()) });
        } else {
            path.ended(&ended);
            command.charge = None;
            if command.left_blocks > 0 {
                self.next_turn(key, now, bufs);
            } else {
                self.end_command(key, Ok(()), now, bufs);
            }
        }
        if let Some(head) = weights_due {
            self.weights_due(head, now);
        }
    }

    /// The order of Linux's decision: no retry allowed, path error, retry on the same path.
    fn failed(&mut self, key: Key, status: Status, now: Time, bufs: &mut dyn Buffers) {
        if status.is_unknown_io() {
            self.lacks(key, status);
        }
        let within = status.is(Status::LBA_OUT_OF_RANGE) && self.lies_on_its_device(key);
        let takes_nothing = self.takes_nothing(key, status);
        let shut_down = takes_nothing && !self.lives(self.commands[key].controller);
        let command = &mut self.commands[key];
        self.stats.paths[command.stats as usize].errors += 1;
        let (controller, head_id) = (command.controller, command.head);
        let Some(head) = self.heads.get(head_id.0) else {
            return self.end_command(key, Err(IoError::Gone), now, bufs);
        };
        let max_retries = head.view.max_retries;
        let absent = status.is(Status::INVALID_NAMESPACE);
        // A flush is asked for although the path is out of use for everything else. One that is not
        // ready has what it has acknowledged: it is asked as often as others are.
        let not_ready = status.is(Status::NAMESPACE_NOT_READY)
            && (status.dnr() || command.retries >= max_retries);
        let expected = (absent || not_ready) && command.flushes_here();
        if (expected || shut_down) && head.usable_through(controller).is_none() {
            command.flush_anywhere();
            // How often the first one was asked says nothing of the next.
            command.retries = 0;
            if absent {
                // What keeps data from the path may be over before anybody has looked at it.
                self.suspect_namespace(controller, head_id);
            }
            return self.dispatch_again(key, None, now, bufs);
        }
        if let Origin::Own { work, .. } = &command.origin
            && may_tell_of_a_loss(work, status, within)
        {
            head.view.failed_flushes.note();
            if matches!(work, Work::Flush { .. }) {
                return self.end_command(key, Err(IoError::Status(status)), now, bufs);
            }
            self.tell_loss(head_id, controller, status, now);
        }
        if absent || within && self.has_other_path(head_id, controller) {
            // The namespace has left this controller, or is not what it was; another path may still
            // have it.
            self.suspect_namespace(controller, head_id);
            return self.fail_over_avoiding(key, controller, status, now, bufs);
        }
        if !status.is_path_error() && !takes_nothing && !self.is_of_its_namespace(key) {
            // Who has the NSID by now may have said so: that is nothing to this device.
            self.commands[key].doubts.add();
            if self.is_asked_again(key) {
                return self.dispatch_again(key, None, now, bufs);
            }
            return self.fail_over(key, Some(status), now, bufs);
        }
        if status.dnr() && !takes_nothing {
            return self.end_command(key, Err(IoError::Status(status)), now, bufs);
        }
        if status.is_path_error() {
            return self.fail_over(key, Some(status), now, bufs);
        }
        self.retry(key, status, now, bufs);
    }

    /// It is tried again on the same path, or on another one where that says more.
    fn retry(&mut self, key: Key, status: Status, now: Time, bufs: &mut dyn Buffers) {
        let takes_nothing = self.takes_nothing(key, status);
        if takes_nothing && self.has_not_asked_all(key) {
            return self.fail_over(key, Some(status), now, bufs);
        }
        let command = &mut self.commands[key];
        let (controller, head_id) = (command.controller, command.head);
        let max_retries = self.heads.get(head_id.0).map_or(0, |head| head.view.max_retries);
        let spent = command.retries >= max_retries;
        command.retries = command.retries.saturating_add(1);
        let lasting = command.retries >= TRANSIENT_FAILURES;
        let transport = lasting && status.is(Status::TRANSIENT_TRANSPORT_ERROR);
        if (takes_nothing && !spent || transport)
            && !command.is_own_flush()
            && self.has_untried_path(key)
        {
            return self.fail_over(key, Some(status), now, bufs);
        }
        if spent {
            return self.end_command(key, Err(IoError::Status(status)), now, bufs);
        }
        self.stats.paths[self.commands[key].stats as usize].retries += 1;
        let least = if takes_nothing { FAILOVER_PAUSE } else { Duration::ZERO };
        let pause = self.retry_pause(controller, status).max(least);
        let others = takes_nothing && !self.commands[key].is_own_flush();
        let again_on = if others && self.has_other_path(head_id, controller) {
            // All have refused it: by then another one may take it.
            self.note_failed(key, controller);
            None
        } else {
            Some(controller)
        };
        if pause.is_zero() {
            self.dispatch_again(key, again_on, now, bufs);
        } else {
            self.delay(key, now.after(pause), again_on, now, bufs);
        }
    }

    /// Whether there is a path that a command has not been given to yet. How many have refused it
    /// before is no reason to give up then: who has more paths would have less patience.
    fn has_not_asked_all(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let paths = self.head(command.head).map_or(0, |head| head.paths.len());
        command.has_failed_less_than(paths) && !command.is_own_flush() && self.has_untried_path(key)
    }

    /// Whether it says nothing of the command, but of a controller that does nothing any more.
    fn takes_nothing(&self, key: Key, status: Status) -> bool {
        let is_one_of = |all: &[Status]| all.iter().any(|it| status.is(*it));
        is_one_of(&TAKES_NOTHING)
            || is_one_of(&GIVES_UP) && !self.lives(self.commands[key].controller)
    }

    pub(super) fn lives(&self, controller: ControllerId) -> bool {
        let entry = entry(&self.controllers, controller);
        entry.is_some_and(|it| it.view.state == ControllerState::Live)
    }

    /// Whether the device has all blocks that a command names. A controller that says otherwise may
    /// know of a change that nobody else does yet, or is mistaken.
    #[cold]
    fn lies_on_its_device(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let Origin::Own { work, .. } = command.origin else { return false };
        let end = match work {
            Work::Read { lba, blocks, .. }
            | Work::Write { lba, blocks, .. }
            | Work::Compare { lba, blocks, .. }
            | Work::WriteZeroes { lba, blocks, .. }
            | Work::Discard { lba, blocks, .. } => lba + u64::from(blocks),
            Work::Flush { .. } => 0,
        };
        self.head(command.head).is_some_and(|head| end <= head.view.blocks)
    }

    /// The namespace does not have the command. Without Write Zeroes a user can write zeroes: so
    /// that not each of them is tried in vain, no more are taken, here at once and elsewhere when
    /// control has told it.
    fn lacks(&mut self, key: Key, status: Status) {
        let command = &self.commands[key];
        let Origin::Own { work: Work::WriteZeroes { .. }, .. } = command.origin else { return };
        let (head, controller) = (command.head, command.controller);
        let Some(state) = self.head_mut(head) else { return };
        if !core::mem::replace(&mut state.zeroes_refused, true) {
            self.tell_control(ToControl::ZeroesRefused { head, controller, status });
        }
    }

    /// What the controller asks for, up to the time limit of a command: CRDT goes to 109 minutes,
    /// in which the request could neither end nor go elsewhere.
    fn retry_pause(&self, controller: ControllerId, status: Status) -> Duration {
        let index = usize::from(status.crd());
        let entry = self.controllers.get(controller.0);
        match (index, entry) {
            (1..=3, Some(ControllerEntry { view, .. })) => {
                view.command_retry_delays[index - 1].min(view.io_timeout)
            }
            _ => Duration::ZERO,
        }
    }

    /// A command is tried again later, if anybody still waits for it.
    pub(super) fn delay(
        &mut self,
        key: Key,
        until: Time,
        again_on: Option<ControllerId>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        if self.was_withdrawn(&self.commands[key]) {
            return self.end_command(key, Err(IoError::Withdrawn), now, bufs);
        }
        self.commands[key].place = Place::Delayed { until, again_on };
        self.delayed.push(Reverse((until, key)));
        self.wake_at(until);
    }

    /// The path failed under the command: take the path out where that is known to help, and send
    /// the command elsewhere. A path that fails may look like the best one to a policy, as it has
    /// so little in flight: the command does not go back to it before it has tried the others.
    fn fail_over(&mut self, key: Key, status: Option<Status>, now: Time, bufs: &mut dyn Buffers) {
        let head = self.commands[key].head;
        let paths = self.head(head).map_or(0, |head| head.paths.len());
        let command = &mut self.commands[key];
        self.stats.paths[command.stats as usize].failovers += 1;
        command.failovers = command.failovers.saturating_add(1);
        // As in Linux it is issued anew: what was tried in vain here does not count on the next
        // path. A transport error that stays is no path error: on all paths it is the user's. When
        // all have failed, it counts: where some say path errors for ever, and the others that they
        // take nothing, it would never end.
        if status.is_none_or(Status::is_path_error) && usize::from(command.failovers) <= paths {
            command.retries = 0;
        }
        let (controller, head_id, failovers) =
            (command.controller, command.head, command.failovers);
        self.path_failed(controller, head_id, status);
        self.note_failed(key, controller);
        if self.has_other_path(head_id, controller) {
            self.commands[key].flush_anywhere();
        }
        let paths = self.head(head_id).map_or(0, |head| head.paths.len());
        if usize::from(failovers) > paths.clamp(1, FAILOVERS_TOLD_APART) {
            self.delay(key, now.after(FAILOVER_PAUSE), None, now, bufs);
        } else {
            self.dispatch_again(key, None, now, bufs);
        }
    }

    /// A path failed under a command: it is no longer preferred, and out where the status says so.
    pub(super) fn path_failed(
        &mut self,
        controller: ControllerId,
        head: HeadId,
        status: Option<Status>,
    ) {
        if let Some(status) = status.filter(|status| status.is_ana_error()) {
            self.suspect_ana(controller, head, status);
        }
        let Some(head) = self.head_mut(head) else { return };
        let path = head.paths.iter().position(|path| path.view.controller == controller);
        if let Some(index) = path {
            head.selector.forget_path(index);
            let load = head.paths[index].load();
            anabranch_policy::failed_over(&head.view.parameters, load);
        }
    }

    /// Whether a head can be served by another controller than this one.
    pub(super) fn has_other_path(&self, head: HeadId, than: ControllerId) -> bool {
        self.head(head).is_some_and(|head| {
            let mut others = head.paths.iter().filter(|path| path.view.controller != than);
            others.any(|path| path.usable && head.may_choose(path))
        })
    }

    /// Whether it has a path by another controller that only waits to be looked at.
    fn has_doubted_path(&self, head: HeadId, than: ControllerId) -> bool {
        let doubted = |path: &PathState| path.namespace_suspect.is_some() || !path.view.ready;
        self.head(head).is_some_and(|head| {
            let mut others = head.paths.iter().filter(|path| path.view.controller != than);
            others.any(|path| path.is_reached() && doubted(path) && head.may_choose(path))
        })
    }

    /// The namespace has left the path. When no path is left that may have it the status is the
    /// user's, unless the device is kept without a path: then what waits for its namespace does.
    fn fail_over_avoiding(
        &mut self,
        key: Key,
        avoid: ControllerId,
        status: Status,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        let command = &mut self.commands[key];
        command.failovers = command.failovers.saturating_add(1);
        command.doubts.add_absence();
        let (absences, failovers) = (command.doubts.absences(), command.failovers);
        let head = command.head;
        let may_wait = command.doubts.count() < MAX_DOUBTS;
        let paths = self.head(head).map_or(0, |head| head.paths.len());
        let other = self.has_other_path(head, avoid);
        let waits = !other && may_wait && self.has_doubted_path(head, avoid);
        let elsewhere = |it: &HeadState| it.may_be_elsewhere(avoid, &self.controllers);
        let barred = !other && may_wait && self.head(head).is_some_and(elsewhere);
        // Paths that failed before for other reasons may have it still, or get it now.
        // Where there are more of them than are told apart, all that failed count.
        let met = if absences < Doubts::ABSENCES_MAX { absences } else { failovers.into() };
        let known = met < paths.min(FAILOVERS_TOLD_APART);
        let goes_on = barred || known && waits || other && (known || may_wait);
        let kept = may_wait && self.head(head).is_some_and(|head| head.view.queue_if_no_path);
        if !goes_on && !kept {
            return self.end_command(key, Err(IoError::Status(status)), now, bufs);
        }
        if !other || !known {
            self.commands[key].doubts.add();
        }
        self.commands[key].flush_anywhere();
        self.stats.paths[self.commands[key].stats as usize].failovers += 1;
        self.note_failed(key, avoid);
        self.dispatch_again(key, None, now, bufs);
    }

    /// An ANA status: this path is out, on this worker, until a newer log was processed.
    fn suspect_ana(&mut self, controller: ControllerId, head: HeadId, status: Status) {
        let Some(entry) = self.controllers.get(controller.0) else { return };
        let (generation, association) = (entry.view.ana_generation, entry.view.association);
        let Some(state) = self.heads.get_mut(head.0) else { return };
        let path = state.paths.iter_mut().find(|path| path.view.controller == controller);
        let Some(path) = path else { return };
        if path.ana_suspect == Some(generation) {
            return;
        }
        path.ana_suspect = Some(generation);
        path.usable = false;
        self.tell_control(ToControl::AnaError { controller, association, head, status });
    }

    /// No such namespace: this path is out, on this worker, until control has heard of it. By the
    /// next command there may be one again: another. A path that is out for another reason may be
    /// back before anybody has looked at it, unless it has to agree with its head first, or its
    /// controller has to connect again. One whose controller has only announced a change, and not
    /// yet said of what, is in use still.
    pub(super) fn suspect_namespace(&mut self, controller: ControllerId, head: HeadId) {
        let entry = self.controllers.get(controller.0);
        let Some(association) = entry.map(|entry| entry.view.association) else { return };
        let Some(state) = self.head_mut(head) else { return };
        let unheard = |path: &PathState| {
            path.view.controller == controller
                && (path.view.verified || path.view.ready)
                && path.is_reached()
                && path.namespace_suspect.is_none()
        };
        let Some(index) = state.paths.iter().position(unheard) else { return };
        state.paths[index].suspect_namespace(association);
        state.selector.forget_path(index);
        self.some_suspected = true;
        self.tell_control(ToControl::NamespaceSuspect { controller, association, head });
    }

    /// A command is with its path no longer: the charge goes back, to the part that made it.
    pub(super) fn leave_path(&mut self, key: Key) {
        let command = &mut self.commands[key];
        command.place = Place::Requeued;
        let charge = command.charge.take();
        self.stats.paths[command.stats as usize].left(charge.as_ref(), self.me);
    }

    /// A command is over for good.
    pub(super) fn end_command(
        &mut self,
        key: Key,
        result: Result<(), IoError>,
        now: Time,
        bufs: &mut dyn Buffers,
    ) {
        let Some(command) = self.commands.remove(key) else { return };
        debug_assert!(command.charge.is_none(), "a command that ends has left its path");
        let Origin::Own { request: request_key, work } = command.origin else { return };
        self.own_commands -= 1;
        if let Some(head) = self.heads.get_mut(command.head.0) {
            self.command_shares.give(&mut head.commands);
        }
        if let Work::Discard { range, .. } = work {
            bufs.free(range);
        }
        let Some(request) = self.requests.get_mut(request_key) else { return };
        request.outstanding -= 1;
        let over = request.outstanding == 0 && !request.listed;
        if let Err(error) = result
            && request.error.is_none()
        {
            request.error = Some(error);
            let op = request.op;
            self.tell_failure(&command, op, error, now);
        }
        if over {
            self.finish_request(request_key, now);
        }
    }

    /// A user gets an error: the log hears which, once per pause and head. A comparison that found
    /// a difference has done its work, that a device is gone was told when it went, that it does
    /// not make zeroes is told in other words: they are written instead. To deallocate is a wish.
    fn tell_failure(&mut self, command: &Command, op: RequestOp, error: IoError, now: Time) {
        let head_id = command.head;
        let controller = match error {
            IoError::Gone | IoError::Withdrawn => return,
            IoError::NoPath => None,
            IoError::Status(status) if status.is(Status::COMPARE_FAILURE) => return,
            IoError::Status(status)
                if status.is_unknown_io()
                    && matches!(op, RequestOp::WriteZeroes { .. } | RequestOp::Discard { .. }) =>
            {
                return;
            }
            IoError::Status(_) => Some(command.controller),
        };
        let Some(head) = self.head_mut(head_id) else { return };
        let Some(untold) = head.failures.told(now, FAILURE_PAUSE) else { return };
        let flaw = command.flaw.filter(|_| controller.is_some());
        let failed = RequestFailed { head: head_id, controller, op, error, flaw, untold };
        self.tell_control(ToControl::RequestFailed(Box::new(failed)));
    }

    /// A controller says that a command has succeeded, and it has not: what was wrong is told once
    /// per pause and head.
    #[cold]
    fn tell_flaw(&mut self, key: Key, flaw: Flaw, now: Time) {
        let &Command { head: id, controller, stats, .. } = &self.commands[key];
        self.stats.paths[stats as usize].flawed += 1;
        let Some(head) = self.head_mut(id) else { return };
        let Some(untold) = head.flaws.told(now, FAILURE_PAUSE) else { return };
        self.tell_control(ToControl::Flawed { head: id, controller, flaw, untold });
    }

    /// What was to be durable by itself has failed, and is tried again: what else that may mean,
    /// and who will hear of it, is told once per pause and head.
    #[cold]
    fn tell_loss(&mut self, id: HeadId, controller: ControllerId, status: Status, now: Time) {
        let Some(head) = self.head_mut(id) else { return };
        if head.losses.told(now, FAILURE_PAUSE).is_some() {
            self.tell_control(ToControl::LossSuspected { head: id, controller, status });
        }
    }

    /// All commands of a request have ended: its answer goes to the user.
    pub(super) fn finish_request(&mut self, key: Key, now: Time) {
        let Some(request) = self.requests.remove(key) else { return };
        if let Some(head) = self.heads.get_mut(request.head.0) {
            self.request_shares.give(&mut head.requests);
            let stats = head.stats as usize;
            match request.error {
                // It may have been carried out or not: nobody will know.
                Some(IoError::Withdrawn) => {
                    request.op.changes().iter().for_each(|it| head.view.leftovers.end(it));
                }
                Some(_) => self.stats.heads[stats].errors += 1,
                None => {
                    let block_bytes = head.view.block_bytes;
                    let ended = Ended::request(&request.op, block_bytes, request.submitted, now);
                    self.stats.heads[stats].ended(&ended);
                }
            }
        }
        let result = request.error.map_or(Ok(()), Err);
        self.dones.push_back(Done { head: request.head, tag: request.tag, result });
    }
}
