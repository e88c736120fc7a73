//! Counters since the start, and the answer to Stats.

use maru_wire::{NAMESPACES_PER_REPLY_MAX, NamespaceUsage, StatsReply};

use crate::config::Time;
use crate::shard::Shard;

/// Counters since the start of the generation, and the pinned objects of this moment.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) evicted: u64,
    pub(crate) removed: u64,
    pub(crate) granted: u64,
    pub(crate) created: u64,
    pub(crate) exists_hit: u64,
    pub(crate) exists_miss: u64,
    pub(crate) lookup_hit: u64,
    pub(crate) lookup_miss: u64,
    pub(crate) full: u64,
    pub(crate) overdue: u64,
    pub(crate) lease_expired: u64,
    pub(crate) refused: u64,
    pub(crate) pool_list_differs: u64,
    /// Objects that some lease pins.
    pub(crate) pinned: u64,
}

impl Shard {
    /// Fills in what the ledger knows; the fields of the shell stay as they are.
    ///
    /// The shell's are the core, the I/O backend, CPU time, connections, frames, buffers and the
    /// reasons of closed connections.
    pub fn fill_stats(&self, now: Time, stats: &mut StatsReply) {
        let totals = &self.totals;
        stats.eviction_number = self.log.number();
        stats.shard = self.config.shard;
        stats.uptime_us = now.0;
        stats.page_bytes = self.config.limits.page_bytes;
        stats.pages = self.page_counts();
        stats.reservation_count = self.reservations.live_count;
        stats.overdue_count = self.reservations.overdue_count;
        stats.lease_count = self.leases.held_count;
        stats.pinned_count = totals.pinned;
        stats.incarnation_count = self.clients.len() as u64;
        let age = |granted: Option<Time>| granted.map_or(0, |granted| now.since(granted));
        stats.oldest_reservation_us = age(self.reservations.oldest());
        stats.oldest_lease_us = age(self.leases.oldest());
        stats.evicted_total = totals.evicted;
        stats.removed_total = totals.removed;
        stats.granted_total = totals.granted;
        stats.created_total = totals.created;
        stats.exists_hit_total = totals.exists_hit;
        stats.exists_miss_total = totals.exists_miss;
        stats.lookup_hit_total = totals.lookup_hit;
        stats.lookup_miss_total = totals.lookup_miss;
        stats.full_total = totals.full;
        stats.overdue_total = totals.overdue;
        stats.lease_expired_total = totals.lease_expired;
        stats.refused_total = totals.refused;
        stats.pool_list_differs_total = totals.pool_list_differs;
        self.fill_namespaces(stats);
    }

    fn fill_namespaces(&self, stats: &mut StatsReply) {
        stats.key_count = 0;
        stats.namespaces.clear();
        for slot in self.namespaces.used() {
            let books = self.namespaces.get(slot);
            stats.key_count += books.key_count;
            let is_unused = books.key_count + books.used_pages + books.reserved_pages == 0;
            // A monitor's empty name that never stored anything says nothing to an operator.
            if is_unused && books.name.is_empty() {
                continue;
            }
            if stats.namespaces.len() < NAMESPACES_PER_REPLY_MAX as usize {
                stats.namespaces.push(NamespaceUsage {
                    name: books.name.clone(),
                    key_count: books.key_count,
                    used_pages: books.used_pages,
                    reserved_pages: books.reserved_pages,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
