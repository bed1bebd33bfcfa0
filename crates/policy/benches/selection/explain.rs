//! What `explain` adds to a command: exact counters, and now and then a decision noted in full.
//!
//! As the host does it: a counter per path, size class and reason; every so many commands all paths
//! are looked at before one is chosen, and the first of them go into a ring.

use crate::row::Row;
use anabranch_policy::{
    AsCandidate, Choice, Inputs, OpClass, Parameters, Reason, SizeClass, inputs,
};

/// One choice in so many is noted.
const ONE_IN: u32 = 64;

/// Decisions that a worker keeps.
const KEPT: usize = 512;

/// Candidates of one decision that are kept.
const CANDIDATES: usize = 8;

/// Choices by size class and reason.
type Counters = [[u64; Reason::ALL.len()]; SizeClass::COUNT];

/// When, what, where to and why, and the inputs of the first candidates.
type Sample = (u64, OpClass, u32, Choice, [Option<Inputs>; CANDIDATES]);

/// One worker's counters and samples.
pub(crate) struct Explain {
    counters: Vec<Counters>,
    inputs: Vec<Inputs>,
    ring: Vec<Sample>,
    noted: usize,
    left: u32,
}

impl Explain {
    pub(crate) fn new(paths: usize) -> Explain {
        Explain {
            counters: vec![Counters::default(); paths],
            inputs: Vec::with_capacity(paths),
            ring: Vec::with_capacity(KEPT),
            noted: 0,
            left: 1,
        }
    }

    /// Before a choice.
    #[inline(always)]
    pub(crate) fn before(
        &mut self,
        parameters: &Parameters,
        rows: &[Row],
        op: OpClass,
        bytes: u32,
        now_ns: u64,
    ) {
        if self.left == 1 {
            self.look(parameters, rows, op, bytes, now_ns);
        }
    }

    /// After a choice.
    #[inline(always)]
    pub(crate) fn after(&mut self, choice: Choice, op: OpClass, bytes: u32, now_ns: u64) {
        if self.left == 1 {
            self.note(choice, op, bytes, now_ns);
            self.left = ONE_IN;
        } else {
            self.left -= 1;
        }
        self.counters[choice.index][SizeClass::of(bytes).index()][choice.reason.index()] += 1;
    }

    #[cold]
    fn look(
        &mut self,
        parameters: &Parameters,
        rows: &[Row],
        op: OpClass,
        bytes: u32,
        now_ns: u64,
    ) {
        self.inputs.clear();
        let inputs = rows.iter().map(|row| inputs(parameters, row.candidate(), op, bytes, now_ns));
        self.inputs.extend(inputs);
    }

    #[cold]
    fn note(&mut self, choice: Choice, op: OpClass, bytes: u32, now_ns: u64) {
        let mut candidates = [None; CANDIDATES];
        candidates.iter_mut().zip(&self.inputs).for_each(|(to, &from)| *to = Some(from));
        let sample = (now_ns, op, bytes, choice, candidates);
        if self.ring.len() < KEPT {
            self.ring.push(sample);
        } else {
            self.ring[self.noted % KEPT] = sample;
        }
        self.noted += 1;
    }
}
