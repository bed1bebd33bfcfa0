//! What selection may cost.

use anabranch_policy::Policy;

/// Paths of a head that are measured.
pub(crate) const PATHS: [usize; 3] = [2, 8, 64];

/// The policies that are held to the bars of those that keep a counter at most.
const HELD: [&str; 5] = ["numa", "round-robin", "queue-depth", "service-time", "latency"];

/// What may be held against a policy at so many paths.
#[derive(Clone, Copy, Default)]
pub(crate) struct Bars {
    /// Nanoseconds of one selection, uncontended.
    pub(crate) select_ns: Option<f64>,
    /// Nanoseconds of select, start and finish, `explain` included.
    pub(crate) command_ns: Option<f64>,
    /// A command of two workers in flow, in commands of one.
    pub(crate) two_workers: Option<f64>,
}

/// Those of a policy; others are shown beside them.
pub(crate) fn of(policy: Policy, paths: usize) -> Bars {
    if HELD.contains(&policy.name()) {
        let select_ns = match paths {
            ..=2 => 20.0,
            3..=8 => 50.0,
            _ => 300.0,
        };
        return Bars {
            select_ns: Some(select_ns),
            command_ns: Some(2.0 * select_ns),
            two_workers: None,
        };
    }
    if policy == Policy::FinishTime {
        let command_ns = match paths {
            ..=2 => Some(100.0),
            3..=8 => Some(250.0),
            _ => None,
        };
        return Bars { select_ns: None, command_ns, two_workers: Some(1.5) };
    }
    Bars::default()
}
