//! Staging slots of one size in one private mapping, each owned by one holder at a time.
//!
//! It hands out room and takes it back. What is in a slot, and who should have one, is the
//! caller's knowledge.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::{MmapOptions, MmapRaw};

/// The mapping and who holds none of it.
#[derive(Debug)]
struct Arena {
    map: MmapRaw,
    slot_bytes: usize,
    slot_count: usize,
    free: Mutex<Vec<usize>>,
}

/// A mapping cut into slots. Dropped when the last slot is.
#[derive(Clone, Debug)]
pub struct Slots {
    arena: Arc<Arena>,
}

/// One slot, exclusively its holder's. Dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    arena: Arc<Arena>,
    index: usize,
}

impl Slots {
    /// Maps `slot_count` slots of `slot_bytes` each. The memory is taken as it is written.
    ///
    /// # Errors
    ///
    /// The sizes are zero or too large for the address space, or the system refuses.
    pub fn new(slot_bytes: usize, slot_count: usize) -> io::Result<Self> {
        let bytes = slot_bytes.checked_mul(slot_count).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let map = MmapRaw::from(MmapOptions::new().len(bytes).map_anon()?);
        // The lowest index is taken first: the memory in use stays small.
        let free = Mutex::new((0..slot_count).rev().collect());
        Ok(Self { arena: Arc::new(Arena { map, slot_bytes, slot_count, free }) })
    }

    /// Takes a slot if more than `keep` are free. Never waits for anything but other callers.
    #[must_use]
    pub fn take(&self, keep: usize) -> Option<Slot> {
        let mut free = self.arena.free();
        let index = if free.len() > keep { free.pop()? } else { return None };
        drop(free);
        Some(Slot { arena: Arc::clone(&self.arena), index })
    }

    /// Counts the free slots.
    #[must_use]
    pub fn free_count(&self) -> usize {
        self.arena.free().len()
    }

    /// Counts all slots.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.arena.slot_count
    }

    /// Gives the size of a slot, in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        self.arena.slot_bytes
    }

    /// Gives the mapping's address, for those who lock or register it.
    #[must_use]
    pub fn address(&self) -> usize {
        self.arena.map.as_ptr().addr()
    }
}

impl Arena {
    fn free(&self) -> MutexGuard<'_, Vec<usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, index: usize) -> *mut u8 {
        assert!(index < self.slot_count, "a slot's index is below the count");
        // SAFETY: index x slot_bytes lies within the mapping of slot_count x slot_bytes bytes,
        // which lives as long as the arena.
        unsafe { self.map.as_mut_ptr().add(index * self.slot_bytes) }
    }
}

impl Deref for Slot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.arena.slot(self.index);
        // SAFETY: the slot is mapped memory of slot_bytes bytes, zeroed by the system at first; it
        // is this holder's alone, since `take` gives an index out once until it is dropped.
        unsafe { std::slice::from_raw_parts(start, self.arena.slot_bytes) }
    }
}

impl DerefMut for Slot {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.arena.slot(self.index);
        // SAFETY: as for `deref`; the holder's `&mut` keeps every other reference out.
        unsafe { std::slice::from_raw_parts_mut(start, self.arena.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.free().push(self.index);
    }
}

#[cfg(test)]
mod tests;
