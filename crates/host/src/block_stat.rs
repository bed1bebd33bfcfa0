//! What `stat` of a block device counts (Linux, Documentation/block/stat.rst).

use alloc::format;
use alloc::string::String;

/// How Linux groups operations in `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// Reads.
    Read = 0,
    /// Writes, Write Zeroes included.
    Write = 1,
    /// Deallocations.
    Discard = 2,
    /// Flushes.
    Flush = 3,
}

/// Operations that ended well, on one worker or summed over several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockStat {
    /// How many, by [`BlockOp`].
    pub count: [u64; 4],
    /// Bytes of them.
    pub bytes: [u64; 4],
    /// Their latencies, summed.
    pub latency_ns: [u64; 4],
    /// How long some operation was in flight. Summed over workers it is the longest: they overlap
    /// in an unknown way, so it is what is certain.
    pub busy_ns: u64,
}

impl BlockStat {
    /// Together with those of another worker.
    #[must_use]
    pub fn with(mut self, other: &BlockStat) -> BlockStat {
        for at in 0..4 {
            self.count[at] = self.count[at].wrapping_add(other.count[at]);
            self.bytes[at] = self.bytes[at].wrapping_add(other.bytes[at]);
            self.latency_ns[at] = self.latency_ns[at].wrapping_add(other.latency_ns[at]);
        }
        self.busy_ns = self.busy_ns.max(other.busy_ns);
        self
    }

    /// The 17 fields in Linux's form: I/Os, merges (never any), sectors of 512 bytes and
    /// milliseconds of reads and of writes, in flight, busy, sum of latencies, then discards, then
    /// flushes.
    #[must_use]
    pub fn line(&self, in_flight: u64) -> String {
        let group = |op: BlockOp| {
            let at = op as usize;
            let (ios, sectors) = (self.count[at], self.bytes[at] / 512);
            format!("{ios:8} {:8} {sectors:8} {:8}", 0, ms(self.latency_ns[at]))
        };
        let all = self.latency_ns.iter().fold(0_u64, |sum, ns| sum.wrapping_add(*ns));
        let flush = BlockOp::Flush as usize;
        format!(
            "{} {} {in_flight:8} {:8} {:8} {} {:8} {:8}",
            group(BlockOp::Read),
            group(BlockOp::Write),
            ms(self.busy_ns),
            ms(all),
            group(BlockOp::Discard),
            self.count[flush],
            ms(self.latency_ns[flush]),
        )
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}
