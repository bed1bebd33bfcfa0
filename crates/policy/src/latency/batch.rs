//! Latencies that are averaged together.

use super::local::{NEVER, Samples};
use super::parameters::LatencyParameters;

/// A batch that is being filled, and what the batches before it have led to.
#[derive(Clone, Copy)]
pub(super) struct Open {
    pub(super) sum_ns: u64,
    /// At least 1.
    pub(super) count: u64,
    /// When the last batch was closed, or [`NEVER`].
    pub(super) closed_ns: u64,
    /// 0 before the first batch was closed.
    pub(super) smoothed_ns: u32,
}

/// The new smoothed latency, if the window is over; the first sample ever closes its batch at once.
///
/// The batch is closed by a completion, never by a timer: a path that carries nothing keeps what it
/// has. The one division of this policy on the I/O path is here, once per batch, and not even then
/// for a batch of one.
#[inline]
pub(super) fn close_if_due(open: Open, parameters: &LatencyParameters, now_ns: u64) -> Option<u32> {
    let timeout_ns = parameters.batch_timeout.as_nanos();
    // A clock that another worker read a little later is not a new window.
    if open.closed_ns != NEVER && now_ns.saturating_sub(open.closed_ns) < timeout_ns {
        return None;
    }
    let average = if open.count == 1 { open.sum_ns } else { open.sum_ns / open.count.max(1) };
    let smoothed_ns = match open.smoothed_ns {
        0 => average,
        old => parameters.ewma_shift.smooth(u64::from(old), average),
    };
    // No sample is longer than a second.
    Some(smoothed_ns as u32)
}

impl Samples {
    /// Closes this worker's own batch, if its window is over. Whether it did.
    #[inline]
    pub(super) fn close_if_due(&self, parameters: &LatencyParameters, now_ns: u64) -> bool {
        let open = Open {
            sum_ns: self.sum_ns.get(),
            count: self.count.get(),
            closed_ns: self.closed_ns.get(),
            smoothed_ns: self.smoothed_ns.get(),
        };
        let Some(smoothed_ns) = close_if_due(open, parameters, now_ns) else {
            return false;
        };
        self.take_batch();
        self.closed_ns.set(now_ns);
        self.smoothed_ns.set(smoothed_ns);
        true
    }
}
