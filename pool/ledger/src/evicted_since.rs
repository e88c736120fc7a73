//! EvictedSince: the keys that vanished after an eviction number, oldest first.

use maru_wire::{ArchivedEvictedSince, evicted_since_reply_bytes};

use crate::list::Slot;
use crate::shard::Shard;
use crate::work::{Work, take_step};

impl Shard {
    /// True when the answer is complete.
    ///
    /// Who must forget all is told the latest number and no key.
    pub(crate) fn evicted_since(
        &mut self,
        client: Slot,
        request: &ArchivedEvictedSince,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        let namespace = self.clients.get(client).namespace;
        let cleared_number = self.namespaces.get(namespace).cleared_number;
        let key_count_max = self.evicted_keys_max(request.keys_max.to_native());
        let latest = self.log.number();
        let reply = &mut work.replies.evicted_since;
        if !work.is_mid_item {
            work.is_mid_item = true;
            reply.number = request.number.to_native();
        }
        if reply.number < cleared_number || !self.log.reaches(reply.number) {
            reply.lost = true;
            reply.keys.clear();
            reply.number = latest;
        }
        while reply.number < latest && reply.keys.len() < key_count_max {
            if !take_step(budget) {
                return false;
            }
            reply.number += 1;
            if let Some(key) = self.log.key(reply.number) {
                reply.keys.push(*key);
            }
        }
        reply.more = reply.number < latest;
        true
    }

    fn evicted_keys_max(&self, asked: u32) -> usize {
        let limits = &self.config.limits;
        let room = (limits.body_bytes_max as usize).saturating_sub(evicted_since_reply_bytes(0));
        let key_bytes = evicted_since_reply_bytes(64) - evicted_since_reply_bytes(0);
        (asked.min(limits.keys_per_frame_max) as usize).min(room * 64 / key_bytes)
    }
}

#[cfg(test)]
mod tests;
