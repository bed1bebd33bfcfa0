//! `queue-depth`: the path with the fewest commands in flight.
//!
//! Source: `nvme_queue_depth_path` in Linux `drivers/nvme/host/multipath.c` (from 6.11: Thomas
//! Song, Ewan Milne, John Meneghini), and the measurements of Uday Shankar (2023) that settled for
//! one atomic counter per controller ([`crate::ControllerLedger`]).
//!
//! # Selection
//!
//! 1. All usable paths are looked at. The smallest depth is kept apart for optimized and for
//!    non-optimized paths; strictly smaller, so the first one seen wins a tie.
//! 2. An optimized path with nothing in flight ends the scan at once.
//! 3. Any optimized path, however deep, beats every non-optimized one.
//!
//! # Default and kernel-exact
//!
//! They differ in where the scan starts. The kernel starts at the head of the
//! list, so at queue depth 1 all I/O takes the first optimized path. By default it starts behind
//! the path used last by this worker, so ties rotate and all links are exercised.
//!
//! # State
//!
//! What counts is the [`Scope`]; each has a counter of its own, on cache lines of its own, that is
//! written only by commands started under it (and `sum` adds up what `queue-pair` counts).
//!
//! | scope | counts | sees | reads per path |
//! | --- | --- | --- | --- |
//! | `controller` (kernel) | per controller | all namespaces, all workers | 1 |
//! | `namespace` | per path | all workers | 1 |
//! | `queue-pair` | per queue pair | whoever submits through the one that this worker uses | 1 |
//! | `worker` | per worker and controller | this worker's commands, all namespaces | 1 |
//! | `sum` (E. Milne, 2023) | per queue pair | all of the controller's, added up | one per queue |
//!
//! A scope that is changed under load starts from what was started under it before: commands in
//! flight stay where they were charged.

use crate::least::fewest;
use crate::{AsCandidate, Candidate, Choice, Parameters, Scope, Selector};

#[inline]
pub(crate) fn select<P: AsCandidate>(
    selector: &mut Selector,
    parameters: &Parameters,
    paths: &[P],
) -> Option<Choice> {
    let exact = parameters.kernel_exact;
    // One loop per scope: nothing is decided per path.
    match parameters.scope {
        Scope::Controller => fewest(selector, exact, paths, |p| p.load.controller.nr_active()),
        Scope::Namespace => fewest(selector, exact, paths, |p| p.load.shared.nr_active()),
        Scope::QueuePair => fewest(selector, exact, paths, queue_pair),
        Scope::Worker => fewest(selector, exact, paths, worker),
        Scope::Sum => fewest(selector, exact, paths, sum),
    }
}

#[inline]
fn queue_pair(path: &Candidate<'_>) -> u32 {
    path.load.workers[usize::from(path.load.queue)].queue_active()
}

#[inline]
fn worker(path: &Candidate<'_>) -> u32 {
    path.load.workers[usize::from(path.load.worker)].worker_active()
}

/// The form of the 2023 thread whose cost grows with the number of queues.
#[inline]
fn sum(path: &Candidate<'_>) -> u32 {
    path.load.workers.iter().map(|queue| queue.queue_active()).sum()
}
