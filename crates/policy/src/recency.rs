//! The paths of a head in the order in which one worker used them.
//!
//! Device-mapper's selectors keep their paths in a list and move the chosen one to its tail, so
//! that of equal paths the least recently used one wins; a path that joins, or comes back after it
//! had failed, gets in at the tail. This is that list, as positions in the head's list.

use crate::{AsCandidate, Candidate};

/// How many paths of a head are kept in order. Those behind them follow in list order and stay
/// where they are.
const ORDERED: usize = 64;

/// The order: the least recently used path first.
#[derive(Clone, Debug)]
pub(crate) struct Recency {
    order: [u8; ORDERED],
    len: u8,
}

const _: () = assert!(ORDERED <= 64 && ORDERED <= u8::MAX as usize);

impl Recency {
    /// Knows no path yet.
    pub(crate) const fn new() -> Recency {
        Recency { order: [0; ORDERED], len: 0 }
    }

    /// The best usable path, and what was compared. `better(a, b)` says whether `a`, which was used
    /// after `b`, is to be preferred all the same. The winner becomes the one used last; paths that
    /// can not be used stand behind it, where they would come back.
    #[inline]
    pub(crate) fn choose<P: AsCandidate, K: Copy>(
        &mut self,
        paths: &[P],
        mut key: impl FnMut(&Candidate<'_>) -> K,
        mut better: impl FnMut(K, K) -> bool,
    ) -> Option<(usize, K)> {
        self.follow(paths.len());
        let len = usize::from(self.len);
        // One bit per place in the order.
        let mut away = 0_u64;
        let mut best: Option<(usize, usize, K)> = None;
        let mut look = |place: usize, index: usize, path: Candidate<'_>| {
            if !path.usable {
                away |= 1_u64.checked_shl(place as u32).unwrap_or(0);
                return;
            }
            let key = key(&path);
            if best.is_none_or(|(.., best)| better(key, best)) {
                best = Some((place, index, key));
            }
        };
        for (place, &index) in self.order[..len].iter().enumerate() {
            look(place, usize::from(index), paths[usize::from(index)].candidate());
        }
        for (index, path) in paths.iter().enumerate().skip(len) {
            look(index, index, path.candidate());
        }
        let (place, index, key) = best?;
        if place < len {
            self.used(place, away);
        }
        Some((index, key))
    }

    /// The path at `place` goes behind all others but those that are away.
    #[inline]
    fn used(&mut self, place: usize, away: u64) {
        let order = &mut self.order[..usize::from(self.len)];
        if away == 0 {
            // A rotation by one. The library's, for any distance, costs as much as all the rest of
            // a choice between two paths.
            let used = order[place];
            order.copy_within(place + 1.., place);
            order[order.len() - 1] = used;
        } else {
            partition(order, place, away);
        }
    }

    /// The list has this many paths: those that are new get in at the tail.
    #[inline]
    fn follow(&mut self, paths: usize) {
        let paths = paths.min(ORDERED);
        if usize::from(self.len) != paths {
            self.resize(paths);
        }
    }

    #[cold]
    fn resize(&mut self, paths: usize) {
        // A caller who did not report a removal: what is left keeps its order.
        let before = self.len;
        self.len = 0;
        for place in 0..usize::from(before) {
            let index = self.order[place];
            if usize::from(index) < paths {
                self.order[usize::from(self.len)] = index;
                self.len += 1;
            }
        }
        for index in before.min(paths as u8)..paths as u8 {
            self.order[usize::from(self.len)] = index;
            self.len += 1;
        }
    }

    /// The path at `index` of the list is gone, those behind it moved up.
    pub(crate) fn removed(&mut self, index: usize) {
        let before = usize::from(self.len);
        let Some(place) = self.order[..before].iter().position(|&at| usize::from(at) == index)
        else {
            return;
        };
        self.order[place..before].rotate_left(1);
        self.len -= 1;
        for at in &mut self.order[..before - 1] {
            *at -= u8::from(usize::from(*at) > index);
        }
    }

    /// A path joined the list at `index`, and those from there on moved down: it gets in at the
    /// tail. (One at the end of the list is found there.)
    pub(crate) fn added(&mut self, index: usize) {
        let len = usize::from(self.len);
        if index >= len {
            return;
        }
        for at in &mut self.order[..len] {
            *at += u8::from(usize::from(*at) >= index);
        }
        // The last one that is kept in order may have become one of those that are not.
        let place = self.order[..len].iter().position(|&at| usize::from(at) == ORDERED);
        match place {
            Some(place) => self.order[place..len].rotate_left(1),
            None => self.len += 1,
        }
        self.order[usize::from(self.len) - 1] = index as u8;
    }
}

impl Default for Recency {
    fn default() -> Self {
        Recency::new()
    }
}

/// Those that can be used, the one just used, those that can not be; each in its order.
#[inline(never)]
fn partition(order: &mut [u8], used: usize, away: u64) {
    let mut from = [0; ORDERED];
    from[..order.len()].copy_from_slice(order);
    let is_away = |place: usize| away >> place & 1 == 1;
    let places = || 0..order.len();
    let here = places().filter(|&place| place != used && !is_away(place));
    let gone = places().filter(|&place| is_away(place));
    let sorted = here.chain([used]).chain(gone).map(|place| from[place]);
    let mut to = [0; ORDERED];
    to.iter_mut().zip(sorted).for_each(|(to, from)| *to = from);
    order.copy_from_slice(&to[..order.len()]);
}
