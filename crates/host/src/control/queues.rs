//! The I/O queue pairs of one controller, as control sees them: who owns one, who has yet to
//! answer.

use alloc::vec::Vec;
use anabranch_proto::machine::WorkerId;

/// Queue pairs of one association.
#[derive(Debug, Default)]
pub(super) struct QueueSet {
    /// How many there are; queue `n` (from 1) belongs to worker `n`.
    count: u16,
    /// Some shard was asked to open one in this association.
    asked: bool,
    waiting: Vec<WorkerId>,
}

impl QueueSet {
    /// A new association: nothing is open.
    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.asked = false;
        self.waiting.clear();
    }

    /// `count` shards were told to open their queue pairs.
    pub(super) fn ask(&mut self, count: u16) {
        self.count = count;
        self.asked = true;
        self.waiting = (1..=count).map(WorkerId).collect();
    }

    /// The owners of queue pairs are to be told to stop them; gives back who has not been told yet.
    /// Who has been is still waited for.
    pub(super) fn stop(&mut self) -> impl Iterator<Item = WorkerId> + use<> {
        let count = if self.asked { self.count } else { 0 };
        if core::mem::take(&mut self.asked) {
            self.waiting = (1..=count).map(WorkerId).collect();
        }
        (1..=count).map(WorkerId)
    }

    /// One has answered. Answers that nobody waits for change nothing.
    pub(super) fn answered(&mut self, worker: WorkerId) {
        self.waiting.retain(|&waiting| waiting != worker);
    }

    /// Stops waiting and returns who did not answer.
    pub(super) fn give_up(&mut self) -> Vec<WorkerId> {
        core::mem::take(&mut self.waiting)
    }

    pub(super) fn all_answered(&self) -> bool {
        self.waiting.is_empty()
    }

    /// I/O queues in this (or the last) association.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// For each of `workers` data workers, who owns the queue pair that it submits through: workers
    /// beyond the granted number share the queues in turn.
    pub(super) fn owners(&self, workers: u16) -> Vec<WorkerId> {
        let count = self.count.max(1);
        (0..workers).map(|worker| WorkerId(worker % count + 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_told_to_stop_is_waited_for_however_often_that_is_said() {
        let mut queues = QueueSet::default();
        queues.ask(2);
        assert_eq!(queues.stop().count(), 2);
        queues.answered(WorkerId(1));
        assert_eq!(queues.stop().count(), 0, "nobody is told twice");
        assert!(!queues.all_answered(), "the second one still has its queue pair");
        queues.answered(WorkerId(2));
        assert!(queues.all_answered());
    }
}
