//! Why commands went where they went: exact counters, and decisions noted in full now and then.

use crate::topology::{ControllerId, HeadId, PathId};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use anabranch_policy::{FinishTimeReport, Inputs, OpClass, Policy, Reason, SizeClass};
use anabranch_proto::machine::{Time, WorkerId};

/// One in how many choices is noted in full unless the attribute `explain_sample` says otherwise.
pub const DEFAULT_SAMPLE: u32 = 64;

/// Candidates of one decision that are kept.
pub const CANDIDATES_MAX: usize = 8;

/// Decisions in one report at most, the newest.
pub const DECISIONS_MAX: usize = 4096;

/// How often each reason sent commands of each size to one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices([[u64; Reason::ALL.len()]; SizeClass::COUNT]);

impl Default for Choices {
    fn default() -> Self {
        Choices([[0; Reason::ALL.len()]; SizeClass::COUNT])
    }
}

impl Choices {
    #[inline]
    pub(crate) fn count(&mut self, size: SizeClass, reason: Reason) {
        self.0[size.index()][reason.index()] += 1;
    }

    /// Choices of this path, for this reason, by commands of this size.
    #[must_use]
    pub fn of(&self, size: SizeClass, reason: Reason) -> u64 {
        self.0[size.index()][reason.index()]
    }

    /// All choices of this path.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().flatten().sum()
    }

    fn add(&mut self, other: &Choices) {
        let sums = self.0.iter_mut().flatten();
        sums.zip(other.0.iter().flatten()).for_each(|(sum, more)| *sum += more);
    }
}

/// The load that noted decisions found on a path, added up: divided by the number of those that
/// counted it, its mean over selections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Decisions that were noted while the path was in the list.
    pub decisions: u64,
    /// Commands in flight, as the policy in force counted them.
    pub commands: u64,
    /// Bytes in flight, without those of the command to be placed: payload under `service-time`;
    /// under `finish-time` 4 KiB more for each command, probes included.
    pub bytes: u64,
    /// Of the decisions, those under policies that count commands.
    pub counted_commands: u64,
    /// Of the decisions, those under policies that count bytes.
    pub counted_bytes: u64,
}

impl Seen {
    /// One decision: what was in flight, as far as its policy counts it.
    pub(crate) fn note(&mut self, commands: Option<u32>, bytes: Option<u64>) {
        self.decisions += 1;
        self.commands += u64::from(commands.unwrap_or(0));
        self.bytes += bytes.unwrap_or(0);
        self.counted_commands += u64::from(commands.is_some());
        self.counted_bytes += u64::from(bytes.is_some());
    }

    fn add(&mut self, other: &Seen) {
        self.decisions += other.decisions;
        self.commands += other.commands;
        self.bytes += other.bytes;
        self.counted_commands += other.counted_commands;
        self.counted_bytes += other.counted_bytes;
    }
}

/// What one worker knows about the choices of one path.
#[derive(Clone, Debug, Default)]
pub struct PathChoices {
    /// Every choice.
    pub choices: Choices,
    /// What noted decisions found.
    pub seen: Seen,
}

impl PathChoices {
    pub(crate) fn add(&mut self, other: &PathChoices) {
        self.choices.add(&other.choices);
        self.seen.add(&other.seen);
    }
}

/// One decision as a worker noted it.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Of which head.
    pub head: HeadId,
    /// What kind of command.
    pub op: OpClass,
    /// Its payload.
    pub bytes: u32,
    /// The policy in force.
    pub policy: Policy,
    /// What decided.
    pub reason: Reason,
    /// The path that was chosen, by its controller.
    pub chosen: ControllerId,
    /// How many paths the head had.
    pub paths: u16,
    pub(crate) candidates: [Option<(ControllerId, Inputs)>; CANDIDATES_MAX],
}

impl Sample {
    /// The first [`CANDIDATES_MAX`] paths in list order, with what the policy saw of each just
    /// before it chose. When the chosen one stands further behind, it takes the last place.
    pub fn candidates(&self) -> impl Iterator<Item = (ControllerId, Inputs)> {
        self.candidates.iter().copied().flatten()
    }
}

/// What one worker tells about one head.
#[derive(Clone, Debug, Default)]
pub struct ShardExplain {
    /// The paths of the head.
    pub paths: Vec<(ControllerId, Box<PathChoices>)>,
    /// Noted decisions that it still has, oldest first.
    pub samples: Vec<Sample>,
    /// Decisions of all heads that it has noted since its start.
    pub noted: u64,
}

/// Answer to `Explain`: why the commands of one device went where they went.
#[derive(Clone, Debug)]
pub struct ExplainReport {
    /// `nvmeXnY`.
    pub device: String,
    /// When it was made, by the host's clock.
    pub at: Time,
    /// The policy in force.
    pub policy: Policy,
    /// Whether it behaves kernel-exact.
    pub kernel_exact: bool,
    /// One in so many choices of each worker is noted; 0 = none.
    pub explain_sample: u32,
    /// The device's paths in order.
    pub paths: Vec<PathExplain>,
    /// The newest decisions that were noted, oldest first; at most [`DECISIONS_MAX`].
    pub decisions: Vec<Decision>,
    /// Decisions of all devices that were ever noted: more than are kept.
    pub noted: u64,
}

/// One path.
#[derive(Clone, Debug)]
pub struct PathExplain {
    /// Another one when it comes back under the same name, and its counts begin anew.
    pub id: PathId,
    /// `nvmeXcYnZ`.
    pub name: Arc<str>,
    /// It may be chosen now.
    pub usable: bool,
    /// Since it joined, all workers.
    pub choices: Choices,
    /// What noted decisions found, all workers.
    pub seen: Seen,
    /// What `finish-time` knows of it, while that is in force.
    pub finish_time: Option<FinishTimeReport>,
}

/// One decision that was noted.
#[derive(Clone, Debug)]
pub struct Decision {
    /// When, by the host's clock.
    pub at: Time,
    /// On which worker.
    pub worker: WorkerId,
    /// What kind of command.
    pub op: OpClass,
    /// Its payload.
    pub bytes: u32,
    /// The policy in force.
    pub policy: Policy,
    /// What decided.
    pub reason: Reason,
    /// The path that was chosen: `nvmeXcYnZ`, or `#N` (the number that its controller had inside)
    /// when that controller is gone.
    pub path: Arc<str>,
    /// How many paths the device had.
    pub paths: u16,
    /// What the policy saw, at most [`CANDIDATES_MAX`] of the paths.
    pub candidates: Vec<Contender>,
}

/// A path as a decision found it.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its name, as [`Decision::path`].
    pub path: Arc<str>,
    /// What the policy saw of it just before it chose.
    pub inputs: Inputs,
}
