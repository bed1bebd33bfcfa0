//! What throughput is of, and how much of it counts.

use super::LimitResult;
use super::summary::{Row, RunFigures};
use serde::{Deserialize, Serialize};

/// What rows are ranked and compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Payload per second.
    #[default]
    Payload,
    /// Requests per second: there is no payload, for trims move none.
    Requests,
}

impl Measure {
    /// Requests, where some ended in these rows and no run moved payload.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Measure {
        let mut runs = rows.into_iter().flat_map(|row| &row.runs);
        let mut ended = false;
        let moved = runs.any(|run| {
            ended |= run.iops > 0;
            run.bytes_s > 0
        });
        if ended && !moved { Measure::Requests } else { Measure::Payload }
    }

    /// Of a run.
    #[must_use]
    pub fn of_run(self, run: &RunFigures) -> u64 {
        match self {
            Measure::Payload => run.bytes_s,
            Measure::Requests => run.iops,
        }
    }

    /// Of a row.
    #[must_use]
    pub fn of_row(self, row: &Row) -> u64 {
        match self {
            Measure::Payload => row.bytes_s,
            Measure::Requests => row.iops,
        }
    }

    /// Of what is possible.
    #[must_use]
    pub fn of_limit(self, limit: &LimitResult) -> u64 {
        match self {
            Measure::Payload => limit.bytes_s,
            Measure::Requests => limit.iops,
        }
    }

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Payload => "throughput",
            Measure::Requests => "requests per second",
        }
    }

    /// What goes without saying.
    #[must_use]
    pub fn is_payload(&self) -> bool {
        *self == Measure::Payload
    }
}

/// The throughput that rows are ranked and compared by: where the load asks for no more than the
/// limit, what exceeds it was asked for before, and does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) measure: Measure,
    most: u64,
}

impl Counted {
    pub(crate) fn of(measure: Measure, limit: &LimitResult) -> Counted {
        let most = if limit.is_all_asked_for { measure.of_limit(limit) } else { u64::MAX };
        Counted { measure, most }
    }

    pub(crate) fn of_run(self, run: &RunFigures) -> u64 {
        self.measure.of_run(run).min(self.most)
    }

    pub(crate) fn of_row(self, row: &Row) -> u64 {
        self.measure.of_row(row).min(self.most)
    }
}
