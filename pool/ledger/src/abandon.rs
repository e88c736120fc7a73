//! Abandon, and the other ways in which a reservation ends.

use maru_wire::{ArchivedAbandon, Key, Ticket};

use crate::config::Time;
use crate::list::Slot;
use crate::reservations::ReservationState;
use crate::shard::Shard;
use crate::work::{Caller, Work, take_step};

impl Shard {
    /// True when every ticket is dealt with.
    pub(crate) fn abandon(
        &mut self,
        caller: Caller,
        request: &ArchivedAbandon,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        while let Some(ticket) = request.tickets.get(work.cursor) {
            if !take_step(budget) {
                return false;
            }
            work.cursor += 1;
            let Some(reservation) = self.own_reservation(caller.client, ticket) else { continue };
            work.replies.abandon.abandoned_count += 1;
            if request.after_error {
                self.fence_reservation(caller.now, reservation);
            } else {
                self.free_reservation(reservation);
            }
        }
        true
    }

    /// Returns the live or overdue reservation of this ticket, if it is the client's.
    pub(crate) fn own_reservation(&self, client: Slot, ticket: &Ticket) -> Option<Slot> {
        let slot = self.reservations.find(ticket)?;
        (self.reservations.get(slot).owner == client).then_some(slot)
    }

    /// Returns the latest live or overdue reservation of a key.
    pub(crate) fn latest_reservation(&self, key: &Key) -> Option<Slot> {
        self.reservations.latest(&self.hashes, key, |object| &self.objects.get(object).key)
    }

    /// Ends a live or overdue reservation, and frees its pages. Returns how many.
    pub(crate) fn free_reservation(&mut self, slot: Slot) -> u64 {
        let object = self.reservations.get(slot).object;
        let page_count = u64::from(self.objects.get(object).page_count);
        self.end_reservation(slot);
        self.reservations.forget(slot);
        self.free_object(object);
        page_count
    }

    /// Takes a live or overdue reservation from its owner and out of the counts. What becomes of
    /// its object is for the caller.
    pub(crate) fn end_reservation(&mut self, slot: Slot) {
        let reservation = self.reservations.get(slot);
        let (owner, state) = (reservation.owner, reservation.state);
        let object = self.objects.get(reservation.object);
        let page_count = u64::from(object.page_count);
        let key_tag = self.hashes.key(&object.key);
        self.namespaces.get_mut(object.namespace).reserved_pages -= page_count;
        let owned = &mut self.clients.get_mut(owner).reservations;
        self.reservations.end(slot, key_tag, owned);
        let is_overdue = state == ReservationState::Overdue;
        if is_overdue {
            self.counts.overdue -= page_count;
        } else {
            self.counts.reserved -= page_count;
        }
        self.clients.count(owner, |client| {
            client.reservation_count -= 1;
            if is_overdue {
                client.overdue_pages -= page_count;
            } else {
                client.live_pages -= page_count;
            }
        });
    }

    fn fence_reservation(&mut self, now: Time, slot: Slot) {
        let reservation = self.reservations.get(slot);
        let owner = reservation.owner;
        let page_count = u64::from(self.objects.get(reservation.object).page_count);
        // Counted as fenced before it ends, so that its owner is not forgotten in between.
        self.counts.fenced += page_count;
        self.clients.count(owner, |client| client.fenced_pages += page_count);
        self.end_reservation(slot);
        self.reservations.fence(slot, now.after(self.config.limits.fence_us));
    }
}

#[cfg(test)]
mod tests;
