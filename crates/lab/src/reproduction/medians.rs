//! The runs of one variant, summed up.

use crate::result::stats::{Paired, median};
use crate::result::{CellResult, Mode, tenths};
use anabranch_policy::Policy;

/// All runs of one variant of one scenario in one mode.
pub(super) struct Runs<'a> {
    pub(super) variant: &'a str,
    cells: Vec<&'a CellResult>,
}

impl<'a> Runs<'a> {
    /// By variant, in the order in which they come.
    pub(super) fn of(cells: &'a [CellResult], scenario: &str, mode: Mode) -> Vec<Runs<'a>> {
        let mut all: Vec<Runs<'a>> = Vec::new();
        for cell in cells.iter().filter(|cell| cell.scenario == scenario && cell.mode == mode) {
            match all.iter_mut().find(|runs| runs.variant == cell.variant) {
                Some(runs) => runs.cells.push(cell),
                None => all.push(Runs { variant: &cell.variant, cells: vec![cell] }),
            }
        }
        all
    }

    /// The median of a figure over the runs.
    pub(super) fn median(&self, of: impl Fn(&CellResult) -> u64) -> u64 {
        median(&self.cells.iter().map(|cell| of(cell)).collect::<Vec<_>>())
    }

    pub(super) fn count(&self) -> usize {
        self.cells.len()
    }

    pub(super) fn first(&self) -> Option<&'a CellResult> {
        self.cells.first().copied()
    }

    pub(super) fn is_of(&self, policy: Policy) -> bool {
        self.first().is_some_and(|cell| cell.policy == policy.name())
    }

    pub(super) fn bytes_s(&self) -> u64 {
        self.median(|cell| cell.total.bytes_s)
    }

    pub(super) fn iops(&self) -> u64 {
        self.median(|cell| cell.total.iops)
    }

    /// Throughput of the limit, in tenths of a percent; nothing without a limit.
    pub(super) fn of_limit(&self) -> Option<u64> {
        let limit = self.first()?.limit.bytes_s;
        per_mille(self.bytes_s(), limit)
    }

    /// Some run had less than a fifth of the machine idle.
    pub(super) fn cpu_bound(&self) -> bool {
        self.cells.iter().any(|cell| cell.cpu_bound)
    }

    /// This figure over that of other runs, pair by pair.
    pub(super) fn against(&self, other: &Runs<'_>, of: impl Fn(&CellResult) -> u64) -> Paired {
        let pair = |cell: &&CellResult| {
            let base = other.cells.iter().find(|base| base.run == cell.run)?;
            Some((of(cell), of(base)))
        };
        Paired::new(&self.cells.iter().filter_map(pair).collect::<Vec<_>>())
    }
}

/// A part of a whole in thousandths, to the nearest.
pub(super) fn per_mille(part: u64, whole: u64) -> Option<u64> {
    let scaled = u128::from(part) * 1000 + u128::from(whole / 2);
    let value = scaled.checked_div(u128::from(whole))?;
    u64::try_from(value).ok()
}

/// Thousandths as percent with one decimal.
pub(super) fn percent(per_mille: Option<u64>) -> String {
    per_mille.map_or_else(|| "-".to_owned(), tenths)
}
