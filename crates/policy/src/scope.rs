//! Whose commands `queue-depth` compares.

use core::fmt;
use core::str::FromStr;

/// The ledger of `queue-depth`.
///
/// The kernel counts per controller. The mail of 2023 that settled for that ("block: introduce
/// blk_queue_nr_active()", Uday Shankar) names the others: splits that share less between CPUs but
/// also know less, and the sum over all queues that it measures and rejects. They are here to be
/// compared; each writes a counter of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// One counter per controller: all of its namespaces, all workers.
    #[default]
    Controller,
    /// One counter per path: one namespace through one controller, all workers.
    Namespace,
    /// One counter per queue pair: the one that this worker submits through.
    QueuePair,
    /// One counter per worker and controller: only what this worker has in flight.
    Worker,
    /// The counters of all queue pairs of the controller, added up at each selection.
    Sum,
}

impl Scope {
    /// Every scope, in the order in which texts list them.
    pub const ALL: [Scope; 5] =
        [Scope::Controller, Scope::Namespace, Scope::QueuePair, Scope::Worker, Scope::Sum];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Controller => "controller",
            Scope::Namespace => "namespace",
            Scope::QueuePair => "queue-pair",
            Scope::Worker => "worker",
            Scope::Sum => "sum",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The caller named a scope that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownScope;

impl fmt::Display for UnknownScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scope: use controller, namespace, queue-pair, worker or sum")
    }
}

impl core::error::Error for UnknownScope {}

impl FromStr for Scope {
    type Err = UnknownScope;

    /// Whole words only.
    fn from_str(text: &str) -> Result<Scope, UnknownScope> {
        Scope::ALL.into_iter().find(|scope| scope.name() == text).ok_or(UnknownScope)
    }
}
