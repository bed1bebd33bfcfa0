//! How the heads of a shard share a table.
//!
//! A head that waits for a path, perhaps for ever, keeps its places; the others must go on. So each
//! head has a few places that nobody else takes, and of those that all share it never has more than
//! it leaves to the others.
//!
//! What heads hold when another one comes they need not give back. Places for the first heads are
//! there from the start; with each one more the table grows by [`FEW`], which the others leave to
//! it.

/// For so many heads the places of their own are set apart from the start: one that comes later
/// finds them, whatever the others hold. More heads have fewer places each.
const HEADS: u32 = 16;

/// So many places at least wait for a head that has none, whenever it comes (as far as its own part
/// is not smaller), and as many as a head may need at once.
const FEW: u32 = 8;

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
    /// What waits for a head that has nothing.
    few: u32,
    /// Places in the whole table.
    places: u32,
    /// All that are taken.
    used: u32,
    /// Free ones that wait for heads with fewer than a few.
    owed: u32,
}

impl Shares {
    /// For a table in which a head may have `alone` places, at least 1, while no other has any.
    pub(super) fn new(alone: u32) -> Shares {
        let alone = alone.clamp(1, ALONE_MAX);
        let own = own(alone, 0);
        let (common, few) = (2 * (alone - own), own.min(FEW));
        let mut shares =
            Shares { alone, own, common, taken: 0, few, places: 0, used: 0, owed: few * HEADS };
        shares.places = shares.places_for(0);
        shares
    }

    /// Places in the whole table; more heads than [`HEADS`] have more.
    pub(super) fn places(&self) -> u32 {
        self.places
    }

    fn places_for(&self, heads: u32) -> u32 {
        own(self.alone, 0) * HEADS + self.common + self.few * heads.saturating_sub(HEADS)
    }

    /// Whether a head that has `held` places may take so many more.
    #[inline]
    pub(super) fn has_room(&self, held: u32, more: u32) -> bool {
        let fair = held < self.own || held - self.own < self.common.saturating_sub(self.taken);
        let owed_to_others = self.owed - self.few.saturating_sub(held).min(more);
        fair && self.used + owed_to_others + more <= self.places
    }

    /// A head takes a place.
    #[inline]
    pub(super) fn take(&mut self, held: &mut u32) {
        self.taken += u32::from(*held >= self.own);
        self.owed -= u32::from(*held < self.few);
        self.used += 1;
        *held += 1;
    }

    /// A head gives a place back.
    #[inline]
    pub(super) fn give(&mut self, held: &mut u32) {
        *held -= 1;
        self.taken -= u32::from(*held >= self.own);
        self.owed += u32::from(*held < self.few);
        self.used -= 1;
    }

    /// Heads have come or gone: how many there are, what each of them has, and how many places one
    /// may need at once.
    pub(super) fn deal(&mut self, heads: usize, at_once: usize, held: impl Iterator<Item = u32>) {
        let at_once = u32::try_from(at_once).unwrap_or(u32::MAX);
        // Never fewer again: others hold what they were given.
        self.few = self.few.max(own(self.alone, 0).min(FEW.max(at_once)));
        self.own = own(self.alone, heads);
        let heads = u32::try_from(heads).unwrap_or(u32::MAX);
        self.places = self.places_for(heads);
        (self.taken, self.owed) = (0, self.few * HEADS.saturating_sub(heads));
        for held in held {
            self.taken += held.saturating_sub(self.own);
            self.owed += self.few.saturating_sub(held);
        }
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
        while shares.has_room(*held, 1) {
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
    fn a_head_finds_a_few_places_however_many_greedy_ones_were_there_before() {
        for alone in [1, 16, 64, 4096] {
            let (mut shares, mut held) = (Shares::new(alone), vec![]);
            for heads in 1..=100 {
                held.push(0);
                shares.deal(heads, 1, held.iter().copied());
                let own = own(alone, heads);
                let newest = held.last_mut().expect("just pushed");
                fill(&mut shares, newest);
                assert!(*newest >= own.min(FEW).min(shares.few), "{newest} of {alone}, {heads}");
                assert!(held.iter().sum::<u32>() <= shares.places(), "{alone}, {heads}");
                // Those that were there first take nothing of what waits for others.
                held.iter_mut().for_each(|held| fill(&mut shares, held));
            }
            assert!(shares.places() <= 3 * alone + 100 * FEW + HEADS);
        }
    }

    /// One of them needs many places at once, for a while; what the others hold then is theirs.
    #[test]
    fn a_head_finds_its_places_whatever_one_has_needed_at_once() {
        let (mut shares, mut held) = (Shares::new(4096), vec![]);
        for (heads, at_once) in [(16, 1), (40, 24), (41, 1)] {
            held.resize(heads - 1, 0);
            shares.deal(heads, at_once, held.iter().copied().chain([0]));
            held.iter_mut().for_each(|held| fill(&mut shares, held));
            assert!(shares.has_room(0, FEW), "{at_once}");
        }
    }

    #[test]
    fn heads_that_come_and_go_beside_greedy_ones_do_not_let_the_table_grow() {
        let (mut shares, mut held) = (Shares::new(64), vec![0; 17]);
        shares.deal(held.len(), 1, held.iter().copied());
        let places = shares.places();
        for _ in 0..100 {
            held.iter_mut().for_each(|held| fill(&mut shares, held));
            let mut leaving = held.pop().expect("the last");
            (0..leaving).for_each(|_| shares.give(&mut leaving));
            shares.deal(held.len(), 1, held.iter().copied());
            held.iter_mut().for_each(|held| fill(&mut shares, held));
            held.push(0);
            shares.deal(held.len(), 1, held.iter().copied());
            assert_eq!(shares.places(), places);
            assert!(shares.has_room(0, 1));
        }
    }

    #[test]
    fn whatever_is_dealt_in_between_all_places_come_back() {
        let (mut shares, mut held) = (Shares::new(64), vec![0; 3]);
        for heads in [3, 40, 100, 2] {
            held.iter_mut().for_each(|held| fill(&mut shares, held));
            shares.deal(heads, 1, held.iter().copied());
            held.iter_mut().for_each(|held| (0..*held / 2).for_each(|_| shares.give(held)));
        }
        held.iter_mut().for_each(|held| (0..*held).for_each(|_| shares.give(held)));
        assert_eq!((shares.taken, shares.used), (0, 0));
    }
}
