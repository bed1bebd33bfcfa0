//! What can be read of the statistics: the numbers behind `latency_stat`.

use super::compute::smoothed_ns;
use super::group::GROUPS;
use super::select::weight;
use super::{Group, SizeBucket};
use crate::{Load, OpClass, Parameters};
use core::fmt;

/// The statistics of one group on one worker and path.
///
/// Its text is the group's part of a line in the head's `latency_stat`: weight, credit, score,
/// smoothed latency, selected, samples, ignored, with single spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyStat {
    /// 0 before the first computation; else 1 to 128 (64 when kernel-exact).
    pub weight: u32,
    /// Commands left of the present burst.
    pub credit: u32,
    /// 10^9 over the smoothed latency, as of the last computation.
    pub score: u32,
    /// In nanoseconds; 0 before the first sample.
    pub smoothed_ns: u32,
    /// Times that the path was chosen.
    pub selected: u64,
    /// Latencies that were averaged.
    pub samples: u64,
    /// Latencies over a second, which were not.
    pub ignored: u64,
}

impl fmt::Display for LatencyStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatencyStat { weight, credit, score, smoothed_ns, selected, samples, ignored } = self;
        write!(f, "{weight} {credit} {score} {smoothed_ns} {selected} {samples} {ignored}")
    }
}

/// The statistics of one worker and path: a plain value that can be sent anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyReport([LatencyStat; GROUPS]);

impl LatencyReport {
    /// Those of one group; everything is in [`SizeBucket::FIRST`] unless sizes are told apart.
    #[must_use]
    pub const fn stat(&self, op: OpClass, bucket: SizeBucket) -> LatencyStat {
        self.0[Group { op, bucket }.slot()]
    }
}

/// All statistics of a path on this worker; nothing where nothing is kept. Weight, score and
/// smoothed latency are the node's when averaging per node.
#[must_use]
pub fn latency_report(parameters: &Parameters, load: Load<'_>) -> LatencyReport {
    let per_node = parameters.latency.per_node;
    let mut report = LatencyReport::default();
    let Some(local) = load.local else { return report };
    for (slot, stat) in report.0.iter_mut().enumerate() {
        let (turn, own) = (local.turn(slot), local.samples(slot));
        let of_node = load.node.filter(|_| per_node);
        *stat = LatencyStat {
            weight: weight(per_node, load, slot),
            credit: turn.credit.get(),
            score: of_node.map_or_else(|| own.score.get(), |node| node.score(slot)),
            smoothed_ns: smoothed_ns(per_node, load, slot),
            selected: turn.selected.get(),
            samples: own.taken.get(),
            ignored: own.ignored.get(),
        };
    }
    report
}

/// The statistics of one group and path over all workers: collect it from theirs.
///
/// Its text is the group's part of the path's `latency_stat`: weight, selected, samples, ignored,
/// with single spaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    weights: u64,
    weighted: u64,
    /// Times that the path was chosen.
    pub selected: u64,
    /// Latencies that were averaged.
    pub samples: u64,
    /// Latencies over a second, which were not.
    pub ignored: u64,
}

impl LatencySummary {
    /// The mean weight of the workers that have one, rounded to the nearest; 0 when none has.
    #[must_use]
    pub const fn weight(&self) -> u32 {
        match self.weighted {
            0 => 0,
            workers => ((self.weights + workers / 2) / workers) as u32,
        }
    }

    /// Adds a worker's.
    pub fn add(&mut self, stat: LatencyStat) {
        self.weights += u64::from(stat.weight);
        self.weighted += u64::from(stat.weight > 0);
        self.selected += stat.selected;
        self.samples += stat.samples;
        self.ignored += stat.ignored;
    }
}

impl FromIterator<LatencyStat> for LatencySummary {
    fn from_iter<I: IntoIterator<Item = LatencyStat>>(stats: I) -> LatencySummary {
        let mut summary = LatencySummary::default();
        stats.into_iter().for_each(|stat| summary.add(stat));
        summary
    }
}

impl fmt::Display for LatencySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LatencySummary { selected, samples, ignored, .. } = self;
        write!(f, "{} {selected} {samples} {ignored}", self.weight())
    }
}
