//! Every policy on many scenarios, light: how near each comes to the best of the row.
//!
//! A *row* is a scenario. The best of a row is the policy with the highest throughput; a policy
//! that knows what nobody tells the others (`service-time tuned` knows the weights) can be it, too.
//! The best p99 of a row is that of the policies within 2 % of this throughput. A policy holds a
//! row when it has 98 % of the best throughput, and its tail when its p99 is at most 1.15 times the
//! best.
//!
//! What one policy has done is an [`Outcome`]; they can be kept in a [`Baseline`], so that after a
//! change of one policy only that one runs again.

mod after;
mod baseline;
mod column;
mod kind;
mod outcome;
mod page;
mod row;
mod run;
mod scenarios;
#[cfg(test)]
mod tests;

pub use baseline::Baseline;
pub use column::{Column, columns};
pub use kind::Kind;
pub use outcome::{Adapted, Outcome};
pub use page::page;
pub use row::{Row, TAIL_PER_MILLE, THROUGHPUT_PPM};
pub use run::{Options, ablations, evaluate, variants};
pub use scenarios::{Length, library, named, random};

use serde::Serialize;

/// How the name of a variant ends that knows the weights.
const TUNED: &str = " tuned";

/// What an evaluation has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evaluation {
    /// The policy that the page is about.
    pub candidate: String,
    /// Variants, in the order in which each row has its outcomes.
    pub policies: Vec<String>,
    /// Runs of each cell; outcomes are medians.
    pub runs: u32,
    /// By scenario.
    pub rows: Vec<Row>,
}

impl Evaluation {
    /// The place of the candidate among the policies.
    #[must_use]
    pub fn candidate_place(&self) -> Option<usize> {
        self.policies.iter().position(|policy| *policy == self.candidate)
    }

    /// The same without the policies that are told what the others find out.
    #[must_use]
    pub fn untold(&self) -> Evaluation {
        let told = |place: usize| self.policies[place].ends_with(TUNED);
        let mut found = self.clone();
        found.policies.retain(|policy| !policy.ends_with(TUNED));
        for row in &mut found.rows {
            let mut place = 0..self.policies.len();
            row.outcomes.retain(|_| place.next().is_some_and(|place| !told(place)));
        }
        found
    }
}
