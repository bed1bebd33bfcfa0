//! Weights: from smoothed latencies to shares of the commands. Never on the I/O path.

use super::Group;
use crate::weights::{score, share};
use crate::{AsCandidate, Load, Parameters};

/// The sum of all weights, before each is rounded down and none is left below 1: the range of the
/// series since its v3.
const SCALE: u32 = 128;

/// The same in the code that was posted.
const SCALE_EXACT: u32 = 64;

pub(crate) fn compute<P: AsCandidate>(parameters: &Parameters, paths: &[P], group: Group) {
    let (per_node, slot) = (parameters.latency.per_node, group.slot());
    // All paths of the head count, usable or not: one that fails for a moment does not change what
    // the others are worth.
    let mut total = 0;
    for path in paths {
        total += score(u64::from(smoothed_ns(per_node, path.candidate().load, slot)));
    }
    if total == 0 {
        return;
    }
    let scale = if parameters.kernel_exact { SCALE_EXACT } else { SCALE };
    for path in paths {
        let load = path.candidate().load;
        let score = score(u64::from(smoothed_ns(per_node, load, slot)));
        // A path that was not measured yet gets 1 as well: it is tried now and then.
        let weight = share(score, total, scale);
        // At most 10^9.
        let score = score as u32;
        match (load.node, load.local) {
            (Some(node), _) if per_node => {
                node.set_score(slot, score);
                node.set_weight(slot, weight);
            }
            (_, Some(local)) if !per_node => {
                local.samples(slot).score.set(score);
                local.turn(slot).weight.set(weight);
            }
            _ => {}
        }
    }
}

/// The smoothed latency of a path; 0 before the first batch was closed.
#[inline]
pub(super) fn smoothed_ns(per_node: bool, load: Load<'_>, slot: usize) -> u32 {
    if per_node {
        load.node.map_or(0, |node| node.smoothed_ns(slot))
    } else {
        load.local.map_or(0, |local| local.samples(slot).smoothed_ns.get())
    }
}
