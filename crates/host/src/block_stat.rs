//! What `stat` of a block device counts (Linux, Documentation/block/stat.rst).

use alloc::format;
use alloc::string::String;
use anabranch_proto::machine::Time;

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
    /// When the last one ended.
    last: Time,
}

impl BlockStat {
    /// An operation has ended well.
    pub(crate) fn record(&mut self, op: BlockOp, bytes: u64, started: Time, now: Time) {
        let ns = |since: Time| now.ns().saturating_sub(since.ns());
        let at = op as usize;
        self.count[at] += 1;
        self.bytes[at] = self.bytes[at].saturating_add(bytes);
        self.latency_ns[at] = self.latency_ns[at].saturating_add(ns(started));
        self.busy_ns = self.busy_ns.saturating_add(ns(started.max(self.last)));
        self.last = now;
    }

    /// Together with those of another worker.
    #[must_use]
    pub fn with(mut self, other: &BlockStat) -> BlockStat {
        for at in 0..4 {
            self.count[at] = self.count[at].saturating_add(other.count[at]);
            self.bytes[at] = self.bytes[at].saturating_add(other.bytes[at]);
            self.latency_ns[at] = self.latency_ns[at].saturating_add(other.latency_ns[at]);
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
        let all = self.latency_ns.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
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

#[cfg(test)]
mod tests {
    use super::{BlockOp, BlockStat};
    use alloc::vec::Vec;
    use anabranch_proto::machine::Time;

    const fn at_ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_line_has_linuxs_17_fields() {
        let mut stat = BlockStat::default();
        stat.record(BlockOp::Read, 4096, at_ms(10), at_ms(12));
        stat.record(BlockOp::Write, 1024, at_ms(11), at_ms(14));
        stat.record(BlockOp::Discard, 1 << 20, at_ms(20), at_ms(21));
        stat.record(BlockOp::Flush, 0, at_ms(30), at_ms(35));
        let other = BlockStat { busy_ns: 1_000_000, ..stat };
        let line = stat.with(&other).line(7);
        let fields: Vec<u64> =
            line.split_whitespace().map(|field| field.parse().expect("a number")).collect();
        // Busy: 10-12, 12-14, 20-21, 30-35.
        assert_eq!(fields, [2, 0, 16, 4, 2, 0, 4, 6, 7, 10, 22, 2, 0, 4096, 2, 2, 10]);
    }
}
