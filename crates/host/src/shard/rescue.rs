//! What is stuck on a path that has fallen silent goes on elsewhere, long before the path is lost.
//!
//! `finish-time` leaves a silent path with new commands at once; those that are on it would wait
//! until the controller answers, or its keep-alive or their time limit has passed. Instead, a path
//! on which everything is overdue ([`overdue_at_ns`]) is looked through: commands that were never
//! sent leave it, whatever they do, those that have a tag already, too; and each read is sent again
//! on another path, if the policy would choose one for it now.
//!
//! The command that such a read leaves behind has no request and, before anything else happens, no
//! buffer any more: its queue pair checks what comes for it and keeps nothing of that. It keeps its
//! tag, its time limit and its charge until it ends, whatever way; nobody waits for that. When it
//! is answered after all, the policy learns that the path is back. A read stays when its buffer can
//! not be taken back, as the driver is receiving into it at that moment. Nothing of a queue pair
//! that was given up is touched here: what is on that waits for its connection to be closed.
//!
//! Writes that were sent stay: a second copy could undo what comes after the first.

use super::Shard;
use super::command::{Command, Origin, Place, Work};
use super::head::{HeadState, PathState};
use super::queue::Phase;
use crate::mail::{Mail, Rescued, ToControl};
use crate::table::Key;
use alloc::boxed::Box;
use anabranch_policy::{Policy, finish, finish_time_report, overdue_at_ns};
use anabranch_proto::host_queue::Cid;
use anabranch_proto::machine::{Buffers, Output, Time, WorkerId};
use anabranch_proto::nvme::status::Status;
use core::time::Duration;

/// When a worker looks for the first time after it had nothing in flight, and how long it takes at
/// most until it looks again: no path is overdue earlier, but one that is idle now may be by then,
/// or have become one that is waited for less long.
const PATIENCE: Duration = Duration::from_millis(50);

/// Between two looks; what becomes overdue is found at most so much later.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Of a worker's own commands so many may have been left behind at once: one in four.
const LEFT_BEHIND_PART: u32 = 4;

/// Between two lines of a worker about one path.
const LINE_PAUSE: Duration = Duration::from_secs(1);

/// Commands of a worker with so many of its own that may have been left behind at once. Tables have
/// room for them beside all others.
pub(super) const fn left_behind_max(own_limit: u32) -> u32 {
    own_limit / LEFT_BEHIND_PART
}

/// What a worker has left behind, and when it looks what else is stuck.
#[derive(Default)]
pub(super) struct Watch {
    /// Some head has the policy.
    wanted: bool,
    /// No look is due: the next command that goes to a path asks for one.
    pub(super) rests: bool,
    look_at: Option<Time>,
    /// Commands that have not ended.
    left_behind: u32,
}

/// What was taken off a path, until the log is told.
#[derive(Default)]
pub(super) struct Untold {
    /// For how long nothing had come from there.
    silent_ns: u64,
    reads: u32,
    unsent: u32,
    quiet_until: Option<Time>,
}

impl HeadState {
    /// Whether what is stuck on its paths is looked for. Of a quiesced head nothing is sent.
    fn is_watched(&self) -> bool {
        self.commands > 0
            && self.view.parameters.policy == Policy::FinishTime
            && self.view.quiesced == 0
            && !self.gone
    }
}

fn is_overdue(path: &PathState, now: Time) -> bool {
    overdue_at_ns(path.load()).is_some_and(|at_ns| at_ns <= now.ns())
}

impl Shard {
    /// A new picture has come. What was not looked after in the former one, as that of a head that
    /// was quiesced, may have been stuck for long.
    pub(super) fn watch_heads(&mut self, now: Time) {
        let of = |head: &HeadState| head.view.parameters.policy == Policy::FinishTime;
        self.watch.wanted = self.heads.values().any(of);
        self.watch.rests = self.watch.wanted && self.watch.look_at.is_none();
        if self.watch.rests && self.heads.values().any(HeadState::is_watched) {
            self.begin_watch(now);
        }
    }

    /// The first command after a while has gone to a path.
    #[cold]
    pub(super) fn begin_watch(&mut self, now: Time) {
        self.watch.rests = false;
        self.look_again(now.after(PATIENCE));
    }

    fn look_again(&mut self, at: Time) {
        self.watch.look_at = Some(at);
        self.wake_at(at);
    }

    /// From a time-out: looks at the paths, if it is time.
    pub(super) fn look_after_stuck(&mut self, now: Time, bufs: &mut dyn Buffers) {
        match self.watch.look_at {
            None => return,
            Some(at) if at > now => return self.wake_at(at),
            Some(_) => self.watch.look_at = None,
        }
        let (next, some_stuck) = self.mark_stuck(now);
        if some_stuck {
            for slot in 0..self.queues.len() {
                self.rescue_flying(slot, now, bufs);
                self.rescue_waiting(slot, now, bufs);
            }
            self.tell_rescued(now);
            self.stats.paths.iter_mut().for_each(|path| path.stuck = false);
        }
        match next {
            Some(at) => self.look_again(at.max(now.after(BETWEEN_LOOKS))),
            None => self.watch.rests = self.watch.wanted,
        }
    }

    /// Marks the paths that are overdue while their head has another that is not. Gives back when
    /// to look again, if anything is in flight at all, and whether there are such paths.
    fn mark_stuck(&mut self, now: Time) -> (Option<Time>, bool) {
        let (mut next, mut some_stuck) = (None::<Time>, false);
        for head in self.heads.values().filter(|head| head.is_watched()) {
            let mut elsewhere = None;
            for path in &head.paths {
                let entry = &mut self.stats.paths[path.stats as usize];
                if entry.in_flight == 0 {
                    continue;
                }
                let at = overdue_at_ns(path.load()).map(Time::from_ns);
                if at.is_some_and(|at| at <= now) {
                    let other = |path: &PathState| path.usable && !is_overdue(path, now);
                    entry.stuck = *elsewhere.get_or_insert_with(|| head.paths.iter().any(other));
                    some_stuck |= entry.stuck;
                    let silent_ns = finish_time_report(path.load(), now.ns()).silent_ns;
                    entry.untold.silent_ns = entry.untold.silent_ns.max(silent_ns);
                }
                let latest = now.after(PATIENCE);
                let at = at.filter(|at| *at > now).map_or(latest, |at| at.min(latest));
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        (next, some_stuck)
    }

    /// Sends the reads again that are stuck with the controller of a queue pair, and elsewhere what
    /// stands behind a batch that does not leave.
    fn rescue_flying(&mut self, slot: usize, now: Time, bufs: &mut dyn Buffers) {
        let queue = self.queues[slot].as_deref().filter(|queue| queue.phase == Phase::Open);
        let mut next = queue.and_then(|queue| queue.flying.front(&self.commands));
        while let (Some(key), Some(queue)) = (next, self.queues[slot].as_deref_mut()) {
            next = queue.flying.after(&self.commands, key);
            let Place::Flying { cid, .. } = self.commands[key].place else { continue };
            if queue.link.is_unsent(cid) {
                if self.is_stuck_unsent(key) && self.goes_elsewhere(key, now) {
                    self.take_off(slot, (key, cid), now, bufs);
                }
            } else if self.may_leave_behind()
                && self.is_stuck_read(key)
                && self.goes_elsewhere(key, now)
            {
                self.leave_behind(key, now, bufs);
            }
        }
    }

    /// A command that has a tag and was never sent goes elsewhere.
    fn take_off(&mut self, slot: usize, (key, cid): (Key, Cid), now: Time, bufs: &mut dyn Buffers) {
        let Some(queue) = self.queues[slot].as_deref_mut() else { return };
        if queue.link.recall(cid) {
            queue.land(&mut self.commands, key);
            self.move_unsent(key, now, bufs);
        }
    }

    /// The same for what waits for a tag there.
    fn rescue_waiting(&mut self, slot: usize, now: Time, bufs: &mut dyn Buffers) {
        let queue = self.queues[slot].as_deref_mut().filter(|queue| queue.phase == Phase::Open);
        let Some(queue) = queue else { return };
        queue.scatter(&mut self.commands);
        for _ in 0..queue.waiting.len() {
            let Some(queue) = self.queues[slot].as_deref_mut() else { return };
            let Some(key) = queue.waiting.pop_front(&mut self.commands) else { return };
            if self.is_stuck_unsent(key) && self.goes_elsewhere(key, now) {
                self.move_unsent(key, now, bufs);
            } else if let Some(queue) = self.queues[slot].as_deref_mut() {
                queue.waiting.push_back(&mut self.commands, key);
            }
        }
    }

    /// A command that was never sent goes on elsewhere.
    fn move_unsent(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let Command { controller, stats, .. } = self.commands[key];
        self.stats.paths[stats as usize].untold.unsent += 1;
        self.leave_path(key);
        self.note_failed(key, controller);
        self.dispatch_again(key, None, now, bufs);
    }

    fn is_stuck_read(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let read = matches!(command.origin, Origin::Own { work: Work::Read { .. }, .. });
        // Without probes nothing is sent twice.
        read && self.stats.paths[command.stats as usize].stuck
            && self.head(command.head).is_some_and(|head| head.view.parameters.finish_time.probes)
    }

    fn is_stuck_unsent(&self, key: Key) -> bool {
        let command = &self.commands[key];
        // What only one controller can do waits for that one.
        let Origin::Own { work, .. } = &command.origin else { return false };
        !matches!(work, Work::Flush { owed: Some(_) })
            && self.stats.paths[command.stats as usize].stuck
    }

    /// Whether the policy would choose another path for a command now, one that is not overdue. If
    /// not, the other commands on the path of this one are not asked about this time.
    fn goes_elsewhere(&mut self, key: Key, now: Time) -> bool {
        let command = &self.commands[key];
        let stats = command.stats;
        let Origin::Own { work, .. } = &command.origin else { return false };
        let Some(head) = self.heads.get_mut(command.head.0) else { return false };
        let HeadState { view, selector, paths, .. } = head;
        let (op, bytes) = (work.class(), work.bytes());
        let choice = selector.select(&view.parameters, paths, op, bytes, now.ns());
        let unused = selector.take_probe();
        let other = |path: &PathState| path.stats != stats && !is_overdue(path, now);
        let goes = choice.is_some_and(|choice| other(&paths[choice.index]));
        if let Some(unused) = unused {
            self.want_probe(key, unused, now);
        }
        self.stats.paths[stats as usize].stuck = goes;
        goes
    }

    /// Whether there is room for one more, beside what users may still submit.
    fn may_leave_behind(&self) -> bool {
        self.watch.left_behind < left_behind_max(self.own_limit) && self.has_spare_room()
    }

    /// A read's request goes on in a command on another path. What it leaves behind stays where it
    /// is, under the name that its queue pair knows, without request and buffer.
    fn leave_behind(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let command = &mut self.commands[key];
        let Place::Flying { slot, cid } = command.place else { return };
        let queue = self.queues[usize::from(slot)].as_deref_mut();
        if !queue.is_some_and(|queue| queue.link.release_buffer(cid)) {
            return;
        }
        let origin = core::mem::replace(&mut command.origin, Origin::LeftBehind);
        let &mut Command { head, controller, retries, doubts, .. } = command;
        let &mut Command { failovers, failed, .. } = command;
        let left_blocks = core::mem::take(&mut command.left_blocks);
        let entry = &mut self.stats.paths[command.stats as usize];
        entry.in_flight -= 1;
        entry.left_behind += 1;
        entry.rescued += 1;
        entry.untold.reads += 1;
        self.watch.left_behind += 1;
        let new = Command::new(origin, head, now);
        let new = Command { left_blocks, retries, doubts, ..new };
        let new = || Command { failovers, failed, ..new };
        let Some(new) = self.commands.insert_with(new) else {
            unreachable!("room was checked before it was left behind");
        };
        self.note_failed(new, controller);
        self.dispatch_again(new, None, now, bufs);
    }

    /// The controller has answered a command that was left behind. What that says about the path
    /// is heeded.
    #[cold]
    pub(super) fn left_behind_answered(&mut self, key: Key, status: Status, now: Time) {
        let Some(mut command) = self.end_left_behind(key) else { return };
        let charge = command.charge.take();
        if status.is_success() {
            self.learn_from(&command, charge, now);
        } else {
            self.heed(&command, status);
        }
    }

    /// A command that was left behind is over: its charge goes back.
    #[cold]
    pub(super) fn end_left_behind(&mut self, key: Key) -> Option<Command> {
        let command = self.commands.remove(key)?;
        let entry = &mut self.stats.paths[command.stats as usize];
        entry.left_behind -= 1;
        if let Some(charge) = command.charge {
            finish(charge, entry.ledgers(self.me.index()));
        }
        self.watch.left_behind -= 1;
        Some(command)
    }

    /// The log hears of each path that was left, once in a while.
    fn tell_rescued(&mut self, now: Time) {
        for head in self.heads.values() {
            for path in &head.paths {
                let untold = &mut self.stats.paths[path.stats as usize].untold;
                let quiet = untold.quiet_until.is_some_and(|until| now < until);
                if (untold.reads, untold.unsent) == (0, 0) {
                    untold.silent_ns = 0;
                    continue;
                }
                if quiet {
                    continue;
                }
                let Untold { silent_ns, reads, unsent, .. } = *untold;
                *untold = Untold { quiet_until: Some(now.after(LINE_PAUSE)), ..Untold::default() };
                let (head, controller) = (head.view.id, path.view.controller);
                let rescued = Rescued { head, controller, silent_ns, reads, unsent };
                let mail = Mail::ToControl(ToControl::Rescued(Box::new(rescued)));
                self.outputs.push_back(Output::Mail { to: WorkerId(0), mail });
            }
        }
    }
}
