//! What one policy did in one scenario.

use crate::adapt::adaptations;
use crate::cell::Cell;
use crate::figures::{Figures, per_second};
use crate::scenario::Arrival;
use serde::{Deserialize, Serialize};

/// The figures of one cell that rows compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Payload per second; of an open loop at most what was asked for over the whole run, for what
    /// the ramp has left undone is no merit of the window.
    pub bytes_s: u64,
    /// Requests in the window.
    pub requests: u64,
    /// Mean latency.
    pub mean_ns: u64,
    /// Standard deviation of the latency.
    pub stdev_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency.
    pub p999_ns: u64,
    /// One per change that is followed by a whole window of the time series.
    pub changes: Vec<Adapted>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapted {
    /// From the beginning of the window.
    pub at_ms: u64,
    /// Until every later window of 50 ms holds 85 % of what is possible then; nothing: never.
    pub took_ms: Option<u64>,
    /// The least that such a window held before the next change, in thousandths of the possible.
    pub lowest_per_mille: u64,
}

impl Adapted {
    /// Whether it took at most so long, and held so much meanwhile.
    #[must_use]
    pub fn reaches(&self, (ms, lowest_per_mille): (u64, u64)) -> bool {
        self.took_ms.is_some_and(|took| took <= ms) && self.lowest_per_mille >= lowest_per_mille
    }
}

impl Outcome {
    /// Of one run.
    #[must_use]
    pub fn of(cell: Cell<'_>, figures: &Figures) -> Outcome {
        let ramp_ns = cell.scenario.run.ramp_ns;
        let changes = adaptations(cell, figures).into_iter().map(|change| Adapted {
            at_ms: change.at_ns.saturating_sub(ramp_ns) / 1_000_000,
            took_ms: change.took_ns.map(|ns| ns / 1_000_000),
            lowest_per_mille: change.lowest_per_mille,
        });
        let open = cell.scenario.jobs.iter().all(|job| job.arrival != Arrival::Closed);
        let asked = per_second(figures.books.bytes_started, cell.end_ns());
        let most = if open { asked } else { u64::MAX };
        let latency = &figures.latency;
        Outcome {
            bytes_s: figures.bytes_per_second().min(most),
            requests: figures.requests,
            mean_ns: latency.mean(),
            stdev_ns: latency.stdev(),
            p50_ns: latency.per_mille(500),
            p99_ns: latency.per_mille(990),
            p999_ns: latency.per_mille(999),
            changes: changes.collect(),
        }
    }

    /// The median of each figure by itself, of an even number the higher one; of none, all are 0.
    #[must_use]
    pub fn median(runs: &[Outcome]) -> Outcome {
        let of = |figure: fn(&Outcome) -> u64| middle(runs.iter().map(figure));
        let changes = runs.iter().map(|run| run.changes.len()).min().unwrap_or(0);
        let change = |place: usize| Adapted {
            at_ms: runs[0].changes[place].at_ms,
            took_ms: Some(middle(
                runs.iter().map(|run| run.changes[place].took_ms.unwrap_or(u64::MAX)),
            ))
            .filter(|ms| *ms != u64::MAX),
            lowest_per_mille: middle(runs.iter().map(|run| run.changes[place].lowest_per_mille)),
        };
        Outcome {
            bytes_s: of(|run| run.bytes_s),
            requests: of(|run| run.requests),
            mean_ns: of(|run| run.mean_ns),
            stdev_ns: of(|run| run.stdev_ns),
            p50_ns: of(|run| run.p50_ns),
            p99_ns: of(|run| run.p99_ns),
            p999_ns: of(|run| run.p999_ns),
            changes: (0..changes).map(change).collect(),
        }
    }
}

fn middle(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
