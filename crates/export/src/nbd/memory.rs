//! Payload memory of a worker, and how the devices share it.
//!
//! What a device without a path has taken stays with it, perhaps for ever, and the clients of the
//! others must go on. So each device has some memory that nobody else takes, and of the rest it
//! never has more than it leaves to the others: alone it has about 3/8 of the pool.

use super::MAX_EXPORTS;
use super::transfer::Wait;
use anabranch_host::topology::HeadId;
use anabranch_proto::machine::{BufRef, Buffers};

/// This part of the pool is set apart for the devices, each its own piece of it.
const APART: u64 = 4;

/// For so many devices, as many as there may be: one that is opened later finds its piece, whatever
/// the others hold.
const DEVICES: u64 = MAX_EXPORTS as u64;

/// What each device holds of the pool, in bytes as the pool counts them.
#[derive(Default)]
pub(super) struct Shares {
    /// Set apart for each device.
    own: u64,
    /// For all.
    common: u64,
    /// Of it, what is taken.
    taken: u64,
    /// By head.
    held: Vec<u64>,
    /// Something came back since somebody looked.
    freed: bool,
}

impl Shares {
    /// Of a pool of so many bytes.
    pub(super) fn new(capacity: u64) -> Shares {
        let apart = capacity / APART;
        Shares { own: apart / DEVICES, common: capacity - apart, ..Shares::default() }
    }

    /// A client has opened a device.
    pub(super) fn open(&mut self, head: HeadId) {
        let places = head.0 as usize + 1;
        if self.held.len() < places {
            self.held.resize(places, 0);
        }
    }

    /// Whether something came back since the last time.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Whether a device may take so much more. One that has nothing may always: a piece can be
    /// longer than the memory of its own.
    fn has_room(&self, head: HeadId, cost: u64) -> bool {
        let held = self.held[head.0 as usize];
        let after = (held + cost).saturating_sub(self.own);
        held == 0 || after == 0 || after <= self.common.saturating_sub(self.taken)
    }

    fn take(&mut self, head: HeadId, cost: u64) {
        let held = &mut self.held[head.0 as usize];
        self.taken += (*held + cost).saturating_sub(self.own) - held.saturating_sub(self.own);
        *held += cost;
    }

    fn give(&mut self, head: HeadId, cost: u64) {
        let held = &mut self.held[head.0 as usize];
        self.taken -= held.saturating_sub(self.own) - (*held - cost).saturating_sub(self.own);
        *held -= cost;
        self.freed = true;
    }
}

/// The pool, as clients use it.
pub(super) struct Memory<'a> {
    pub(super) bufs: &'a mut dyn Buffers,
    pub(super) shares: &'a mut Shares,
}

impl Memory<'_> {
    /// A buffer for I/O of a device.
    ///
    /// # Errors
    /// There is none: what to wait for.
    pub(super) fn take(&mut self, head: HeadId, len: u32) -> Result<BufRef, Wait> {
        let cost = self.bufs.cost(len);
        if !self.shares.has_room(head, cost) {
            return Err(Wait::Share);
        }
        let buf = self.bufs.alloc(len).ok_or(Wait::Memory)?;
        self.shares.take(head, cost);
        Ok(buf)
    }

    /// Gives a whole buffer back.
    pub(super) fn give(&mut self, head: HeadId, buf: BufRef) {
        self.shares.give(head, self.bufs.cost(buf.len()));
        self.bufs.free(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shares(devices: u32) -> Shares {
        let mut shares = Shares::new(256 * MIB);
        shares.open(HeadId(devices));
        shares
    }

    /// Takes all that a device may have, and says how much that is.
    fn fill(shares: &mut Shares, head: u32, cost: u64) -> u64 {
        let before = shares.held[head as usize];
        while shares.has_room(HeadId(head), cost) {
            shares.take(HeadId(head), cost);
        }
        shares.held[head as usize] - before
    }

    #[test]
    fn alone_a_device_has_what_it_is_promised() {
        for cost in [4096, MIB] {
            let got = fill(&mut shares(1), 0, cost);
            assert!((96 * MIB..=101 * MIB).contains(&got), "{got}");
        }
    }

    #[test]
    fn greedy_devices_leave_their_own_to_those_that_come_later() {
        let mut shares = shares(256);
        let got: Vec<u64> = (0..256).map(|head| fill(&mut shares, head, 4096)).collect();
        assert!(got.iter().all(|&got| got >= MIB / 4), "{got:?}");
        assert!(got[1] >= got[0] / 2, "the second has half of what the first has");
        assert!(got.iter().sum::<u64>() <= 256 * MIB);
    }

    #[test]
    fn a_device_that_has_nothing_may_take_a_piece_that_is_longer_than_its_own() {
        let mut shares = shares(256);
        (0..255).for_each(|head| assert!(fill(&mut shares, head, MIB) > 0));
        assert!(shares.has_room(HeadId(255), MIB));
    }

    #[test]
    fn all_comes_back() {
        let mut shares = shares(3);
        for _ in 0..4 {
            (0..3).for_each(|head| _ = fill(&mut shares, head, MIB));
            (0..3).for_each(|head| shares.give(HeadId(head), MIB));
        }
        for head in 0..3 {
            shares.give(HeadId(head), shares.held[head as usize]);
        }
        assert_eq!(shares.taken, 0);
        assert!(shares.take_freed() && !shares.take_freed());
    }
}
