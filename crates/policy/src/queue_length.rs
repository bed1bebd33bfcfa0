//! `queue-length`: the path with the fewest commands of this namespace in flight.
//!
//! Source: device-mapper multipath, `drivers/md/dm-ps-queue-length.c`: a count per path and device;
//! the smallest wins; the chosen path goes to the tail of the list, so that ties rotate; an idle
//! path ends the scan. The 2023 thread calls a counter per namespace "pretty much a 1:1
//! translation" of it.
//!
//! Default and kernel-exact are the same: ties rotate in the original, too. Path groups of
//! device-mapper are ANA classes here: optimized paths first.

use crate::least::fewest;
use crate::{AsCandidate, Choice, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(selector: &mut Selector, paths: &[P]) -> Option<Choice> {
    fewest(selector, false, paths, |path| path.load.shared.nr_active())
}
