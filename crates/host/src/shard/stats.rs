//! This shard's figures, one entry per path and head. Entries of those that are gone are used
//! again, so that connecting and disconnecting for ever takes no more memory.

use super::Shard;
use super::explain::{About, Ring};
use super::head::HeadState;
use crate::block_stat::BlockStat;
use crate::explain::{Choices, PathChoices, ShardExplain};
use crate::load::{ControllerLoad, PathLoad};
use crate::mail::{Detail, HeadStats, PathStats, ShardStats};
use crate::topology::{ControllerId, HeadId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{Choice, Ledgers, Policy, latency_report};

#[derive(Default)]
pub(super) struct StatsTable {
    pub(super) paths: Vec<PathStats>,
    pub(super) heads: Vec<HeadStats>,
    /// For each of `paths`, what its commands in flight are charged to.
    held: Vec<Held>,
    /// For each of `paths`, why it was chosen; nothing is kept before the first time.
    choices: Vec<Option<Box<PathChoices>>>,
    /// Decisions that were noted.
    pub(super) ring: Ring,
}

/// The counters of a path, kept while commands are in flight on it: the path may leave before them.
pub(super) struct Held {
    pub(super) controller: Arc<ControllerLoad>,
    pub(super) path: Arc<PathLoad>,
}

impl StatsTable {
    /// The entry of a path, made when it is new.
    pub(super) fn path(&mut self, head: HeadId, controller: ControllerId, held: Held) -> u32 {
        let new = PathStats {
            head,
            controller,
            commands: [0; 3],
            bytes: [0; 2],
            errors: 0,
            retries: 0,
            failovers: 0,
            uncertain_writes_resent: 0,
            in_flight: 0,
            numa_cached: false,
            latency: None,
            stat: BlockStat::default(),
            latency_ns: None,
        };
        let free = self.paths.iter().position(|p| p.head == NOBODY && p.in_flight == 0);
        let index = place(&mut self.paths, free, new);
        place(&mut self.held, free, held);
        place(&mut self.choices, free, None);
        index
    }

    /// Where choices of a path are counted.
    #[inline]
    pub(super) fn choices(&mut self, index: u32) -> &mut Choices {
        &mut self.choices[index as usize].get_or_insert_default().choices
    }

    /// Notes a choice, and what there was to choose from.
    #[cold]
    pub(super) fn note(&mut self, head: &HeadState, about: About, choice: Choice) {
        self.ring.note(about, head.view.parameters.policy, choice);
        for (path, found) in head.paths.iter().zip(self.ring.found()) {
            let seen = &mut self.choices[path.stats as usize].get_or_insert_default().seen;
            seen.decisions += 1;
            seen.commands += u64::from(found.inputs.commands.unwrap_or(0));
            seen.bytes += found.bytes;
        }
    }

    /// What this worker knows about the choices of one head.
    fn explain(&self, id: HeadId) -> ShardExplain {
        let paths = self.paths.iter().zip(&self.choices).filter(|(path, _)| path.head == id);
        let paths = paths.filter_map(|(path, known)| Some((path.controller, known.clone()?)));
        ShardExplain { paths: paths.collect(), samples: self.ring.of(id), noted: self.ring.noted }
    }

    /// Where the charges of a path's commands go back to.
    pub(super) fn ledgers(&self, index: u32, worker: u16) -> Ledgers<'_> {
        let Held { controller, path } = &self.held[index as usize];
        Ledgers {
            controller: &controller.ledger,
            workers: &controller.workers,
            worker,
            shared: &path.shared,
        }
    }

    /// The entry of a head, made when it is new.
    pub(super) fn head(&mut self, head: HeadId) -> u32 {
        let known = self.heads.iter().position(|h| h.head == head);
        if let Some(index) = known {
            return index as u32;
        }
        let new = HeadStats {
            head,
            requests: [0; 3],
            bytes: [0; 2],
            errors: 0,
            in_flight: 0,
            requeued_no_usable_path: 0,
            failed_no_available_path: 0,
            affinity_misses: 0,
            stat: BlockStat::default(),
            latency_ns: None,
        };
        let free = self.heads.iter().position(|h| h.head == NOBODY);
        place(&mut self.heads, free, new)
    }

    /// Sets the entries of paths and heads free that are no more. A path's commands in flight keep
    /// its entry until the next picture.
    pub(super) fn forget(&mut self, heads: &[Option<Box<HeadState>>]) {
        let head_of = |id: HeadId| heads.get(id.0 as usize).and_then(Option::as_deref);
        for (path, held) in self.paths.iter_mut().zip(&self.held) {
            let known = path.in_flight > 0
                || head_of(path.head).is_some_and(|head| {
                    head.paths.iter().any(|known| Arc::ptr_eq(&known.load, &held.path))
                });
            if !known {
                path.head = NOBODY;
            }
        }
        for entry in self.heads.iter_mut().filter(|entry| head_of(entry.head).is_none()) {
            entry.head = NOBODY;
        }
    }
}

/// Whose entry it is when it is nobody's.
const NOBODY: HeadId = HeadId(u32::MAX);

fn place<T>(entries: &mut Vec<T>, free: Option<usize>, new: T) -> u32 {
    let index = free.unwrap_or(entries.len());
    match entries.get_mut(index) {
        Some(entry) => *entry = new,
        None => entries.push(new),
    }
    index as u32
}

impl Shard {
    /// The figures since the start, with what only this moment knows filled in.
    pub(super) fn stats_report(&mut self, detail: Detail) -> ShardStats {
        for index in 0..self.heads.len() {
            let Some(head) = self.heads[index].as_ref() else { continue };
            let cached =
                head.selector.numa_path().filter(|_| head.view.parameters.policy == Policy::Numa);
            let parameters = &head.view.parameters;
            for (at, path) in head.paths.iter().enumerate() {
                let stats = &mut self.stats.paths[path.stats as usize];
                stats.numa_cached = cached == Some(at);
                let latency = || Box::new(latency_report(parameters, path.load()));
                stats.latency = (detail == Detail::Latency).then(latency);
            }
            let stats = &mut self.stats.heads[head.stats as usize];
            stats.in_flight = head.active + head.held.len();
            stats.affinity_misses = head.selector.affinity_misses();
        }
        let paths = self.stats.paths.iter().filter(|path| path.head != NOBODY);
        let heads = self.stats.heads.iter().filter(|head| head.head != NOBODY);
        let explain = match detail {
            Detail::None | Detail::Latency => None,
            Detail::Explain(head) => Some(Box::new(self.stats.explain(head))),
        };
        ShardStats { paths: paths.cloned().collect(), heads: heads.cloned().collect(), explain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_paths_and_heads_that_are_gone_are_used_again() {
        let mut stats = StatsTable::default();
        let held = || Held {
            controller: Arc::new(ControllerLoad::new(1)),
            path: Arc::new(PathLoad::new(1)),
        };
        let (head, first) = (stats.head(HeadId(0)), stats.path(HeadId(0), ControllerId(0), held()));
        stats.paths[first as usize].in_flight = 1;
        stats.forget(&[]);
        let second = stats.path(HeadId(0), ControllerId(1), held());
        assert_ne!(first, second, "a command in flight still counts on the first");
        stats.paths[first as usize].in_flight = 0;
        for round in 2..100 {
            stats.forget(&[]);
            stats.path(HeadId(round), ControllerId(round), held());
            assert_eq!(stats.head(HeadId(round)), head);
        }
        assert_eq!((stats.paths.len(), stats.heads.len()), (2, 1));
    }
}
