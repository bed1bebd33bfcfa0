//! The only clock of the live system.

use anabranch_proto::machine::Time;

/// The monotonic clock, as engines see it. All groups of a process share its start.
#[must_use]
pub fn now() -> Time {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // The kernel's monotonic clock starts near zero at boot and is never negative.
    let seconds = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Time::from_ns(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
