//! How soon the load flows again after a change, and how evenly hosts share.

use crate::cell::Cell;
use crate::figures::{Figures, SERIES_NS};
use crate::limit::{Bound, Limit, limits};
use crate::scenario::Arrival;

/// What counts as adapted, in hundredths of the limit.
const GOOD_PERCENT: u128 = 85;

/// Requests that a window has to have at the limit, so that it tells anything: where they come one
/// after the other, and where they arrive by chance (of 400, 20 more or fewer).
const FEWEST: [u64; 2] = [20, 400];

/// What became of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptation {
    /// When it was.
    pub at_ns: u64,
    /// Payload per second that was possible from then on.
    pub limit_bytes_per_second: u64,
    /// From the change to the start of the first window of the time series from which on each one,
    /// up to the next change, holds 85 % of the limit. `None`: there is no such window.
    pub took_ns: Option<u64>,
    /// The least that a window held of that, up to the next change, in thousandths of the limit.
    pub lowest_per_mille: u64,
}

/// The time to adapt after each change that is followed by a whole window of the time series before
/// the next one, if windows have enough requests to tell. Changes at the same time count as one.
#[must_use]
pub fn adaptations(cell: Cell<'_>, figures: &Figures) -> Vec<Adaptation> {
    let limits = limits(cell);
    let end = cell.end_ns();
    let mut found = Vec::new();
    for (index, &(at_ns, limit)) in limits.iter().enumerate().skip(1) {
        let until = limits.get(index + 1).map_or(end, |next| next.0).min(end);
        let first = at_ns.div_ceil(SERIES_NS);
        let behind = (until / SERIES_NS).min(figures.series.len() as u64);
        // Where nothing is possible every window holds all of it, and nobody has adapted.
        let nothing = limit.bytes_per_second == 0;
        if first >= behind || nothing || has_too_few(cell, &limit) {
            continue;
        }
        let whole = u128::from(limit.bytes_per_second) * u128::from(SERIES_NS) / 1_000_000_000;
        let bytes = |window: u64| -> u64 { figures.series.bytes_of(window as usize).iter().sum() };
        let good = |window: &u64| u128::from(bytes(*window)) * 100 >= whole * GOOD_PERCENT;
        let lowest = (first..behind).map(bytes).min().unwrap_or(0);
        let lowest = (u128::from(lowest) * 1000).checked_div(whole).unwrap_or(1000);
        let tail = (first..behind).rev().take_while(good).last();
        let took_ns = tail.map(|window| window * SERIES_NS - at_ns);
        let limit_bytes_per_second = limit.bytes_per_second;
        let lowest_per_mille = u64::try_from(lowest).unwrap_or(u64::MAX);
        found.push(Adaptation { at_ns, limit_bytes_per_second, took_ns, lowest_per_mille });
    }
    found
}

/// Whether a window of the time series has so few requests that any may be one of the bad ones.
fn has_too_few(cell: Cell<'_>, limit: &Limit) -> bool {
    let arrive = cell.scenario.jobs.iter().any(|job| job.arrival != Arrival::Closed);
    let by_chance = arrive && limit.bound == Bound::Offered;
    let requests = u128::from(limit.iops) * u128::from(SERIES_NS) / 1_000_000_000;
    limit.iops > 0 && requests < u128::from(FEWEST[usize::from(by_chance)])
}

/// Jain's index of what each one got, in millionths: a million when all got the same, down to a
/// million divided by their number when one got everything. Of nothing at all: a million.
#[must_use]
pub fn jain_ppm(shares: &[u64]) -> u64 {
    // Shares are cut to 32 bits, so that all sums fit.
    let largest = shares.iter().copied().max().unwrap_or(0);
    let cut = 32u32.saturating_sub(largest.leading_zeros());
    let shares = || shares.iter().map(|share| u128::from(share >> cut));
    let sum: u128 = shares().sum();
    let squares: u128 = shares().map(|share| share * share).sum();
    let n = shares().count() as u128;
    match (sum * sum * 1_000_000).checked_div(n * squares) {
        // Never more than a million.
        Some(index) => index as u64,
        None => 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::jain_ppm;

    #[test]
    fn jains_index_is_one_when_all_are_equal_and_a_part_when_one_has_all() {
        assert_eq!(jain_ppm(&[]), 1_000_000);
        assert_eq!(jain_ppm(&[0, 0]), 1_000_000);
        assert_eq!(jain_ppm(&[7, 7, 7]), 1_000_000);
        assert_eq!(jain_ppm(&[u64::MAX; 100]), 1_000_000);
        assert_eq!(jain_ppm(&[5, 0, 0, 0]), 250_000);
        assert_eq!(jain_ppm(&[1, 2, 3]), 36_000_000 / (3 * 14));
    }
}
