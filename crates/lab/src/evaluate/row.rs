//! One scenario, and how the policies compare in it.

use super::{Kind, Outcome};
use serde::Serialize;

/// A policy with so much of the best throughput holds a row, in millionths.
pub const THROUGHPUT_PPM: u64 = 980_000;
/// A policy with a p99 of so much of the best holds its tail, in thousandths.
pub const TAIL_PER_MILLE: u64 = 1_150;

/// A scenario and its outcomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The scenario's name.
    pub scenario: String,
    /// Its title.
    pub title: String,
    /// Payload per second that is possible.
    pub limit_bytes_s: u64,
    /// What sets that, in words.
    pub bound: String,
    /// The load keeps requests open, nothing changes, and links are what binds.
    pub full: bool,
    /// Windows of the time series have enough requests: what outcomes say of changes means
    /// something.
    pub steady: bool,
    /// The changes that outcomes speak of.
    pub kinds: Vec<Kind>,
    /// One per policy.
    pub outcomes: Vec<Outcome>,
}

impl Row {
    /// The policy with the highest throughput, the first of those that are equal.
    #[must_use]
    pub fn best(&self) -> usize {
        let all = self.outcomes.iter().enumerate().rev();
        all.max_by_key(|(_, outcome)| outcome.bytes_s).map_or(0, |(place, _)| place)
    }

    /// A policy's throughput of the best of the row, in millionths.
    #[must_use]
    pub fn throughput_ppm(&self, policy: usize) -> u64 {
        let best = self.outcomes.get(self.best()).map_or(0, |outcome| outcome.bytes_s);
        let own = self.outcomes.get(policy).map_or(0, |outcome| outcome.bytes_s);
        let ppm = (u128::from(own) * 1_000_000).checked_div(u128::from(best));
        ppm.map_or(1_000_000, |ppm| ppm as u64)
    }

    /// A policy's throughput of the limit, in millionths.
    #[must_use]
    pub fn limit_ppm(&self, policy: usize) -> u64 {
        let own = self.outcomes.get(policy).map_or(0, |outcome| outcome.bytes_s);
        let ppm = (u128::from(own) * 1_000_000).checked_div(self.limit_bytes_s.into());
        ppm.map_or(1_000_000, |ppm| u64::try_from(ppm).unwrap_or(u64::MAX))
    }

    /// The policy with the best p99 of those within 2 % of the best throughput.
    #[must_use]
    pub fn best_tail(&self) -> usize {
        let near = (0..self.outcomes.len()).filter(|p| self.throughput_ppm(*p) >= THROUGHPUT_PPM);
        near.min_by_key(|policy| self.outcomes[*policy].p99_ns).unwrap_or(0)
    }

    /// A policy's p99 of that, in thousandths. Below 1000 for policies that pay with throughput.
    #[must_use]
    pub fn tail_per_mille(&self, policy: usize) -> u64 {
        let best = self.outcomes.get(self.best_tail()).map_or(0, |outcome| outcome.p99_ns);
        let own = self.outcomes.get(policy).map_or(0, |outcome| outcome.p99_ns);
        let ratio = (u128::from(own) * 1000 + u128::from(best / 2)).checked_div(best.into());
        ratio.map_or(1000, |ratio| u64::try_from(ratio).unwrap_or(u64::MAX))
    }

    /// Whether a policy has the throughput, and whether it has the tail.
    #[must_use]
    pub fn holds(&self, policy: usize) -> (bool, bool) {
        let throughput = self.throughput_ppm(policy) >= THROUGHPUT_PPM;
        (throughput, self.tail_per_mille(policy) <= TAIL_PER_MILLE)
    }
}
