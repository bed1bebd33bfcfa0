//! Devices that share a queue pair of which nearly all tags are taken.
//!
//! One whose commands take long (a slow pool behind the same controller, one that hangs) would have
//! all of them before long, and what the others do would wait for it. So none has more than
//! [`FOR_ONE_LEFT`] times the tags that are left: the dynamic threshold of Choudhury and Hahne
//! ("Dynamic queue length thresholds for shared-memory packet switches", 1998) for the buffers of a
//! switch. One alone leaves a ninth, two that want as many leave a 17th; nobody has to say who will
//! want how many, and none lies idle that somebody with few could use. Linux gives each device that
//! is in use the same part (`hctx_may_queue`), also where the others want less.
//!
//! The last few are for devices that have none: where several hang, one after the other, each costs
//! the others one more.
//!
//! A tag that comes free goes to the device that has the fewest; of several the one that has waited
//! longest since it got its last one.

use super::command::Command;
use crate::table::{Key, List, Table};
use crate::topology::HeadId;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// So many tags of one device for each that is left.
const FOR_ONE_LEFT: u32 = 8;

/// Of so many tags one is for a device that has none.
const ONE_KEPT_OF: u16 = 32;

/// Tags for devices that have none.
fn kept(tags: u16) -> u16 {
    (tags / ONE_KEPT_OF).max(2).min(tags / 2)
}

/// Tags of a queue pair that are left while no device can have too many.
pub(super) fn enough(tags: u16) -> u16 {
    kept(tags).max(tags / (FOR_ONE_LEFT as u16 + 1))
}

/// Who has how many tags of such a queue pair, and what waits.
#[derive(Debug)]
pub(super) struct Crowd {
    kept: u16,
    /// Whoever has something to do with it, or has had since the last picture.
    members: BTreeMap<HeadId, Member>,
    /// Those with commands that wait, ordered by tags and turn.
    line: Vec<(u32, u64, HeadId)>,
    /// Turns that were given.
    turns: u64,
}

#[derive(Debug, Default)]
struct Member {
    tags: u32,
    /// When it last began to wait or got a tag.
    turn: u64,
    waiting: List,
}

impl Crowd {
    /// Of the commands that have one of so many tags.
    pub(super) fn of(flying: &List, tags: u16, commands: &Table<Command>) -> Crowd {
        let (members, line) = (BTreeMap::new(), Vec::new());
        let mut crowd = Crowd { kept: kept(tags), members, line, turns: 0 };
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
        if member.waiting.is_empty() {
            self.turns += 1;
            member.turn = self.turns;
            insert(&mut self.line, (member.tags, member.turn, head));
        }
        member.waiting.push_back(commands, key);
    }

    /// Takes the command off that gets the next of `left` tags, if one may have it.
    pub(super) fn next(&mut self, left: u16, commands: &mut Table<Command>) -> Option<Key> {
        let &(tags, turn, head) = self.line.first()?;
        if tags > 0 && (left <= self.kept || tags >= FOR_ONE_LEFT * u32::from(left)) {
            return None;
        }
        let member = self.members.get_mut(&head)?;
        let key = member.waiting.pop_front(commands)?;
        if member.waiting.is_empty() {
            remove(&mut self.line, (tags, turn, head));
        }
        Some(key)
    }

    /// A command has got a tag.
    pub(super) fn took(&mut self, head: HeadId) {
        self.turns += 1;
        let turn = self.turns;
        self.change(head, |member| (member.tags, member.turn) = (member.tags + 1, turn));
    }

    /// One has given its tag back.
    pub(super) fn gave(&mut self, head: HeadId) {
        self.change(head, |member| member.tags = member.tags.saturating_sub(1));
    }

    fn change(&mut self, head: HeadId, change: impl FnOnce(&mut Member)) {
        let member = self.members.entry(head).or_default();
        let before = (member.tags, member.turn, head);
        change(member);
        if !member.waiting.is_empty() {
            let now = (member.tags, member.turn, head);
            remove(&mut self.line, before);
            insert(&mut self.line, now);
        }
    }

    /// All that waits, those of a device in their order, and the devices in the order of their
    /// turns: who waits anew in this order has them again. Whoever has no tag is forgotten: by the
    /// next picture its device may have gone.
    pub(super) fn scatter(&mut self, commands: &mut Table<Command>) -> List {
        self.line.sort_unstable_by_key(|&(_, turn, _)| turn);
        let mut all = List::default();
        for (_, _, head) in self.line.drain(..) {
            let Some(member) = self.members.get_mut(&head) else { continue };
            while let Some(key) = member.waiting.pop_front(commands) {
                all.push_back(commands, key);
            }
        }
        self.members.retain(|_, member| member.tags > 0);
        all
    }
}

fn insert<T: Ord>(sorted: &mut Vec<T>, it: T) {
    let at = sorted.partition_point(|other| *other < it);
    sorted.insert(at, it);
}

fn remove<T: Ord>(sorted: &mut Vec<T>, it: T) {
    if let Ok(at) = sorted.binary_search(&it) {
        sorted.remove(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::command::Origin;
    use anabranch_proto::machine::Time;

    /// Devices come and go on a queue pair that is always full.
    #[test]
    fn a_crowd_forgets_those_that_have_gone() {
        let mut commands = Table::new(8);
        let mut crowd = Crowd::of(&List::default(), 32, &commands);
        for id in 0..100 {
            let command = || Command::new(Origin::LeftBehind, HeadId(id), Time::ZERO);
            let waiting = [0; 2].map(|_| commands.insert_with(command).expect("there is room"));
            waiting.iter().for_each(|&key| crowd.wait(&mut commands, key));
            assert_eq!(crowd.next(4, &mut commands), Some(waiting[0]));
            crowd.took(HeadId(id));
            let mut still = crowd.scatter(&mut commands);
            assert_eq!(crowd.members.keys().copied().collect::<Vec<_>>(), [HeadId(id)]);
            while let Some(key) = still.pop_front(&mut commands) {
                crowd.wait(&mut commands, key);
            }
            assert_eq!(crowd.next(4, &mut commands), Some(waiting[1]));
            crowd.took(HeadId(id));
            for key in waiting {
                commands.remove(key);
                crowd.gave(HeadId(id));
            }
        }
    }
}
