//! The table of leases, and which objects each pins, in the order of its lookup.

use maru_wire::LeaseId;

use crate::config::Time;
use crate::index::Index;
use crate::issuer::{Issuer, tag_of};
use crate::list::{Linked, Links, List, NONE, Slot};
use crate::slab::Slab;

/// Pins that one chunk holds: with its links it takes two cache lines.
const PINS_PER_CHUNK: usize = 30;

/// A reader's right to bytes.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    /// The client.
    pub(crate) owner: Slot,
    pub(crate) granted: Time,
    /// Its right is over; the pins left go one by one.
    pub(crate) is_ended: bool,
    /// How many pins it has.
    pub(crate) count: u32,
    first_chunk: Slot,
    /// Place of the first pin in the first chunk.
    first_place: u8,
    last_chunk: Slot,
    time_links: Links,
    owner_links: Links,
}

/// Some of a lease's pins.
#[derive(Debug)]
struct PinChunk {
    objects: [Slot; PINS_PER_CHUNK],
    prev: Slot,
    next: Slot,
}

/// Names the list of leases by age, and the list of ended ones.
#[derive(Debug)]
pub(crate) struct LeaseByTime;
/// Names the list of one client's leases.
#[derive(Debug)]
pub(crate) struct LeaseByOwner;

/// Leases by slot.
#[derive(Debug)]
pub(crate) struct Leases {
    slab: Slab<Lease>,
    by_id: Index,
    chunks: Slab<PinChunk>,
    /// Those that have not ended, the oldest first.
    pub(crate) held: List<LeaseByTime>,
    pub(crate) held_count: u64,
    /// Those whose pins are going.
    pub(crate) ending: List<LeaseByTime>,
    pin_count: u32,
    pins_max: u32,
    issuer: Issuer,
}

impl Leases {
    pub(crate) fn new(seed: &[u8; 32], leases_max: u32, pins_max: u32) -> Self {
        // Each lease may have a chunk at either end that is not full.
        let chunk_count = u64::from(leases_max) * 2 + u64::from(pins_max) / 30 + 1;
        Self {
            slab: Slab::growing(leases_max),
            by_id: Index::growing(leases_max as usize),
            chunks: Slab::growing(u32::try_from(chunk_count).unwrap_or(NONE)),
            held: List::default(),
            held_count: 0,
            ending: List::default(),
            pin_count: 0,
            pins_max,
            issuer: Issuer::new(seed, b"leases"),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slab.is_full()
    }

    pub(crate) fn has_room_for_pin(&self) -> bool {
        self.pin_count < self.pins_max
    }

    pub(crate) fn get(&self, slot: Slot) -> &Lease {
        &self.slab[slot]
    }

    /// Returns the lease of this name, also one that ended and still has pins.
    pub(crate) fn find(&self, id: &LeaseId) -> Option<Slot> {
        self.by_id.find(tag_of(&id.0), |slot| self.slab[slot].id == *id)
    }

    /// Grants a lease without pins.
    pub(crate) fn add(
        &mut self,
        owner: Slot,
        granted: Time,
        owned: &mut List<LeaseByOwner>,
    ) -> Slot {
        let id = LeaseId(self.issuer.issue());
        let slot = self.slab.insert(Lease {
            id,
            owner,
            granted,
            is_ended: false,
            count: 0,
            first_chunk: NONE,
            first_place: 0,
            last_chunk: NONE,
            time_links: Links::default(),
            owner_links: Links::default(),
        });
        self.by_id.insert(tag_of(&id.0), slot);
        self.held.push_back(&mut self.slab, slot);
        owned.push_back(&mut self.slab, slot);
        self.held_count += 1;
        slot
    }

    /// Ends the right of a lease. Its pins are to be popped.
    pub(crate) fn end(&mut self, slot: Slot, owned: &mut List<LeaseByOwner>) {
        self.slab[slot].is_ended = true;
        self.held.remove(&mut self.slab, slot);
        owned.remove(&mut self.slab, slot);
        self.ending.push_back(&mut self.slab, slot);
        self.held_count -= 1;
    }

    /// Forgets an ended lease that has no pin left.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let lease = &self.slab[slot];
        assert!(lease.is_ended && lease.count == 0, "a lease goes when its last pin is gone");
        self.by_id.remove(tag_of(&lease.id.0), slot);
        self.ending.remove(&mut self.slab, slot);
        self.slab.remove(slot);
    }

    /// Adds a pin behind the others.
    pub(crate) fn push_pin(&mut self, slot: Slot, object: Slot) {
        let lease = &mut self.slab[slot];
        let place = lease.place_of(lease.count);
        if place == 0 {
            let prev = lease.last_chunk;
            let chunk = PinChunk { objects: [NONE; PINS_PER_CHUNK], prev, next: NONE };
            let chunk = self.chunks.insert(chunk);
            if prev == NONE {
                lease.first_chunk = chunk;
            } else {
                self.chunks[prev].next = chunk;
            }
            lease.last_chunk = chunk;
        }
        self.chunks[lease.last_chunk].objects[place] = object;
        lease.count += 1;
        self.pin_count += 1;
    }

    /// Takes the first pin out.
    pub(crate) fn pop_first_pin(&mut self, slot: Slot) -> Option<Slot> {
        let lease = &mut self.slab[slot];
        lease.count = lease.count.checked_sub(1)?;
        self.pin_count -= 1;
        let chunk = lease.first_chunk;
        let object = self.chunks[chunk].objects[usize::from(lease.first_place)];
        lease.first_place += 1;
        if lease.count == 0 || usize::from(lease.first_place) == PINS_PER_CHUNK {
            lease.first_place = 0;
            lease.first_chunk = self.chunks[chunk].next;
            if lease.first_chunk == NONE {
                lease.last_chunk = NONE;
            } else {
                self.chunks[lease.first_chunk].prev = NONE;
            }
            self.chunks.remove(chunk);
        }
        Some(object)
    }

    /// Takes the last pin out.
    pub(crate) fn pop_last_pin(&mut self, slot: Slot) -> Option<Slot> {
        let lease = &mut self.slab[slot];
        lease.count = lease.count.checked_sub(1)?;
        self.pin_count -= 1;
        let chunk = lease.last_chunk;
        let place = lease.place_of(lease.count);
        let object = self.chunks[chunk].objects[place];
        if lease.count == 0 || place == 0 {
            lease.last_chunk = self.chunks[chunk].prev;
            if lease.last_chunk == NONE {
                lease.first_chunk = NONE;
                lease.first_place = 0;
            } else {
                self.chunks[lease.last_chunk].next = NONE;
            }
            self.chunks.remove(chunk);
        }
        Some(object)
    }

    /// When the oldest lease that has not ended was granted.
    pub(crate) fn oldest(&self) -> Option<Time> {
        self.held.first().map(|slot| self.slab[slot].granted)
    }
}

impl Lease {
    /// Place of pin `index` in its chunk; 0 also when the chunk is still to be made.
    fn place_of(&self, index: u32) -> usize {
        (usize::from(self.first_place) + index as usize) % PINS_PER_CHUNK
    }
}

impl Linked<LeaseByTime> for Slab<Lease> {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self[slot].time_links
    }

    fn next(&self, slot: Slot) -> Slot {
        self[slot].time_links.next
    }
}

impl Linked<LeaseByOwner> for Slab<Lease> {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self[slot].owner_links
    }

    fn next(&self, slot: Slot) -> Slot {
        self[slot].owner_links.next
    }
}

mod books;
