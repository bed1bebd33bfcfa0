//! A head whose paths are measured: what the tests of `latency` share.
#![allow(dead_code, unreachable_pub)]

use crate::support::{Path, paths};
use anabranch_policy::{
    BatchTimeout, Choice, EwmaShift, Group, Groups, LatencyParameters, LatencyStat, OpClass,
    Parameters, Policy, Reason, Sampled, Selector, SizeBucket, compute_weights, finish,
    latency_report, sample, start,
};

pub const READ: OpClass = OpClass::Read;
pub const WRITE: OpClass = OpClass::Write;
pub const SECOND: u64 = 1_000_000_000;
pub const MS: u64 = 1_000_000;

/// `latency` by default or kernel-exact, everything else at its default.
pub fn mode(kernel_exact: bool) -> Parameters {
    Parameters { kernel_exact, ..Parameters::of(Policy::Latency) }
}

/// The same with each completion closing a batch that replaces what was known: the smoothed
/// latency is the last one.
pub fn prompt(kernel_exact: bool) -> Parameters {
    let latency = LatencyParameters {
        batch_timeout: BatchTimeout::from_secs(0),
        ewma_shift: EwmaShift::new(0).unwrap(),
        ..LatencyParameters::default()
    };
    Parameters { latency, ..mode(kernel_exact) }
}

/// The sum of the weights, before rounding.
pub fn scale(kernel_exact: bool) -> u32 {
    if kernel_exact { 64 } else { 128 }
}

/// One worker's view of a head.
pub struct Head {
    pub paths: Vec<Path>,
    pub selector: Selector,
    pub parameters: Parameters,
    pub due: Groups,
    pub now_ns: u64,
}

impl Head {
    pub fn new(letters: &str, parameters: Parameters) -> Head {
        Head {
            paths: paths(letters),
            selector: Selector::new(),
            parameters,
            due: Groups::NONE,
            now_ns: 100 * SECOND,
        }
    }

    /// A head whose paths have just taken this long for a read of 4 KiB, with weights.
    pub fn measured(letters: &str, parameters: Parameters, latencies_ns: &[u64]) -> Head {
        let mut head = Head::new(letters, parameters);
        for (path, &latency_ns) in latencies_ns.iter().enumerate() {
            assert!(matches!(head.complete(path, READ, latency_ns), Sampled::BatchClosed(_)));
        }
        head.compute();
        head
    }

    pub fn select(&mut self, op: OpClass, bytes: u32) -> Option<Choice> {
        self.selector.select(&self.parameters, &self.paths, op, bytes, self.now_ns)
    }

    /// Where the next read of 4 KiB goes.
    pub fn read(&mut self) -> usize {
        self.select(READ, 4096).expect("a path").index
    }

    pub fn reason(&mut self) -> Reason {
        self.select(READ, 4096).expect("a path").reason
    }

    pub fn reads(&mut self, count: u32) -> Vec<usize> {
        (0..count).map(|_| self.read()).collect()
    }

    /// How many of that many reads go to each path.
    pub fn shares(&mut self, count: u32) -> Vec<u32> {
        let mut shares = vec![0; self.paths.len()];
        self.reads(count).into_iter().for_each(|path| shares[path] += 1);
        shares
    }

    /// A command of 4 KiB ends now, after this long.
    pub fn complete(&mut self, path: usize, op: OpClass, latency_ns: u64) -> Sampled {
        self.complete_sized(path, op, 4096, latency_ns)
    }

    pub fn complete_sized(
        &mut self,
        path: usize,
        op: OpClass,
        bytes: u32,
        latency_ns: u64,
    ) -> Sampled {
        let load = self.paths[path].load();
        let began_ns = self.now_ns - latency_ns;
        let charge = start(&self.parameters, load, op, bytes, began_ns);
        finish(charge, load);
        let sampled = sample(&self.parameters, charge, load, self.paths.len(), self.now_ns);
        if let Sampled::BatchClosed(group) = sampled {
            self.due.insert(group);
        }
        sampled
    }

    /// The time-out that computes weights.
    pub fn compute(&mut self) {
        for group in self.due.take() {
            compute_weights(&self.parameters, &self.paths, group);
        }
    }

    pub fn stat_of(&self, path: usize, op: OpClass, bucket: SizeBucket) -> LatencyStat {
        latency_report(&self.parameters, self.paths[path].load()).stat(op, bucket)
    }

    /// Of reads, without size buckets.
    pub fn stat(&self, path: usize) -> LatencyStat {
        self.stat_of(path, READ, SizeBucket::FIRST)
    }

    pub fn weights(&self) -> Vec<u32> {
        (0..self.paths.len()).map(|path| self.stat(path).weight).collect()
    }
}

pub fn reads_group() -> Group {
    Group { op: READ, bucket: SizeBucket::FIRST }
}
