//! One worker's commands under one policy: select, start, finish, and what it learns from them.

use crate::explain::Explain;
use crate::row::{Common, Row};
use anabranch_policy::{
    Charge, Group, OpClass, Parameters, Sampled, Selector, compute_weights, finish, sample, start,
};
use std::hint::black_box;
use std::ops::Range;

/// Payload of each command.
pub(crate) const BYTES: u32 = 4096;

/// How long commands take in the bench's own time, which is all that measuring policies see: as
/// long on the first path, two and three times as long on the next.
const FASTEST_NS: u64 = 20_000;

/// One worker and its table of paths, on cache lines of its own: cases of two threads may lie side
/// by side.
#[repr(align(128))]
pub(crate) struct Case {
    parameters: Parameters,
    selector: Selector,
    rows: Vec<Row>,
    now_ns: u64,
    explain: Explain,
    charges: Vec<(Charge, usize)>,
}

/// What `workers` workers share: `paths` controllers of `queues` queue pairs, none of them idle, so
/// that no scan ends early.
pub(crate) fn busy(
    parameters: &Parameters,
    paths: usize,
    queues: usize,
    workers: usize,
) -> Vec<Common> {
    let commons: Vec<Common> = (0..paths).map(|_| Common::new(queues, workers)).collect();
    for common in &commons {
        for worker in 0..queues.max(workers) as u16 {
            // Never finished.
            let row = Row::new(common, worker);
            let _ = start(parameters, row.load(), OpClass::Read, BYTES, 0);
        }
    }
    commons
}

impl Case {
    /// The paths as worker number `worker` has them, warmed up.
    pub(crate) fn new(parameters: Parameters, commons: &[Common], worker: u16) -> Case {
        let mut case = Case {
            parameters,
            selector: Selector::new(),
            rows: commons.iter().map(|common| Row::new(common, worker)).collect(),
            now_ns: 1,
            explain: Explain::new(commons.len()),
            charges: Vec::with_capacity(PHASE),
        };
        for _ in 0..4 * commons.len() {
            case.command();
        }
        case
    }

    #[inline(always)]
    fn select(&mut self) -> usize {
        let rows = black_box(self.rows.as_slice());
        let choice =
            self.selector.select(&self.parameters, rows, OpClass::Read, BYTES, self.now_ns);
        choice.expect("every path is usable").index
    }

    #[inline(always)]
    fn start(&self, index: usize) -> Charge {
        let load = self.rows[index].load();
        start(&self.parameters, load, OpClass::Read, BYTES, self.now_ns)
    }

    #[inline(always)]
    fn finish(&mut self, charge: Charge, index: usize) {
        self.now_ns += FASTEST_NS * (1 + index as u64 % 3);
        self.end(charge, index);
    }

    #[inline(always)]
    fn end(&mut self, charge: Charge, index: usize) {
        let load = self.rows[index].load();
        finish(charge, load);
        let paths = self.rows.len();
        if let Sampled::BatchClosed(group) =
            sample(&self.parameters, charge, load, paths, self.now_ns)
        {
            self.compute_weights(group);
        }
    }

    /// A host does this from a time-out. Once in 15 s of the bench's time it does not show.
    #[cold]
    fn compute_weights(&self, group: Group) {
        compute_weights(&self.parameters, &self.rows, group);
    }

    #[inline(always)]
    fn command(&mut self) {
        let index = self.select();
        let charge = black_box(self.start(index));
        self.finish(charge, index);
    }

    /// `count` selections, nothing is charged.
    #[inline(never)]
    pub(crate) fn selections(&mut self, count: u32) {
        for _ in 0..count {
            black_box(self.select());
        }
    }

    /// `count` commands, each ended before the next.
    #[inline(never)]
    pub(crate) fn commands(&mut self, count: u32) {
        for _ in 0..count {
            self.command();
        }
    }

    /// The same, counted and sampled as `explain` does it.
    #[inline(never)]
    pub(crate) fn explained(&mut self, count: u32) {
        for _ in 0..count {
            let rows = black_box(self.rows.as_slice());
            let (parameters, now_ns) = (&self.parameters, self.now_ns);
            self.explain.before(parameters, rows, OpClass::Read, BYTES, now_ns);
            let choice = self.selector.select(parameters, rows, OpClass::Read, BYTES, now_ns);
            let choice = choice.expect("every path is usable");
            self.explain.after(choice, OpClass::Read, BYTES, now_ns);
            let charge = black_box(self.start(choice.index));
            self.finish(charge, choice.index);
        }
    }

    /// So many commands in flight, if there are none.
    #[cold]
    pub(crate) fn fill(&mut self, count: usize, now_ns: u64) {
        self.now_ns = now_ns;
        for _ in self.charges.len()..count {
            let index = self.select();
            self.charges.push((self.start(index), index));
        }
    }

    /// Ends the commands at these places, then starts as many anew.
    #[inline(always)]
    pub(crate) fn turn(&mut self, places: Range<usize>, now_ns: u64) {
        self.now_ns = now_ns;
        for at in places.clone() {
            let (charge, index) = self.charges[at];
            self.end(charge, index);
        }
        for at in places {
            let index = self.select();
            self.charges[at] = (black_box(self.start(index)), index);
        }
    }

    /// Selects for a whole phase, for [`Case::starts`].
    pub(crate) fn choose_phase(&mut self) {
        self.charges.clear();
        for _ in 0..PHASE {
            let index = self.select();
            self.charges.push((Charge::NONE, index));
        }
    }

    /// Starts the commands of a phase.
    #[inline(never)]
    pub(crate) fn starts(&mut self) {
        for at in 0..self.charges.len() {
            let index = self.charges[at].1;
            self.charges[at].0 = self.start(index);
        }
    }

    /// Ends them.
    #[inline(never)]
    pub(crate) fn finishes(&mut self) {
        for at in 0..self.charges.len() {
            let (charge, index) = self.charges[at];
            self.finish(charge, index);
        }
    }
}

/// Commands of a phase, in flight together.
pub(crate) const PHASE: usize = 256;
