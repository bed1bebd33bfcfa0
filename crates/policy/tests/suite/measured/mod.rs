//! A head whose paths are measured: what the tests of `latency` share.

use crate::support::{Path, paths};
use anabranch_policy::{
    BatchTimeout, Choice, EwmaShift, Group, Groups, LatencyParameters, LatencyStat, OpClass,
    Parameters, Policy, Reason, Sampled, Selector, SizeBucket, compute_weights, finish,
    latency_report, sample, start,
};

pub(crate) const READ: OpClass = OpClass::Read;
pub(crate) const WRITE: OpClass = OpClass::Write;
pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MS: u64 = 1_000_000;

/// `latency` by default or kernel-exact, everything else at its default.
pub(crate) fn mode(kernel_exact: bool) -> Parameters {
    Parameters { kernel_exact, ..Parameters::of(Policy::Latency) }
}

/// The same with each completion closing a batch that replaces what was known: the smoothed
/// latency is the last one.
pub(crate) fn prompt(kernel_exact: bool) -> Parameters {
    let latency = LatencyParameters {
        batch_timeout: BatchTimeout::from_secs(0),
        ewma_shift: EwmaShift::new(0).unwrap(),
        ..LatencyParameters::default()
    };
    Parameters { latency, ..mode(kernel_exact) }
}

/// The sum of the weights, before rounding.
pub(crate) fn scale(kernel_exact: bool) -> u32 {
    if kernel_exact { 64 } else { 128 }
}

/// One worker's view of a head.
pub(crate) struct Head {
    pub(crate) paths: Vec<Path>,
    pub(crate) selector: Selector,
    pub(crate) parameters: Parameters,
    pub(crate) due: Groups,
    pub(crate) now_ns: u64,
}

impl Head {
    pub(crate) fn new(letters: &str, parameters: Parameters) -> Head {
        Head {
            paths: paths(letters),
            selector: Selector::new(),
            parameters,
            due: Groups::NONE,
            now_ns: 100 * SECOND,
        }
    }

    /// A head whose paths have just taken this long for a read of 4 KiB, with weights.
    pub(crate) fn measured(letters: &str, parameters: Parameters, latencies_ns: &[u64]) -> Head {
        let mut head = Head::new(letters, parameters);
        for (path, &latency_ns) in latencies_ns.iter().enumerate() {
            assert!(matches!(head.complete(path, READ, latency_ns), Sampled::BatchClosed(_)));
        }
        head.compute();
        head
    }

    pub(crate) fn select(&mut self, op: OpClass, bytes: u32) -> Option<Choice> {
        self.selector.select(&self.parameters, &self.paths, op, bytes, self.now_ns)
    }

    /// Where the next read of 4 KiB goes.
    pub(crate) fn read(&mut self) -> usize {
        self.select(READ, 4096).expect("a path").index
    }

    pub(crate) fn reason(&mut self) -> Reason {
        self.select(READ, 4096).expect("a path").reason
    }

    pub(crate) fn reads(&mut self, count: u32) -> Vec<usize> {
        (0..count).map(|_| self.read()).collect()
    }

    /// How many of that many reads go to each path.
    pub(crate) fn shares(&mut self, count: u32) -> Vec<u32> {
        let mut shares = vec![0; self.paths.len()];
        self.reads(count).into_iter().for_each(|path| shares[path] += 1);
        shares
    }

    /// A command of 4 KiB ends now, after this long.
    pub(crate) fn complete(&mut self, path: usize, op: OpClass, latency_ns: u64) -> Sampled {
        self.complete_sized(path, op, 4096, latency_ns)
    }

    pub(crate) fn complete_sized(
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
    pub(crate) fn compute(&mut self) {
        for group in self.due.take() {
            compute_weights(&self.parameters, &self.paths, group);
        }
    }

    pub(crate) fn stat_of(&self, path: usize, op: OpClass, bucket: SizeBucket) -> LatencyStat {
        latency_report(&self.parameters, self.paths[path].load()).stat(op, bucket)
    }

    /// Of reads, without size buckets.
    pub(crate) fn stat(&self, path: usize) -> LatencyStat {
        self.stat_of(path, READ, SizeBucket::FIRST)
    }

    pub(crate) fn weights(&self) -> Vec<u32> {
        (0..self.paths.len()).map(|path| self.stat(path).weight).collect()
    }
}

pub(crate) fn reads_group() -> Group {
    Group { op: READ, bucket: SizeBucket::FIRST }
}
