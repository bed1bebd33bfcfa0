//! Paths that have failed under a command.

use super::Shard;
use super::head::HeadState;
use crate::table::Key;
use crate::topology::ControllerId;
use alloc::vec::Vec;

/// Paths that are told apart at once: a host has thousands of commands, and has two bytes for this
/// in each.
const GROUP: usize = 11;

/// Which paths of its head have failed under a command in a row, by their places in the list. Of
/// more than [`GROUP`] one group is asked after the other: those of others count as failed until it
/// is their turn. When the list changes it may name others, too: those are asked last.
///
/// Above the lowest [`GROUP`] bits, one for each place: the group, counted from 1; 0 while no path
/// has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failed(u16);

impl Failed {
    pub(super) const NONE: Failed = Failed(0);

    /// Those behind 30 groups take turns as one.
    const GROUPS: usize = (u16::MAX >> GROUP) as usize;

    fn only(place: usize) -> Failed {
        Failed(Failed::nobody(Failed::group_of(place)).0 | Failed::bit(place))
    }

    /// None of a group whose turn it is.
    fn nobody(group: u16) -> Failed {
        Failed(group << GROUP)
    }

    /// The path at this place of its group, and none of any other group.
    fn in_group(group: u16, place: usize) -> Failed {
        let own = group == Failed::group_of(place);
        if own { Failed::only(place) } else { Failed::nobody(group) }
    }

    fn bit(place: usize) -> u16 {
        1 << (place % GROUP)
    }

    fn group_of(place: usize) -> u16 {
        (place / GROUP + 1).min(Failed::GROUPS) as u16
    }

    fn group(self) -> u16 {
        self.0 >> GROUP
    }

    fn has(self, place: usize) -> bool {
        self.is_for_later(place) || self.0 & Failed::bit(place) != 0
    }

    /// Whether it is another group's turn: that path may have failed, or not have been asked.
    fn is_for_later(self, place: usize) -> bool {
        !self.is_none() && self.group() != Failed::group_of(place)
    }

    fn add(&mut self, place: usize) {
        if self.is_none() {
            *self = Failed::only(place);
        } else if !self.has(place) {
            self.0 |= Failed::bit(place);
        }
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
    /// A path failed under a command. When all of its group have that can be used, it is the turn
    /// of the next group that has one, at last of this one again, but for this path.
    pub(super) fn note_failed(&mut self, key: Key, controller: ControllerId) {
        let command = &mut self.commands[key];
        let Some(head) = self.heads.get(command.head.0) else { return };
        let place = head.paths.iter().position(|path| path.view.controller == controller);
        let Some(place) = place else { return };
        command.failed.add(place);
        if !head.has_other(command.failed) {
            let groups = Failed::group_of(head.paths.len().saturating_sub(1));
            let after = command.failed.group().min(groups);
            let in_turn = (after + 1..=groups).chain(1..=after);
            let next = in_turn.map(|group| Failed::in_group(group, place));
            let mut next = next.filter(|it| head.has_other(*it));
            command.failed = next.next().unwrap_or(Failed::only(place));
        }
    }

    /// Whether a command can be served by a path that has not failed under it, by another
    /// controller than the one that it was with. Of several groups all count as long as there are
    /// more paths than have failed, and none after that.
    pub(super) fn has_untried_path(&self, key: Key) -> bool {
        let command = &self.commands[key];
        let Some(head) = self.head(command.head) else { return false };
        let paths = head.paths.len();
        if paths > GROUP && !command.has_failed_less_than(paths) {
            return false;
        }
        let failed = command.failed;
        head.paths.iter().enumerate().any(|(place, path)| {
            let other = path.view.controller != command.controller;
            let untried = !failed.has(place) || failed.is_for_later(place);
            path.usable && other && untried && head.may_choose(path)
        })
    }
}

#[cfg(test)]
mod tests;
