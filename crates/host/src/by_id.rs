//! A table by identifiers that grow and are never used again: as large as what is there, however
//! much has come and gone.

use alloc::boxed::Box;
use alloc::vec::Vec;

/// Places at the least.
const PLACES_MIN: usize = 8;

type Places<T> = Vec<Option<(u32, Box<T>)>>;

/// Values by identifier. An identifier has its home at its low bits, and is there or in one of the
/// next places: since they are given in turn, those that live together seldom meet. At most half of
/// the places are taken.
pub(crate) struct ById<T> {
    places: Places<T>,
    len: usize,
}

impl<T> ById<T> {
    pub(crate) fn new() -> ById<T> {
        ById { places: empty(PLACES_MIN), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    #[inline]
    fn home(&self, id: u32) -> usize {
        id as usize & (self.places.len() - 1)
    }

    #[inline]
    fn place_of(&self, id: u32) -> Option<usize> {
        let mut at = self.home(id);
        loop {
            match &self.places[at] {
                Some((of, _)) if *of == id => return Some(at),
                Some(_) => at = self.after(at),
                None => return None,
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let at = self.place_of(id)?;
        self.places[at].as_ref().map(|(_, value)| &**value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        let at = self.place_of(id)?;
        self.places[at].as_mut().map(|(_, value)| &mut **value)
    }

    /// What is there, or what `make` makes.
    pub(crate) fn get_or_insert_with(&mut self, id: u32, make: impl FnOnce() -> T) -> &mut T {
        if self.place_of(id).is_none() {
            if 2 * (self.len + 1) > self.places.len() {
                self.resize(2 * self.places.len());
            }
            self.put(id, Box::new(make()));
        }
        self.get_mut(id).unwrap_or_else(|| unreachable!("it was there or was put there"))
    }

    fn put(&mut self, id: u32, value: Box<T>) {
        let mut at = self.home(id);
        while self.places[at].is_some() {
            at = self.after(at);
        }
        self.places[at] = Some((id, value));
        self.len += 1;
    }

    fn resize(&mut self, places: usize) {
        self.len = 0;
        for (id, value) in core::mem::replace(&mut self.places, empty(places)).into_iter().flatten()
        {
            self.put(id, value);
        }
    }

    /// Takes out what `keep` does not want, and gives the memory back that is not needed any more.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let before = self.len;
        for place in &mut self.places {
            if place.as_ref().is_some_and(|(_, value)| !keep(value)) {
                *place = None;
                self.len -= 1;
            }
        }
        if self.len < before {
            // Those behind a place that is empty now would not be found any more.
            let places = (4 * self.len).next_power_of_two();
            self.resize(places.clamp(PLACES_MIN, self.places.len()));
        }
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> + Clone {
        self.places.iter().flatten().map(|(_, value)| &**value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten().map(|(_, value)| &mut **value)
    }

    /// Places to look at one by one with [`ById::id_at`], as long as nothing comes or goes.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn id_at(&self, place: usize) -> Option<u32> {
        self.places.get(place)?.as_ref().map(|(id, _)| *id)
    }
}

fn empty<T>(places: usize) -> Places<T> {
    (0..places).map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    #[test]
    fn it_is_as_large_as_what_is_there_however_much_has_come_and_gone() {
        let mut table = ById::new();
        table.get_or_insert_with(0, || 0);
        for id in 1..100_000_u32 {
            table.get_or_insert_with(id, || id);
            table.retain(|&value| value == 0 || value + 3 > id);
            assert_eq!((table.get(0), table.get(id)), (Some(&0), Some(&id)));
            assert_eq!(table.get(id.saturating_sub(3)).is_some(), id <= 3, "{id}");
        }
        assert_eq!((table.len(), table.places()), (4, 16));
        table.retain(|&value| value == 0);
        assert_eq!(table.places(), 8, "what it had at its largest it does not keep");
    }

    #[test]
    fn it_finds_what_is_there_and_nothing_else() {
        let (mut table, mut model) = (ById::new(), BTreeMap::new());
        let mut random = 7_u64;
        for id in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Some live long, and many of them have the same home.
            let dies = if id % 64 == 0 { u32::MAX } else { id + (random >> 40) as u32 % 50 };
            table.get_or_insert_with(id, || dies);
            model.insert(id, dies);
            if random >> 60 == 0 {
                table.retain(|&dies| dies > id);
                model.retain(|_, dies| *dies > id);
            }
            let some = (random >> 20) as u32 % (id + 1);
            assert_eq!(table.get(some), model.get(&some), "{some} at {id}");
            assert_eq!(table.len(), model.len());
        }
        let mut left: Vec<u32> = (0..table.places()).filter_map(|at| table.id_at(at)).collect();
        left.sort_unstable();
        assert!(left.iter().eq(model.keys()));
        assert_eq!(table.values().count(), model.len());
    }
}
