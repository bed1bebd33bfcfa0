//! Time as an engine sees it.

use core::time::Duration;

/// A point in time: nanoseconds since an arbitrary start, never going back (live: the monotonic
/// clock; simulated: virtual time).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of time.
    pub const ZERO: Time = Time(0);

    /// From nanoseconds since the start.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Time {
        Time(ns)
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }

    /// The time that lies `delay` later; the end of time when that overflows.
    #[must_use]
    pub fn after(self, delay: Duration) -> Time {
        let ns = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(ns))
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
