//! `finish-time` where more is open than a path has tags for.

use crate::support::{Path, paths};
use anabranch_policy::{
    Charge, OpClass, Parameters, Policy, Reason, Selector, finish, sample, start,
};
use std::collections::VecDeque;

const BYTES: u32 = 4096;
const MS: u64 = 1_000_000;
/// Ways that hold whatever there are tags for.
const WAYS_NS: [u64; 2] = [MS, 3 * MS];

/// A worker with so many reads open at any time on two paths.
struct Worker {
    table: Vec<Path>,
    parameters: Parameters,
    selector: Selector,
    tags: u16,
    /// With a tag: when it ends.
    flying: Vec<(u64, usize, Charge)>,
    waiting: [VecDeque<Charge>; 2],
    /// Reads that were to wait for a tag although the other path had one free.
    waited: u32,
    /// … and those that were to wait on the path farther away.
    spilled_to_wait: u32,
    spilled: u32,
}

impl Worker {
    fn new(tags: u16, known: u16) -> Worker {
        let mut table = paths("oo");
        table.iter_mut().for_each(|path| path.tags = known);
        Worker {
            table,
            parameters: Parameters::of(Policy::FinishTime),
            selector: Selector::new(),
            tags,
            flying: Vec::new(),
            waiting: Default::default(),
            waited: 0,
            spilled_to_wait: 0,
            spilled: 0,
        }
    }

    fn free(&self, index: usize) -> usize {
        let taken = self.flying.iter().filter(|(_, path, _)| *path == index).count();
        usize::from(self.tags) - taken
    }

    fn submit(&mut self, now_ns: u64) {
        let (parameters, table) = (self.parameters, &self.table);
        let choice = self.selector.select(&parameters, table, OpClass::Read, BYTES, now_ns);
        let choice = choice.expect("both are usable");
        let index = choice.index;
        let charge = start(&parameters, table[index].load(), OpClass::Read, BYTES, now_ns);
        let spills = choice.reason == Reason::Spill;
        self.spilled += u32::from(spills);
        if self.free(index) == 0 {
            self.waited += u32::from(self.free(1 - index) != 0);
            self.spilled_to_wait += u32::from(spills);
            self.waiting[index].push_back(charge);
        } else {
            self.flying.push((now_ns + WAYS_NS[index], index, charge));
        }
    }

    /// The next read ends, and another one comes.
    fn turn(&mut self) {
        let next = (0..self.flying.len()).min_by_key(|&at| self.flying[at].0);
        let (now_ns, index, charge) = self.flying.remove(next.expect("some are open"));
        if let Some(waits) = self.waiting[index].pop_front() {
            self.flying.push((now_ns + WAYS_NS[index], index, waits));
        }
        finish(charge, self.table[index].load());
        sample(&self.parameters, charge, self.table[index].load(), 2, now_ns);
        self.submit(now_ns);
    }
}

/// What has become of 2000 reads with so many open, behind 4000 others.
fn seen(open: u64, known: u16) -> Worker {
    let mut worker = Worker::new(16, known);
    (0..open).for_each(|at| worker.submit(1000 * MS + at));
    (0..4000).for_each(|_| worker.turn());
    (worker.waited, worker.spilled_to_wait, worker.spilled) = (0, 0, 0);
    (0..2000).for_each(|_| worker.turn());
    worker
}

#[test]
fn no_read_waits_for_a_tag_that_would_find_one_on_a_path_farther_away() {
    let worker = seen(24, 16);
    assert_eq!(worker.waited, 0);
    assert!(worker.spilled > 0);
    assert!(seen(24, 0).waited > 0, "nobody can know when it is not said how many there are");
}

#[test]
fn nothing_spills_to_a_path_without_a_free_tag() {
    let worker = seen(48, 16);
    assert_eq!((worker.waited, worker.spilled_to_wait), (0, 0));
    assert!(worker.spilled > 0, "what ends on the path farther away makes room there");
    assert!(seen(48, 0).waited > 0);
}
