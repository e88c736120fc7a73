//! The table of objects: chunks that are reserved, published or unlinked, with their pages.
//!
//! What every request reads is in one cache line for each object. The links of the LRU stand
//! apart and close together, so that walking a list does not wait for a line of each object.

use alloc::vec::Vec;

use maru_wire::{Checksum, Key, Ticket};

use crate::list::{Linked, Links, Slot};
use crate::pages::PageNumber;
use crate::slab::Slab;

/// Where an object is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ObjectState {
    /// Of a reservation: live, overdue or fenced.
    Reserved,
    /// Published and found by its key, unless its namespace was cleared since its stamp.
    Linked,
    /// No longer found by its key; a lease pins it.
    Unlinked,
}

/// What every request reads of an object: one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Object {
    pub(crate) key: Key,
    /// When it was reserved or last touched, by the LRU's count.
    pub(crate) stamp: u64,
    pub(crate) object_bytes: u64,
    /// How many pins leases hold on it.
    pub(crate) pins: u32,
    pub(crate) first_page: PageNumber,
    pub(crate) namespace: u16,
    /// 1 to 64.
    pub(crate) page_count: u8,
    pub(crate) state: ObjectState,
    pub(crate) checksum_kind: u8,
}

/// What only a lookup and a remove read of an object.
#[derive(Debug)]
pub(crate) struct Details {
    pub(crate) ticket: Ticket,
    pub(crate) checksum_value: u64,
}

const _: () = assert!(size_of::<Object>() == 64 && size_of::<Details>() == 24);

/// Names the lists of the LRU, and that of the cleared ones.
#[derive(Debug)]
pub(crate) struct ByUse;

/// Objects by slot.
#[derive(Debug)]
pub(crate) struct Objects {
    objects: Slab<Object>,
    /// In the LRU, or among the cleared ones; only while linked and not pinned.
    links: Vec<Links>,
    details: Vec<Details>,
}

impl Objects {
    /// Each object has a page, so that there are never more objects than pages.
    pub(crate) fn new(page_count_max: u32) -> Self {
        Self {
            objects: Slab::fixed(page_count_max),
            links: Vec::with_capacity(page_count_max as usize),
            details: Vec::with_capacity(page_count_max as usize),
        }
    }

    pub(crate) fn insert(&mut self, object: Object, details: Details) -> Slot {
        let slot = self.objects.insert(object);
        match self.details.get_mut(slot as usize) {
            Some(place) => *place = details,
            None => {
                self.details.push(details);
                self.links.push(Links::default());
            }
        }
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        self.objects.remove(slot);
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Object {
        &self.objects[slot]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Object {
        &mut self.objects[slot]
    }

    pub(crate) fn links_of(&self, slot: Slot) -> Links {
        self.links[slot as usize]
    }

    pub(crate) fn details(&self, slot: Slot) -> &Details {
        &self.details[slot as usize]
    }

    pub(crate) fn set_checksum(&mut self, slot: Slot, checksum: Checksum) {
        self.objects[slot].checksum_kind = checksum.kind;
        self.details[slot as usize].checksum_value = checksum.value;
    }

    pub(crate) fn checksum(&self, slot: Slot) -> Checksum {
        Checksum { kind: self.get(slot).checksum_kind, value: self.details(slot).checksum_value }
    }

    /// The slots in use, for checks of the whole table.
    pub(crate) fn used(&self) -> Vec<Slot> {
        self.objects.used()
    }
}

impl Linked<ByUse> for Objects {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self.links[slot as usize]
    }

    fn next(&self, slot: Slot) -> Slot {
        self.links[slot as usize].next
    }
}
