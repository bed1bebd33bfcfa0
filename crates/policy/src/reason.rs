//! What was chosen, and why.

use core::fmt;

/// A path was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The path's position in the list.
    pub index: usize,
    /// What decided.
    pub reason: Reason,
}

/// Why a command went where it went: what decided in the end. Exactly one per choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// `numa`: the nearest path, found by a scan.
    Nearest,
    /// `numa`: the path in use, still usable and optimized.
    Remembered,
    /// `round-robin`: its turn.
    Turn,
    /// `queue-depth`, `queue-length`: no path has fewer commands in flight.
    /// `historical-service-time`: the times do not decide (they are within the threshold, or the
    /// faster path's time is stale), and it has fewer commands in flight.
    FewestCommands,
    /// `service-time`: no path has less to do for its weight.
    LeastServiceTime,
    /// `service-time`: only paths of weight 0 are left.
    Standby,
    /// `latency`: it had credit left.
    Credit,
    /// `latency`, `finish-time`: nothing is known about it yet.
    Unmeasured,
    /// `historical-service-time`: expected to be done first.
    LeastHistoricalTime,
    /// `historical-service-time`: idle, and of the idle paths the one whose time is stale for the
    /// longest, or will be first.
    Stale,
    /// `io-affinity`: assigned to this worker.
    OwnWorker,
    /// `io-affinity`: assigned to a worker of this node.
    SameNode,
    /// `io-affinity`: assigned to some worker.
    OtherWorker,
    /// `finish-time`: expected to be done there first.
    EarliestFinish,
    /// `finish-time`: a queue stands on the path that would be first; this one has room.
    Spill,
    /// `finish-time`: an open load is more than the path does that would be first; this one has
    /// room.
    Overflow,
    /// `finish-time`: a write that shows what the path does with writes, after a probe was
    /// answered.
    WriteProbe,
    /// No optimized path is usable; among the others the policy chose this one.
    NoOptimized,
    /// Tried again on the path where it failed.
    Retry,
    /// A flush goes to each controller that has acknowledged writes.
    Flush,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Reason; 20] = [
        Reason::Nearest,
        Reason::Remembered,
        Reason::Turn,
        Reason::FewestCommands,
        Reason::LeastServiceTime,
        Reason::Standby,
        Reason::Credit,
        Reason::Unmeasured,
        Reason::LeastHistoricalTime,
        Reason::Stale,
        Reason::OwnWorker,
        Reason::SameNode,
        Reason::OtherWorker,
        Reason::EarliestFinish,
        Reason::Spill,
        Reason::Overflow,
        Reason::WriteProbe,
        Reason::NoOptimized,
        Reason::Retry,
        Reason::Flush,
    ];

    /// Its position in [`Reason::ALL`].
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// A word for machines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Nearest => "nearest",
            Reason::Remembered => "remembered",
            Reason::Turn => "turn",
            Reason::FewestCommands => "fewest-commands",
            Reason::LeastServiceTime => "least-service-time",
            Reason::Standby => "standby",
            Reason::Credit => "credit",
            Reason::Unmeasured => "unmeasured",
            Reason::LeastHistoricalTime => "least-historical-time",
            Reason::Stale => "stale",
            Reason::OwnWorker => "own-worker",
            Reason::SameNode => "same-node",
            Reason::OtherWorker => "other-worker",
            Reason::EarliestFinish => "earliest-finish",
            Reason::Spill => "spill",
            Reason::Overflow => "overflow",
            Reason::WriteProbe => "write-probe",
            Reason::NoOptimized => "no-optimized",
            Reason::Retry => "retry",
            Reason::Flush => "flush",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
