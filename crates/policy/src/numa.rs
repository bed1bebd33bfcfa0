//! `numa`: the nearest path, and only that one.
//!
//! Source: `nvme_find_path`, `__nvme_find_path` in Linux `drivers/nvme/host/multipath.c`.
//!
//! 1. The remembered path is used as long as it is usable and optimized.
//! 2. Otherwise all usable paths are scanned. Among the optimized ones the smallest distance wins,
//!    without an optimized one the nearest non-optimized. Strictly smaller: of equally near paths
//!    the first in the list wins.
//! 3. What the scan found is remembered, per worker (the kernel: per node).
//!
//! Two consequences. A non-optimized path in use is questioned with every command, so an optimized
//! one that comes back is used by the very next. And equally near paths, the usual case for TCP,
//! are not balanced: everything goes over one of them.
//!
//! Default and kernel-exact are the same: whoever asks for `numa` asks for one path, and a rotating
//! tie would give each worker another one after each failover.

use crate::{AnaRank, AsCandidate, Choice, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(selector: &mut Selector, paths: &[P]) -> Option<Choice> {
    if let Some(cached) = selector.cached_in(paths) {
        let path = paths[cached].candidate();
        if path.usable && path.rank == AnaRank::Optimized {
            return Some(Choice { index: cached, reason: Reason::Remembered });
        }
    }
    let (rank, found) = nearest(paths)?;
    selector.remember(found);
    let reason = match rank {
        AnaRank::Optimized => Reason::Nearest,
        AnaRank::NonOptimized => Reason::NoOptimized,
    };
    Some(Choice { index: found, reason })
}

/// The scan of rule 2.
fn nearest<P: AsCandidate>(paths: &[P]) -> Option<(AnaRank, usize)> {
    let mut best: Option<(AnaRank, u32, usize)> = None;
    for (index, path) in paths.iter().enumerate() {
        let path = path.candidate();
        if !path.usable {
            continue;
        }
        let key = (path.rank, path.numa_distance);
        if best.is_none_or(|(rank, distance, _)| key < (rank, distance)) {
            best = Some((path.rank, path.numa_distance, index));
        }
    }
    best.map(|(rank, _, index)| (rank, index))
}
