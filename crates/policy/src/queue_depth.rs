//! `queue-depth`: the path whose controller has the fewest commands in flight.
//!
//! Source: `nvme_queue_depth_path` in Linux `drivers/nvme/host/multipath.c` (from 6.11: Thomas
//! Song, Ewan Milne, John Meneghini), and the measurements of Uday Shankar (2023) that settled for
//! one atomic counter per controller ([`crate::ControllerLedger`]).
//!
//! 1. All usable paths are looked at. The smallest depth is kept apart for optimized and for
//!    non-optimized paths; strictly smaller, so the first one seen wins a tie.
//! 2. An optimized path with nothing in flight ends the scan at once.
//! 3. Any optimized path, however deep, beats every non-optimized one.
//!
//! Default and kernel-exact differ in where the scan starts. The kernel starts at the head of the
//! list, so at queue depth 1 all I/O takes the first optimized path. By default it starts behind
//! the path used last by this worker, so ties rotate and all links are exercised.
//!
//! What counts is on the controller: another namespace of the same controller and another worker
//! add to the same depth.

use crate::{AnaRank, AsCandidate, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    kernel_exact: bool,
    paths: &[P],
) -> Option<usize> {
    let start = if kernel_exact { 0 } else { selector.rotation_start(paths) };
    let mut best = Best::default();
    // Two plain loops instead of one that wraps: the compiler drops the bounds checks.
    let (before, from) = paths.split_at(start);
    let found = best.scan(from, start).or_else(|| best.scan(before, 0)).or(best.index())?;
    // The kernel's cache pointer is not touched by this policy; only the rotation is.
    selector.last = Some(found as u32);
    Some(found)
}

/// The shallowest path of each class so far.
#[derive(Default)]
struct Best {
    optimized: Option<(u32, usize)>,
    non_optimized: Option<(u32, usize)>,
}

impl Best {
    /// Looks at the paths of a stretch of the list; the first has position `base`. An idle
    /// optimized path is returned at once.
    #[inline]
    fn scan<P: AsCandidate>(&mut self, paths: &[P], base: usize) -> Option<usize> {
        for (offset, path) in paths.iter().enumerate() {
            let path = path.candidate();
            if !path.usable {
                continue;
            }
            let depth = path.controller.nr_active();
            let class = match path.rank {
                AnaRank::Optimized if depth == 0 => return Some(base + offset),
                AnaRank::Optimized => &mut self.optimized,
                AnaRank::NonOptimized => &mut self.non_optimized,
            };
            if class.is_none_or(|(least, _)| depth < least) {
                *class = Some((depth, base + offset));
            }
        }
        None
    }

    fn index(&self) -> Option<usize> {
        self.optimized.or(self.non_optimized).map(|(_, index)| index)
    }
}
