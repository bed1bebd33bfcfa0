//! Operations of one file that take a thread of the system each, for as long as they last: a file
//! that hangs must not take them all from the others, nor must several.

use crate::driver::uring::FILE_THREADS;
use anabranch_proto::machine::{DiskId, DiskOp};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSliceMut;
use std::sync::Arc;

/// Those that always take one. Writes to one file take turns in one thread there, and of whole
/// flushes one runs at a time.
pub(super) const THREADS_PER_FILE: u32 = 16;
/// Reads of a file where they take one. More than for the others, as this is the depth at which
/// such a file can be read.
pub(super) const READS_PER_FILE: u32 = FILE_THREADS / 2;
/// Threads of each file that no other takes: for its writes, for a flush of it, and for one of
/// those that have a lane.
pub(super) const OWN_THREADS: u32 = 3;

/// Threads that files have beyond their own. None has more of them than it leaves to the others:
/// so however many files hang, there are some for the next.
#[derive(Debug, Default)]
pub(super) struct Common {
    taken: u32,
}

impl Common {
    /// Whether a file may have one more than those `has` for what has a lane.
    fn give(&mut self, has: u32) -> bool {
        // The first is its own.
        if has == 0 {
            return true;
        }
        let may = has < FILE_THREADS.saturating_sub(self.taken);
        self.taken += u32::from(may);
        may
    }

    /// A file that had so many for what has a lane has one fewer.
    fn take_back(&mut self, had: u32) {
        self.taken -= u32::from(had > 1);
    }
}

/// One operation that waits.
pub(super) type Waiting = (DiskId, Arc<File>, DiskOp);

/// Operations that share a limit.
#[derive(Debug)]
struct Lane {
    most: u32,
    /// How many have a thread, and those that wait for one.
    threads: u32,
    line: VecDeque<Waiting>,
}

impl Lane {
    fn new(most: u32) -> Lane {
        Lane { most, threads: 0, line: VecDeque::new() }
    }
}

/// The lanes of a file.
#[derive(Debug)]
pub(super) struct Lanes {
    others: Lane,
    /// None where a read that has to wait takes no thread.
    reads: Option<Lane>,
    /// Threads of both.
    threads: u32,
}

impl Lanes {
    pub(super) fn new(file: &File) -> Lanes {
        let reads = reads_take_threads(file).then(|| Lane::new(READS_PER_FILE));
        Lanes { others: Lane::new(THREADS_PER_FILE), reads, threads: 0 }
    }

    fn of(&mut self, op: DiskOp) -> Option<&mut Lane> {
        match op {
            DiskOp::Zero { .. } | DiskOp::Deallocate { .. } | DiskOp::Sync { .. } => {
                Some(&mut self.others)
            }
            DiskOp::Read { .. } => self.reads.as_mut(),
            DiskOp::Write { .. } | DiskOp::Flush => None,
        }
    }

    /// Whether an operation may begin; otherwise it waits in line. Of a file for which some wait
    /// one runs, whose end asks for the next.
    pub(super) fn admit(
        &mut self,
        common: &mut Common,
        id: DiskId,
        open: &Arc<File>,
        op: DiskOp,
    ) -> bool {
        let threads = self.threads;
        let Some(lane) = self.of(op) else { return true };
        if !lane.line.is_empty() || lane.threads >= lane.most || !common.give(threads) {
            lane.line.push_back((id, Arc::clone(open), op));
            return false;
        }
        lane.threads += 1;
        self.threads += 1;
        true
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, common: &mut Common, ended: DiskOp) {
        let Some(lane) = self.of(ended) else { return };
        lane.threads -= 1;
        common.take_back(self.threads);
        self.threads -= 1;
    }

    /// Which of those that wait begins now. Reads come last: there may be so many that nothing else
    /// would ever run.
    pub(super) fn next(&mut self, common: &mut Common) -> Option<Waiting> {
        let lanes = [Some(&mut self.others), self.reads.as_mut()].into_iter().flatten();
        for lane in lanes {
            if lane.threads >= lane.most || lane.line.is_empty() {
                continue;
            }
            if !common.give(self.threads) {
                return None;
            }
            lane.threads += 1;
            self.threads += 1;
            return lane.line.pop_front();
        }
        None
    }
}

/// Whether the file system (FUSE, one over a network) cannot read without waiting: then the system
/// leaves every read to a thread. It says so before it looks at anything else, so asking does not
/// wait for whoever serves the file.
fn reads_take_threads(file: &File) -> bool {
    // For no bytes at all it would not be looked at. From what has no offsets nothing is taken.
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(file, into, 0, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP)
}
