//! Finds the keys that stand twice in one frame, in one pass.

use alloc::vec;
use alloc::vec::Vec;

use maru_wire::Key;

use crate::hashes::Hashes;

/// A hash table of one frame's items. A new frame begins a new stamp, so nothing is ever erased.
#[derive(Debug)]
pub(crate) struct FrameKeys {
    /// The frame's stamp in the high half, the item in the low one.
    buckets: Vec<u64>,
    stamp: u32,
}

impl FrameKeys {
    pub(crate) fn new(keys_max: u32) -> Self {
        let bucket_count = (keys_max as usize).max(1).next_power_of_two() * 2;
        Self { buckets: vec![0; bucket_count], stamp: 0 }
    }

    /// Sets bit `i` of `duplicates` for each item whose key stands earlier among `keys`.
    ///
    /// # Panics
    ///
    /// When there are more keys than the table was made for.
    pub(crate) fn mark<'a>(
        &mut self,
        hashes: &Hashes,
        item_count: usize,
        key: impl Fn(usize) -> &'a Key,
        duplicates: &mut Vec<u64>,
    ) {
        duplicates.clear();
        if item_count < 2 {
            return;
        }
        duplicates.resize(item_count.div_ceil(64), 0);
        let bucket_count = item_count.next_power_of_two() * 2;
        assert!(bucket_count <= self.buckets.len(), "a frame keeps within its limit of keys");
        self.begin();
        for item in 0..item_count {
            let mut at = hashes.key(key(item)) as usize & (bucket_count - 1);
            loop {
                let bucket = self.buckets[at];
                if (bucket >> 32) as u32 != self.stamp {
                    self.buckets[at] = u64::from(self.stamp) << 32 | item as u64;
                    break;
                }
                let earlier = (bucket & 0xFFFF_FFFF) as u32 as usize;
                if key(earlier) == key(item) {
                    duplicates[item / 64] |= 1 << (item % 64);
                    break;
                }
                at = (at + 1) & (bucket_count - 1);
            }
        }
    }

    fn begin(&mut self) {
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.buckets.fill(0);
            self.stamp = 1;
        }
    }
}
