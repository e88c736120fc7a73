//! The latest keys that vanished, each with its eviction number.

use alloc::vec;
use alloc::vec::Vec;

use maru_wire::Key;

/// A ring of the latest records. Record `n` is the one that took eviction number `n`.
#[derive(Debug)]
pub(crate) struct EvictionLog {
    keys: Vec<Key>,
    capacity: usize,
    /// Bit `i % 64` of word `i / 64`: the record at place `i` is a Clear, not a key.
    cleared: Vec<u64>,
    /// The latest number; 0 before the first.
    number: u64,
}

impl EvictionLog {
    pub(crate) fn new(capacity: u32) -> Self {
        let capacity = capacity.max(1) as usize;
        Self {
            keys: Vec::with_capacity(capacity),
            capacity,
            cleared: vec![0; capacity.div_ceil(64)],
            number: 0,
        }
    }

    /// The latest eviction number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Notes that `key` is no longer found.
    pub(crate) fn push(&mut self, key: Key) {
        let place = self.take_place(key);
        self.cleared[place / 64] &= !(1 << (place % 64));
    }

    /// Notes that a namespace was cleared. Returns the number it took.
    pub(crate) fn push_cleared(&mut self) -> u64 {
        let place = self.take_place(Key::default());
        self.cleared[place / 64] |= 1 << (place % 64);
        self.number
    }

    /// Whether all records after `number` are still there.
    pub(crate) fn reaches(&self, number: u64) -> bool {
        number <= self.number && self.number - number <= self.keys.len() as u64
    }

    /// The key of record `number`, which is still there; None when it was a Clear.
    pub(crate) fn key(&self, number: u64) -> Option<&Key> {
        let place = self.place(number);
        (self.cleared[place / 64] >> (place % 64) & 1 == 0).then(|| &self.keys[place])
    }

    fn take_place(&mut self, key: Key) -> usize {
        self.number += 1;
        let place = self.place(self.number);
        match self.keys.get_mut(place) {
            Some(oldest) => *oldest = key,
            None => self.keys.push(key),
        }
        place
    }

    fn place(&self, number: u64) -> usize {
        let place = (number - 1) % self.capacity as u64;
        usize::try_from(place).expect("below the capacity")
    }
}
