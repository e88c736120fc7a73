//! A table with stable slots. Freed slots are used again, the latest first.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use crate::list::Slot;

/// Items by slot, at most `capacity_max` of them.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    items: Vec<T>,
    free: Vec<Slot>,
    capacity_max: u32,
}

impl<T> Slab<T> {
    /// Returns a table that grows as needed, up to its limit.
    pub(crate) fn growing(capacity_max: u32) -> Self {
        Self { items: Vec::new(), free: Vec::new(), capacity_max }
    }

    /// Returns a table that never moves its items. Memory is touched as it fills.
    pub(crate) fn fixed(capacity_max: u32) -> Self {
        let capacity = capacity_max as usize;
        Self {
            items: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            capacity_max,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity_max as usize
    }

    /// Returns the item in the slot, also of one that was given back.
    pub(crate) fn get(&self, slot: Slot) -> Option<&T> {
        self.items.get(slot as usize)
    }

    /// Adds an item.
    ///
    /// # Panics
    ///
    /// When the table is full. Its user asks `is_full` first, or is bounded otherwise.
    pub(crate) fn insert(&mut self, item: T) -> Slot {
        if let Some(slot) = self.free.pop() {
            self.items[slot as usize] = item;
            return slot;
        }
        assert!(self.items.len() < self.capacity_max as usize, "the table keeps within its limit");
        self.items.push(item);
        Slot::try_from(self.items.len() - 1).expect("below a limit of 32 bits")
    }

    /// Gives the slot back. Its item stays as it is until the slot is used again.
    pub(crate) fn remove(&mut self, slot: Slot) {
        self.free.push(slot);
    }

    /// The slots in use, in order. For checks of the whole table; allocates.
    pub(crate) fn used(&self) -> Vec<Slot> {
        let mut is_used = alloc::vec![true; self.items.len()];
        for slot in &self.free {
            is_used[*slot as usize] = false;
        }
        let slots = (0u32..).zip(is_used);
        slots.filter_map(|(slot, is_used)| is_used.then_some(slot)).collect()
    }
}

impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: Slot) -> &T {
        &self.items[slot as usize]
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.items[slot as usize]
    }
}
