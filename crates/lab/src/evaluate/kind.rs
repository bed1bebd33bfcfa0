//! What kinds of changes there are, and how soon a policy is to follow them.

use crate::cell::Cell;
use crate::limit::limits;
use crate::scenario::{Alteration, Arrival, PathState, Scenario};
use serde::Serialize;
use std::cmp::Ordering;
use std::fmt;

/// What happened to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its rate is another one.
    Rate,
    /// Its delay is longer.
    Farther,
    /// Its delay is shorter.
    Nearer,
    /// It is cut.
    Cut,
    /// Nothing comes back.
    Silent,
    /// It is there again.
    Back,
    /// Its ANA state is another one.
    Ana,
    /// Congestion or a brownout begins or ends, or several things happen at a time.
    Other,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Kind::Rate,
        Kind::Farther,
        Kind::Nearer,
        Kind::Cut,
        Kind::Silent,
        Kind::Back,
        Kind::Ana,
        Kind::Other,
    ];

    /// The milliseconds that a policy has, and the least that it holds meanwhile, in thousandths.
    #[must_use]
    pub fn goal(self) -> Option<(u64, u64)> {
        match self {
            Kind::Rate | Kind::Cut | Kind::Silent | Kind::Ana => Some((50, 0)),
            Kind::Farther => Some((3_000, 800)),
            Kind::Back => Some((200, 0)),
            Kind::Nearer | Kind::Other => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Rate => "another rate",
            Kind::Farther => "a longer delay",
            Kind::Nearer => "a shorter delay",
            Kind::Cut => "cut",
            Kind::Silent => "silent",
            Kind::Back => "up again",
            Kind::Ana => "another ANA state",
            Kind::Other => "other",
        })
    }
}

/// When something happens, from the beginning of the window, and what.
pub(super) fn kinds(scenario: &Scenario) -> Vec<(u64, Kind)> {
    let mut shapes: Vec<_> = scenario.paths.iter().map(|path| path.shape.clone()).collect();
    let mut found: Vec<(u64, Kind)> = Vec::new();
    for change in &scenario.changes {
        let kind = match &change.what {
            Alteration::Shape(shape) => {
                let old = std::mem::replace(&mut shapes[change.path], shape.clone());
                let rate = (old.rate_in, old.rate_out) != (shape.rate_in, shape.rate_out);
                match (rate, shape.delay.cmp(&old.delay)) {
                    (true, Ordering::Equal) => Kind::Rate,
                    (false, Ordering::Greater) => Kind::Farther,
                    (false, Ordering::Less) => Kind::Nearer,
                    _ => Kind::Other,
                }
            }
            Alteration::Brownout(_) => Kind::Other,
            Alteration::Ana(_) => Kind::Ana,
            Alteration::State(PathState::Up) => Kind::Back,
            Alteration::State(PathState::Cut) => Kind::Cut,
            Alteration::State(PathState::Silent) => Kind::Silent,
        };
        match found.last_mut() {
            Some((at_ns, last)) if *at_ns == change.at_ns => *last = Kind::Other,
            _ => found.push((change.at_ns, kind)),
        }
    }
    found
}

/// Requests that a window of 50 ms has to have at the limit, so that draws decide nothing: in a
/// closed loop, in an open one.
const STEADY: [u64; 2] = [100, 1_000];

/// Whether windows of the time series have enough requests at all times.
pub(super) fn is_steady(cell: Cell<'_>) -> bool {
    let open = cell.scenario.jobs.iter().any(|job| job.arrival != Arrival::Closed);
    limits(cell).iter().all(|(_, limit)| limit.iops / 20 >= STEADY[usize::from(open)])
}
