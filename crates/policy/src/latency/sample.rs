//! Completions: from a command's time to a smoothed latency.

use super::{Group, LatencyParameters};
use crate::{Charge, Load, Sampled};

/// A longer command is counted, but not averaged: what stalls for so long is found by ANA and
/// keep-alive. Exactly this long still counts.
pub(super) const LONGEST_NS: u64 = 1_000_000_000;

#[inline]
pub(crate) fn sample(
    parameters: &LatencyParameters,
    charge: Charge,
    load: Load<'_>,
    paths: usize,
    now_ns: u64,
) -> Sampled {
    let latency_ns = charge.elapsed_ns(now_ns);
    // Between fewer than two paths nothing is to be chosen.
    if paths <= 1 || latency_ns == 0 {
        return Sampled::Nothing;
    }
    let group = Group::of(parameters, charge.op(), charge.bytes());
    let slot = group.slot();
    let Some(local) = load.local else { return Sampled::Nothing };
    let own = local.samples(slot);
    if latency_ns > LONGEST_NS {
        own.ignored.set(own.ignored.get() + 1);
        return Sampled::TooLong;
    }
    own.add(latency_ns);
    let closed = match load.node {
        Some(node) if parameters.per_node => node.bring(slot, own, parameters, now_ns),
        _ => own.close_if_due(parameters, now_ns),
    };
    if closed { Sampled::BatchClosed(group) } else { Sampled::Taken }
}
