//! What a load has measured.

use anabranch_policy::Histogram;
use std::time::Duration;

/// Mismatches that a report tells in words; more are only counted.
pub(super) const TOLD_MISMATCHES: usize = 8;

/// Figures of a load, of one worker or of all.
#[derive(Clone, Debug, Default)]
pub struct LoadReport {
    /// Requests completed well: reads, writes.
    pub requests: [u64; 2],
    /// Bytes read, written.
    pub bytes: [u64; 2],
    /// Requests that failed.
    pub errors: u64,
    /// The first error in words.
    pub first_error: Option<String>,
    /// Blocks that did not hold what they must.
    pub verify_errors: u64,
    /// The first of them in words.
    pub mismatches: Vec<String>,
    /// Blocks read and checked.
    pub blocks_verified: u64,
    /// Latency of reads and of writes, ns.
    pub latency_ns: [Box<Histogram>; 2],
    /// The longest time without any completion on one worker.
    pub longest_gap: Duration,
    /// From the first submission to the last completion.
    pub elapsed: Duration,
    /// Why a worker could not run the job, or not go on with it.
    pub rejected: Option<String>,
    /// Requests at once for which there were buffers; fewer than asked for when memory is short.
    pub depth: u64,
}

/// A latency distribution in short, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySummary {
    /// Arithmetic mean.
    pub mean: u64,
    /// Standard deviation.
    pub stdev: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Largest.
    pub max: u64,
}

impl LatencySummary {
    /// Of one histogram.
    #[must_use]
    pub fn of(histogram: &Histogram) -> LatencySummary {
        LatencySummary {
            mean: histogram.mean(),
            stdev: histogram.stdev(),
            p50: histogram.per_mille(500),
            p99: histogram.per_mille(990),
            p999: histogram.per_mille(999),
            max: histogram.max(),
        }
    }
}

impl LoadReport {
    /// Requests completed well.
    #[must_use]
    pub fn total_requests(&self) -> u64 {
        self.requests[0] + self.requests[1]
    }

    /// Reads and writes together.
    #[must_use]
    pub fn latency(&self) -> LatencySummary {
        let mut both = (*self.latency_ns[0]).clone();
        both.merge(&self.latency_ns[1]);
        LatencySummary::of(&both)
    }

    /// Adds another worker's figures of the same run.
    pub fn merge(&mut self, other: &LoadReport) {
        for op in 0..2 {
            self.requests[op] += other.requests[op];
            self.bytes[op] += other.bytes[op];
            self.latency_ns[op].merge(&other.latency_ns[op]);
        }
        self.errors += other.errors;
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.verify_errors += other.verify_errors;
        let room = TOLD_MISMATCHES.saturating_sub(self.mismatches.len());
        self.mismatches.extend(other.mismatches.iter().take(room).cloned());
        self.blocks_verified += other.blocks_verified;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.elapsed = self.elapsed.max(other.elapsed);
        if self.rejected.is_none() {
            self.rejected.clone_from(&other.rejected);
        }
        self.depth += other.depth;
    }
}
