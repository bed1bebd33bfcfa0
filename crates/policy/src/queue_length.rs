//! `queue-length`: the path with the fewest commands of this namespace in flight.
//!
//! Source: device-mapper multipath, `drivers/md/dm-ps-queue-length.c`. The 2023 thread about
//! `queue-depth` calls a counter per namespace "pretty much a 1:1 translation" of it.
//!
//! 1. Each path counts the commands in flight on it: one namespace through one controller, all
//!    workers ([`Shared::nr_active`](crate::Shared::nr_active)). The smallest count wins.
//! 2. Equal counts: the path that this worker used least recently. The original has its paths in a
//!    list, moves the chosen one to the tail, and puts a path that joins or comes back there, too;
//!    so does this.
//! 3. Optimized paths before all others, however busy (path groups of device-mapper are ANA classes
//!    here).
//!
//! Default and kernel-exact are the same. Both differ from the original in that the order of use is
//! kept per worker (there under a lock of all CPUs): with one submitter it is the same order. The
//! original ends its scan at an idle path; here all are looked at, with the same result.

use crate::{AnaRank, AsCandidate, Candidate, Choice, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(selector: &mut Selector, paths: &[P]) -> Option<Choice> {
    let key = |path: &Candidate<'_>| (path.rank, path.load.shared.nr_active());
    let (index, (rank, _)) = selector.recency.choose(paths, key, |a, b| a < b)?;
    let reason = match rank {
        AnaRank::Optimized => Reason::FewestCommands,
        AnaRank::NonOptimized => Reason::NoOptimized,
    };
    Some(Choice { index, reason })
}
