//! The slot table: where callers leave requests and the ring thread leaves replies.
//!
//! A slot's id carries a tag that rises with each use, so that a late reply never meets a later
//! caller. Buffers are reused; a reply's bytes are copied once.

use std::sync::{Mutex, MutexGuard};
use std::thread::Thread;

use maru_session::{CallId, Failure, LinkId};
use maru_wire::{Frame, Generation, Header, Op, Ticket};
use rkyv::util::AlignedVec;

use crate::shared::lock;

/// Low bits of a call id: the slot's index.
const INDEX_BITS: u32 = 16;
/// Tags wrap below the session's own bit.
const TAG_MAX: u64 = (1 << (63 - INDEX_BITS)) - 1;
/// Most slots that the index bits can name.
pub(crate) const SLOTS_MAX: u32 = 1 << INDEX_BITS;

/// Where a slot stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Nobody uses it, or its caller is still filling it in.
    Idle,
    /// The caller waits.
    Pending(Thread),
    /// A reply is in the buffer.
    Replied(Header),
    /// The call ended without a reply frame.
    Ended(Result<(), Failure>),
}

/// What the ring thread needs to submit a request.
#[derive(Debug)]
pub(crate) struct Intent {
    pub(crate) link: LinkId,
    pub(crate) generation: Generation,
    /// `None` waits for the link only.
    pub(crate) op: Option<Op>,
    pub(crate) item_count: usize,
    pub(crate) after_error: bool,
}

/// One slot's content.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The call that uses it now.
    pub(crate) id: CallId,
    pub(crate) phase: Phase,
    pub(crate) intent: Option<Intent>,
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) request: Vec<u8>,
    pub(crate) reply: AlignedVec<16>,
}

/// Buffers above this are given back to the system after use, in bytes.
const BUFFER_KEPT_BYTES: usize = 64 * 1024;

/// All slots of a client.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Mutex<Slot>>,
    /// The one freed last is used next: its buffers are warm.
    free: Mutex<Vec<u32>>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        assert!((1..=SLOTS_MAX).contains(&count), "the config is checked");
        let free = Mutex::new((0..count).rev().collect());
        let slot = |index: u32| Slot {
            id: CallId(u64::from(index)),
            phase: Phase::Idle,
            intent: None,
            tickets: Vec::new(),
            request: Vec::new(),
            reply: AlignedVec::new(),
        };
        Self { slots: (0..count).map(|index| Mutex::new(slot(index))).collect(), free }
    }

    /// Takes a free slot under a new id.
    pub(crate) fn take(&self) -> Option<CallId> {
        let index = lock(&self.free).pop()?;
        let mut slot = self.lock_index(index as usize);
        let tag = (slot.id.0 >> INDEX_BITS) + 1;
        let tag = if tag > TAG_MAX { 1 } else { tag };
        slot.id = CallId(tag << INDEX_BITS | u64::from(index));
        slot.phase = Phase::Idle;
        Some(slot.id)
    }

    /// Gives a slot back after a last look at it. Its id is void from here on.
    ///
    /// Both under one lock: a reply is either seen by `look`, or told that the caller is gone.
    pub(crate) fn free<T>(&self, id: CallId, look: impl FnOnce(&Slot) -> T) -> T {
        let index = index(id);
        let mut slot = self.lock_index(index);
        assert_eq!(slot.id, id, "a slot is freed by the call that took it");
        let seen = look(&slot);
        slot.phase = Phase::Idle;
        slot.intent = None;
        slot.tickets.clear();
        slot.request.clear();
        if slot.reply.capacity() > BUFFER_KEPT_BYTES {
            slot.reply = AlignedVec::new();
        }
        if slot.request.capacity() > BUFFER_KEPT_BYTES {
            slot.request = Vec::new();
        }
        let next = slot.id.0.wrapping_add(1 << INDEX_BITS) & (u64::MAX >> 1);
        slot.id = CallId(next);
        drop(slot);
        let index = u32::try_from(index).expect("an index is below SLOTS_MAX");
        lock(&self.free).push(index);
        seen
    }

    /// Locks the slot of a call, if that call still uses it.
    pub(crate) fn lock(&self, id: CallId) -> Option<MutexGuard<'_, Slot>> {
        let slot = self.lock_index(index(id));
        (slot.id == id).then_some(slot)
    }

    /// Leaves a reply for the caller. Returns false when the caller is gone.
    pub(crate) fn reply(&self, id: CallId, frame: &Frame<'_>) -> bool {
        let Some(mut slot) = self.lock(id) else { return false };
        if !matches!(slot.phase, Phase::Pending(_)) {
            return false;
        }
        slot.reply.clear();
        slot.reply.extend_from_slice(frame.body);
        end(slot, Phase::Replied(frame.header));
        true
    }

    /// Ends a call without a reply frame.
    pub(crate) fn complete(&self, id: CallId, result: Result<(), Failure>) {
        if let Some(slot) = self.lock(id)
            && matches!(slot.phase, Phase::Pending(_))
        {
            end(slot, Phase::Ended(result));
        }
    }

    /// Ends every call that waits.
    pub(crate) fn fail_all(&self, failure: Failure) {
        for index in 0..self.slots.len() {
            let slot = self.lock_index(index);
            if matches!(slot.phase, Phase::Pending(_)) {
                end(slot, Phase::Ended(Err(failure)));
            }
        }
    }

    fn lock_index(&self, index: usize) -> MutexGuard<'_, Slot> {
        lock(&self.slots[index])
    }
}

fn index(id: CallId) -> usize {
    usize::try_from(id.0 & u64::from(SLOTS_MAX - 1)).expect("an index is below SLOTS_MAX")
}

fn end(mut slot: MutexGuard<'_, Slot>, phase: Phase) {
    let before = std::mem::replace(&mut slot.phase, phase);
    drop(slot);
    if let Phase::Pending(thread) = before {
        thread.unpark();
    }
}

#[cfg(test)]
mod tests;
