//! Operations of one file that take a thread of the system each, for as long as they last: a file
//! that hangs must not take them all from the others ([`super::super::FILE_THREADS`]).

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
pub(super) const READS_PER_FILE: u32 = super::super::FILE_THREADS / 2;

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
}

impl Lanes {
    pub(super) fn new(file: &File) -> Lanes {
        let reads = reads_take_threads(file).then(|| Lane::new(READS_PER_FILE));
        Lanes { others: Lane::new(THREADS_PER_FILE), reads }
    }

    fn of(&mut self, op: DiskOp) -> Option<&mut Lane> {
        match op {
            DiskOp::Zero { .. } | DiskOp::Sync { .. } => Some(&mut self.others),
            DiskOp::Read { .. } => self.reads.as_mut(),
            DiskOp::Write { .. } | DiskOp::Flush => None,
        }
    }

    /// Whether an operation may begin; otherwise it waits in line.
    pub(super) fn admit(&mut self, id: DiskId, open: &Arc<File>, op: DiskOp) -> bool {
        let Some(lane) = self.of(op) else { return true };
        if lane.threads >= lane.most {
            lane.line.push_back((id, Arc::clone(open), op));
            return false;
        }
        lane.threads += 1;
        true
    }

    /// An operation has ended: which begins in its place.
    pub(super) fn next(&mut self, ended: DiskOp) -> Option<Waiting> {
        let lane = self.of(ended)?;
        let next = lane.line.pop_front();
        lane.threads -= u32::from(next.is_none());
        next
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
