//! Keys of a benchmark: numbered, spread like real ones, and the same in every run.

use maru_wire::Key;

/// Returns key `number`.
pub(crate) fn key(number: u64) -> Key {
    let mut bytes = [0; 32];
    let mut state = number.wrapping_mul(0xd134_2543_de82_ef95);
    for word in bytes.chunks_exact_mut(8) {
        state = splitmix(state);
        word.copy_from_slice(&state.to_le_bytes());
    }
    Key(bytes)
}

/// One step of the splitmix64 generator.
pub(crate) fn splitmix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The keys of one shard, in order of their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardKeys {
    shard: u32,
    shard_count: u32,
    next: u64,
    end: u64,
}

impl ShardKeys {
    /// Starts at number `next`, and ends before `end`.
    pub(crate) fn new(shard: u32, shard_count: u32, next: u64, end: u64) -> Self {
        Self { shard, shard_count, next, end }
    }

    /// Returns the number from which on keys are left.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }
}

impl Iterator for ShardKeys {
    type Item = Key;

    fn next(&mut self) -> Option<Key> {
        while self.next < self.end {
            let key = key(self.next);
            self.next += 1;
            if key.shard(self.shard_count) == self.shard {
                return Some(key);
            }
        }
        None
    }
}

/// Shuffles `keys`, the same way every time.
pub(crate) fn shuffle(keys: &mut [Key]) {
    let mut state = 1;
    for index in (1..keys.len()).rev() {
        state = splitmix(state);
        let other = state % (index as u64 + 1);
        keys.swap(index, usize::try_from(other).expect("below a length"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_shards_part_the_keys() {
        let all: HashSet<Key> = (0..1000).map(key).collect();
        assert_eq!(all.len(), 1000);
        let parts: Vec<Key> = (0..3).flat_map(|shard| ShardKeys::new(shard, 3, 0, 1000)).collect();
        assert_eq!(parts.len(), 1000);
        assert_eq!(parts.into_iter().collect::<HashSet<_>>(), all);
    }

    #[test]
    fn shuffling_keeps_every_key() {
        let mut keys: Vec<Key> = (0..100).map(key).collect();
        let before = keys.clone();
        shuffle(&mut keys);
        assert_ne!(keys, before);
        assert_eq!(keys.iter().collect::<HashSet<_>>(), before.iter().collect());
    }
}
