//! How far a scan of the namespaces of a controller is.

use super::super::namespace::{Ids, Namespace};
use super::named::Named;
use super::news::News;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use anabranch_proto::machine::Time;
use core::time::Duration;

/// Namespaces of one controller; more are left out with a line in the log. Those that are known
/// already keep their places, whatever comes before them in the list.
pub(super) const MAX_NAMESPACES: usize = 1024;

/// So often one scan looks at something once more because it has changed meanwhile: it has to end.
const LOOKS_AGAIN: usize = MAX_NAMESPACES;

/// So often it is asked what has changed though it has not got on since, and then once in this
/// time: what changes faster than it can be looked at is used all the same.
pub(super) const ASKED_AT_ONCE: u32 = 8;
pub(super) const ASK_PAUSE: Duration = Duration::from_secs(1);

/// A namespace that is being looked at.
#[derive(Debug)]
pub(super) struct Look {
    /// Its identifiers once they are known.
    pub(super) ids: Option<Ids>,
    /// The tick of the scan's clock when this began.
    pub(super) tick: u64,
}

#[derive(Debug)]
pub(super) struct Progress {
    /// The list has not been read to its end.
    pub(super) listing: bool,
    /// Namespaces still to look at, the next one last; while the list is read, ascending.
    pub(super) todo: Vec<u32>,
    /// The list was read as far as this NSID.
    pub(super) listed: u32,
    pub(super) doing: BTreeMap<u32, Look>,
    /// Known ones that were named as changed, ordered by NSID, and how many of them are not found
    /// to be what they were.
    pub(super) named: Vec<u32>,
    pub(super) named_left: usize,
    pub(super) found: Vec<Namespace>,
    /// Those of them that were looked at later than when it began: by NSID, the tick.
    pub(super) late: BTreeMap<u32, u64>,
    /// How many may be looked at once more.
    looks_again: usize,
    /// How many were left when it was asked what has changed, at the least, and how often that may
    /// be done where there are more.
    fewest_left: usize,
    asks: u32,
    asked_at: Time,
    /// Known ones that are not there any more or cannot be used.
    pub(super) gone: Vec<u32>,
    /// For how long the controller asks, at the least, not to look again at those that could not be
    /// read, if there are any.
    pub(super) asked_to_wait: Option<Duration>,
    /// Some are beyond [`MAX_NAMESPACES`].
    pub(super) some_left_out: bool,
    /// When it is told of that it takes long; then it is told of its end.
    pub(super) long_at: Option<Time>,
    /// How often it was told what it has seen.
    pub(super) told: u32,
}

impl Progress {
    pub(super) fn new(long_at: Time) -> Progress {
        Progress {
            listing: true,
            todo: Vec::new(),
            listed: 0,
            doing: BTreeMap::new(),
            named: Vec::new(),
            named_left: 0,
            found: Vec::new(),
            late: BTreeMap::new(),
            looks_again: LOOKS_AGAIN,
            fewest_left: usize::MAX,
            asks: ASKED_AT_ONCE,
            asked_at: Time::ZERO,
            gone: Vec::new(),
            asked_to_wait: None,
            some_left_out: false,
            long_at: Some(long_at),
            told: 0,
        }
    }

    /// Leaves out what is too much of the list as far as it was read: not those of `known` (ordered
    /// by NSID, and no more than fit), whose users have them. Gives back behind which NSID the list
    /// is read on, if it goes on behind `next`. When it is full that is where the next known one
    /// would stand, so that what lies between, however much, is never read.
    pub(super) fn make_room(&mut self, known: &[Namespace], next: Option<u32>) -> Option<u32> {
        let is_known = |nsid: u32| known.binary_search_by_key(&nsid, |it| it.nsid).is_ok();
        let mut too_many = self.todo.len().saturating_sub(MAX_NAMESPACES);
        self.some_left_out |= too_many > 0;
        for at in (0..self.todo.len()).rev() {
            if too_many == 0 {
                break;
            }
            if !is_known(self.todo[at]) {
                self.todo.remove(at);
                too_many -= 1;
            }
        }
        let next = next?;
        if !self.some_left_out {
            return Some(next);
        }
        let behind = known.partition_point(|it| it.nsid <= next);
        known.get(behind).map(|it| it.nsid - 1)
    }

    /// When it is asked what has changed since it began; counts that as done where it is now.
    pub(super) fn asks(&mut self, now: Time) -> News {
        if self.looks_again == 0 {
            return News::None;
        }
        let left = self.todo.len() + self.doing.len();
        if left < self.fewest_left && !self.listing {
            self.fewest_left = left;
        } else if self.asks > 0 {
            self.asks -= 1;
        } else if now.since(self.asked_at) < ASK_PAUSE {
            return News::Later(self.asked_at.after(ASK_PAUSE));
        }
        self.asked_at = now;
        News::Due
    }

    /// These have changed since it began: what it has read of them does not count, and they are the
    /// first that it looks at now. Those being looked at follow when they have been.
    pub(super) fn look_again(&mut self, named: &Named, known: &[Namespace]) {
        let found = self.found.extract_if(.., |it| named.has(it.nsid)).map(|it| it.nsid);
        let mut first: Vec<u32> = found.collect();
        let gone: BTreeSet<u32> = self.gone.extract_if(.., |nsid| named.has(*nsid)).collect();
        first.extend(&gone);
        self.late.retain(|nsid, _| !named.has(*nsid));
        if let Named::Some(nsids) = named {
            // Some may be new.
            first.extend(nsids.iter().filter(|&&nsid| nsid != u32::MAX));
        }
        self.looks_again = self.looks_again.saturating_sub(first.len().max(1));
        if self.listing {
            return;
        }
        first.extend(self.todo.extract_if(.., |nsid| named.has(*nsid)));
        first.retain(|nsid| !self.doing.contains_key(nsid));
        let is_known = |nsid: u32| known.binary_search_by_key(&nsid, |it| it.nsid).is_ok();
        // Those that the list had are the ones that there is room for.
        first.sort_unstable_by_key(|&nsid| (is_known(nsid), !gone.contains(&nsid), nsid));
        first.dedup();
        let others = self.found.len() + self.doing.len() + self.todo.len();
        let too_many = (others + first.len()).saturating_sub(MAX_NAMESPACES);
        self.some_left_out |= too_many > 0;
        self.gone.extend(first.drain(..too_many.min(first.len())).filter(|&nsid| is_known(nsid)));
        self.todo.append(&mut first);
    }

    /// Those of these that are known are waited for.
    pub(super) fn wait_for(&mut self, named: &Named, known: &[Namespace]) {
        if *named == Named::All {
            return self.named.clear();
        }
        self.named.extend(known.iter().map(|it| it.nsid).filter(|&nsid| named.has(nsid)));
        self.named.sort_unstable();
        self.named.dedup();
        let is_still = |found: &&Namespace| {
            let at = known.binary_search_by_key(&found.nsid, |it| it.nsid);
            at.is_ok_and(|at| known[at].is_still(found))
        };
        let same: BTreeSet<u32> = self.found.iter().filter(is_still).map(|it| it.nsid).collect();
        self.named_left = self.named.iter().filter(|nsid| !same.contains(nsid)).count();
    }
}
