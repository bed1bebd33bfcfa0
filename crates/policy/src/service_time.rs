//! `service-time`: the path with the least to do for its weight.
//!
//! Source: "nvme-multipath: add service-time I/O policy" (Guixin Liu, June 2026), after
//! device-mapper's `drivers/md/dm-ps-service-time.c`.
//!
//! # State
//!
//! Per controller, for all its namespaces and all workers: payload bytes in flight
//! ([`ControllerLedger::in_flight_bytes`](crate::ControllerLedger::in_flight_bytes)), charged when
//! a command starts and given back when it ends, whatever came between; and its weight
//! (`relative_throughput`, 0 to 100, 1 unless set), which a reconnect does not touch.
//!
//! # Selection
//!
//! 1. The service time of a path is `(bytes in flight + bytes of this command) / weight`. The
//!    smaller one wins, compared by cross multiplication in 128 bits: nothing is rounded, nothing
//!    overflows.
//! 2. Equal service times: the higher weight.
//! 3. Equal weights, too: the path that this worker used least recently, as in device-mapper.
//! 4. Classes: optimized before non-optimized. But weight 0 means standby, and any standby path
//!    comes after all others: optimized, non-optimized, standby optimized, standby non-optimized.
//! 5. Standby paths among each other: fewer bytes in flight, then as 3.
//!
//! # Default and kernel-exact
//!
//! | | default, as in device-mapper | `kernel_exact`, as posted |
//! | --- | --- | --- |
//! | bytes of this command (1) | count | do not count |
//! | equal in all (3) | least recently used | first in the list |
//! | standby paths (5) | compared by bytes | first in the list |
//!
//! Why: with weights 4 and 1 and one command in flight on the first path, bytes in flight alone
//! send the next one to the idle second path, where it takes four times as long; by when it will be
//! done, it goes to the first until three are in flight. Ties that rotate exercise all links, also
//! one command at a time. Two standby paths carry twice as much as one.
//!
//! Mistakes of the posted patch that are made in neither mode: it compares in 64 bits but returns
//! the difference as an `int`, so that the sign may be wrong from 2 GiB on, which are products when
//! weights differ: 21 MiB in flight are enough at 100 to 1; beyond 2^57 bytes it cuts seven bits
//! off; a reconnect makes weight 0 a 1 and sets bytes that are in flight to 0.
//!
//! What counts is what travels, in both modes: of a discard the bytes that name its range, where
//! the posted patch counts the range.

use crate::least::first;
use crate::{AnaRank, AsCandidate, Candidate, Choice, Parameters, Reason, Selector};

#[cfg(test)]
mod tests;

/// What is compared.
#[derive(Clone, Copy)]
struct Key {
    class: u8,
    weight: u32,
    bytes: u64,
}

/// Added to the class of a path of weight 0.
const STANDBY: u8 = 2;

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: &Parameters,
    paths: &[P],
    bytes: u32,
) -> Option<Choice> {
    let (index, key) = if parameters.kernel_exact {
        let key = |path: &Candidate<'_>| match Key::of(path, 0) {
            // Not compared with each other: the first one found is as good.
            key if key.weight == 0 => Key { bytes: 0, ..key },
            key => key,
        };
        first(selector, paths, key, less)
    } else {
        selector.recency.choose(paths, |path| Key::of(path, bytes), less)
    }?;
    let reason = match key.class {
        0 => Reason::LeastServiceTime,
        1 => Reason::NoOptimized,
        _ => Reason::Standby,
    };
    Some(Choice { index, reason })
}

impl Key {
    #[inline]
    fn of(path: &Candidate<'_>, incoming: u32) -> Key {
        let controller = path.load.controller;
        let weight = controller.relative_throughput();
        let class = u8::from(path.rank == AnaRank::NonOptimized);
        let class = if weight == 0 { STANDBY + class } else { class };
        let bytes = controller.in_flight_bytes().saturating_add(u64::from(incoming));
        Key { class, weight, bytes }
    }
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
