//! Flushes of one file that run beside each other.
//!
//! Data that could not be written is reported once for each open file: to one of the flushes that
//! run at that moment, and to no other, nor to a later one. The others may end well, and even
//! earlier, although what they stand for is lost. So one that went well is told only when all those
//! have ended that ran at its end: the engine hears of an error first (reliability F39).

use anabranch_proto::machine::DiskId;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Flushes {
    started: u64,
    /// Those with the system, by number.
    running: VecDeque<u64>,
    /// Those that went well, each with the number of the first that it need not wait for.
    held: VecDeque<(DiskId, u64)>,
}

impl Flushes {
    /// One begins; its number.
    pub(super) fn begin(&mut self) -> u64 {
        let number = self.started;
        self.started += 1;
        self.running.push_back(number);
        number
    }

    /// One has ended.
    pub(super) fn end(&mut self, number: u64) {
        if let Ok(place) = self.running.binary_search(&number) {
            self.running.remove(place);
        }
    }

    /// Keeps one that has ended well.
    pub(super) fn hold(&mut self, id: DiskId) {
        self.held.push_back((id, self.started));
    }

    /// The next one that may be told.
    pub(super) fn release(&mut self) -> Option<DiskId> {
        let &(id, before) = self.held.front()?;
        if self.running.front().is_some_and(|oldest| *oldest < before) {
            return None;
        }
        self.held.pop_front();
        Some(id)
    }
}
