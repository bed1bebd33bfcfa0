//! The table of commands in progress.

use super::Slot;
use crate::machine::BufRef;
use crate::nvme::{Sqe, Status};
use alloc::vec::Vec;

/// Where a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The slot is free.
    #[default]
    Free,
    /// Its in-capsule data is coming.
    Capsule,
    /// The engine has it, or will have it with the next event.
    WithEngine,
    /// An R2T waits to be sent.
    Asking,
    /// The R2T was sent; data is coming.
    Receiving,
    /// The answer waits to be sent or is being sent.
    Answered,
}

/// One command in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) stage: Stage,
    pub(super) cid: u16,
    /// Four bits that tell one transfer tag of this slot from the next.
    pub(super) generation: u16,
    /// The host's data as it comes, or the data to send.
    pub(super) buf: Option<BufRef>,
    /// Its data came in the capsule, or is coming.
    pub(super) capsule: bool,
    /// `buf` is data to send.
    pub(super) outgoing: bool,
    /// Bytes of `buf` that have come.
    pub(super) done: u32,
    /// Some data that came failed its digest.
    pub(super) damaged: bool,
    /// The engine has answered before all data had come.
    pub(super) answered_early: bool,
    /// By [`TargetQueue::mark_untold`](super::TargetQueue::mark_untold).
    pub(super) marked: bool,
    pub(super) status: Status,
    pub(super) result: u64,
}

/// Words of a set of CIDs, which have 16 bits.
const CID_WORDS: usize = (1 << 16) / u64::BITS as usize;

/// Slots, and which CIDs they hold: 8 KiB, so that looking for one does not depend on their number.
#[derive(Debug, Default)]
pub(super) struct Slots {
    states: Vec<State>,
    /// What each slot's command is, as it came.
    sqes: Vec<Sqe>,
    cids: Vec<u64>,
    free: Vec<u16>,
}

/// Where a set of CIDs has a CID: word and bit.
fn place(cid: u16) -> (usize, u64) {
    (usize::from(cid / u64::BITS as u16), 1 << (u32::from(cid) % u64::BITS))
}

impl Slots {
    /// At least `depth` slots.
    pub(super) fn grow(&mut self, depth: u16) {
        let have = self.states.len();
        let want = usize::from(depth).max(have);
        self.states.resize(want, State::default());
        self.sqes.resize(want, Sqe::new(0));
        self.cids.resize(CID_WORDS, 0);
        self.free.reserve(want - self.free.len());
        // Low numbers are used first.
        let fresh = have as u16..want as u16;
        self.free.splice(0..0, fresh.rev());
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        let slots = self.states.capacity() + self.sqes.capacity();
        slots + self.cids.capacity() + self.free.capacity()
    }

    pub(super) fn in_use(&self) -> u16 {
        (self.states.len() - self.free.len()) as u16
    }

    pub(super) fn has_cid(&self, cid: u16) -> bool {
        let (word, bit) = place(cid);
        self.cids[word] & bit != 0
    }

    pub(super) fn any_in_use(&self) -> Option<Slot> {
        let found = self.states.iter().position(|state| state.stage != Stage::Free)?;
        Some(Slot(found as u16))
    }

    /// Takes a slot; the caller has checked that one is free.
    pub(super) fn take(&mut self, sqe: &Sqe, stage: Stage) -> Option<Slot> {
        let slot = self.free.pop()?;
        let cid = sqe.cid();
        self.sqes[usize::from(slot)] = *sqe;
        let state = &mut self.states[usize::from(slot)];
        *state = State { stage, cid, generation: state.generation, ..State::default() };
        let (word, bit) = place(cid);
        self.cids[word] |= bit;
        Some(Slot(slot))
    }

    /// Gives a slot back.
    pub(super) fn release(&mut self, slot: Slot) {
        let state = &mut self.states[usize::from(slot.0)];
        state.stage = Stage::Free;
        let (word, bit) = place(state.cid);
        self.cids[word] &= !bit;
        self.free.push(slot.0);
    }

    pub(super) fn at(&mut self, slot: Slot) -> &mut State {
        &mut self.states[usize::from(slot.0)]
    }

    pub(super) fn get(&self, slot: Slot) -> &State {
        &self.states[usize::from(slot.0)]
    }

    pub(super) fn sqe(&self, slot: Slot) -> &Sqe {
        &self.sqes[usize::from(slot.0)]
    }

    /// The transfer tag of the slot's current transfer.
    pub(super) fn ttag(&self, slot: Slot) -> u16 {
        self.get(slot).generation << 12 | slot.0
    }

    /// The slot that a transfer tag names, when it names the current transfer of one.
    pub(super) fn by_ttag(&self, ttag: u16) -> Option<Slot> {
        let slot = Slot(ttag & 0xfff);
        let state = self.states.get(usize::from(slot.0))?;
        (state.stage == Stage::Receiving && self.ttag(slot) == ttag).then_some(slot)
    }
}
