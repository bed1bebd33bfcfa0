//! Do our figures agree with published ones: in their order, and in their ratios?

use super::medians::Runs;
use crate::scenario::Published;

/// Published figures closer than this, in thousandths, have no order: they were single runs.
const TIE_PER_MILLE: u128 = 30;

/// The throughput of a row, in whatever unit the table has.
pub(super) fn figure(row: &Published) -> Option<u64> {
    let both = || match (row.read_bytes_s, row.write_bytes_s) {
        (None, None) => None,
        (read, write) => Some(read.unwrap_or(0) + write.unwrap_or(0)),
    };
    row.bytes_s.or_else(both).or(row.iops)
}

/// A published row, and ours of the same name.
pub(super) struct Pair<'a> {
    pub(super) name: &'a str,
    pub(super) published: u64,
    pub(super) ours: u64,
}

pub(super) fn pairs<'a>(rows: &'a [Published], runs: &[Runs<'_>]) -> Vec<Pair<'a>> {
    let pair = |row: &'a Published| {
        let of = runs.iter().find(|runs| runs.variant == row.policy)?;
        let ours = if row.bytes_s.is_none() && row.read_bytes_s.is_none() && row.iops.is_some() {
            of.iops()
        } else {
            of.bytes_s()
        };
        Some(Pair { name: &row.policy, published: figure(row)?, ours })
    };
    rows.iter().filter_map(pair).collect()
}

/// How two lists of figures agree.
pub(super) struct Agreement {
    /// Pairs of rows whose published figures differ by more than a tie.
    pub(super) ordered: usize,
    /// Those of them that have the same order here, ties included.
    pub(super) same: usize,
    /// The row whose part of the best row differs the most, and by which factor, in hundredths.
    pub(super) worst: Option<(String, u64)>,
}

fn ties(a: u64, b: u64) -> bool {
    u128::from(a.abs_diff(b)) * 1000 <= u128::from(a.max(b)) * TIE_PER_MILLE
}

pub(super) fn agreement(pairs: &[Pair<'_>]) -> Agreement {
    let (mut ordered, mut same) = (0, 0);
    for (index, a) in pairs.iter().enumerate() {
        for b in &pairs[index + 1..] {
            if ties(a.published, b.published) {
                continue;
            }
            ordered += 1;
            let agrees = (a.published > b.published) == (a.ours > b.ours);
            same += usize::from(agrees && !ties(a.ours, b.ours));
        }
    }
    let best = pairs.iter().max_by_key(|pair| pair.published);
    let factor = |pair: &Pair<'_>| {
        let best = best?;
        let theirs = u128::from(pair.published) * u128::from(best.ours);
        let ours = u128::from(pair.ours) * u128::from(best.published);
        let (low, high) = (theirs.min(ours), theirs.max(ours));
        u64::try_from((high * 100 + low / 2).checked_div(low)?).ok()
    };
    let factors = pairs.iter().filter_map(|pair| Some((pair.name.to_owned(), factor(pair)?)));
    Agreement { ordered, same, worst: factors.max_by_key(|(_, factor)| *factor) }
}

#[cfg(test)]
mod tests {
    use super::{Pair, agreement};

    fn pair(name: &str, published: u64, ours: u64) -> Pair<'_> {
        Pair { name, published, ours }
    }

    #[test]
    fn order_counts_pairs_that_differ_and_ratios_are_those_to_the_best_row() {
        let pairs =
            [pair("a", 100, 1000), pair("b", 101, 500), pair("c", 50, 600), pair("d", 10, 100)];
        let found = agreement(&pairs);
        // a and b are a tie; b and c have turned.
        assert_eq!((found.ordered, found.same), (5, 4));
        // The best published row is b, 500 here: a is 2.0 of it instead of 0.99, c 1.2 not 0.495.
        assert_eq!(found.worst, Some(("c".to_owned(), 242)));
    }

    #[test]
    fn a_tie_of_ours_does_not_confirm_an_order() {
        let found = agreement(&[pair("a", 100, 100), pair("b", 50, 99)]);
        assert_eq!((found.ordered, found.same), (1, 0));
        assert_eq!(agreement(&[]).worst, None);
    }
}
