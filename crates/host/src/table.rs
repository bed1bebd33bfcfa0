//! Fixed tables with free lists, and lists threaded through them. Nothing is allocated but in `new`
//! and `make_room`.

use alloc::vec::Vec;

/// Names an entry: index and a generation that changes each time the slot is used again, so that a
/// late answer to an earlier user of the slot is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// Generations have this many bits, so that a key and a few flag bits fit in 64.
    const GENERATION_BITS: u32 = 28;

    /// As a token of 60 bits.
    pub(crate) fn token(self) -> u64 {
        (u64::from(self.generation) << 32) | u64::from(self.index)
    }

    /// From a token of 60 bits.
    pub(crate) fn from_token(token: u64) -> Key {
        Key {
            index: (token & u64::from(u32::MAX)) as u32,
            generation: (token >> 32) as u32 & ((1 << Self::GENERATION_BITS) - 1),
        }
    }
}

const NONE: u32 = u32::MAX;

struct Slot<T> {
    generation: u32,
    next: u32,
    prev: u32,
    value: Option<T>,
}

/// A table of at most `capacity` entries.
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
    capacity: u32,
}

impl<T> Table<T> {
    /// Reserves all memory at once; pages are touched only as entries are used.
    pub(crate) fn new(capacity: u32) -> Table<T> {
        assert!(capacity < NONE, "a table has fewer than 2^32 - 1 entries");
        Table { slots: Vec::with_capacity(capacity as usize), free: NONE, len: 0, capacity }
    }

    /// Makes room for more entries at once; it does not become less again.
    pub(crate) fn make_room(&mut self, capacity: u32) {
        assert!(capacity < NONE, "a table has fewer than 2^32 - 1 entries");
        if capacity > self.capacity {
            self.slots.reserve_exact(capacity as usize - self.slots.len());
            self.capacity = capacity;
        }
    }

    /// Entries that find room.
    pub(crate) fn room(&self) -> u32 {
        self.capacity - self.len
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Makes an entry, in its place, or `None` when the table is full.
    #[inline]
    pub(crate) fn insert_with(&mut self, make: impl FnOnce() -> T) -> Option<Key> {
        let index = if self.free != NONE {
            let index = self.free;
            self.free = self.slots[index as usize].next;
            index
        } else {
            self.grow()?
        };
        let slot = &mut self.slots[index as usize];
        slot.generation = (slot.generation + 1) & ((1 << Key::GENERATION_BITS) - 1);
        slot.next = NONE;
        slot.prev = NONE;
        slot.value = Some(make());
        self.len += 1;
        Some(Key { index, generation: slot.generation })
    }

    /// A slot that was never used.
    #[cold]
    fn grow(&mut self) -> Option<u32> {
        if self.slots.len() == self.capacity as usize {
            return None;
        }
        self.slots.push(Slot { generation: 0, next: NONE, prev: NONE, value: None });
        Some((self.slots.len() - 1) as u32)
    }

    /// Takes an entry out. It must not be on a list.
    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.next = self.free;
        self.free = key.index;
        self.len -= 1;
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// All entries.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// The keys of all entries.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        let used = |(_, slot): &(u32, &Slot<T>)| slot.value.is_some();
        let slots = (0..).zip(&self.slots).filter(used);
        slots.map(|(index, slot)| Key { index, generation: slot.generation })
    }

    #[inline]
    fn key_at(&self, index: u32) -> Key {
        Key { index, generation: self.slots[index as usize].generation }
    }
}

impl<T> core::ops::Index<Key> for Table<T> {
    type Output = T;
    #[inline]
    fn index(&self, key: Key) -> &T {
        self.get(key).expect("the key names an entry")
    }
}

impl<T> core::ops::IndexMut<Key> for Table<T> {
    #[inline]
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.get_mut(key).expect("the key names an entry")
    }
}

/// A list through entries of one table. An entry is on at most one list at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for List {
    fn default() -> List {
        List { head: NONE, tail: NONE, len: 0 }
    }
}

impl List {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push_back<T>(&mut self, table: &mut Table<T>, key: Key) {
        let slot = &mut table.slots[key.index as usize];
        debug_assert!(slot.value.is_some() && slot.next == NONE && slot.prev == NONE);
        slot.prev = self.tail;
        if self.tail == NONE {
            self.head = key.index;
        } else {
            table.slots[self.tail as usize].next = key.index;
        }
        self.tail = key.index;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn front<T>(&self, table: &Table<T>) -> Option<Key> {
        (self.head != NONE).then(|| table.key_at(self.head))
    }

    /// The entry behind one of this list.
    pub(crate) fn after<T>(&self, table: &Table<T>, key: Key) -> Option<Key> {
        let next = table.slots[key.index as usize].next;
        (next != NONE).then(|| table.key_at(next))
    }

    #[inline]
    pub(crate) fn pop_front<T>(&mut self, table: &mut Table<T>) -> Option<Key> {
        let key = self.front(table)?;
        self.unlink(table, key);
        Some(key)
    }

    /// Takes an entry of this list off it.
    #[inline]
    pub(crate) fn unlink<T>(&mut self, table: &mut Table<T>, key: Key) {
        let slot = &mut table.slots[key.index as usize];
        let (prev, next) = (slot.prev, slot.next);
        slot.prev = NONE;
        slot.next = NONE;
        if prev == NONE {
            debug_assert_eq!(self.head, key.index, "the entry is on this list");
            self.head = next;
        } else {
            table.slots[prev as usize].next = next;
        }
        if next == NONE {
            debug_assert_eq!(self.tail, key.index, "the entry is on this list");
            self.tail = prev;
        } else {
            table.slots[next as usize].prev = prev;
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_used_again_has_another_key_and_the_old_key_finds_nothing() {
        let mut table: Table<u8> = Table::new(1);
        let first = table.insert_with(|| 1).unwrap();
        assert_eq!(table.insert_with(|| 2), None, "full");
        assert_eq!(table.remove(first), Some(1));
        let second = table.insert_with(|| 3).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table[Key::from_token(second.token())], 3);
    }

    #[test]
    fn lists_keep_order_and_lose_entries_from_the_middle() {
        let mut table: Table<u8> = Table::new(4);
        let mut list = List::default();
        let keys: Vec<Key> = (0..4).map(|v| table.insert_with(|| v).unwrap()).collect();
        keys.iter().for_each(|&key| list.push_back(&mut table, key));
        list.unlink(&mut table, keys[2]);
        assert_eq!(list.after(&table, keys[0]), Some(keys[1]));
        assert_eq!(list.after(&table, keys[1]), Some(keys[3]));
        assert_eq!(list.after(&table, keys[3]), None);
        let mut order = Vec::new();
        while let Some(key) = list.pop_front(&mut table) {
            order.push(table[key]);
        }
        assert_eq!(order, [0, 1, 3]);
        assert!(list.is_empty());
    }
}
