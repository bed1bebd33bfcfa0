//! `io-affinity`: each worker has its path.
//!
//! Source: device-mapper multipath, `drivers/md/dm-ps-io-affinity.c` (Mike Christie, 2020): each
//! path names CPUs, here workers, by a mask. What a mask says about a path is [`Affinity`], worked
//! out by the caller when masks or paths change.
//!
//! 1. A usable path that is assigned to this worker.
//! 2. Else one that is assigned to a worker of the same NUMA node.
//! 3. Else one that is assigned to any worker. A path that is assigned to nobody is never used.
//! 4. Of several in one of these classes the first in the list wins: the first path that names a
//!    worker has it.
//! 5. Optimized paths before all others (path groups of device-mapper are ANA classes here): a path
//!    of some other worker, when it is optimized, before a path of this worker that is not.
//!
//! State: none, but a counter per worker and head of its selections while no path in the list,
//! usable or not, was assigned to it (the original shows such map misses in its status):
//! [`Selector::affinity_misses`](crate::Selector::affinity_misses).
//!
//! Default and kernel-exact are the same. Both differ from the original where several paths name a
//! worker. There the later ones are not mapped to it, and when the first has failed, the path of
//! the lowest-numbered CPU of the node is taken; here the next one that names the worker is, and
//! then the first of the list in each class: a second path on the same worker is a spare that
//! someone chose.

use crate::{Affinity, AnaRank, AsCandidate, Choice, Reason, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(selector: &mut Selector, paths: &[P]) -> Option<Choice> {
    let mut best: Option<(u8, usize)> = None;
    let mut has_a_path = false;
    for (index, path) in paths.iter().enumerate() {
        let path = path.candidate();
        has_a_path |= path.affinity == Affinity::Own;
        if !path.usable || path.affinity == Affinity::Unmapped {
            continue;
        }
        let class = u8::from(path.rank == AnaRank::NonOptimized) << 2;
        let key = class | path.affinity as u8;
        if best.is_none_or(|(least, _)| key < least) {
            best = Some((key, index));
            if key == 0 {
                break;
            }
        }
    }
    if !has_a_path {
        selector.affinity_misses += 1;
    }
    let (key, index) = best?;
    selector.last = Some(index as u32);
    let reason = match key {
        4.. => Reason::NoOptimized,
        0 => Reason::OwnWorker,
        1 => Reason::SameNode,
        _ => Reason::OtherWorker,
    };
    Some(Choice { index, reason })
}
