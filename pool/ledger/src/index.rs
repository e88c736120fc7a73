//! A hash table from a key's tag to a slot. It owns neither keys nor values.
//!
//! Linear probing with backward shift: no tombstones, so that no operation ever has to clean up
//! after earlier ones. Sized at start, or doubling up to a limit.

use alloc::vec;
use alloc::vec::Vec;

use crate::list::Slot;

/// Slots by tag, at most two thirds full.
#[derive(Debug)]
pub(crate) struct Index {
    /// 0 is empty; else the tag in the high half and the slot plus 1 in the low one.
    buckets: Vec<u64>,
    count: usize,
    capacity_max: usize,
}

impl Index {
    /// Returns an index that never grows. Its memory is touched as it fills.
    pub(crate) fn fixed(capacity: usize) -> Self {
        Self { buckets: vec![0; bucket_count(capacity)], count: 0, capacity_max: capacity }
    }

    /// Returns a small index that doubles as needed, up to `capacity_max` entries.
    pub(crate) fn growing(capacity_max: usize) -> Self {
        let buckets = vec![0; bucket_count(capacity_max.min(1024))];
        Self { buckets, count: 0, capacity_max }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the slot with this tag for which `is_key` holds.
    #[inline]
    pub(crate) fn find(&self, tag: u32, is_key: impl Fn(Slot) -> bool) -> Option<Slot> {
        let mut at = self.home(tag);
        loop {
            let bucket = self.buckets[at];
            if bucket == 0 {
                return None;
            }
            if tag_of(bucket) == tag && is_key(slot_of(bucket)) {
                return Some(slot_of(bucket));
            }
            at = self.after(at);
        }
    }

    /// Reads where each tag would be. The result means nothing; the caller only must use it.
    pub(crate) fn touch(&self, tags: &[u32]) -> u64 {
        tags.iter().fold(0, |seen, tag| seen ^ self.buckets[self.home(*tag)])
    }

    /// Adds a slot whose key is not there yet.
    ///
    /// # Panics
    ///
    /// When the index is full. Its user limits what it adds.
    pub(crate) fn insert(&mut self, tag: u32, slot: Slot) {
        assert!(self.count < self.capacity_max, "the user of an index keeps within its capacity");
        if (self.count + 1) * 3 > self.buckets.len() * 2 {
            self.grow();
        }
        self.place(bucket_of(tag, slot));
        self.count += 1;
    }

    /// Puts `new` in the place of `old`, which has the same key.
    pub(crate) fn replace(&mut self, tag: u32, old: Slot, new: Slot) {
        let at = self.position(tag, old);
        self.buckets[at] = bucket_of(tag, new);
    }

    /// Takes out a slot that is there.
    pub(crate) fn remove(&mut self, tag: u32, slot: Slot) {
        let mut hole = self.position(tag, slot);
        let mut at = hole;
        loop {
            at = self.after(at);
            let bucket = self.buckets[at];
            if bucket == 0 {
                break;
            }
            let from_home = self.distance(self.home(tag_of(bucket)), at);
            if from_home >= self.distance(hole, at) {
                self.buckets[hole] = bucket;
                hole = at;
            }
        }
        self.buckets[hole] = 0;
        self.count -= 1;
    }

    fn position(&self, tag: u32, slot: Slot) -> usize {
        let wanted = bucket_of(tag, slot);
        let mut at = self.home(tag);
        while self.buckets[at] != wanted {
            assert!(self.buckets[at] != 0, "the slot is in the index");
            at = self.after(at);
        }
        at
    }

    fn place(&mut self, bucket: u64) {
        let mut at = self.home(tag_of(bucket));
        while self.buckets[at] != 0 {
            at = self.after(at);
        }
        self.buckets[at] = bucket;
    }

    fn grow(&mut self) {
        let wanted = self.count.saturating_mul(2).min(self.capacity_max);
        let old = core::mem::replace(&mut self.buckets, vec![0; bucket_count(wanted)]);
        for bucket in old.into_iter().filter(|bucket| *bucket != 0) {
            self.place(bucket);
        }
    }

    #[inline]
    fn home(&self, tag: u32) -> usize {
        // Below the bucket count, which is a usize.
        #[allow(clippy::cast_possible_truncation, reason = "tag x count >> 32 is below the count")]
        let home = ((u64::from(tag) * self.buckets.len() as u64) >> 32) as usize;
        home
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.buckets.len() { 0 } else { at + 1 }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.buckets.len() - from }
    }
}

fn bucket_count(capacity: usize) -> usize {
    capacity + capacity / 2 + 8
}

fn bucket_of(tag: u32, slot: Slot) -> u64 {
    u64::from(tag) << 32 | (u64::from(slot) + 1)
}

#[inline]
fn tag_of(bucket: u64) -> u32 {
    (bucket >> 32) as u32
}

#[inline]
fn slot_of(bucket: u64) -> Slot {
    (bucket & 0xFFFF_FFFF) as u32 - 1
}

#[cfg(test)]
mod tests;
