//! `io-affinity`: each worker has its path.
//!
//! Source: device-mapper multipath, `drivers/md/dm-ps-io-affinity.c`: each path has a mask of CPUs
//! (here: of workers).
//!
//! 1. A usable path that is assigned to this worker.
//! 2. Else one that is assigned to a worker of the same NUMA node.
//! 3. Else one that is assigned to any worker. A path that is assigned to nobody is never used.
//!
//! Of several in one class the first in the list wins (in the original, the first path that names a
//! CPU has it), in either mode. Path groups of device-mapper are ANA classes here: optimized first.

use crate::least::least;
use crate::{Affinity, AnaRank, AsCandidate, Candidate, Choice, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(selector: &mut Selector, paths: &[P]) -> Option<Choice> {
    let key = |path: &Candidate<'_>| {
        let class = u8::from(path.rank == AnaRank::NonOptimized) << 2;
        // Behind every class: assigned to nobody.
        if path.affinity == Affinity::Unmapped { UNUSED } else { class | path.affinity as u8 }
    };
    let (index, key) = least(selector, true, paths, key, |a, b| a < b, |key| key == 0)?;
    let reason = match key {
        UNUSED => return None,
        4.. => Reason::NoOptimized,
        0 => Reason::OwnWorker,
        1 => Reason::SameNode,
        _ => Reason::OtherWorker,
    };
    Some(Choice { index, reason })
}

const UNUSED: u8 = 16;
