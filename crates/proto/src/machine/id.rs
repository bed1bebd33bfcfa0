//! Names that engines and drivers give to what they share.

/// Names a connection on one worker.
///
/// The upper half of the space belongs to the driver (accepted connections), the lower half to
/// the engine (connections that it opens).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(u32);

impl ConnId {
    const ACCEPTED: u32 = 1 << 31;

    /// A connection that the engine opens. `index` must be below 2^31.
    #[must_use]
    pub const fn opened(index: u32) -> ConnId {
        assert!(index < Self::ACCEPTED, "connection index below 2^31");
        ConnId(index)
    }

    /// A connection that a listener accepted. `index` must be below 2^31. For drivers only.
    #[must_use]
    pub const fn accepted(index: u32) -> ConnId {
        assert!(index < Self::ACCEPTED, "connection index below 2^31");
        ConnId(index | Self::ACCEPTED)
    }

    /// Whether the connection was accepted, not opened.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        self.0 & Self::ACCEPTED != 0
    }

    /// The index that the connection was named with.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 & !Self::ACCEPTED
    }
}

/// Names a listener; unique in a group of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub u32);

/// Names an open file; unique in a group of workers, given out by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u32);

/// Names a disk operation in flight; chosen by the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u64);

/// Names a worker in its group: 0, 1, 2, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u16);

/// Names a control request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VerbId(pub u64);
