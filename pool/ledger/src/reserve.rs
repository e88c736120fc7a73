//! Reserve: promises pages to a writer, key by key in the frame's order.

use maru_wire::{ArchivedReserve, Grant, Key, ReserveOutcome, Ticket, reserve_reply_bytes};

use crate::config::Time;
use crate::list::Slot;
use crate::objects::{Details, Object, ObjectState};
use crate::reservations::NewReservation;
use crate::room::Room;
use crate::shard::Shard;
use crate::work::{Caller, Work, take_step};

/// What a writer asks for one key.
struct Wish<'a> {
    client: Slot,
    key: &'a Key,
    object_bytes: u64,
    page_count: u32,
}

impl Shard {
    /// True when every item is answered.
    pub(crate) fn reserve(
        &mut self,
        caller: Caller,
        request: &ArchivedReserve,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        while work.cursor < request.items.len() {
            let item_count = request.items.len();
            self.warm_names(work.cursor, item_count, |item| &request.items[item].key);
            self.warm_victims(work.cursor, item_count);
            if !take_step(budget) {
                return false;
            }
            let outcome = if work.is_over {
                ReserveOutcome::NotTried
            } else {
                match self.reserve_one(caller, request, work, budget) {
                    Some(outcome) => outcome,
                    None => return false,
                }
            };
            work.is_over = outcome == ReserveOutcome::NotTried;
            work.replies.reserve.outcomes.push(outcome);
            work.cursor += 1;
        }
        true
    }

    /// None: the budget is spent, and nothing was done.
    fn reserve_one(
        &mut self,
        caller: Caller,
        request: &ArchivedReserve,
        work: &mut Work,
        budget: &mut u32,
    ) -> Option<ReserveOutcome> {
        if work.is_duplicate(work.cursor) {
            return Some(ReserveOutcome::Duplicate);
        }
        let Caller { now, client } = caller;
        let item = &request.items[work.cursor];
        let object_bytes = item.object_bytes.to_native();
        let Some(page_count) = self.pages_for(client, object_bytes) else {
            return Some(ReserveOutcome::Rejected);
        };
        let key = &item.key;
        if let Some(present) = self.present(key) {
            // A writer that wanted to store it used it: S9.
            self.touch(present);
            return Some(ReserveOutcome::Present);
        }
        let latest = self.latest_reservation(key);
        if latest.is_some_and(|latest| self.is_in_flight(now, client, latest)) {
            return Some(ReserveOutcome::InFlight);
        }
        let shard_pages = self.pages.total_count();
        if !self.clients.may_reserve(&self.config, shard_pages, client, page_count) {
            return Some(ReserveOutcome::ClientLimit);
        }
        let run_count = work.replies.reserve.runs.len() + page_count as usize;
        let body_bytes_max = self.config.limits.body_bytes_max as usize;
        if reserve_reply_bytes(request.items.len(), run_count) > body_bytes_max {
            return Some(ReserveOutcome::NotTried);
        }
        let is_table_full = self.reservations.is_full();
        let room = if is_table_full { Room::Full } else { self.make_room(now, page_count, budget) };
        match room {
            Room::Ready => {
                let wish = Wish { client, key, object_bytes, page_count };
                Some(ReserveOutcome::Granted(self.grant(now, &wish, latest, work)))
            }
            Room::Growing(retry_after_us) => Some(ReserveOutcome::Growing(retry_after_us)),
            Room::Full => {
                self.totals.full += 1;
                Some(ReserveOutcome::Full)
            }
            Room::Later => None,
        }
    }

    /// Pages of an object; None when the shard, the limits or the client's cap never hold it.
    fn pages_for(&self, client: Slot, object_bytes: u64) -> Option<u32> {
        let shard_pages = self.pages.total_count();
        let cap = self.clients.caps(&self.config, shard_pages, client).reserved_pages_max;
        let page_count = self.config.pages_of(object_bytes)?;
        (object_bytes > 0 && page_count <= cap.min(shard_pages)).then_some(page_count)
    }

    /// Whether another's write holds the key at present. A cleared reservation holds nothing.
    fn is_in_flight(&self, now: Time, client: Slot, latest: Slot) -> bool {
        let reservation = self.reservations.get(latest);
        reservation.owner != client
            && now < reservation.in_flight_until
            && !self.is_cleared(reservation.object)
    }

    fn grant(
        &mut self,
        now: Time,
        wish: &Wish<'_>,
        latest: Option<Slot>,
        work: &mut Work,
    ) -> Grant {
        let ticket = self.reservations.next_ticket();
        let first_page = self.pages.take(wish.page_count);
        let runs = &mut work.replies.reserve.runs;
        let run_count = self.pages.append_runs(first_page, wish.page_count, runs);
        let object = self.add_object(wish, ticket, first_page);
        let own_before = latest.map(|slot| self.reservations.get(slot));
        let own_before = own_before.filter(|before| before.owner == wish.client);
        let held_before = own_before.map_or(Time(0), |before| before.in_flight_until);
        let client = self.clients.get_mut(wish.client);
        let in_flight_until = now.after(client.transfer_timeout_us).max(held_before);
        let new =
            NewReservation { ticket, object, owner: wish.client, granted: now, in_flight_until };
        let key_tag = self.hashes.key(wish.key);
        self.reservations.add(new, key_tag, latest, &mut client.reservations);
        let page_count = u64::from(wish.page_count);
        self.clients.count(wish.client, |client| {
            client.live_pages += page_count;
            client.reservation_count += 1;
        });
        self.totals.granted += 1;
        Grant { ticket, run_count }
    }

    /// Adds a reserved object, and counts its pages.
    fn add_object(&mut self, wish: &Wish<'_>, ticket: Ticket, first_page: u32) -> Slot {
        let namespace = self.clients.get(wish.client).namespace;
        let books = self.namespaces.get_mut(namespace);
        books.refs += 1;
        books.reserved_pages += u64::from(wish.page_count);
        self.counts.reserved += u64::from(wish.page_count);
        let object = Object {
            key: *wish.key,
            stamp: self.lru.stamp(),
            object_bytes: wish.object_bytes,
            pins: 0,
            first_page,
            namespace,
            page_count: u8::try_from(wish.page_count).expect("at most 64 pages"),
            state: ObjectState::Reserved,
            checksum_kind: 0,
        };
        let details = Details { ticket, checksum_value: 0 };
        self.objects.insert(object, details)
    }
}

#[cfg(test)]
mod tests;
