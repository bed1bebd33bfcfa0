//! What selection may cost.

use anabranch_policy::Policy;

/// Paths of a head that are measured.
pub(crate) const PATHS: [usize; 3] = [2, 8, 64];

/// The policies that are held to the bars.
const HELD: [&str; 5] = ["numa", "round-robin", "queue-depth", "service-time", "latency"];

/// Whether the bars are meant for this policy; the others are shown beside them.
pub(crate) fn holds(policy: Policy) -> bool {
    HELD.contains(&policy.name())
}

/// Nanoseconds of one selection, uncontended.
pub(crate) fn select_ns(paths: usize) -> f64 {
    match paths {
        ..=2 => 20.0,
        3..=8 => 50.0,
        _ => 300.0,
    }
}

/// Nanoseconds of select, start and finish, `explain` included.
pub(crate) fn command_ns(paths: usize) -> f64 {
    2.0 * select_ns(paths)
}
