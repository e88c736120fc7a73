//! Slots in a caller's hands: one to fill, one to read.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use maru_transfer::slots::Slot;

/// A slot to fill. Dropping it frees it.
#[derive(Debug)]
pub struct StagingSlot {
    slot: Slot,
    filled_bytes: usize,
}

impl StagingSlot {
    pub(crate) fn new(slot: Slot) -> Self {
        let filled_bytes = slot.len();
        Self { slot, filled_bytes }
    }

    /// Says how many leading bytes are the chunk. The whole slot, unless said otherwise.
    ///
    /// # Panics
    ///
    /// When the slot has fewer.
    pub fn set_filled(&mut self, bytes: usize) {
        assert!(bytes <= self.slot.len(), "a chunk fits its slot");
        self.filled_bytes = bytes;
    }

    pub(crate) fn filled(&self) -> &[u8] {
        &self.slot[..self.filled_bytes]
    }
}

impl Deref for StagingSlot {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.slot
    }
}

impl DerefMut for StagingSlot {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.slot
    }
}

/// A chunk's bytes in a slot. Dropping it frees the slot; never waits behind a transfer.
#[derive(Debug)]
pub struct ReadLease {
    slot: Slot,
    bytes: usize,
    lease_count: Arc<AtomicUsize>,
}

impl ReadLease {
    pub(crate) fn new(slot: Slot, bytes: usize, lease_count: &Arc<AtomicUsize>) -> Self {
        lease_count.fetch_add(1, Ordering::AcqRel);
        Self { slot, bytes, lease_count: Arc::clone(lease_count) }
    }
}

impl Deref for ReadLease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.slot[..self.bytes]
    }
}

impl Drop for ReadLease {
    fn drop(&mut self) {
        self.lease_count.fetch_sub(1, Ordering::AcqRel);
    }
}
