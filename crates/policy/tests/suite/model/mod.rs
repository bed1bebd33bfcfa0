//! Paths as a host sees them, simulated: each is a line to a server that does one command after the
//! other. Clients keep commands in flight through the real selection; what the clock of the policy
//! says, and when it is told of completions, can be as bad as one likes.

mod host;
mod line;

use crate::support::Random;
use anabranch_policy::{AnaRank, OpClass, Parameters};
pub(crate) use host::run;
pub(crate) use line::{Answers, Line};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const HOUR: u64 = 3_600 * SECOND;

/// What a client does next, from chance and the time.
pub(crate) type Mix = fn(&mut Random, u64) -> (OpClass, u32);

/// Something that happens at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// The clock that the policy sees goes forwards, or backwards.
    Clock(i64),
    /// A path can be used or not; what is on it then fails and is sent again.
    Usable(usize, bool),
    /// The path is there again through a new association.
    Rejoined(usize),
    Rank(usize, AnaRank),
    /// A path becomes another one.
    Line(usize, Line),
    /// Everybody selects by these from now on.
    Parameters(Parameters),
}

/// An experiment.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) lines: Vec<Line>,
    /// One letter per path, as [`crate::support::paths`] has them.
    pub(crate) letters: String,
    /// Namespaces, each with a path of its own over every line.
    pub(crate) heads: usize,
    pub(crate) workers: usize,
    /// Each has one command in flight. They are dealt to heads and workers in turn.
    pub(crate) clients: usize,
    /// Clients go on at multiples of this, all together; 0: at once.
    pub(crate) think_ns: u64,
    pub(crate) mix: Mix,
    pub(crate) changes: Vec<(u64, Change)>,
    /// What the policy's clock says at the beginning.
    pub(crate) begin_ns: u64,
    /// Counts from here …
    pub(crate) ramp_ns: u64,
    /// … to here; then what is in flight is awaited.
    pub(crate) end_ns: u64,
}

impl Scene {
    /// Reads of 4 KiB by 64 clients, for a second and a ramp.
    pub(crate) fn new(lines: &[Line]) -> Scene {
        Scene {
            lines: lines.to_vec(),
            letters: "o".repeat(lines.len()),
            heads: 1,
            workers: 1,
            clients: 64,
            think_ns: 0,
            mix: |_, _| (OpClass::Read, 4096),
            changes: Vec::new(),
            begin_ns: SECOND,
            ramp_ns: if cfg!(miri) { MS } else { 300 * MS },
            end_ns: if cfg!(miri) { 3 * MS } else { 1_300 * MS },
        }
    }

    /// So many thousandths of the time between ramp and end.
    pub(crate) fn at(&self, per_mille: u64) -> u64 {
        self.ramp_ns + (self.end_ns - self.ramp_ns) / 1000 * per_mille
    }

    pub(crate) fn changed(mut self, changes: &[(u64, Change)]) -> Scene {
        let at = |(per_mille, change): &(u64, Change)| (self.at(*per_mille), *change);
        self.changes = changes.iter().map(at).collect();
        self
    }
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Commands of clients that ended well between ramp and end, and their bytes.
    pub(crate) commands: u64,
    pub(crate) bytes: u64,
    /// Their mean latency.
    pub(crate) mean_ns: u64,
    /// The same by path.
    pub(crate) by_path: Vec<u64>,
    /// Over the whole run: bytes that clients asked for, and that probes did.
    pub(crate) asked_bytes: u64,
    pub(crate) probes: u64,
    pub(crate) probe_bytes: u64,
    /// Commands that no path was usable for when they came.
    pub(crate) waited: u64,
}
