//! A policy over all rows.

use super::{Evaluation, Row};

/// What a policy makes of all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column<'a> {
    /// Its name.
    pub policy: &'a str,
    /// Rows that there are.
    pub rows: usize,
    /// Rows with 98 % of the best throughput.
    pub throughput_held: usize,
    /// The lowest share of the best throughput in millionths, and its row.
    pub lowest: Option<(u64, &'a Row)>,
    /// Rows with at most 1.15 times the best p99.
    pub tail_held: usize,
    /// The highest ratio of p99 to the best in thousandths, and its row.
    pub highest: Option<(u64, &'a Row)>,
    /// Rows in which both hold.
    pub both_held: usize,
}

impl Column<'_> {
    /// So many of the rows, in thousandths, rounded down.
    #[must_use]
    pub fn per_mille(&self, held: usize) -> u64 {
        (held as u64 * 1000).checked_div(self.rows as u64).unwrap_or(1000)
    }
}

/// One per policy, in order.
#[must_use]
pub fn columns(evaluation: &Evaluation) -> Vec<Column<'_>> {
    let rows = &evaluation.rows;
    let column = |(place, policy)| {
        let count = |held: fn((bool, bool)) -> bool| {
            rows.iter().filter(|row| held(row.holds(place))).count()
        };
        let lowest = rows.iter().map(|row| (row.throughput_ppm(place), row));
        let highest = rows.iter().map(|row| (row.tail_per_mille(place), row));
        Column {
            policy,
            rows: rows.len(),
            throughput_held: count(|(throughput, _)| throughput),
            lowest: lowest.min_by_key(|(ppm, _)| *ppm),
            tail_held: count(|(_, tail)| tail),
            highest: highest.max_by_key(|(ratio, _)| *ratio),
            both_held: count(|(throughput, tail)| throughput && tail),
        }
    };
    evaluation.policies.iter().map(String::as_str).enumerate().map(column).collect()
}
