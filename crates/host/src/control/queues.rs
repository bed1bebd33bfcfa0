//! The I/O queue pairs of one controller, as control sees them: how many of which kind, who owns
//! one, who has yet to answer.

use crate::config::ControllerOptions;
use crate::mail::Takes;
use alloc::vec::Vec;
use anabranch_proto::machine::WorkerId;

/// How many queue pairs there are of which kind. Of each kind the first belongs to worker 1, the
/// next to worker 2, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kinds {
    /// For reads alone; 0 when the others take them, too.
    reads: u16,
    others: u16,
}

impl Kinds {
    /// What to ask for, with so many data workers.
    pub(super) fn wanted(options: &ControllerOptions, workers: u16) -> Kinds {
        let (reads, others) = options.io_queues(workers);
        Kinds { reads, others }
    }

    /// What to make of that with so many. As in Linux: reads have queue pairs of their own only
    /// when the controller grants more than these.
    pub(super) fn granted(self, total: u16) -> Kinds {
        match total.checked_sub(self.reads) {
            Some(rest) if rest > 0 => Kinds { others: self.others.min(rest), ..self },
            _ => Kinds { reads: 0, others: total },
        }
    }

    pub(super) fn total(self) -> u16 {
        self.reads + self.others
    }

    /// Each queue pair by its identifier (from 1), who owns it and what it is for.
    pub(super) fn pairs(self) -> impl Iterator<Item = (u16, WorkerId, Takes)> {
        let takes = if self.reads > 0 { Takes::Others } else { Takes::All };
        let others = (1..=self.others).map(move |at| (at, WorkerId(at), takes));
        let reads = (1..=self.reads).map(move |at| (self.others + at, WorkerId(at), Takes::Reads));
        others.chain(reads)
    }

    fn workers(self) -> impl Iterator<Item = WorkerId> + use<> {
        (1..=self.reads.max(self.others)).map(WorkerId)
    }
}

/// For each data worker in order, who owns the queue pair that it submits through: workers beyond
/// the number of queue pairs share them in turn.
pub(super) struct Owners {
    pub(super) reads: Vec<WorkerId>,
    pub(super) others: Vec<WorkerId>,
}

/// Queue pairs of one association.
#[derive(Debug, Default)]
pub(super) struct QueueSet {
    kinds: Kinds,
    /// Some shard was asked to open one in this association.
    asked: bool,
    /// Queue pairs that are being opened.
    opening: Vec<u16>,
    /// Who has been told to stop its queue pairs.
    stopping: Vec<WorkerId>,
}

impl QueueSet {
    /// A new association: nothing is open.
    pub(super) fn clear(&mut self) {
        *self = QueueSet::default();
    }

    /// Shards were told to open these.
    pub(super) fn ask(&mut self, kinds: Kinds) {
        self.kinds = kinds;
        self.asked = true;
        self.opening = kinds.pairs().map(|(qid, ..)| qid).collect();
    }

    /// One is open. What nobody waits for changes nothing.
    pub(super) fn opened(&mut self, qid: u16) {
        self.opening.retain(|&opening| opening != qid);
    }

    pub(super) fn all_open(&self) -> bool {
        self.opening.is_empty()
    }

    /// The owners of queue pairs are to be told to stop them; gives back who has not been told yet.
    /// Who has been is still waited for.
    pub(super) fn stop(&mut self) -> impl Iterator<Item = WorkerId> + use<> {
        self.opening.clear();
        let kinds = if self.asked { self.kinds } else { Kinds::default() };
        if core::mem::take(&mut self.asked) {
            self.stopping = kinds.workers().collect();
        }
        kinds.workers()
    }

    /// A worker has none any more. Answers that nobody waits for change nothing.
    pub(super) fn stopped(&mut self, worker: WorkerId) {
        self.stopping.retain(|&stopping| stopping != worker);
    }

    pub(super) fn all_stopped(&self) -> bool {
        self.stopping.is_empty()
    }

    /// Stops waiting and returns who did not answer.
    pub(super) fn give_up(&mut self) -> Vec<WorkerId> {
        core::mem::take(&mut self.stopping)
    }

    /// I/O queues in this (or the last) association.
    pub(super) fn count(&self) -> u16 {
        self.kinds.total()
    }

    pub(super) fn owners(&self, workers: u16) -> Owners {
        let in_turn = |count: u16| (0..workers).map(|it| WorkerId(it % count + 1)).collect();
        let Kinds { reads, others } = self.kinds;
        Owners {
            reads: in_turn(if reads > 0 { reads } else { others.max(1) }),
            others: in_turn(others.max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(nr_io_queues: Option<u16>, nr_write_queues: u16) -> Kinds {
        let options = ControllerOptions { nr_io_queues, nr_write_queues, ..Default::default() };
        Kinds::wanted(&options, 4)
    }

    #[test]
    fn reads_have_queue_pairs_of_their_own_when_enough_are_granted() {
        for (wanted, granted, reads, others) in [
            (kinds(None, 0), 4, 0, 4),
            (kinds(None, 0), 3, 0, 3),
            (kinds(Some(9), 0), 4, 0, 4),
            (kinds(None, 4), 8, 4, 4),
            (kinds(None, 9), 8, 4, 4),
            (kinds(None, 4), 6, 4, 2),
            (kinds(None, 4), 5, 4, 1),
            (kinds(None, 4), 4, 0, 4),
            (kinds(None, 4), 1, 0, 1),
            (kinds(Some(1), 2), 3, 1, 2),
            (kinds(Some(1), 2), 2, 1, 1),
            (kinds(Some(1), 2), 1, 0, 1),
        ] {
            assert_eq!(wanted.granted(granted), Kinds { reads, others }, "{wanted:?} {granted}");
        }
        assert_eq!(kinds(Some(2), 1).total(), 3);
        let (me, other) = (WorkerId(1), WorkerId(2));
        let all = [(1, me, Takes::Others), (2, me, Takes::Reads), (3, other, Takes::Reads)];
        assert_eq!(kinds(Some(2), 1).pairs().collect::<Vec<_>>(), all);
    }

    #[test]
    fn who_was_told_to_stop_is_waited_for_however_often_that_is_said() {
        let mut queues = QueueSet::default();
        queues.ask(Kinds { reads: 2, others: 1 });
        assert_eq!(queues.stop().count(), 2);
        queues.stopped(WorkerId(1));
        assert_eq!(queues.stop().count(), 0, "nobody is told twice");
        assert!(!queues.all_stopped(), "the second one still has its queue pair");
        queues.stopped(WorkerId(2));
        assert!(queues.all_stopped());
    }
}
