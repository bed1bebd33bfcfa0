//! Successes that say nothing yet: of a path that may lead to another namespace by now.
//!
//! A read of it is read again elsewhere. What changes media waits until control has looked: when it
//! is the same namespace, and was named as changed because it has another size, the answer stands.
//! Sent again, such a write would undo what somebody has written behind it who has read it. When it
//! is the same and nothing tells why it was named, it may have been another one in between.

use super::Shard;
use super::command::{Command, Origin, Place};
use super::head::entry;
use crate::table::Key;
use crate::topology::{ControllerState, PathView};
use alloc::boxed::Box;
use alloc::vec::Vec;
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Buffers, Time};
use core::cmp::Reverse;
use core::time::Duration;

/// So often a command whose namespace is not there waits for a path to be looked at. More than
/// that, and each look says that it is there: then the status is the user's.
pub(super) const MAX_DOUBTS: u8 = 5;

/// So long a command waits for a look at the most: it takes a few round trips.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// What control has found out about a path since it came into doubt.
enum Look {
    /// It led to a namespace of so many blocks before.
    GoesOn { blocks: u64 },
    /// It leads to the namespace that it led to, which has so many.
    Same { blocks: u64 },
    /// It leads elsewhere or nowhere, or nobody will say any more where it has led.
    Other,
}

/// Until when what was sent to a path may have been for another namespace.
#[derive(Debug, Default)]
pub(super) struct Doubt {
    until: Time,
    /// Its namespace is being looked at. Few are at a time.
    open: Option<Box<Before>>,
    /// A flush has waited for that in vain: others need not, until the path is seen anew.
    in_vain: bool,
}

/// How it was before that came into doubt.
#[derive(Debug)]
struct Before {
    until: Time,
    blocks: u64,
}

impl Doubt {
    /// The path is seen in another way. That it has another size explains why it was in doubt.
    pub(super) fn seen(&mut self, before: &PathView, now_is: &PathView, now: Time) {
        self.in_vain &= before.doubted == now_is.doubted && !now_is.verified;
        if before.doubted != now_is.doubted {
            let former = core::mem::replace(&mut self.until, now.after(Duration::from_nanos(1)));
            match &mut self.open {
                // One size explains one doubt: what was seen before the last one does not.
                Some(open) => (open.until, open.blocks) = (self.until, before.blocks),
                None => {
                    self.open = Some(Box::new(Before { until: former, blocks: before.blocks }));
                }
            }
        }
        if now_is.verified
            && let Some(before) = self.open.take()
            && before.blocks != now_is.blocks
        {
            self.until = before.until;
        }
    }

    /// How many blocks there were before that came into doubt, where there are `now`: another size
    /// may be known before the look has ended.
    fn blocks_before(&self, now: u64) -> u64 {
        self.open.as_ref().map_or(now, |before| before.blocks)
    }

    /// Whether what was sent then may have been for another namespace.
    #[inline]
    pub(super) fn concerns(&self, sent: Time) -> bool {
        sent < self.until
    }

    /// Whether a flush would wait in vain for a look at the path.
    pub(super) fn is_in_vain(&self) -> bool {
        self.in_vain
    }

    /// When what is sent now counts as sent: in one instant it can be in doubt and be seen to be
    /// what it was, and more be sent.
    #[inline]
    pub(super) fn sent(&self, now: Time) -> Time {
        now.max(self.until)
    }
}

impl Shard {
    /// Whether a success says anything of the namespace that the command was for: not when another
    /// one may have had the NSID by then. (On a path that was silent meanwhile, for example; also
    /// when the path has been looked at since, or the device has gone.)
    /// Whoever has been in doubt so often is believed: a controller that names all that it has as
    /// changed, all the time, must not keep everything from ending.
    #[inline]
    pub(super) fn is_of_its_namespace(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let Some(head) = self.head(command.head) else { return true };
        if head.gone {
            return false;
        }
        let path = head.path_of(command);
        let late = path.is_some_and(|path| path.doubt.concerns(command.started));
        // A path that has left leads elsewhere by now: that is no doubt.
        let believed = path.is_some() && command.doubts.count() >= MAX_DOUBTS;
        if !late && path.is_some_and(|path| path.usable) || believed {
            return true;
        }
        let is_another = match command.is_own_flush() {
            true => self.has_flushed_another(key),
            false => self.has_lost_its_path(key) || self.leaves_in_doubt(key),
        };
        !late && !is_another
    }

    /// Whether it was sent before its path came into doubt, and nothing has explained that since.
    #[cold]
    fn is_late(&self, command: &Command) -> bool {
        let path = self.head(command.head).and_then(|head| head.path_of(command));
        path.is_some_and(|path| path.doubt.concerns(command.started))
    }

    /// Whether a flush may have been that of another namespace. It is asked for on paths that data
    /// keeps off, of another size for example: there it counts.
    #[cold]
    fn has_flushed_another(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let path = self.head(command.head).and_then(|head| head.path_of(command));
        let Some(path) = path else { return true };
        // Control has not heard of a suspicion yet, whatever it says of the controller.
        path.namespace_suspect.is_some()
            || !path.view.verified
                && (self.lives(path.view.controller) || self.leaves_in_doubt(key))
    }

    /// Whether its controller goes on request, and its path would be looked at if it did not.
    #[cold]
    fn leaves_in_doubt(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let path = self.head(command.head).and_then(|head| head.path_of(command));
        let Some(path) = path.filter(|path| !path.view.verified) else { return false };
        let state = entry(&self.controllers, path.view.controller).map(|it| it.view.state);
        matches!(state, Some(ControllerState::Resetting | ControllerState::Deleting))
    }

    /// A success that says nothing yet, of a command of our own.
    #[cold]
    pub(super) fn doubt(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let command = &self.commands[key];
        let look = self.look(command);
        if !self.is_late(command) && matches!(look, Look::Same { .. }) {
            return self.succeeded(key, now, bufs);
        }
        // Whatever becomes of it, its controller may have it in a cache, and others may read it.
        if let (Origin::Own { work, .. }, Some(head)) = (&command.origin, self.head(command.head))
            && work.changes_media()
        {
            head.durable(command, work, self.topology.epoch);
        }
        let blocks = match look {
            Look::GoesOn { blocks } if waits_for_look(command) && !self.was_withdrawn(command) => {
                blocks
            }
            _ => return self.take_elsewhere(key, now, bufs),
        };
        let timeout = entry(&self.controllers, command.controller).map(|it| it.view.io_timeout);
        let until = now.after(LOOK_LIMIT.min(timeout.unwrap_or(LOOK_LIMIT)));
        self.commands[key].place = Place::Doubted { until, blocks };
        self.delayed.push(Reverse((until, key)));
        self.wake_at(until);
        self.some_doubted = true;
    }

    /// A new picture: what control has found out about the paths that were in doubt.
    pub(super) fn settle_doubted(&mut self, now: Time, bufs: &mut dyn Buffers) {
        if !core::mem::take(&mut self.some_doubted) {
            return;
        }
        let before = |key: Key| match self.commands[key].place {
            Place::Doubted { blocks, .. } => Some((key, blocks)),
            _ => None,
        };
        let doubted: Vec<(Key, u64)> = self.commands.keys().filter_map(before).collect();
        for (key, before) in doubted {
            match self.look(&self.commands[key]) {
                Look::GoesOn { .. } => self.some_doubted = true,
                // One size explains one doubt: not that its NSID was named again meanwhile.
                Look::Same { blocks } if blocks != before && !self.is_late(&self.commands[key]) => {
                    self.succeeded(key, now, bufs);
                }
                Look::Same { .. } | Look::Other => self.take_elsewhere(key, now, bufs),
            }
        }
        // What has ended needs no place among what is to be tried again.
        self.delayed.retain(|Reverse((_, key))| self.commands.get(*key).is_some());
    }

    /// A look has not ended in time. Where others serve its namespace, the next flush leaves the
    /// path out, as one that cannot be asked: it is owed what it was.
    #[cold]
    pub(super) fn looked_in_vain(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let command = &self.commands[key];
        let (head, controller, stats) = (command.head, command.controller, command.stats);
        if command.is_own_flush()
            && self.has_other_path(head, controller)
            && let Some(head) = self.head_mut(head)
            && let Some(path) = head.paths.iter_mut().find(|path| path.stats == stats)
        {
            (path.doubt.in_vain, path.flushes) = (true, false);
        }
        self.take_elsewhere(key, now, bufs);
    }

    /// What a path in doubt has done is done again elsewhere, or fails as gone.
    pub(super) fn take_elsewhere(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        self.commands[key].doubts.add();
        if self.is_asked_again(key) {
            self.leave_path(key);
            return self.dispatch_again(key, None, now, bufs);
        }
        self.lost(key, Attempt::Uncertain, now, bufs);
    }

    /// Whether it is a flush that only one controller can do, and the path to that leads to its
    /// namespace again: what another one makes durable is nothing that this one has acknowledged.
    pub(super) fn is_asked_again(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let head = self.head(command.head).filter(|_| command.is_owed_flush());
        let can_be = head.is_some_and(|head| head.flushes_through(command.controller).is_some());
        can_be && matches!(self.look(command), Look::Same { .. })
    }

    fn look(&self, command: &Command) -> Look {
        let head = self.head(command.head).filter(|head| !head.gone);
        let Some(path) = head.and_then(|head| head.path_of(command)) else { return Look::Other };
        let blocks = path.view.blocks;
        if path.view.verified && path.namespace_suspect.is_none() {
            return Look::Same { blocks };
        }
        if !self.lives(path.view.controller) {
            return Look::Other;
        }
        Look::GoesOn { blocks: path.doubt.blocks_before(blocks) }
    }
}

/// What is read is read again at once.
fn waits_for_look(command: &Command) -> bool {
    command.is_own_flush()
        || matches!(command.origin, Origin::Own { work, .. } if work.changes_media())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::fixture::path;

    #[test]
    fn another_size_explains_one_doubt() {
        let [sent, first, second, last] = [1, 2, 3, 4].map(Time::from_ns);
        let seen = |doubted, verified, blocks| PathView { doubted, verified, blocks, ..path(0) };
        let was = seen(0, true, 8);
        for (blocks, concerns) in [(8, true), (16, false)] {
            let mut doubt = Doubt::default();
            doubt.seen(&was, &seen(1, false, 8), first);
            assert!(doubt.concerns(sent), "it is in doubt");
            doubt.seen(&seen(1, false, 8), &seen(1, true, blocks), last);
            assert_eq!(doubt.concerns(sent), concerns, "{blocks}");
        }
        let mut doubt = Doubt::default();
        doubt.seen(&was, &seen(1, false, 8), first);
        doubt.seen(&seen(1, false, 8), &seen(2, false, 8), second);
        doubt.seen(&seen(2, false, 8), &seen(2, true, 16), last);
        assert!(doubt.concerns(sent), "it may have been another one when it was first in doubt");
        assert!(!doubt.concerns(doubt.sent(second)));
    }

    /// It is known before the look ends, and before that the namespace is named once more.
    #[test]
    fn a_size_that_was_seen_explains_no_doubt_after_it() {
        let [first, seen_at, second, last] = [1, 2, 3, 4].map(Time::from_ns);
        let seen = |doubted, verified, blocks| PathView { doubted, verified, blocks, ..path(0) };
        let mut doubt = Doubt::default();
        doubt.seen(&seen(0, true, 8), &seen(1, false, 8), first);
        doubt.seen(&seen(1, false, 8), &seen(1, false, 16), seen_at);
        assert_eq!(doubt.blocks_before(16), 8);
        let sent = doubt.sent(seen_at);
        doubt.seen(&seen(1, false, 16), &seen(2, false, 16), second);
        assert_eq!(doubt.blocks_before(16), 16);
        doubt.seen(&seen(2, false, 16), &seen(2, true, 16), last);
        assert!(doubt.concerns(sent), "it may have been another one since");
    }
}
