//! The table of reservations: by ticket, by key, by owner and in the order of their deadlines.

use maru_wire::{Key, Ticket};

use crate::config::Time;
use crate::hashes::Hashes;
use crate::index::Index;
use crate::issuer::{Issuer, tag_of};
use crate::list::{Linked, Links, List, NONE, Slot};
use crate::slab::Slab;

/// Where a reservation is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReservationState {
    /// Within its TTL.
    Live,
    /// Past its TTL. A late write may still reach its pages, so no timer ends it.
    Overdue,
    /// Abandoned after an error. Its ticket is void; its pages wait for the fence time.
    Fenced,
}

/// Pages promised to a writer.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) ticket: Ticket,
    pub(crate) object: Slot,
    /// The client.
    pub(crate) owner: Slot,
    pub(crate) state: ReservationState,
    pub(crate) granted: Time,
    /// From here on the key is no longer held for this writer.
    pub(crate) in_flight_until: Time,
    pub(crate) fenced_until: Time,
    /// The hello that is being handled lists it.
    pub(crate) is_listed: bool,
    time_links: Links,
    owner_links: Links,
    /// Reservations of one key, the latest first.
    key_links: Links,
}

/// Names the lists of one state, the oldest first.
#[derive(Debug)]
pub(crate) struct ReservationByTime;
/// Names the list of one client's live and overdue ones.
#[derive(Debug)]
pub(crate) struct ReservationByOwner;

/// The slots of reservations, with their links.
pub(crate) type ReservationSlab = Slab<Reservation>;

/// Reservations by slot.
#[derive(Debug)]
pub(crate) struct Reservations {
    pub(crate) slab: ReservationSlab,
    by_ticket: Index,
    /// The latest live or overdue reservation of each key.
    by_key: Index,
    pub(crate) live: List<ReservationByTime>,
    pub(crate) overdue: List<ReservationByTime>,
    pub(crate) fenced: List<ReservationByTime>,
    pub(crate) live_count: u64,
    pub(crate) overdue_count: u64,
    issuer: Issuer,
}

/// What a new reservation is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewReservation {
    pub(crate) ticket: Ticket,
    pub(crate) object: Slot,
    pub(crate) owner: Slot,
    pub(crate) granted: Time,
    pub(crate) in_flight_until: Time,
}

impl Reservations {
    pub(crate) fn new(seed: &[u8; 32], reservations_max: u32) -> Self {
        Self {
            slab: Slab::growing(reservations_max),
            by_ticket: Index::growing(reservations_max as usize),
            by_key: Index::growing(reservations_max as usize),
            live: List::default(),
            overdue: List::default(),
            fenced: List::default(),
            live_count: 0,
            overdue_count: 0,
            issuer: Issuer::new(seed, b"tickets"),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.slab.is_full()
    }

    pub(crate) fn get(&self, slot: Slot) -> &Reservation {
        &self.slab[slot]
    }

    pub(crate) fn next_ticket(&mut self) -> Ticket {
        Ticket(self.issuer.issue())
    }

    /// Returns the live or overdue reservation with this ticket.
    pub(crate) fn find(&self, ticket: &Ticket) -> Option<Slot> {
        self.by_ticket.find(tag_of(&ticket.0), |slot| self.slab[slot].ticket == *ticket)
    }

    /// Returns the latest live or overdue reservation of a key. `key_of` tells an object's key.
    ///
    /// A grant needs that no other's is in flight, so that those in flight at any time belong to
    /// one client, and the latest of a key lasts longest: the older ones need no look.
    pub(crate) fn latest<'a>(
        &self,
        hashes: &Hashes,
        key: &Key,
        key_of: impl Fn(Slot) -> &'a Key,
    ) -> Option<Slot> {
        if self.by_key.len() == 0 {
            return None;
        }
        self.by_key.find(hashes.key(key), |slot| key_of(self.slab[slot].object) == key)
    }

    /// Adds a live reservation. `latest` is what `latest` says of its key, whose tag is `key_tag`.
    pub(crate) fn add(
        &mut self,
        new: NewReservation,
        key_tag: u32,
        latest: Option<Slot>,
        owned: &mut List<ReservationByOwner>,
    ) -> Slot {
        let slot = self.slab.insert(Reservation {
            ticket: new.ticket,
            object: new.object,
            owner: new.owner,
            state: ReservationState::Live,
            granted: new.granted,
            in_flight_until: new.in_flight_until,
            fenced_until: Time(0),
            is_listed: false,
            time_links: Links::default(),
            owner_links: Links::default(),
            key_links: Links { prev: NONE, next: latest.unwrap_or(NONE) },
        });
        match latest {
            Some(latest) => {
                self.slab[latest].key_links.prev = slot;
                self.by_key.replace(key_tag, latest, slot);
            }
            None => self.by_key.insert(key_tag, slot),
        }
        self.by_ticket.insert(tag_of(&new.ticket.0), slot);
        self.live.push_back(&mut self.slab, slot);
        owned.push_back(&mut self.slab, slot);
        self.live_count += 1;
        slot
    }

    /// Makes a live reservation overdue.
    pub(crate) fn set_overdue(&mut self, slot: Slot) {
        self.live.remove(&mut self.slab, slot);
        self.overdue.push_back(&mut self.slab, slot);
        self.slab[slot].state = ReservationState::Overdue;
        self.live_count -= 1;
        self.overdue_count += 1;
    }

    /// Makes the ticket of a live or overdue reservation void, and its key free of it.
    /// It is in no list then, and either `fence` or `forget` must follow.
    pub(crate) fn end(&mut self, slot: Slot, key_tag: u32, owned: &mut List<ReservationByOwner>) {
        match self.slab[slot].state {
            ReservationState::Live => {
                self.live.remove(&mut self.slab, slot);
                self.live_count -= 1;
            }
            ReservationState::Overdue => {
                self.overdue.remove(&mut self.slab, slot);
                self.overdue_count -= 1;
            }
            ReservationState::Fenced => unreachable!("a fenced reservation has ended before"),
        }
        owned.remove(&mut self.slab, slot);
        self.by_ticket.remove(tag_of(&self.slab[slot].ticket.0), slot);
        self.leave_key(slot, key_tag);
    }

    /// Keeps the pages of an ended reservation until the fence time is over.
    pub(crate) fn fence(&mut self, slot: Slot, until: Time) {
        self.slab[slot].state = ReservationState::Fenced;
        self.slab[slot].fenced_until = until;
        self.fenced.push_back(&mut self.slab, slot);
    }

    /// Takes a reservation whose fence time is over out of its list. `forget` must follow.
    pub(crate) fn end_fence(&mut self, slot: Slot) {
        self.fenced.remove(&mut self.slab, slot);
    }

    /// Gives the slot of an ended reservation back.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.slab.remove(slot);
    }

    /// The next reservation of the same owner.
    pub(crate) fn next_of_owner(&self, slot: Slot) -> Option<Slot> {
        let next = self.slab[slot].owner_links.next;
        (next != NONE).then_some(next)
    }

    /// When the oldest live or overdue reservation was granted.
    pub(crate) fn oldest(&self) -> Option<Time> {
        let oldest = self.overdue.first().or(self.live.first())?;
        Some(self.slab[oldest].granted)
    }

    fn leave_key(&mut self, slot: Slot, key_tag: u32) {
        let Links { prev, next } = self.slab[slot].key_links;
        if next != NONE {
            self.slab[next].key_links.prev = prev;
        }
        if prev != NONE {
            self.slab[prev].key_links.next = next;
        } else if next != NONE {
            self.by_key.replace(key_tag, slot, next);
        } else {
            self.by_key.remove(key_tag, slot);
        }
    }
}

impl Linked<ReservationByTime> for ReservationSlab {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self[slot].time_links
    }

    fn next(&self, slot: Slot) -> Slot {
        self[slot].time_links.next
    }
}

impl Linked<ReservationByOwner> for ReservationSlab {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self[slot].owner_links
    }

    fn next(&self, slot: Slot) -> Slot {
        self[slot].owner_links.next
    }
}

mod books;
