//! Checks of the reservations' lists and indices.

use super::{ReservationState, Reservations};
use crate::books::{Checked, equal, holds};
use crate::hashes::Hashes;
use crate::list::{NONE, Slot};
use crate::objects::{ObjectState, Objects};

impl Reservations {
    /// Checks that each reservation is in the lists of its state, and found.
    pub(crate) fn check(&self, hashes: &Hashes, objects: &Objects) -> Checked {
        let states = [
            (&self.live, ReservationState::Live),
            (&self.overdue, ReservationState::Overdue),
            (&self.fenced, ReservationState::Fenced),
        ];
        let mut counts = [0; 3];
        for ((list, state), count) in states.into_iter().zip(&mut counts) {
            let mut granted = 0;
            for slot in list.iter(&self.slab) {
                let reservation = &self.slab[slot];
                holds("a reservation is in the list of its state", reservation.state == state)?;
                let time = match state {
                    ReservationState::Fenced => reservation.fenced_until,
                    ReservationState::Live | ReservationState::Overdue => reservation.granted,
                };
                holds("a list of reservations is in order", time.0 >= granted)?;
                granted = time.0;
                *count += 1;
            }
        }
        let [live, overdue, fenced] = counts;
        equal("live reservations", self.live_count, live)?;
        equal("overdue reservations", self.overdue_count, overdue)?;
        equal("reservations", self.slab.len() as u64, live + overdue + fenced)?;
        equal("tickets", self.by_ticket.len() as u64, live + overdue)?;
        let mut latest_count = 0;
        for slot in self.slab.used() {
            let object = objects.get(self.slab[slot].object);
            holds("a reservation's object is reserved", object.state == ObjectState::Reserved)?;
            if self.slab[slot].state != ReservationState::Fenced {
                latest_count += self.check_names(hashes, objects, slot)?;
            }
        }
        equal("keys with a reservation", self.by_key.len() as u64, latest_count)
    }

    /// Returns 1 for the latest reservation of its key.
    fn check_names(
        &self,
        hashes: &Hashes,
        objects: &Objects,
        slot: Slot,
    ) -> Result<u64, crate::books::BooksError> {
        let reservation = &self.slab[slot];
        holds("a ticket is found", self.find(&reservation.ticket) == Some(slot))?;
        let key = &objects.get(reservation.object).key;
        let latest = self.latest(hashes, key, |object| &objects.get(object).key);
        let is_latest = reservation.key_links.prev == NONE;
        holds("the latest of a key is found", (latest == Some(slot)) == is_latest)?;
        let next = reservation.key_links.next;
        if next != NONE {
            let older = &self.slab[next];
            let is_same = objects.get(older.object).key == *key;
            holds("a chain has one key", is_same && older.key_links.prev == slot)?;
            holds("the latest of a key lasts longest", older.granted <= reservation.granted)?;
        }
        Ok(u64::from(is_latest))
    }
}
