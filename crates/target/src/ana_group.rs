//! ANA groups as one port sees them: a state each, and how often it changed.

use crate::config::MAX_ANA_GROUP;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use anabranch_proto::nvme::{AnaState, Status};

/// The states of all groups through one port. Groups exist for the whole target; a group that was
/// never named is optimized.
#[derive(Debug)]
pub(crate) struct AnaGroups {
    groups: Box<[Group]>,
    /// How often the log has changed (its CHNGCNT).
    pub(crate) changes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    state: AnaState,
    changes: u64,
    /// Given by configuration or verb: shown in the log even without namespaces.
    named: bool,
}

impl AnaGroups {
    pub(crate) fn new(states: &BTreeMap<u32, AnaState>) -> AnaGroups {
        let fresh = Group { state: AnaState::Optimized, changes: 0, named: false };
        let mut groups = vec![fresh; MAX_ANA_GROUP as usize].into_boxed_slice();
        for (group, state) in states {
            let entry = &mut groups[*group as usize - 1];
            *entry = Group { state: *state, named: true, ..*entry };
        }
        AnaGroups { groups, changes: 0 }
    }

    /// The state of a group; `group` lies in `1..=MAX_ANA_GROUP` (checked configuration).
    pub(crate) fn state(&self, group: u32) -> AnaState {
        self.groups[group as usize - 1].state
    }

    pub(crate) fn change_count(&self, group: u32) -> u64 {
        self.groups[group as usize - 1].changes
    }

    /// Whether the group stands in the log even without a namespace.
    pub(crate) fn is_named(&self, group: u32) -> bool {
        self.groups[group as usize - 1].named
    }

    /// Returns whether anything changed.
    pub(crate) fn set(&mut self, group: u32, state: AnaState) -> bool {
        let entry = &mut self.groups[group as usize - 1];
        let is_new = !core::mem::replace(&mut entry.named, true);
        if entry.state == state {
            // The log may list one more group. No host acts on that, but one that reads it in
            // parts must not put two logs together.
            self.changes += u64::from(is_new);
            return false;
        }
        entry.state = state;
        entry.changes += 1;
        self.changes += 1;
        true
    }

    /// Namespaces joined or left a group: the log changed although no state did.
    pub(crate) fn members_changed(&mut self, group: u32) {
        self.groups[group as usize - 1].changes += 1;
        self.changes += 1;
    }

    /// Groups with a name of their own, with their states.
    pub(crate) fn named(&self) -> impl Iterator<Item = (u32, AnaState)> {
        (1..=MAX_ANA_GROUP)
            .filter(|group| self.is_named(*group))
            .map(|group| (group, self.state(group)))
    }
}

/// The status of an I/O command in a group without access (Base 8.1.1); never DNR: another path,
/// or this one later, may do.
pub(crate) fn refusal(state: AnaState) -> Option<Status> {
    match state {
        AnaState::Optimized | AnaState::NonOptimized => None,
        AnaState::Inaccessible => Some(Status::ANA_INACCESSIBLE),
        AnaState::PersistentLoss => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::Change => Some(Status::ANA_TRANSITION),
    }
}
