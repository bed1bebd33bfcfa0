//! Payload memory of a worker, and how the devices share it.
//!
//! What a device without a path has taken stays with it, perhaps for ever, and the clients of the
//! others must go on. So each device has some memory that nobody else takes, and of the rest it
//! never has more than it leaves to the others: alone it has about 3/8 of the pool.
//!
//! Nor does a client that reads no answers, or stops in the middle of a write, ever give back what
//! it has. So each client of a device never has more than it leaves to the device's other clients,
//! but for a little that each can always have: one piece of the shortest, or as much in small ones.

use super::transfer::Wait;
use super::{LEAST_PIECE_BYTES, MAX_EXPORTS};
use anabranch_host::topology::HeadId;
use anabranch_proto::machine::{BufRef, Buffers};

/// This part of the pool is set apart for the devices, each its own piece of it.
const APART: u64 = 4;

/// For so many devices, as many as there may be: one that is opened later finds its piece, whatever
/// the others hold.
const DEVICES: u64 = MAX_EXPORTS as u64;

/// Set apart at least, where that is no more than half: a piece of the shortest for each device,
/// and as much for the one that each of so many clients can always have.
const APART_MIN: u64 = 2 * DEVICES * LEAST_PIECE_BYTES as u64;

/// What each device holds of the pool, in bytes as the pool counts them.
#[derive(Default)]
pub(super) struct Shares {
    /// Set apart for each device.
    own: u64,
    /// The part of each in all of it.
    part: u64,
    /// For all.
    common: u64,
    /// Of it, what is taken.
    taken: u64,
    /// Of the devices that hold any.
    held: Vec<(HeadId, u64)>,
    /// Something came back since somebody looked.
    freed: bool,
}

impl Shares {
    /// Of a pool of so many bytes.
    pub(super) fn new(capacity: u64) -> Shares {
        let apart = (capacity / APART).max(APART_MIN.min(capacity / 2));
        let (own, part) = (apart / DEVICES, capacity / DEVICES);
        Shares { own, part, common: capacity - apart, ..Shares::default() }
    }

    /// Whether something came back since the last time.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    fn held(&self, head: HeadId) -> u64 {
        self.held.iter().find(|(of, _)| *of == head).map_or(0, |(_, held)| *held)
    }

    /// Whether a client of a device, that has some of it already, may take so much more. A device
    /// that has nothing may always take as much as is its own; more of its part for a piece that
    /// cannot be shorter.
    fn has_room(&self, head: HeadId, client: &Held, cost: u64, whole: bool) -> bool {
        let held = self.held(head);
        // What the device may have and leave as much to others.
        let left = (self.common.saturating_sub(self.taken) + self.own).saturating_sub(held);
        let at_once = if whole { self.part.max(self.own) } else { self.own };
        held == 0 && cost <= at_once || client.0 + cost <= left
    }

    fn take(&mut self, head: HeadId, client: &mut Held, cost: u64) {
        let place = self.held.iter_mut().find(|(of, _)| *of == head);
        let before = place.as_ref().map_or(0, |(_, held)| *held);
        self.taken += (before + cost).saturating_sub(self.own) - before.saturating_sub(self.own);
        match place {
            Some((_, held)) => *held += cost,
            None => self.held.push((head, cost)),
        }
        client.0 += cost;
    }

    fn give(&mut self, head: HeadId, client: &mut Held, cost: u64) {
        let Some(at) = self.held.iter().position(|(of, _)| *of == head) else {
            unreachable!("who gives something back has taken it");
        };
        let held = &mut self.held[at].1;
        self.taken -= held.saturating_sub(self.own) - (*held - cost).saturating_sub(self.own);
        *held -= cost;
        if *held == 0 {
            self.held.swap_remove(at);
        }
        client.0 -= cost;
        self.freed = true;
    }
}

/// What one client holds, in bytes as the pool counts them.
#[derive(Default)]
pub(super) struct Held(u64);

/// The pool, as clients use it.
pub(super) struct Memory<'a> {
    pub(super) bufs: &'a mut dyn Buffers,
    pub(super) shares: &'a mut Shares,
}

impl Memory<'_> {
    /// A buffer for I/O of a device; `whole`: a shorter one is of no use.
    ///
    /// # Errors
    /// There is none: what to wait for. A client that has something waits for that to end, and
    /// stands in nobody's way.
    pub(super) fn take(
        &mut self,
        head: HeadId,
        client: &mut Held,
        (len, whole): (u32, bool),
    ) -> Result<BufRef, Wait> {
        let cost = self.bufs.cost(len);
        // In requests of any size: one of 4 KiB does not keep the next from being sent.
        let least = client.0 + cost <= self.bufs.cost(LEAST_PIECE_BYTES);
        if !least && !self.shares.has_room(head, client, cost, whole) {
            return Err(if client.0 > 0 { Wait::Own } else { Wait::Share });
        }
        let buf = self.bufs.alloc(len).ok_or(Wait::Memory)?;
        self.shares.take(head, client, cost);
        Ok(buf)
    }

    /// Gives a whole buffer back.
    pub(super) fn give(&mut self, head: HeadId, client: &mut Held, buf: BufRef) {
        self.shares.give(head, client, self.bufs.cost(buf.len()));
        self.bufs.free(buf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn shares() -> Shares {
        Shares::new(256 * MIB)
    }

    /// Takes all that a client of a device may have, and says how much that is.
    fn fill(shares: &mut Shares, head: u32, cost: u64) -> u64 {
        let mut client = Held::default();
        while shares.has_room(HeadId(head), &client, cost, false) {
            shares.take(HeadId(head), &mut client, cost);
        }
        client.0
    }

    /// The same for as many clients as it takes.
    fn fill_device(shares: &mut Shares, head: u32, cost: u64) -> u64 {
        core::iter::from_fn(|| Some(fill(shares, head, cost)).filter(|&got| got > 0)).sum()
    }

    #[test]
    fn alone_a_device_has_what_it_is_promised() {
        for cost in [4096, MIB] {
            let got = fill_device(&mut shares(), 0, cost);
            assert!((95 * MIB..=101 * MIB).contains(&got), "{got}");
        }
    }

    #[test]
    fn devices_that_are_gone_leave_nothing_behind() {
        let (mut shares, mut client) = (shares(), Held::default());
        for head in 0..1000 {
            shares.take(HeadId(head), &mut client, MIB);
            shares.give(HeadId(head), &mut client, MIB);
        }
        assert!(shares.held.capacity() < 16, "{}", shares.held.capacity());
    }

    #[test]
    fn greedy_devices_leave_their_own_to_those_that_come_later() {
        let mut shares = shares();
        let got: Vec<u64> = (0..256).map(|head| fill_device(&mut shares, head, 4096)).collect();
        assert!(got.iter().all(|&got| got >= MIB / 4), "{got:?}");
        assert!(got[1] >= got[0] / 2, "the second has half of what the first has");
        assert!(got.iter().sum::<u64>() <= 256 * MIB);
    }

    /// In any pool: a piece of the shortest is there for each device, and for clients that have
    /// nothing.
    #[test]
    fn whatever_devices_take_each_other_one_finds_its_own() {
        for capacity in [64 * MIB, 100 * MIB, 128 * MIB, 256 * MIB, 1024 * MIB] {
            let mut shares = Shares::new(capacity);
            let least = u64::from(LEAST_PIECE_BYTES);
            assert!(shares.own >= least);
            let got = (0..256).map(|head| {
                // The longest that it may, down to the shortest.
                let sizes = (0..5).map(|half| MIB >> half);
                sizes.map(|cost| fill_device(&mut shares, head, cost)).sum::<u64>()
            });
            let got: Vec<u64> = got.collect();
            assert!(got.iter().all(|&got| got >= least), "{capacity}: {got:?}");
            let all = got.iter().sum::<u64>();
            assert!(all <= capacity, "{capacity}: {all}");
        }
    }

    #[test]
    fn a_greedy_client_leaves_as_much_to_the_others_of_its_device() {
        let mut shares = shares();
        let got: Vec<u64> = (0..8).map(|_| fill(&mut shares, 0, 4096)).collect();
        assert!(got[0] >= 60 * MIB, "{got:?}");
        assert!(got.windows(2).all(|pair| pair[1] >= pair[0] / 4), "{got:?}");
        assert!(got[7] > 0, "{got:?}");
    }

    #[test]
    fn a_device_that_has_nothing_may_take_a_piece_that_is_longer_than_its_own() {
        let mut shares = shares();
        (0..255).for_each(|head| assert!(fill_device(&mut shares, head, MIB / 4) > 0));
        let nothing = Held::default();
        assert!(shares.has_room(HeadId(255), &nothing, MIB, true), "it cannot be shorter");
        assert!(!shares.has_room(HeadId(255), &nothing, MIB, false), "a quarter is its own");
        assert!(shares.has_room(HeadId(255), &nothing, MIB / 4, false));
    }

    #[test]
    fn all_comes_back() {
        let mut shares = shares();
        let mut clients = [const { Held(0) }; 3];
        for _ in 0..4 {
            for (head, client) in (0..).map(HeadId).zip(&mut clients) {
                while shares.has_room(head, client, MIB, false) {
                    shares.take(head, client, MIB);
                }
            }
            for (head, client) in (0..).map(HeadId).zip(&mut clients) {
                shares.give(head, client, MIB);
            }
        }
        for (head, client) in (0..).map(HeadId).zip(&mut clients) {
            let all = client.0;
            shares.give(head, client, all);
        }
        assert_eq!((shares.taken, shares.held.len()), (0, 0));
        assert!(shares.take_freed() && !shares.take_freed());
    }
}
