//! Flushes of one file that run beside each other.
//!
//! Data that could not be written is reported once for each open file: to one of the flushes that
//! run at that moment, and to no other, nor to a later one. The others may end well, and even
//! earlier, although what they stand for is lost. So one that went well is told only when all those
//! have ended that ran at its end: the engine hears of an error first (reliability F39).
//!
//! Of those of the whole file one runs at a time, and all that come meanwhile share the next: each
//! stands for what was written before it came, and one that begins later stands for more.

use anabranch_proto::machine::DiskId;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Flushes {
    started: u64,
    /// Those with the system, by number.
    running: VecDeque<u64>,
    /// Those that went well, each with the number of the first that it need not wait for.
    held: VecDeque<(DiskId, u64)>,
    /// One of the whole file is with the system.
    whole: bool,
    /// What else that one stands for.
    shared: Vec<DiskId>,
    /// What the next one will stand for.
    waiting: Vec<DiskId>,
}

impl Flushes {
    /// Whether one of the whole file waits for the one that runs.
    pub(super) fn waits(&mut self, id: DiskId) -> bool {
        if self.whole {
            self.waiting.push(id);
        }
        std::mem::replace(&mut self.whole, true)
    }

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

    /// Who shares the one of the whole file.
    pub(super) fn shared(&self) -> &[DiskId] {
        &self.shared
    }

    /// Keeps one that has ended well, and who shares it if it is of the whole file.
    pub(super) fn hold(&mut self, id: DiskId, whole: bool) {
        let shared = if whole { &self.shared[..] } else { &[] };
        let before = self.started;
        self.held.extend([id].iter().chain(shared).map(|&id| (id, before)));
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

    /// The one of the whole file has ended: the next one, if somebody waits for it.
    pub(super) fn next(&mut self) -> Option<DiskId> {
        self.shared.clear();
        std::mem::swap(&mut self.shared, &mut self.waiting);
        let next = self.shared.pop();
        self.whole = next.is_some();
        next
    }
}
