//! What a flush still has to cover.
//!
//! A Flush command covers the writes that *the controller it is sent to* has completed (NVM Command
//! Set, Flush). Writes of one head are spread over several controllers, so a flush must go to each
//! controller that has acknowledged a write since it was last flushed. These marks say which;
//! there is one per path, shared by all workers.

use crate::topology::{ControllerId, HeadId};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

/// Acknowledged and flushed writes of one path. Both only grow.
#[derive(Debug)]
pub struct WriteMarks {
    /// What was acknowledged when the path joined: whatever an earlier life may have written.
    joined: u64,
    acknowledged: AtomicU64,
    flushed: AtomicU64,
}

impl WriteMarks {
    /// Of a path that joins: the first flush goes there. Before that we may have written through
    /// the same controller, as a path that has left since, or in an earlier life.
    ///
    /// The marks begin at `joined_ns`, when it joined: the answer to a flush that was meant for the
    /// path before it may come, or go through, here, and its mark is to change nothing. Nobody
    /// writes more than once per nanosecond, so that mark is lower.
    pub(crate) fn new(joined_ns: u64) -> WriteMarks {
        let (joined, flushed) = (joined_ns.saturating_add(1), AtomicU64::new(joined_ns));
        WriteMarks { joined, acknowledged: AtomicU64::new(joined), flushed }
    }

    /// A write through this path was acknowledged and may sit in a volatile cache.
    pub(crate) fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::AcqRel);
    }

    /// The mark to hand to [`WriteMarks::flushed`] when a flush that starts now has succeeded;
    /// `None` when there is nothing to flush.
    pub(crate) fn pending(&self) -> Option<u64> {
        let flushed = self.flushed.load(Ordering::Acquire);
        let acknowledged = self.acknowledged.load(Ordering::Acquire);
        (acknowledged > flushed).then_some(acknowledged)
    }

    /// Whether something that was acknowledged here since it joined is not flushed: owed whatever
    /// controllers say of their caches by now.
    pub(crate) fn owes(&self) -> bool {
        self.pending().is_some_and(|acknowledged| acknowledged > self.joined)
    }

    /// A flush that started at `mark` has succeeded.
    pub(crate) fn flushed(&self, mark: u64) {
        self.flushed.fetch_max(mark, Ordering::AcqRel);
    }
}

/// A path through this controller has left this head, with these marks.
pub(crate) type LeftMark = (HeadId, ControllerId, Arc<WriteMarks>);

/// Marks of paths that have left their head, as long as some worker has one of them in its picture:
/// what that acknowledges is written through the same controller, and owed to it when the path is
/// back.
#[derive(Debug, Default)]
pub(crate) struct LeftMarks(BTreeMap<(HeadId, ControllerId), Weak<WriteMarks>>);

impl LeftMarks {
    pub(crate) fn leave(&mut self, left: Vec<LeftMark>) {
        if left.is_empty() {
            return;
        }
        self.0.retain(|_, marks| marks.strong_count() > 0);
        let weak = left.iter().map(|(head, of, marks)| ((*head, *of), Arc::downgrade(marks)));
        self.0.extend(weak);
    }

    /// The marks of a path that joins: those of the one before it while a worker may write to them.
    pub(crate) fn rejoin(
        &mut self,
        head: HeadId,
        controller: ControllerId,
        joined_ns: u64,
    ) -> Arc<WriteMarks> {
        let former = self.0.remove(&(head, controller)).and_then(|marks| marks.upgrade());
        let Some(former) = former else { return Arc::new(WriteMarks::new(joined_ns)) };
        // The first flush goes there, also where it was flushed since.
        former.acknowledge();
        former
    }
}

/// The newest picture under which a write of a head was acknowledged that a flush has to cover.
///
/// Pictures do not reach all workers at once. One that works from an older picture may not know the
/// path that another has written through, nor that it can be asked: its flush would pass it over.
#[derive(Debug, Default)]
pub struct WrittenUnder(AtomicU64);

impl WrittenUnder {
    /// A write was acknowledged by a worker whose picture has this epoch.
    pub(crate) fn note(&self, epoch: u64) {
        // With most writes there is no news, and nothing that others have to hear of.
        if self.0.load(Ordering::Relaxed) < epoch {
            self.0.fetch_max(epoch, Ordering::AcqRel);
        }
    }

    /// Whether somebody has written under a newer picture than that of this epoch.
    pub(crate) fn is_after(&self, epoch: u64) -> bool {
        self.0.load(Ordering::Acquire) > epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn the_newest_picture_counts() {
        let written = WrittenUnder::default();
        assert!(!written.is_after(0));
        written.note(3);
        written.note(2);
        assert_eq!([2, 3, 4].map(|epoch| written.is_after(epoch)), [true, false, false]);
    }

    #[test]
    fn a_flush_covers_only_what_was_acknowledged_before_it_started() {
        let marks = WriteMarks::new(0);
        assert!(!marks.owes(), "nothing was written by us");
        marks.flushed(marks.pending().expect("what was before"));
        assert_eq!(marks.pending(), None);
        marks.acknowledge();
        assert!(marks.owes());
        let mark = marks.pending().expect("one write is pending");
        marks.acknowledge();
        marks.flushed(mark);
        assert!(marks.pending().is_some(), "the second write came after the flush had started");
        marks.flushed(marks.pending().unwrap());
        assert_eq!((marks.pending(), marks.owes()), (None, false));
    }

    #[test]
    fn what_is_acknowledged_through_a_path_that_has_left_is_owed_when_it_is_back() {
        let (head, controller) = (HeadId(3), ControllerId(5));
        let mut left = LeftMarks::default();
        let former = left.rejoin(head, controller, 1_000);
        former.flushed(former.pending().expect("the first flush"));
        former.acknowledge();
        let late = former.pending().expect("a flush of it is on its way");
        left.leave(vec![(head, controller, former.clone())]);
        left.leave(vec![(HeadId(4), controller, Arc::new(WriteMarks::new(0)))]);

        let back = left.rejoin(head, controller, 2_000);
        former.flushed(late);
        back.flushed(back.pending().expect("its first flush, whatever the former has done"));
        // By a worker that has not heard of any of this.
        former.acknowledge();
        assert!(back.pending().is_some() && back.owes());

        let other = left.rejoin(head, ControllerId(6), 3_000);
        other.flushed(other.pending().expect("the first flush"));
        former.acknowledge();
        assert_eq!(other.pending(), None, "another controller");

        // Everybody has heard of it: there is nothing left to wait for.
        left.leave(vec![(head, controller, back.clone())]);
        drop((former, back));
        assert!(!left.rejoin(head, controller, 4_000).owes());
        left.leave(vec![(head, controller, Arc::new(WriteMarks::new(0)))]);
        assert_eq!(left.0.len(), 1, "and nothing is kept");
    }

    #[test]
    fn the_mark_of_a_path_that_has_left_covers_nothing_of_the_next() {
        let former = WriteMarks::new(1_000);
        (0..5_000).for_each(|_| former.acknowledge());
        let late = former.pending().expect("much is pending");
        // A millisecond later it is back.
        let marks = WriteMarks::new(1_001_000);
        marks.flushed(late);
        assert!(marks.pending().is_some(), "its first flush");
        marks.flushed(marks.pending().unwrap());
        marks.acknowledge();
        marks.flushed(late);
        assert!(marks.pending().is_some(), "a write of its own");
    }
}
