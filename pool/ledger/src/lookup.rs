//! Lookup: finds chunks and pins what it found, under one lease, in the same step.

use maru_wire::{
    ArchivedLookup, ArchivedMatch, Found, Key, LeaseId, LookupOutcome, lookup_reply_bytes,
};

use crate::config::Time;
use crate::list::Slot;
use crate::shard::Shard;
use crate::work::{Caller, Work, take_step};

impl Shard {
    /// True when every key is answered.
    pub(crate) fn lookup(
        &mut self,
        caller: Caller,
        request: &ArchivedLookup,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        let is_leading = matches!(request.matching, ArchivedMatch::Leading);
        while let Some(key) = request.keys.get(work.cursor) {
            self.warm_pins(work.cursor, request.keys.len(), |item| &request.keys[item]);
            if !take_step(budget) {
                return false;
            }
            let outcome = if work.is_over {
                LookupOutcome::NotTried
            } else {
                self.lookup_one(caller, key, request.keys.len(), work)
            };
            work.is_over |= match outcome {
                LookupOutcome::Found(_) => false,
                LookupOutcome::Missing | LookupOutcome::ClientLimit => is_leading,
                LookupOutcome::NotTried => true,
            };
            work.replies.lookup.outcomes.push(outcome);
            work.cursor += 1;
        }
        let lease = self.held_lease(caller, &work.lease);
        let left = lease.map(|lease| self.lease_deadline(lease).since(caller.now));
        work.replies.lookup.lease = work.lease;
        work.replies.lookup.lease_left_us = left.unwrap_or(0);
        true
    }

    /// Returns the lease of this name, if it is the client's and its right is not over.
    pub(crate) fn held_lease(&self, caller: Caller, id: &LeaseId) -> Option<Slot> {
        let slot = self.leases.find(id)?;
        let lease = self.leases.get(slot);
        let is_held = lease.owner == caller.client
            && !lease.is_ended
            && caller.now < self.lease_deadline(slot);
        is_held.then_some(slot)
    }

    pub(crate) fn lease_deadline(&self, slot: Slot) -> Time {
        self.leases.get(slot).granted.after(self.config.limits.lease_ttl_us)
    }

    fn lookup_one(
        &mut self,
        caller: Caller,
        key: &Key,
        key_count: usize,
        work: &mut Work,
    ) -> LookupOutcome {
        let Some(object) = self.present(key) else {
            self.totals.lookup_miss += 1;
            return LookupOutcome::Missing;
        };
        let page_count = u32::from(self.objects.get(object).page_count);
        let first_page = self.objects.get(object).first_page;
        let run_count = if page_count == 1 { 1 } else { self.pages.run_count(first_page) };
        let runs = &mut work.replies.lookup.runs;
        let body_bytes_max = self.config.limits.body_bytes_max as usize;
        if lookup_reply_bytes(key_count, runs.len() + run_count as usize) > body_bytes_max {
            return LookupOutcome::NotTried;
        }
        let is_new = work.lease == LeaseId::default();
        if !self.may_pin(caller.client, page_count, is_new) {
            return LookupOutcome::ClientLimit;
        }
        let lease = if is_new {
            self.grant_lease(caller)
        } else {
            match self.held_lease(caller, &work.lease) {
                Some(lease) => lease,
                // It ended while the frame was paused, so the rest would not be held.
                None => return LookupOutcome::NotTried,
            }
        };
        work.lease = self.leases.get(lease).id;
        self.pin(caller.client, object);
        self.leases.push_pin(lease, object);
        self.pages.append_runs(first_page, page_count, runs);
        self.totals.lookup_hit += 1;
        let details = self.objects.details(object);
        LookupOutcome::Found(Found {
            object_bytes: self.objects.get(object).object_bytes,
            checksum: self.objects.checksum(object),
            ticket: details.ticket,
            run_count,
        })
    }

    fn may_pin(&self, client: Slot, page_count: u32, needs_lease: bool) -> bool {
        let leases_max = self.config.limits.leases_max;
        let has_lease = !needs_lease
            || (self.clients.get(client).lease_count < leases_max && !self.leases.is_full());
        has_lease
            && self.leases.has_room_for_pin()
            && self.clients.may_pin(&self.config, self.pages.total_count(), client, page_count)
    }

    fn grant_lease(&mut self, Caller { now, client }: Caller) -> Slot {
        self.clients.count(client, |client| client.lease_count += 1);
        let owned = &mut self.clients.get_mut(client).leases;
        self.leases.add(client, now, owned)
    }
}

#[cfg(test)]
mod tests;
