//! Paths that have failed under a command.

use super::Shard;
use super::head::HeadState;
use crate::table::Key;
use crate::topology::ControllerId;
use alloc::vec::Vec;

/// Which paths of its head have failed under a command in a row, by their places in the list modulo
/// 16: a host has thousands of commands. When the list changes, and among more than 16, it may name
/// others, too: those are asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failed(u16);

impl Failed {
    pub(super) const NONE: Failed = Failed(0);

    fn only(place: usize) -> Failed {
        Failed(1 << (place % 16))
    }

    fn has(self, place: usize) -> bool {
        self.0 & Failed::only(place).0 != 0
    }

    pub(super) fn is_none(self) -> bool {
        self == Failed::NONE
    }
}

impl HeadState {
    /// Whether a path can be used that is none of these.
    fn has_other(&self, failed: Failed) -> bool {
        let mut paths = self.paths.iter().enumerate().filter(|(_, path)| self.may_choose(path));
        paths.any(|(place, path)| path.usable && !failed.has(place))
    }

    /// Takes those that have failed from what the policy chooses of, but for the one that is to be
    /// preferred, if that leaves another one. Gives back where they stand, for
    /// [`HeadState::show`].
    pub(super) fn hide(&mut self, failed: Failed, prefer: Option<ControllerId>) -> Vec<usize> {
        // Nothing is allocated for a command that no path has failed.
        let mut hidden = Vec::new();
        if !failed.is_none() && self.has_other(failed) {
            for (place, path) in self.paths.iter_mut().enumerate() {
                if path.usable && failed.has(place) && prefer != Some(path.view.controller) {
                    path.usable = false;
                    hidden.push(place);
                }
            }
        }
        hidden
    }

    pub(super) fn show(&mut self, hidden: &[usize]) {
        hidden.iter().for_each(|&place| self.paths[place].usable = true);
    }
}

impl Shard {
    /// A path failed under a command. When all have that can be used, it is their turn again, but
    /// for this one.
    pub(super) fn note_failed(&mut self, key: Key, controller: ControllerId) {
        let command = &mut self.commands[key];
        let Some(head) = self.heads.get(command.head.0) else { return };
        let place = head.paths.iter().position(|path| path.view.controller == controller);
        let Some(place) = place else { return };
        command.failed.0 |= Failed::only(place).0;
        if !head.has_other(command.failed) {
            command.failed = Failed::only(place);
        }
    }

    /// Whether a command can be served by a path that has not failed under it, by another
    /// controller than the one that it was with.
    pub(super) fn has_untried_path(&self, key: Key) -> bool {
        let command = &self.commands[key];
        self.head(command.head).is_some_and(|head| {
            head.paths.iter().enumerate().any(|(place, path)| {
                let other = path.view.controller != command.controller;
                path.usable && other && !command.failed.has(place) && head.may_choose(path)
            })
        })
    }
}

#[cfg(test)]
mod tests;
