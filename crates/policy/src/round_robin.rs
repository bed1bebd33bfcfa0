//! `round-robin`: each path in turn.
//!
//! Source: `nvme_round_robin_path` in Linux `drivers/nvme/host/multipath.c`, with Martin Wilck's
//! fix for non-optimized paths (2020).
//!
//! *Old* is the path used last by this worker.
//!
//! 1. Without old: the first optimized path in the list, else the first non-optimized one.
//! 2. Otherwise walk the list in a circle, from behind old, without old. The first usable optimized
//!    path wins. On the way the *last* usable non-optimized one is noted.
//! 3. No optimized one found: stay with old when old is usable and either optimized, or the only
//!    one that is left. Else take the one noted.
//!
//! With one submitter and k optimized paths, any k commands in a row take k paths. With a single
//! optimized path everything goes over it. Without any optimized path, "the last one noted" is
//! old's predecessor: the circle is walked backwards, but walked.
//!
//! Default and kernel-exact differ in what follows a failover, a policy switch, and a path that
//! goes live. In the kernel the first two drop old, and the walk starts again at the head of the
//! list; with the third the first optimized path of the list becomes old. By default the walk goes
//! on behind the path that was used last, so that frequent failovers do not pile up on the first
//! paths.

use crate::{AnaRank, AsCandidate, Choice, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    kernel_exact: bool,
    paths: &[P],
) -> Option<Choice> {
    let found = match selector.cached_in(paths) {
        Some(old) => next_after(old, paths),
        None => {
            let start = if kernel_exact { 0 } else { selector.rotation_start(paths) };
            first_from(start, paths)
        }
    }?;
    selector.remember(found);
    let reason = match paths[found].candidate().rank {
        AnaRank::Optimized => Reason::Turn,
        AnaRank::NonOptimized => Reason::NoOptimized,
    };
    Some(Choice { index: found, reason })
}

/// Rule 1, starting anywhere.
#[cold]
pub(crate) fn first_from<P: AsCandidate>(start: usize, paths: &[P]) -> Option<usize> {
    let mut non_optimized = None;
    for index in (start..paths.len()).chain(0..start) {
        let path = paths[index].candidate();
        match path.rank {
            _ if !path.usable => {}
            AnaRank::Optimized => return Some(index),
            AnaRank::NonOptimized => {
                non_optimized.get_or_insert(index);
            }
        }
    }
    non_optimized
}

/// Rules 2 and 3.
#[inline]
fn next_after<P: AsCandidate>(old: usize, paths: &[P]) -> Option<usize> {
    let mut noted = None;
    for index in (old + 1..paths.len()).chain(0..old) {
        let path = paths[index].candidate();
        match path.rank {
            _ if !path.usable => {}
            AnaRank::Optimized => return Some(index),
            AnaRank::NonOptimized => noted = Some(index),
        }
    }
    let path = paths[old].candidate();
    let stay = path.usable && (path.rank == AnaRank::Optimized || noted.is_none());
    if stay { Some(old) } else { noted }
}
