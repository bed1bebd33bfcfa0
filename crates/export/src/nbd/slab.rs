//! A fixed table: entries keep their number while they live, nothing is allocated after it has
//! grown to what is used at once.

pub(super) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u16>,
    capacity: usize,
}

impl<T> Slab<T> {
    /// At most `capacity` entries, fewer than 65536.
    pub(super) fn new(capacity: usize) -> Slab<T> {
        debug_assert!(capacity < usize::from(u16::MAX), "numbers of entries have 16 bits");
        Slab { entries: Vec::new(), free: Vec::new(), capacity }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// `None` when the table is full.
    pub(super) fn insert(&mut self, value: T) -> Option<u16> {
        if let Some(index) = self.free.pop() {
            self.entries[usize::from(index)] = Some(value);
            return Some(index);
        }
        if self.entries.len() >= self.capacity {
            return None;
        }
        let index = u16::try_from(self.entries.len()).ok()?;
        self.entries.push(Some(value));
        Some(index)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    pub(super) fn get(&self, index: u16) -> Option<&T> {
        self.entries.get(usize::from(index))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut T> {
        self.entries.get_mut(usize::from(index))?.as_mut()
    }

    pub(super) fn remove(&mut self, index: u16) -> Option<T> {
        let value = self.entries.get_mut(usize::from(index))?.take()?;
        self.free.push(index);
        Some(value)
    }
}
