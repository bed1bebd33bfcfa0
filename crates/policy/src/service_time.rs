//! `service-time`: the path with the least to do for its weight.
//!
//! Source: "nvme-multipath: add service-time I/O policy" (Guixin Liu, 2026), after device-mapper's
//! `drivers/md/dm-ps-service-time.c`.
//!
//! 1. The service time of a path is its controller's payload bytes in flight, plus the bytes of
//!    this command, over its weight (`relative_throughput`, 0 to 100). Compared by cross
//!    multiplication in 128 bits, so nothing is rounded and nothing overflows.
//! 2. Equal service times: the higher weight. Equal weights, too: ties rotate.
//! 3. Classes: optimized before non-optimized; but any path of weight 0 (standby) comes after all
//!    others: optimized, non-optimized, standby optimized, standby non-optimized.
//!
//! Kernel-exact differs as the posted patch does: the bytes of the command do not count, the first
//! path in the list wins ties, also among standby paths.

use crate::least::least;
use crate::{AnaRank, AsCandidate, Candidate, Choice, Parameters, Reason, Selector};

/// What is compared.
#[derive(Clone, Copy)]
struct Key {
    class: u8,
    weight: u32,
    bytes: u64,
}

const STANDBY: u8 = 2;

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: &Parameters,
    paths: &[P],
    bytes: u32,
) -> Option<Choice> {
    let exact = parameters.kernel_exact;
    let incoming = if exact { 0 } else { u64::from(bytes) };
    let key = |path: &Candidate<'_>| {
        let weight = path.load.controller.relative_throughput();
        let class = u8::from(path.rank == AnaRank::NonOptimized);
        if weight == 0 {
            // Standby paths are not compared with each other: the first one found is as good.
            return Key { class: STANDBY + class, weight, bytes: 0 };
        }
        let bytes = path.load.controller.in_flight_bytes().saturating_add(incoming);
        Key { class, weight, bytes }
    };
    let (index, key) = least(selector, exact, paths, key, less, |_| false)?;
    let reason = match key.class {
        0 => Reason::LeastServiceTime,
        1 => Reason::NoOptimized,
        _ => Reason::Standby,
    };
    Some(Choice { index, reason })
}

/// Whether `a` is strictly better than `b`.
#[inline]
fn less(a: Key, b: Key) -> bool {
    if a.class != b.class {
        return a.class < b.class;
    }
    if a.weight == b.weight {
        return a.bytes < b.bytes;
    }
    let (left, right) =
        (u128::from(a.bytes) * u128::from(b.weight), u128::from(b.bytes) * u128::from(a.weight));
    if left == right { a.weight > b.weight } else { left < right }
}
