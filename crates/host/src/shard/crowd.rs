//! Devices that share a queue pair of which nearly all tags are taken.
//!
//! One whose commands take long (a slow pool behind the same controller, one that hangs) would have
//! all of them before long, and what the others do would wait for it. So none has more than
//! [`FOR_ONE_LEFT`] times the tags that are left: the dynamic threshold of Choudhury and Hahne
//! ("Dynamic queue length thresholds for shared-memory packet switches", 1998) for the buffers of a
//! switch. One alone leaves a ninth, two leave a 17th and have the same; nobody has to say who will
//! want how many, and none lies idle that somebody with few could use. Linux gives each device that
//! is in use the same part (`hctx_may_queue`), also where the others want less.
//!
//! A tag that comes free goes to the device that has the fewest.

use super::command::Command;
use crate::table::{Key, List, Table};
use crate::topology::HeadId;
use alloc::collections::{BTreeMap, BTreeSet};

/// So many tags of one device for each that is left.
const FOR_ONE_LEFT: u32 = 8;

/// Tags of a queue pair that are left while no device can have too many.
pub(super) fn enough(tags: u16) -> u16 {
    tags / (FOR_ONE_LEFT as u16 + 1)
}

/// Who has how many tags of such a queue pair, and what waits.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    members: BTreeMap<HeadId, Member>,
    /// Those with commands that wait, by their tags.
    line: BTreeSet<(u32, HeadId)>,
}

#[derive(Debug, Default)]
struct Member {
    tags: u32,
    waiting: List,
}

impl Crowd {
    /// Of the commands that have a tag.
    pub(super) fn of(flying: &List, commands: &Table<Command>) -> Crowd {
        let mut crowd = Crowd::default();
        let mut next = flying.front(commands);
        while let Some(key) = next {
            crowd.members.entry(commands[key].head).or_default().tags += 1;
            next = flying.after(commands, key);
        }
        crowd
    }

    /// Whether nothing waits.
    pub(super) fn is_served(&self) -> bool {
        self.line.is_empty()
    }

    /// A command waits, behind those of its device.
    pub(super) fn wait(&mut self, commands: &mut Table<Command>, key: Key) {
        let head = commands[key].head;
        let member = self.members.entry(head).or_default();
        member.waiting.push_back(commands, key);
        self.line.insert((member.tags, head));
    }

    /// Takes the command off that gets the next of `left` tags, if one may have it.
    pub(super) fn next(&mut self, left: u16, commands: &mut Table<Command>) -> Option<Key> {
        let &(tags, head) = self.line.first()?;
        if tags >= FOR_ONE_LEFT * u32::from(left) {
            return None;
        }
        let member = self.members.get_mut(&head)?;
        let key = member.waiting.pop_front(commands)?;
        if member.waiting.is_empty() {
            self.line.remove(&(tags, head));
        }
        Some(key)
    }

    /// A command has got a tag.
    pub(super) fn took(&mut self, head: HeadId) {
        self.count(head, |tags| tags + 1);
    }

    /// One has given its tag back.
    pub(super) fn gave(&mut self, head: HeadId) {
        self.count(head, |tags| tags.saturating_sub(1));
    }

    fn count(&mut self, head: HeadId, change: impl Fn(u32) -> u32) {
        let member = self.members.entry(head).or_default();
        let before = member.tags;
        member.tags = change(before);
        if !member.waiting.is_empty() {
            self.line.remove(&(before, head));
            self.line.insert((member.tags, head));
        } else if member.tags == 0 {
            self.members.remove(&head);
        }
    }

    /// All that waits, those of a device in their order.
    pub(super) fn scatter(self, commands: &mut Table<Command>) -> List {
        let mut all = List::default();
        for mut member in self.members.into_values() {
            while let Some(key) = member.waiting.pop_front(commands) {
                all.push_back(commands, key);
            }
        }
        all
    }
}
