//! This shard's figures, one entry per path and head. Entries of those that are gone are used
//! again, so that connecting and disconnecting for ever takes no more memory.

use super::Shard;
use super::explain::{About, Ring};
use super::head::{HeadState, Me};
use super::rescue::Untold;
use super::tally::{Busy, Ended, Tally};
use crate::by_id::ById;
use crate::explain::{Choices, PathChoices, ShardExplain};
use crate::load::{ControllerLoad, PathLoad};
use crate::mail::{Detail, HeadStats, PathStats, ShardStats};
use crate::topology::{ControllerId, HeadId, PathId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{
    Charge, Choice, Lane, Ledgers, Policy, finish, finish_time_report, latency_report,
};
use anabranch_proto::machine::Time;
use core::ops::RangeInclusive;

#[derive(Default)]
pub(super) struct StatsTable {
    pub(super) paths: Vec<PathEntry>,
    pub(super) heads: Vec<HeadEntry>,
    /// Places in each that are nobody's, as of the last picture, the first one last. A path or head
    /// that is new does not look for one: beside tens of thousands, a controller brings a thousand.
    free_paths: Vec<u32>,
    free_heads: Vec<u32>,
    /// Decisions that were noted.
    pub(super) ring: Ring,
}

/// What is counted on one path.
pub(super) struct PathEntry {
    head: HeadId,
    controller: ControllerId,
    id: PathId,
    pub(super) errors: u64,
    pub(super) flawed: u64,
    pub(super) retries: u64,
    pub(super) failovers: u64,
    pub(super) uncertain_writes_resent: u64,
    pub(super) in_flight: u32,
    /// A probe is in flight on it.
    pub(super) probing: bool,
    pub(super) probes: u64,
    pub(super) probe_bytes: u64,
    pub(super) probe_errors: u64,
    /// What is on it is overdue, and may go elsewhere now.
    pub(super) stuck: bool,
    /// Commands in flight on it whose requests went on elsewhere.
    pub(super) left_behind: u32,
    pub(super) rescued: u64,
    pub(super) untold: Untold,
    busy: Busy,
    /// Commands that were a whole request and took as long: the head's figures are read from here
    /// as well. Nothing is kept before the first.
    whole: Option<Box<Tally>>,
    /// All others.
    others: Option<Box<Tally>>,
    /// Why it was chosen; nothing is kept before the first time.
    choices: Option<Box<PathChoices>>,
    /// Some head has the path; only while those are looked for that none has.
    listed: bool,
    pub(super) held: Held,
}

/// What is counted on one head.
pub(super) struct HeadEntry {
    head: HeadId,
    pub(super) errors: u64,
    pub(super) requeued_no_usable_path: u64,
    pub(super) failed_no_available_path: u64,
    busy: Busy,
    /// Requests that no single command stands for: they were split, held or sent again. And those
    /// of paths that have left.
    own: Option<Box<Tally>>,
}

/// The counters of a path, kept while commands are in flight on it: the path may leave before them.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) controller: Arc<ControllerLoad>,
    pub(super) path: Arc<PathLoad>,
    /// Of this worker.
    pub(super) lane: Arc<Lane>,
}

impl PathEntry {
    /// A command of worker `me` is on this path no longer.
    #[inline]
    pub(super) fn left(&mut self, charge: Option<&Charge>, me: Me) {
        self.in_flight -= 1;
        if let Some(charge) = charge {
            finish(*charge, self.ledgers(me.index()));
        }
    }

    /// A command has ended well that was a whole request of `head` and took as long: one record for
    /// both.
    #[inline]
    pub(super) fn whole_ended(&mut self, head: &mut HeadEntry, ended: &Ended) {
        head.busy.record(ended);
        self.busy.record(ended);
        self.whole.get_or_insert_default().record(ended);
    }

    /// A command has ended well that does not stand for its request.
    #[inline]
    pub(super) fn ended(&mut self, ended: &Ended) {
        self.busy.record(ended);
        self.others.get_or_insert_default().record(ended);
    }

    /// Commands of whatever kind are in flight on it.
    fn is_in_use(&self) -> bool {
        self.in_flight > 0 || self.probing || self.left_behind > 0
    }

    /// Where the charges of its commands go back to.
    #[inline]
    pub(super) fn ledgers(&self, worker: u16) -> Ledgers<'_> {
        let Held { controller, path, lane } = &self.held;
        Ledgers {
            controller: &controller.ledger,
            workers: &controller.workers,
            worker,
            shared: &path.shared,
            lane,
        }
    }

    fn report(&self) -> PathStats {
        let tally = sum([self.whole.as_deref(), self.others.as_deref()]);
        PathStats {
            head: self.head,
            controller: self.controller,
            commands: tally.counts(),
            bytes: tally.bytes(),
            latency_sums_ns: tally.latency_sums_ns(),
            errors: self.errors,
            flawed: self.flawed,
            retries: self.retries,
            failovers: self.failovers,
            uncertain_writes_resent: self.uncertain_writes_resent,
            in_flight: self.in_flight,
            probes: self.probes,
            probe_bytes: self.probe_bytes,
            probe_errors: self.probe_errors,
            rescued: self.rescued,
            numa_cached: false,
            latency: None,
            finish_time: None,
            stat: tally.stat(self.busy),
            latency_ns: tally.latency_ns(),
        }
    }
}

impl HeadEntry {
    /// A request has ended well that no single command stands for.
    pub(super) fn ended(&mut self, ended: &Ended) {
        self.busy.record(ended);
        self.own.get_or_insert_default().record(ended);
    }

    /// `whole` is what its paths have recorded for it.
    fn report(&self, whole: Option<&Tally>) -> HeadStats {
        let tally = sum([whole, self.own.as_deref()]);
        HeadStats {
            head: self.head,
            requests: tally.counts(),
            bytes: tally.bytes(),
            latency_sums_ns: tally.latency_sums_ns(),
            errors: self.errors,
            in_flight: 0,
            requeued_no_usable_path: self.requeued_no_usable_path,
            failed_no_available_path: self.failed_no_available_path,
            affinity_misses: 0,
            stat: tally.stat(self.busy),
            latency_ns: tally.latency_ns(),
        }
    }
}

/// So many, without room for more: these are large, and there may be thousands.
fn exactly<T>(count: usize, all: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::with_capacity(count);
    list.extend(all);
    list
}

fn sum<'a>(tallies: impl IntoIterator<Item = Option<&'a Tally>>) -> Tally {
    let mut sum = Tally::default();
    tallies.into_iter().flatten().for_each(|tally| sum.merge(tally));
    sum
}

impl StatsTable {
    /// The figures of a controller's paths that have commands in flight.
    fn in_flight(&self, controller: ControllerId) -> Vec<PathStats> {
        let has_some = |path: &&PathEntry| path.controller == controller && path.in_flight > 0;
        self.paths.iter().filter(has_some).map(PathEntry::report).collect()
    }

    /// Makes room for so many entries, and no more: they are reallocated seldom enough.
    pub(super) fn make_room(&mut self, heads: usize, paths: usize) {
        self.heads.reserve_exact(heads.saturating_sub(self.heads.len()));
        self.paths.reserve_exact(paths.saturating_sub(self.paths.len()));
    }

    /// The entry of a path that is new.
    pub(super) fn path(
        &mut self,
        head: HeadId,
        (controller, id): (ControllerId, PathId),
        held: Held,
    ) -> u32 {
        let new = PathEntry {
            head,
            controller,
            id,
            errors: 0,
            flawed: 0,
            retries: 0,
            failovers: 0,
            uncertain_writes_resent: 0,
            in_flight: 0,
            probing: false,
            probes: 0,
            probe_bytes: 0,
            probe_errors: 0,
            stuck: false,
            left_behind: 0,
            rescued: 0,
            untold: Untold::default(),
            busy: Busy::default(),
            whole: None,
            others: None,
            choices: None,
            listed: false,
            held,
        };
        place(&mut self.paths, self.free_paths.pop(), new)
    }

    /// Where choices of a path are counted.
    #[inline]
    pub(super) fn choices(&mut self, index: u32) -> &mut Choices {
        &mut self.paths[index as usize].choices.get_or_insert_default().choices
    }

    /// Notes a choice, and what there was to choose from.
    #[cold]
    pub(super) fn note(&mut self, head: &HeadState, about: About, choice: Choice) {
        self.ring.note(about, head.view.parameters.policy, choice);
        for (path, found) in head.paths.iter().zip(self.ring.found()) {
            let choices = &mut self.paths[path.stats as usize].choices;
            choices.get_or_insert_default().seen.note(found.inputs.commands, found.bytes);
        }
    }

    /// What this worker knows about the choices of one head.
    fn explain(&self, id: HeadId) -> ShardExplain {
        let paths = self.paths.iter().filter(|path| path.head == id);
        let paths = paths.filter_map(|path| Some((path.controller, path.choices.clone()?)));
        ShardExplain { paths: paths.collect(), samples: self.ring.of(id), noted: self.ring.noted }
    }

    /// The entry of a head that is new.
    pub(super) fn head(&mut self, head: HeadId) -> u32 {
        let new = HeadEntry {
            head,
            errors: 0,
            requeued_no_usable_path: 0,
            failed_no_available_path: 0,
            busy: Busy::default(),
            own: None,
        };
        place(&mut self.heads, self.free_heads.pop(), new)
    }

    /// Sets the entries of paths and heads free that are no more. A path's commands in flight keep
    /// its entry until the next picture.
    pub(super) fn forget(&mut self, heads: &ById<HeadState>) {
        let head_of = |id: HeadId| heads.get(id.0);
        for path in heads.values().flat_map(|head| &head.paths) {
            self.paths[path.stats as usize].listed = true;
        }
        for path in &mut self.paths {
            if core::mem::take(&mut path.listed) || path.is_in_use() {
                continue;
            }
            if let (Some(whole), Some(head)) = (path.whole.take(), head_of(path.head)) {
                let own = &mut self.heads[head.stats as usize].own;
                own.get_or_insert_default().merge(&whole);
            }
            path.head = NOBODY;
        }
        for entry in self.heads.iter_mut().filter(|entry| head_of(entry.head).is_none()) {
            entry.head = NOBODY;
        }
        let free = |path: &PathEntry| path.head == NOBODY && !path.is_in_use();
        list_free(&mut self.free_paths, &self.paths, free);
        list_free(&mut self.free_heads, &self.heads, |head| head.head == NOBODY);
    }
}

/// Whose entry it is when it is nobody's.
const NOBODY: HeadId = HeadId(u32::MAX);

fn place<T>(entries: &mut Vec<T>, free: Option<u32>, new: T) -> u32 {
    let index = free.unwrap_or(entries.len() as u32);
    match entries.get_mut(index as usize) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
    index
}

fn list_free<T>(list: &mut Vec<u32>, entries: &[T], free: impl Fn(&T) -> bool) {
    list.clear();
    list.extend((0..).zip(entries).filter(|(_, entry)| free(entry)).map(|(index, _)| index));
    list.reverse();
}

impl Shard {
    /// The figures of some heads since the start, with what only this moment knows filled in.
    pub(super) fn stats_report(
        &self,
        of: &RangeInclusive<HeadId>,
        detail: Detail,
        now: Time,
    ) -> ShardStats {
        if let Detail::InFlight(controller) = detail {
            let paths = self.stats.in_flight(controller);
            return ShardStats { paths, ..ShardStats::default() };
        }
        let StatsTable { paths, heads, .. } = &self.stats;
        let is_asked_for = |head: HeadId| head != NOBODY && of.contains(&head);
        let asked_for = paths.iter().filter(|path| is_asked_for(path.head)).count();
        let heads_asked_for = heads.iter().filter(|head| is_asked_for(head.head)).count();
        // By head, in one pass: there may be thousands of each.
        let mut whole: Vec<Option<Box<Tally>>> = heads.iter().map(|_| None).collect();
        for path in paths.iter().filter(|path| is_asked_for(path.head)) {
            if let (Some(head), Some(tally)) = (self.head(path.head), &path.whole) {
                whole[head.stats as usize].get_or_insert_default().merge(tally);
            }
        }
        let path = |path: &PathEntry| {
            let mut stats = path.report();
            self.add_to_path(&mut stats, path, detail, now);
            stats
        };
        let head = |(head, whole): (&HeadEntry, &Option<Box<Tally>>)| {
            let mut stats = head.report(whole.as_deref());
            if let Some(head) = self.head(head.head) {
                stats.in_flight = head.requests;
                stats.affinity_misses = head.selector.affinity_misses();
            }
            stats
        };
        let paths = paths.iter().filter(|path| is_asked_for(path.head)).map(path);
        let heads = heads.iter().zip(&whole).filter(|(head, _)| is_asked_for(head.head)).map(head);
        ShardStats {
            paths: exactly(asked_for, paths),
            heads: exactly(heads_asked_for, heads),
            explain: match detail {
                Detail::Explain(head) => Some(Box::new(self.stats.explain(head))),
                Detail::None | Detail::Measured | Detail::InFlight(_) => None,
            },
        }
    }

    /// What the head knows about a path that is still its own.
    fn add_to_path(&self, stats: &mut PathStats, entry: &PathEntry, detail: Detail, now: Time) {
        let Some(head) = self.head(entry.head) else { return };
        let mut paths = head.paths.iter().enumerate();
        let own = paths.find(|(_, path)| path.view.id == entry.id);
        let Some((index, path)) = own else { return };
        let parameters = &head.view.parameters;
        stats.numa_cached =
            parameters.policy == Policy::Numa && head.selector.numa_path() == Some(index);
        if detail == Detail::Measured {
            stats.latency = Some(Box::new(latency_report(parameters, path.load())));
        }
        if detail == Detail::Measured || detail == Detail::Explain(entry.head) {
            stats.finish_time = Some(Box::new(finish_time_report(path.load(), now.ns())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::fixture;
    use crate::topology::{HeadView, Topology};
    use alloc::vec;
    use anabranch_proto::testing::MemoryBuffers;

    fn held() -> Held {
        Held {
            controller: Arc::new(ControllerLoad::new(1)),
            path: Arc::new(PathLoad::new(1)),
            lane: Arc::default(),
        }
    }

    #[test]
    fn what_is_in_flight_on_a_controller_is_told_of_its_paths_alone() {
        let mut stats = StatsTable::default();
        for (number, (controller, in_flight)) in (0..).zip([(1, 2), (2, 4), (1, 0), (1, 8)]) {
            let path = (ControllerId(controller), PathId(number));
            let at = stats.path(HeadId(0), path, held());
            stats.paths[at as usize].in_flight = in_flight;
        }
        let told = stats.in_flight(ControllerId(1));
        assert_eq!(told.iter().map(|path| path.in_flight).collect::<Vec<_>>(), [2, 8]);
    }

    #[test]
    fn figures_are_told_of_those_heads_that_were_asked_for() {
        let mut shard = fixture::shard();
        let head = |id: u32| HeadView { id: HeadId(id), ..fixture::head(vec![fixture::path(0)]) };
        let controllers = fixture::picture(1, head(1)).controllers.clone();
        let heads = [1, 2, 3, 7].map(|id| Arc::new(head(id))).into();
        let picture = Arc::new(Topology { epoch: 1, controllers, heads });
        shard.topology(picture, Time::ZERO, &mut MemoryBuffers::new());
        let told = |of: RangeInclusive<u32>| {
            let of = HeadId(*of.start())..=HeadId(*of.end());
            let stats = shard.stats_report(&of, Detail::None, Time::ZERO);
            let paths = stats.paths.iter().map(|path| path.head.0).collect::<Vec<_>>();
            assert_eq!(paths, stats.heads.iter().map(|head| head.head.0).collect::<Vec<_>>());
            paths
        };
        assert_eq!(told(2..=2), [2]);
        assert_eq!(told(2..=6), [2, 3]);
        assert_eq!(told(3..=u32::MAX), [3, 7], "entries that are nobody's are not told of");
        assert_eq!(told(4..=5), []);
    }

    #[test]
    fn entries_of_paths_and_heads_that_are_gone_are_used_again() {
        // A user's command, a probe, what a rescued read has left behind.
        type Set = fn(&mut PathEntry, bool);
        let kinds: [Set; 3] = [
            |path, in_flight| path.in_flight = in_flight.into(),
            |path, in_flight| path.probing = in_flight,
            |path, in_flight| path.left_behind = in_flight.into(),
        ];
        for set in kinds {
            let mut stats = StatsTable::default();
            let path = |number: u32| (ControllerId(number), PathId(number.into()));
            let head = stats.head(HeadId(0));
            let first = stats.path(HeadId(0), path(0), held());
            set(&mut stats.paths[first as usize], true);
            stats.forget(&ById::new());
            let second = stats.path(HeadId(0), path(1), held());
            assert_ne!(first, second, "a command in flight still counts on the first");
            set(&mut stats.paths[first as usize], false);
            for round in 2..100 {
                stats.forget(&ById::new());
                stats.path(HeadId(round), path(round), held());
                assert_eq!(stats.head(HeadId(round)), head);
            }
            assert_eq!((stats.paths.len(), stats.heads.len()), (2, 1));
        }
    }
}
