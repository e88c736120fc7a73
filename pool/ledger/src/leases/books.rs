//! Checks of the leases' lists and pins.

use super::{Leases, PINS_PER_CHUNK};
use crate::books::{Checked, equal, holds};
use crate::list::{NONE, Slot};

impl Leases {
    /// Checks every lease, and adds its pins to `pins` by the object's slot.
    pub(crate) fn check(&self, pins: &mut [u32]) -> Checked {
        let mut granted = 0;
        let mut held_count = 0;
        for slot in self.held.iter(&self.slab) {
            let lease = &self.slab[slot];
            holds("a held lease has not ended", !lease.is_ended && lease.count > 0)?;
            holds("leases are in order", lease.granted.0 >= granted)?;
            granted = lease.granted.0;
            held_count += 1;
        }
        equal("held leases", self.held_count, held_count)?;
        let mut ending_count = 0;
        for slot in self.ending.iter(&self.slab) {
            holds("an ending lease has ended", self.slab[slot].is_ended)?;
            ending_count += 1;
        }
        equal("leases", self.slab.len() as u64, held_count + ending_count)?;
        equal("names of leases", self.by_id.len() as u64, self.slab.len() as u64)?;
        let mut pin_count = 0;
        let mut chunk_count = 0;
        for slot in self.slab.used() {
            holds("a lease is found", self.find(&self.slab[slot].id) == Some(slot))?;
            pin_count += u64::from(self.slab[slot].count);
            chunk_count += self.check_pins(slot, pins)?;
        }
        equal("pins", u64::from(self.pin_count), pin_count)?;
        equal("chunks of pins", self.chunks.len() as u64, chunk_count)
    }

    /// Returns how many chunks the lease has.
    fn check_pins(&self, slot: Slot, pins: &mut [u32]) -> Result<u64, crate::books::BooksError> {
        let lease = &self.slab[slot];
        let mut chunk = lease.first_chunk;
        let mut chunk_count = 0;
        let mut place = usize::from(lease.first_place);
        for index in 0..lease.count {
            if index == 0 || place == PINS_PER_CHUNK {
                if index > 0 {
                    chunk = self.chunks[chunk].next;
                    place = 0;
                }
                chunk_count += 1;
            }
            holds("a lease has chunks for its pins", chunk != NONE)?;
            let object = self.chunks[chunk].objects[place] as usize;
            holds("a pin names an object", object < pins.len())?;
            pins[object] += 1;
            place += 1;
        }
        holds("the last pin is in the last chunk", chunk == lease.last_chunk)?;
        Ok(chunk_count)
    }
}

impl Leases {
    /// Calls `visit` with the owner of each lease.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Slot)) {
        for slot in self.slab.used() {
            visit(self.slab[slot].owner);
        }
    }

    /// Calls `visit` with the owner and the object of each pin.
    pub(crate) fn for_each_pin(&self, mut visit: impl FnMut(Slot, Slot)) {
        for slot in self.slab.used() {
            let lease = &self.slab[slot];
            let mut chunk = lease.first_chunk;
            let mut place = usize::from(lease.first_place);
            for _ in 0..lease.count {
                if place == PINS_PER_CHUNK {
                    chunk = self.chunks[chunk].next;
                    place = 0;
                }
                visit(lease.owner, self.chunks[chunk].objects[place]);
                place += 1;
            }
        }
    }
}
