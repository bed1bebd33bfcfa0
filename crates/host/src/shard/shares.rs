//! How the heads of a shard share a table.
//!
//! A head that waits for a path, perhaps for ever, keeps its places; the others must go on. So each
//! head has a few places that nobody else takes, and of those that all share it never has more than
//! it leaves to the others.

/// For so many heads the places of their own are set apart from the start: one that comes later
/// finds them, whatever the others hold. More heads have fewer places each.
const HEADS: u32 = 16;

/// The most that a head may have alone: tables are indexed with 32 bits.
const ALONE_MAX: u32 = 1 << 28;

/// The places of one table.
#[derive(Debug)]
pub(super) struct Shares {
    /// What a head has when all that is shared is left to it.
    alone: u32,
    /// Places of each head for itself.
    own: u32,
    /// Places for all.
    common: u32,
    /// Those of them that are taken; after a new deal perhaps more than there are.
    taken: u32,
}

impl Shares {
    /// For a table in which a head may have `alone` places, at least 1, while no other has any.
    pub(super) fn new(alone: u32) -> Shares {
        let alone = alone.clamp(1, ALONE_MAX);
        let own = own(alone, 0);
        Shares { alone, own, common: 2 * (alone - own), taken: 0 }
    }

    /// Places in the whole table.
    pub(super) fn places(&self) -> u32 {
        own(self.alone, 0) * HEADS + self.common
    }

    /// Whether a head that has `held` places may take another.
    #[inline]
    pub(super) fn has_room(&self, held: u32) -> bool {
        held < self.own || held - self.own < self.common.saturating_sub(self.taken)
    }

    /// A head takes a place.
    #[inline]
    pub(super) fn take(&mut self, held: &mut u32) {
        self.taken += u32::from(*held >= self.own);
        *held += 1;
    }

    /// A head gives a place back.
    #[inline]
    pub(super) fn give(&mut self, held: &mut u32) {
        *held -= 1;
        self.taken -= u32::from(*held >= self.own);
    }

    /// Heads have come or gone: how many there are, and what each of them has.
    pub(super) fn deal(&mut self, heads: usize, held: impl Iterator<Item = u32>) {
        self.own = own(self.alone, heads);
        self.taken = held.map(|held| held.saturating_sub(self.own)).sum();
    }
}

/// Places that each of so many heads has for itself.
fn own(alone: u32, heads: usize) -> u32 {
    (alone / u32::try_from(heads).unwrap_or(u32::MAX).max(HEADS)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Takes all that a head may have.
    fn fill(shares: &mut Shares, held: &mut u32) {
        while shares.has_room(*held) {
            shares.take(held);
        }
    }

    #[test]
    fn alone_a_head_has_what_it_is_promised() {
        for alone in [1, 2, 15, 64, 4096] {
            let (mut shares, mut held) = (Shares::new(alone), 0);
            fill(&mut shares, &mut held);
            assert_eq!(held, alone);
        }
    }

    #[test]
    fn greedy_heads_leave_places_to_each_that_comes_later() {
        for alone in [16, 64, 4096] {
            let (mut shares, mut held) = (Shares::new(alone), [0; HEADS as usize]);
            for head in &mut held {
                fill(&mut shares, head);
                assert!(*head >= alone / HEADS, "{head} of {alone}");
            }
            assert!(held[1] >= alone / 2, "the second has half of what the first has");
            assert!(held.iter().sum::<u32>() <= shares.places());
        }
    }

    #[test]
    fn whatever_is_dealt_in_between_all_places_come_back() {
        let (mut shares, mut held) = (Shares::new(64), vec![0; 3]);
        for heads in [3, 40, 100, 2] {
            held.iter_mut().for_each(|held| fill(&mut shares, held));
            shares.deal(heads, held.iter().copied());
            held.iter_mut().for_each(|held| (0..*held / 2).for_each(|_| shares.give(held)));
        }
        held.iter_mut().for_each(|held| (0..*held).for_each(|_| shares.give(held)));
        assert_eq!(shares.taken, 0);
    }
}
