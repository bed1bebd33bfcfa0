//! What has ended well: counted once, and every figure is read from there.

use super::command::Work;
use crate::block_stat::{BlockOp, BlockStat};
use crate::user::RequestOp;
use alloc::boxed::Box;
use anabranch_policy::Histogram;
use anabranch_proto::machine::Time;

/// Operations as finely as any figure tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read = 0,
    Write,
    WriteZeroes,
    Discard,
    Flush,
    Compare,
}

impl Op {
    const ALL: [Op; 6] =
        [Op::Read, Op::Write, Op::WriteZeroes, Op::Discard, Op::Flush, Op::Compare];

    /// Among reads, writes and others.
    fn class(self) -> usize {
        match self {
            Op::Read => 0,
            Op::Write => 1,
            _ => 2,
        }
    }

    /// How `stat` counts it. Compare is not a block operation.
    fn block_op(self) -> Option<BlockOp> {
        match self {
            Op::Read => Some(BlockOp::Read),
            Op::Write | Op::WriteZeroes => Some(BlockOp::Write),
            Op::Discard => Some(BlockOp::Discard),
            Op::Flush => Some(BlockOp::Flush),
            Op::Compare => None,
        }
    }
}

/// A command or a request that has ended well.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    op: Op,
    /// What it is about: blocks to be zeroed or discarded count as if they had travelled.
    bytes: u64,
    since: Time,
    now: Time,
}

impl Ended {
    /// A command that was given to its path at `since`.
    #[inline]
    pub(super) fn command(work: &Work, block_bytes: u32, since: Time, now: Time) -> Ended {
        let range = |blocks: u32| u64::from(blocks) * u64::from(block_bytes);
        let (op, bytes) = match work {
            Work::Read { buf, .. } => (Op::Read, u64::from(buf.len())),
            Work::Write { buf, .. } => (Op::Write, u64::from(buf.len())),
            Work::WriteZeroes { blocks, .. } => (Op::WriteZeroes, range(*blocks)),
            Work::Discard { blocks, .. } => (Op::Discard, range(*blocks)),
            Work::Flush { .. } => (Op::Flush, 0),
            Work::Compare { .. } => (Op::Compare, 0),
        };
        Ended { op, bytes, since, now }
    }

    /// A request that was submitted at `since`.
    #[inline]
    pub(super) fn request(request: &RequestOp, block_bytes: u32, since: Time, now: Time) -> Ended {
        let range = |blocks: u64| blocks.saturating_mul(u64::from(block_bytes));
        let (op, bytes) = match request {
            RequestOp::Read { buf, .. } => (Op::Read, u64::from(buf.len())),
            RequestOp::Write { buf, .. } => (Op::Write, u64::from(buf.len())),
            RequestOp::WriteZeroes { blocks, .. } => (Op::WriteZeroes, range(*blocks)),
            RequestOp::Discard { blocks, .. } => (Op::Discard, range(*blocks)),
            RequestOp::Flush => (Op::Flush, 0),
            RequestOp::Compare { .. } => (Op::Compare, 0),
        };
        Ended { op, bytes, since, now }
    }
}

/// How long something was in flight, told from ends alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    ns: u64,
    /// When the last one ended.
    last: Time,
}

impl Busy {
    #[inline]
    pub(super) fn record(&mut self, ended: &Ended) {
        // Not a block operation.
        if ended.op == Op::Compare {
            return;
        }
        let more = ended.now.ns().saturating_sub(ended.since.max(self.last).ns());
        self.ns = self.ns.wrapping_add(more);
        self.last = ended.now;
    }
}

/// Counts of one operation. Like all that only grows they begin anew behind their largest value, as
/// monitoring expects of them: one that stood still there would say that nothing takes time. (A
/// thousand requests under way fill 64 bits of nanoseconds in 213 days.)
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    count: u64,
    bytes: u64,
    latency_ns: u64,
}

/// The record of what has ended well in one place.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    rows: [Row; Op::ALL.len()],
    latency_ns: Histogram,
}

impl Tally {
    #[inline]
    pub(super) fn record(&mut self, ended: &Ended) {
        let latency_ns = ended.now.ns().saturating_sub(ended.since.ns());
        let row = &mut self.rows[ended.op as usize];
        row.count += 1;
        row.bytes = row.bytes.wrapping_add(ended.bytes);
        row.latency_ns = row.latency_ns.wrapping_add(latency_ns);
        self.latency_ns.record(latency_ns);
    }

    /// Adds everything that `other` has recorded.
    pub(super) fn merge(&mut self, other: &Tally) {
        for (row, more) in self.rows.iter_mut().zip(&other.rows) {
            row.count += more.count;
            row.bytes = row.bytes.wrapping_add(more.bytes);
            row.latency_ns = row.latency_ns.wrapping_add(more.latency_ns);
        }
        self.latency_ns.merge(&other.latency_ns);
    }

    /// Reads, writes, others.
    pub(super) fn counts(&self) -> [u64; 3] {
        let mut counts = [0; 3];
        self.each(|op, row| counts[op.class()] += row.count);
        counts
    }

    /// Bytes read, written.
    pub(super) fn bytes(&self) -> [u64; 2] {
        [Op::Read, Op::Write].map(|op| self.rows[op as usize].bytes)
    }

    /// Their latencies, summed: reads, writes, others.
    pub(super) fn latency_sums_ns(&self) -> [u64; 3] {
        let mut sums = [0_u64; 3];
        self.each(|op, row| {
            let sum = &mut sums[op.class()];
            *sum = sum.wrapping_add(row.latency_ns);
        });
        sums
    }

    /// What `stat` counts.
    pub(super) fn stat(&self, busy: Busy) -> BlockStat {
        let mut stat = BlockStat { busy_ns: busy.ns, ..BlockStat::default() };
        self.each(|op, row| {
            let Some(at) = op.block_op().map(|op| op as usize) else { return };
            stat.count[at] += row.count;
            stat.bytes[at] = stat.bytes[at].wrapping_add(row.bytes);
            stat.latency_ns[at] = stat.latency_ns[at].wrapping_add(row.latency_ns);
        });
        stat
    }

    /// All latencies; `None` when there is none.
    pub(super) fn latency_ns(&self) -> Option<Box<Histogram>> {
        (self.latency_ns.count() > 0).then(|| Box::new(self.latency_ns.clone()))
    }

    fn each(&self, mut look: impl FnMut(Op, &Row)) {
        Op::ALL.iter().zip(&self.rows).for_each(|(&op, row)| look(op, row));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use anabranch_proto::machine::BufRef;

    const fn at_ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn buf(len: u32) -> BufRef {
        BufRef::new(0, 0, 0, len)
    }

    #[test]
    fn every_figure_is_read_from_one_record() {
        let commands = [
            (Work::Read { lba: 0, blocks: 8, buf: buf(4096) }, 10, 12),
            (Work::Write { lba: 0, blocks: 2, buf: buf(1024), fua: false }, 11, 14),
            (Work::Discard { lba: 0, blocks: 2048, range: buf(16) }, 20, 21),
            (Work::Flush { owed: None }, 30, 35),
            (Work::WriteZeroes { lba: 0, blocks: 4, deallocate: false }, 40, 41),
            (Work::Compare { lba: 0, blocks: 8, buf: buf(4096) }, 50, 59),
        ];
        let (mut tally, mut busy) = (Tally::default(), Busy::default());
        assert!(tally.latency_ns().is_none());
        for (work, since, now) in commands {
            let ended = Ended::command(&work, 512, at_ms(since), at_ms(now));
            tally.record(&ended);
            busy.record(&ended);
        }
        assert_eq!(tally.counts(), [1, 1, 4]);
        assert_eq!(tally.bytes(), [4096, 1024]);
        assert_eq!(tally.latency_sums_ns(), [2_000_000, 3_000_000, 16_000_000]);
        let latency_ns = tally.latency_ns().expect("something has ended");
        assert_eq!((latency_ns.count(), latency_ns.sum()), (6, 21_000_000));
        let mut twice = tally.clone();
        twice.merge(&tally);
        assert_eq!((twice.counts(), twice.bytes()), ([2, 2, 8], [8192, 2048]));
        // A sum that is full begins anew: differences of two looks stay right.
        let mut full = tally.clone();
        full.rows[Op::Read as usize].latency_ns = u64::MAX;
        full.merge(&tally);
        assert_eq!(full.latency_sums_ns()[0], 1_999_999);
        let line = twice.stat(busy).line(7);
        let fields: Vec<u64> =
            line.split_whitespace().map(|field| field.parse().expect("a number")).collect();
        // Busy: 10-12, 12-14, 20-21, 30-35, 40-41.
        assert_eq!(fields, [2, 0, 16, 4, 4, 0, 12, 8, 7, 11, 24, 2, 0, 4096, 2, 2, 10]);
    }
}
