//! What nobody waits for any more and a controller may still carry out.

use core::sync::atomic::{AtomicU32, Ordering};

/// Withdrawn requests of a head that change blocks and have not ended, on all workers. Whoever asks
/// for something while there are any may be overtaken by them: a write that is answered then could
/// be undone. A user lets nobody begin until there are none.
#[derive(Debug, Default)]
pub struct Leftovers(AtomicU32);

impl Leftovers {
    /// One was withdrawn.
    pub fn begin(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One that was withdrawn has ended.
    pub fn end(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there are any.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}
