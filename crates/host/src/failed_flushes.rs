//! Flushes that a controller has failed, and who has still to be told of them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How often a controller has failed a flush of a head, or a write that was to be durable.
///
/// What it could not make durable may have been written by any user, and a later flush succeeds: it
/// has nothing left to fail with. So each user compares the count with that when it flushed last.
///
/// One that has left without a word may come back, as a newcomer, for the answer to a flush that it
/// was not given. So it leaves a *debt*: what it knew. A newcomer, whoever it is, knows what the
/// least knew who has left, and when it was told of more in that one's place the debt is settled:
/// it is told of a loss that may not have been its own rather than not of one that was. (As Linux
/// has it for files: an error that nobody has seen is told to who opens the file next.) A debt is
/// void when a flush that began after it has succeeded, with every controller that was owed one,
/// and none has failed that its debtor does not know of: what it had written is durable then.
///
/// Users of all workers change this at once. Where they meet, one may be told too much, nobody too
/// little.
#[derive(Debug)]
pub struct FailedFlushes {
    count: AtomicU64,
    /// What users have submitted to make data durable, and has not ended.
    under_way: AtomicU32,
    /// How often a flush has succeeded without a controller that is still owed one.
    passed_over: AtomicU64,
    /// Of the debt that was left last; 0 before the first one.
    sequence: AtomicU32,
    debts: [AtomicU64; DEBTS],
}

/// So many are told apart: each namespace has them. Of more, two are one: it tells of as much, but
/// to one newcomer.
const DEBTS: usize = 16;

/// As what a newcomer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Of so many failed flushes it is taken to know.
    pub known: u64,
    /// So many there were.
    pub count: u64,
    /// It stands in for those who had left by then.
    since: u32,
}

/// How things were when something began that makes data durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    count: u64,
    passed_over: u64,
    since: u32,
}

/// What is owed to one who has left.
#[derive(Clone, Copy)]
struct Debt {
    /// Debts are numbered in the order in which they were left; not 0. The numbers begin anew after
    /// the last one: of two, the later one is less than half of all numbers ahead.
    sequence: u32,
    /// Of so many it knew, or of more.
    known: u32,
}

impl Default for FailedFlushes {
    fn default() -> FailedFlushes {
        FailedFlushes {
            count: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            passed_over: AtomicU64::new(0),
            sequence: AtomicU32::new(0),
            debts: [const { AtomicU64::new(0) }; DEBTS],
        }
    }
}

impl FailedFlushes {
    /// One more.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// A flush goes on without a controller that cannot be asked: what that one has acknowledged is
    /// still to be made durable, and may fail then.
    pub(crate) fn pass_over(&self) {
        self.passed_over.fetch_add(1, Ordering::AcqRel);
    }

    /// A newcomer, in the place of all who have left.
    #[must_use]
    pub fn join(&self) -> Standing {
        // In this order: what comes meanwhile is told rather than settled unheard.
        let since = self.sequence.load(Ordering::Acquire);
        let count = self.count();
        let least = self.debts().map(|(_, debt)| u64::from(debt.known)).min();
        Standing { known: least.map_or(count, |known| known.min(count)), count, since }
    }

    /// Who knows of so many leaves, and may come back.
    pub fn leave(&self, known: u64) {
        let sequence = self.next_sequence();
        let debt = Debt { sequence, known: u32::try_from(known).unwrap_or(u32::MAX) };
        let is_free = |slot: &AtomicU64| change(slot, 0, debt.packed());
        // Whoever is in the way has left a debt, or had one settled.
        while !self.debts.iter().any(is_free) {
            // The one that knew most is owed least.
            let Some((slot, other)) = self.debts().max_by_key(|(_, debt)| debt.known) else {
                continue;
            };
            let known = other.known.min(debt.known);
            let newest = is_by(other.sequence, sequence);
            let sequence = if newest { sequence } else { other.sequence };
            if change(slot, other.packed(), Debt { sequence, known }.packed()) {
                return;
            }
        }
    }

    /// A newcomer leaves, and may come back, that has heard of nothing since. It may be one of
    /// those for whom it stood in: what that one is owed is still owed, and not to be settled by
    /// others who stood in beside it.
    pub fn leave_unheard(&self, standing: &Standing) {
        let owed = standing.known < standing.count;
        let renewed = owed && self.renew(standing);
        self.leave(if owed && !renewed { standing.known } else { standing.count });
    }

    /// One has heard of so many in the place of those who had left: one of them is not told of that
    /// again, and it stands in for nobody any more.
    pub fn told(&self, standing: Standing, now: u64) {
        while let Some((slot, debt)) = self.least(&standing, now) {
            if change(slot, debt.packed(), 0) {
                return;
            }
        }
    }

    /// Something begins that makes data durable: a flush, or a write that is durable when it ends.
    #[must_use]
    pub fn begin(&self) -> Mark {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let passed_over = self.passed_over.load(Ordering::Acquire);
        let since = self.sequence.load(Ordering::Acquire);
        Mark { count: self.count(), passed_over, since }
    }

    /// It has ended, and was a flush that succeeded or anything else.
    ///
    /// Of two that are under way at once a controller tells one of a loss, perhaps the one that
    /// ends later. So nothing is void while another is.
    pub fn end(&self, mark: Mark, flushed: bool) {
        // Before the count: those that have ended have counted.
        let last = self.under_way.fetch_sub(1, Ordering::AcqRel) == 1;
        let all = || self.passed_over.load(Ordering::Acquire) == mark.passed_over;
        if !flushed || !last || mark.since == 0 || self.count() != mark.count || !all() {
            return;
        }
        for (slot, debt) in self.debts() {
            if is_by(debt.sequence, mark.since) && u64::from(debt.known) >= mark.count {
                // Otherwise it is another one by now.
                change(slot, debt.packed(), 0);
            }
        }
    }

    /// A debt that was left before a newcomer came, which is owed, is as if left now.
    fn renew(&self, standing: &Standing) -> bool {
        let sequence = self.next_sequence();
        while let Some((slot, debt)) = self.least(standing, standing.count) {
            if change(slot, debt.packed(), Debt { sequence, ..debt }.packed()) {
                return true;
            }
        }
        false
    }

    /// The debt for which one stands in that knew least, and less than `below`.
    fn least(&self, standing: &Standing, below: u64) -> Option<(&AtomicU64, Debt)> {
        let its = self.debts().filter(|(_, debt)| {
            let known = standing.known..below;
            is_by(debt.sequence, standing.since) && known.contains(&u64::from(debt.known))
        });
        its.min_by_key(|(_, debt)| {
            (debt.known, u32::MAX - standing.since.wrapping_sub(debt.sequence))
        })
    }

    fn next_sequence(&self) -> u32 {
        self.sequence.fetch_add(1, Ordering::AcqRel).wrapping_add(1).max(1)
    }

    fn debts(&self) -> impl Iterator<Item = (&AtomicU64, Debt)> {
        let read = |slot| Some((slot, Debt::unpacked(AtomicU64::load(slot, Ordering::Acquire))?));
        self.debts.iter().filter_map(read)
    }
}

impl Debt {
    fn packed(self) -> u64 {
        u64::from(self.sequence) << 32 | u64::from(self.known)
    }

    fn unpacked(packed: u64) -> Option<Debt> {
        // The upper half, and the lower one.
        (packed != 0).then_some(Debt { sequence: (packed >> 32) as u32, known: packed as u32 })
    }
}

/// Whether a debt with this number was left when the newest one had that.
fn is_by(sequence: u32, newest: u32) -> bool {
    newest.wrapping_sub(sequence) < 1 << 31
}

fn change(slot: &AtomicU64, from: u64, to: u64) -> bool {
    slot.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests;
