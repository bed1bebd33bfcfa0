//! Successes that say nothing yet: of a path that may lead to another namespace by now.
//!
//! A read of it is read again elsewhere. What changes media waits until control has looked: mostly
//! it is the same namespace, which was named as changed because it has grown, say. Sent again at
//! once, such a write would undo what somebody has written behind it who has read it.

use super::Shard;
use super::command::{Command, Origin, Place};
use super::head::entry;
use crate::table::Key;
use crate::topology::ControllerState;
use alloc::vec::Vec;
use anabranch_proto::host_queue::Attempt;
use anabranch_proto::machine::{Buffers, Time};
use core::cmp::Reverse;

/// So often a command whose namespace is not there waits for a path to be looked at. More than
/// that, and each look says that it is there: then the status is the user's.
pub(super) const MAX_DOUBTS: u8 = 5;

/// What control has found out about a path since it came into doubt.
enum Look {
    GoesOn,
    /// It leads to the namespace that it led to.
    Same,
    /// It leads elsewhere or nowhere, or nobody will say any more where it has led.
    Other,
}

impl Shard {
    /// Whether a success says anything of the namespace that the command was for: not when another
    /// one may have had the NSID by then. (On a path that was silent meanwhile, for example.)
    /// Whoever has been in doubt so often is believed: a controller that names all that it has as
    /// changed, all the time, must not keep everything from ending.
    #[inline]
    pub(super) fn is_of_its_namespace(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let Some(head) = self.head(command.head) else { return true };
        let usable = head.path_of(command).is_some_and(|path| path.usable);
        usable || command.doubts >= MAX_DOUBTS || head.gone || !self.has_lost_its_path(key)
    }

    /// A success that says nothing yet, of a command of our own.
    #[cold]
    pub(super) fn doubt(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        let command = &self.commands[key];
        match self.look(command) {
            Look::Same => return self.succeeded(key, now, bufs),
            Look::GoesOn if changes_media(command) && !self.was_withdrawn(command) => {}
            Look::GoesOn | Look::Other => return self.take_elsewhere(key, now, bufs),
        }
        // Control asks for no longer than that, unless there is always something new to ask.
        let timeout = entry(&self.controllers, command.controller).map(|it| it.view.io_timeout);
        let until = now.after(timeout.unwrap_or_default());
        self.commands[key].place = Place::Doubted { until };
        self.delayed.push(Reverse((until, key)));
        self.wake_at(until);
        self.some_doubted = true;
    }

    /// A new picture: what control has found out about the paths that were in doubt.
    pub(super) fn settle_doubted(&mut self, now: Time, bufs: &mut dyn Buffers) {
        if !core::mem::take(&mut self.some_doubted) {
            return;
        }
        let doubted = |key: &Key| matches!(self.commands[*key].place, Place::Doubted { .. });
        let doubted: Vec<Key> = self.commands.keys().filter(doubted).collect();
        for key in doubted {
            match self.look(&self.commands[key]) {
                Look::GoesOn => self.some_doubted = true,
                Look::Same => self.succeeded(key, now, bufs),
                Look::Other => self.take_elsewhere(key, now, bufs),
            }
        }
        // What has ended needs no place among what is to be tried again.
        self.delayed.retain(|Reverse((_, key))| self.commands.get(*key).is_some());
    }

    /// What a path in doubt has done is done again elsewhere, or fails as gone.
    pub(super) fn take_elsewhere(&mut self, key: Key, now: Time, bufs: &mut dyn Buffers) {
        self.commands[key].doubts += 1;
        self.lost(key, Attempt::Uncertain, now, bufs);
    }

    fn look(&self, command: &Command) -> Look {
        let head = self.head(command.head).filter(|head| !head.gone);
        let Some(path) = head.and_then(|head| head.path_of(command)) else { return Look::Other };
        if path.view.verified && path.namespace_suspect.is_none() {
            return Look::Same;
        }
        let controller = entry(&self.controllers, path.view.controller);
        let lives = controller.is_some_and(|it| it.view.state == ControllerState::Live);
        if lives { Look::GoesOn } else { Look::Other }
    }
}

fn changes_media(command: &Command) -> bool {
    matches!(command.origin, Origin::Own { work, .. } if work.changes_media())
}
