//! What the generators of a host have recorded.

use crate::figures::{Books, ClassFigures};
use anabranch_policy::Histogram;
use anabranch_proto::machine::Time;

/// What ended in one window of the time series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests that ended well.
    pub requests: u64,
    /// The sum of their latencies.
    pub latency_ns: u64,
}

/// The figures of one host. Without other mention they are of the measured window, and of requests
/// that ended well.
#[derive(Clone, Debug, Default)]
pub struct HostFigures {
    /// Reads, writes, trims of each job, all its clones together.
    pub jobs: Vec<[ClassFigures; 3]>,
    /// From the intended start until the host has taken the request; of those taken in the window.
    pub submission: Histogram,
    /// Whole windows of [`SERIES_NS`](crate::figures::SERIES_NS) since the beginning, ramp
    /// included.
    pub windows: Vec<Window>,
    /// Payload.
    pub bytes: u64,
    /// Requests that failed, or brought a block that belongs elsewhere; of the whole run.
    pub errors: u64,
    /// The first of them, in words.
    pub first_error: Option<String>,
    /// Requests that waited in the load because the host had no room for more; of the whole run.
    pub waited: u64,
    /// What must balance, of the whole run. Failed requests are among those that ended. What
    /// concerns commands is not known here and stays zero.
    pub books: Books,
}

impl HostFigures {
    /// Adds those of another worker or host.
    pub fn merge(&mut self, other: &HostFigures) {
        if self.jobs.len() < other.jobs.len() {
            self.jobs.resize_with(other.jobs.len(), Default::default);
        }
        for (mine, theirs) in self.jobs.iter_mut().zip(&other.jobs) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                mine.bytes += theirs.bytes;
                mine.latency.merge(&theirs.latency);
            }
        }
        self.submission.merge(&other.submission);
        if self.windows.len() < other.windows.len() {
            self.windows.resize(other.windows.len(), Window::default());
        }
        for (mine, theirs) in self.windows.iter_mut().zip(&other.windows) {
            mine.requests += theirs.requests;
            mine.latency_ns += theirs.latency_ns;
        }
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.waited += other.waited;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        add_books(&mut self.books, &other.books);
    }
}

fn add_books(mine: &mut Books, theirs: &Books) {
    mine.requests_started += theirs.requests_started;
    mine.bytes_started += theirs.bytes_started;
    mine.requests_ended += theirs.requests_ended;
    mine.bytes_ended += theirs.bytes_ended;
    mine.requests_open += theirs.requests_open;
    mine.bytes_open += theirs.bytes_open;
    mine.requests_refused += theirs.requests_refused;
    mine.in_flight_ns += theirs.in_flight_ns;
    mine.latency_ns += theirs.latency_ns;
    mine.open_ns += theirs.open_ns;
}

/// What one path of one host has done so far: sums that only grow, as `host::Verb::Snapshot` gives
/// them, and what is on it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// When.
    pub at: Time,
    /// Commands that have ended.
    pub commands: u64,
    /// Their payload.
    pub bytes: u64,
    /// The sum of their latencies.
    pub latency_ns: u64,
    /// Commands on it now.
    pub in_flight: u64,
}
