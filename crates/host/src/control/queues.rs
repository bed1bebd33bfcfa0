//! The I/O queue pairs of one controller, as control sees them: how many of which kind, who owns
//! one, who has yet to answer.

use crate::config::ControllerOptions;
use crate::mail::Takes;
use alloc::vec::Vec;
use anabranch_proto::machine::WorkerId;

/// How many queue pairs there are of which kind. Those of each kind are spread over the [`Seats`].
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
    pub(super) fn pairs(self, seats: Seats) -> impl Iterator<Item = (u16, WorkerId, Takes)> {
        let takes = if self.reads > 0 { Takes::Others } else { Takes::All };
        let Kinds { reads, others } = self;
        let of_others = move |at| (at + 1, seats.at(at, others), takes);
        let of_reads = move |at| (others + at + 1, seats.at(at, reads), Takes::Reads);
        (0..others).map(of_others).chain((0..reads).map(of_reads))
    }
}

/// Which data workers own the queue pairs of a controller. Where there are fewer of those than
/// workers they are spread evenly, for workers that stand together may be of one NUMA node, and the
/// controllers begin with different ones: the first workers do not have the I/O of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seats {
    /// The first one, from 0.
    first: u16,
    workers: u16,
}

impl Seats {
    /// For the controller of this number.
    pub(super) fn of(controller: u32, workers: u16) -> Seats {
        let workers = workers.max(1);
        // Less than there are workers.
        Seats { first: (controller % u32::from(workers)) as u16, workers }
    }

    /// From the first worker on.
    pub(super) fn from_first(workers: u16) -> Seats {
        Seats { first: 0, workers: workers.max(1) }
    }

    /// The owner of one of so many.
    fn at(self, place: u16, count: u16) -> WorkerId {
        let [place, count] = [place, count.max(1)].map(u32::from);
        let [first, workers] = [self.first, self.workers].map(u32::from);
        // Less than there are workers.
        WorkerId(((first + place * workers / count) % workers) as u16 + 1)
    }

    /// For each data worker in order, whose queue pair it submits through when there are so many:
    /// its own, or that of the nearest one before it that has one.
    fn shared(self, count: u16) -> Vec<WorkerId> {
        let [all, first, workers] = [count.max(1), self.first, self.workers].map(u32::from);
        let place = |worker| {
            let behind_first = (worker + workers - first) % workers;
            ((behind_first + 1) * all - 1) / workers
        };
        (0..workers).map(|worker| self.at(place(worker) as u16, count)).collect()
    }
}

/// For each data worker in order, who owns the queue pair that it submits through.
pub(super) struct Owners {
    pub(super) reads: Vec<WorkerId>,
    pub(super) others: Vec<WorkerId>,
}

/// Queue pairs of one association.
#[derive(Debug, Default)]
pub(super) struct QueueSet {
    kinds: Kinds,
    seats: Seats,
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
    pub(super) fn ask(&mut self, kinds: Kinds, seats: Seats) {
        (self.kinds, self.seats) = (kinds, seats);
        self.asked = true;
        self.opening = kinds.pairs(seats).map(|(qid, ..)| qid).collect();
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
        let mut owners = Vec::new();
        if core::mem::take(&mut self.asked) {
            owners.extend(self.kinds.pairs(self.seats).map(|(_, owner, _)| owner));
            owners.sort_unstable();
            owners.dedup();
            self.stopping.clone_from(&owners);
        }
        owners.into_iter()
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
        let Kinds { reads, others } = self.kinds;
        let seats = if others > 0 { self.seats } else { Seats::from_first(workers) };
        Owners {
            reads: seats.shared(if reads > 0 { reads } else { others }),
            others: seats.shared(others),
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
        let (me, other) = (WorkerId(1), WorkerId(3));
        let all = [(1, me, Takes::Others), (2, me, Takes::Reads), (3, other, Takes::Reads)];
        assert_eq!(kinds(Some(2), 1).pairs(Seats::from_first(4)).collect::<Vec<_>>(), all);
    }

    #[test]
    fn who_was_told_to_stop_is_waited_for_however_often_that_is_said() {
        let mut queues = QueueSet::default();
        queues.ask(Kinds { reads: 2, others: 1 }, Seats::from_first(2));
        assert_eq!(queues.stop().count(), 2);
        queues.stopped(WorkerId(1));
        assert_eq!(queues.stop().count(), 0, "nobody is told twice");
        assert!(!queues.all_stopped(), "the second one still has its queue pair");
        queues.stopped(WorkerId(2));
        assert!(queues.all_stopped());
    }

    #[test]
    fn controllers_with_few_queue_pairs_have_them_with_different_workers() {
        let owners = |controller: u32, reads: u16, others: u16| {
            let kinds = Kinds { reads, others };
            let mut queues = QueueSet::default();
            queues.ask(kinds, Seats::of(controller, 4));
            let Owners { reads, others } = queues.owners(4);
            let mut pairs: Vec<u16> = kinds.pairs(queues.seats).map(|(_, it, _)| it.0).collect();
            pairs.sort_unstable();
            pairs.dedup();
            let mut told: Vec<u16> = queues.stop().map(|it| it.0).collect();
            told.sort_unstable();
            assert_eq!(told, pairs, "who has one is told to stop it");
            [reads, others].map(|them| them.iter().map(|it| it.0).collect::<Vec<_>>())
        };
        assert_eq!(owners(0, 0, 2), [[1, 1, 3, 3]; 2]);
        assert_eq!(owners(1, 0, 2), [[4, 2, 2, 4]; 2]);
        assert_eq!(owners(5, 0, 3), [[4, 2, 3, 4]; 2]);
        assert_eq!(owners(3, 0, 1), [[4; 4]; 2]);
        assert_eq!(owners(3, 4, 1), [[1, 2, 3, 4], [4; 4]]);
        assert_eq!(owners(1, 1, 4), [[2; 4], [1, 2, 3, 4]]);
        for controller in 0..9 {
            assert_eq!(owners(controller, 0, 4), [[1, 2, 3, 4]; 2], "each has its own");
        }
    }
}
