//! What a policy may know about a path.

use crate::Load;

/// The distance of a node to itself, and of every path whose node is unknown (the kernel's
/// `LOCAL_DISTANCE`). A TCP path has a node only when its network interface has one.
pub const LOCAL_DISTANCE: u32 = 10;

/// What ANA says about a path that may be chosen at all.
///
/// The other three states (inaccessible, persistent-loss, change) make a path unusable. A
/// controller that does not report ANA has optimized paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnaRank {
    /// To be preferred, however busy.
    Optimized,
    /// To be used only when no optimized path is usable.
    NonOptimized,
}

/// One path of a head, as selection sees it. The caller keeps them in list order: the order in
/// which the paths joined the head.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The path may carry I/O now: its controller is live (or deleting: a controller that is still
    /// connected can finish I/O), the namespace behind it is ready, no ANA log is awaited for it,
    /// and its ANA state is optimized or non-optimized.
    pub usable: bool,
    /// Its ANA state. Without meaning when not usable.
    pub rank: AnaRank,
    /// Distance from this worker's node to the path's node, [`LOCAL_DISTANCE`] when unknown.
    pub numa_distance: u32,
    /// To whom the path is assigned, for `io-affinity`.
    pub affinity: Affinity,
    /// What its commands are counted in.
    pub load: Load<'a>,
}

/// To whom a path is assigned, as one worker sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Affinity {
    /// To this worker.
    Own,
    /// Not to this worker, but to one of the same NUMA node.
    Node,
    /// To workers of other nodes only.
    Mapped,
    /// To nobody.
    #[default]
    Unmapped,
}

/// Anything that can be looked at as a [`Candidate`]: the caller hands its own path table to
/// [`crate::Selector::select`] as it is, nothing is copied per command.
pub trait AsCandidate {
    /// The view. Called up to twice per path and selection, so it must be cheap.
    fn candidate(&self) -> Candidate<'_>;
}

impl AsCandidate for Candidate<'_> {
    #[inline]
    fn candidate(&self) -> Candidate<'_> {
        *self
    }
}

impl<T: AsCandidate + ?Sized> AsCandidate for &T {
    #[inline]
    fn candidate(&self) -> Candidate<'_> {
        (**self).candidate()
    }
}
