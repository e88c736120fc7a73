//! Counts what went through the staging memory.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Staged;
use crate::deadline::micros;
use crate::{StoreItem, StoreOutcome};

/// What went through the staging memory since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagingStats {
    /// Chunks stored by this client.
    pub stores: u64,
    /// Their bytes.
    pub store_bytes: u64,
    /// Chunks not stored: refused, full or failed.
    pub stores_failed: u64,
    /// Chunks skipped because they were in the pool.
    pub skipped_present: u64,
    /// Chunks loaded.
    pub loads: u64,
    /// Their bytes.
    pub load_bytes: u64,
    /// Chunks that were there and could not be loaded, or whose shard failed.
    pub loads_failed: u64,
    /// Transfers whose end is unknown, with their slots. Shared memory has none.
    pub quarantined_transfers: u64,
    /// Time spent in stores, in microseconds.
    pub write_us: u64,
    /// Time spent in loads, in microseconds.
    pub read_us: u64,
    /// All slots.
    pub slot_count: u64,
    /// Slots free now.
    pub free_slot_count: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    stores: AtomicU64,
    store_bytes: AtomicU64,
    stores_failed: AtomicU64,
    skipped_present: AtomicU64,
    loads: AtomicU64,
    load_bytes: AtomicU64,
    loads_failed: AtomicU64,
    write_us: AtomicU64,
    read_us: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// Counts a batch of stores; `None`: all of it failed.
    pub(crate) fn wrote(
        &self,
        items: &[StoreItem<'_>],
        outcomes: Option<&[StoreOutcome]>,
        took: Duration,
    ) {
        add(&self.write_us, micros(took));
        let Some(outcomes) = outcomes else {
            return add(&self.stores_failed, items.len() as u64);
        };
        // A key twice in a batch is stored once; its second time it is there already.
        let mut stored = BTreeSet::new();
        for (item, outcome) in items.iter().zip(outcomes) {
            match outcome {
                StoreOutcome::Stored if !stored.insert(item.key) => add(&self.skipped_present, 1),
                StoreOutcome::Stored => {
                    add(&self.stores, 1);
                    add(&self.store_bytes, item.bytes.len() as u64);
                }
                StoreOutcome::Present => add(&self.skipped_present, 1),
                StoreOutcome::InFlight
                | StoreOutcome::Full
                | StoreOutcome::Growing(_)
                | StoreOutcome::Rejected
                | StoreOutcome::Cleared
                | StoreOutcome::Failed(_) => add(&self.stores_failed, 1),
            }
        }
    }

    /// Counts a batch of loads; `None`: all of it failed.
    pub(crate) fn read(&self, key_count: usize, staged: Option<&[Staged]>, took: Duration) {
        add(&self.read_us, micros(took));
        let Some(staged) = staged else {
            return add(&self.loads_failed, key_count as u64);
        };
        for staged in staged {
            match staged {
                Staged::Loaded(lease) => {
                    add(&self.loads, 1);
                    add(&self.load_bytes, lease.len() as u64);
                }
                Staged::Missing => {}
                Staged::Skipped | Staged::Failed(_) => add(&self.loads_failed, 1),
            }
        }
    }

    pub(crate) fn stats(&self, slot_count: usize, free: usize) -> StagingStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StagingStats {
            stores: get(&self.stores),
            store_bytes: get(&self.store_bytes),
            stores_failed: get(&self.stores_failed),
            skipped_present: get(&self.skipped_present),
            loads: get(&self.loads),
            load_bytes: get(&self.load_bytes),
            loads_failed: get(&self.loads_failed),
            quarantined_transfers: 0,
            write_us: get(&self.write_us),
            read_us: get(&self.read_us),
            slot_count: slot_count as u64,
            free_slot_count: free as u64,
        }
    }
}
