//! Splits a batch by shard and by what one frame may carry. Order within a shard is kept.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use maru_wire::{Key, Op};

use crate::Layout;

/// Room that a body needs beside its items, in bytes.
const BODY_OVERHEAD_BYTES: usize = 64;

/// One frame's share of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The shard that it goes to.
    pub shard: u32,
    /// The items' indices in the batch, rising.
    pub indices: Vec<usize>,
}

/// Splits `keys` for requests of `op`: shards in order, each shard's parts in the order of `keys`.
#[must_use]
pub fn split(layout: &Layout, op: Op, keys: impl IntoIterator<Item = Key>) -> Vec<Part> {
    let mut by_shard: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
    for (index, key) in keys.into_iter().enumerate() {
        let shard = key.shard(layout.shard_count);
        let items_max = items_per_frame(layout, op, shard);
        let parts = by_shard.entry(shard).or_default();
        match parts.last_mut() {
            Some(part) if part.indices.len() < items_max => part.indices.push(index),
            Some(_) | None => parts.push(Part { shard, indices: alloc::vec![index] }),
        }
    }
    by_shard.into_values().flatten().collect()
}

/// Returns how many items one frame of `op` to `shard` may carry; at least 1.
#[must_use]
pub(crate) fn items_per_frame(layout: &Layout, op: Op, shard: u32) -> usize {
    let limits = layout.limits_of(shard);
    let room = (limits.body_bytes_max as usize).saturating_sub(BODY_OVERHEAD_BYTES);
    (room / item_bytes(op)).min(limits.keys_per_frame_max as usize).max(1)
}

/// Upper bound of one item's bytes in a request of `op`.
fn item_bytes(op: Op) -> usize {
    match op {
        Op::Exists | Op::Lookup => 32,
        Op::Reserve | Op::Remove => 48,
        Op::Publish => 64,
        Op::Release => 24,
        Op::Abandon => 16,
        Op::Challenge
        | Op::Hello
        | Op::EvictedSince
        | Op::Clear
        | Op::Ping
        | Op::Stats
        | Op::Regions => 1,
    }
}

#[cfg(test)]
mod tests;
