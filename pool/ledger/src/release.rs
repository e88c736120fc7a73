//! Release, and the other ways in which a lease ends. Its pins go one by one, within a budget.

use maru_wire::{ArchivedRelease, ArchivedReleaseItem};

use crate::config::Time;
use crate::list::Slot;
use crate::shard::Shard;
use crate::work::{Caller, Work, take_step};

impl Shard {
    /// True when every lease is dealt with.
    pub(crate) fn release(
        &mut self,
        caller: Caller,
        request: &ArchivedRelease,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        while let Some(item) = request.items.get(work.cursor) {
            if !work.is_mid_item {
                if !take_step(budget) {
                    return false;
                }
                let held = self.held_lease(caller, &item.lease);
                work.replies.release.held.push(held.is_some());
                match held {
                    Some(lease) if item.keep == 0 => self.end_lease(lease),
                    Some(_) => {}
                    None => {
                        work.cursor += 1;
                        continue;
                    }
                }
                work.is_mid_item = true;
            }
            if !self.release_pins(item, budget) {
                return false;
            }
            work.is_mid_item = false;
            work.cursor += 1;
        }
        true
    }

    /// Ends a lease that has not ended. Its pins are left to `drop_ended_pin`.
    pub(crate) fn end_lease(&mut self, lease: Slot) {
        let owner = self.leases.get(lease).owner;
        self.leases.end(lease, &mut self.clients.get_mut(owner).leases);
    }

    /// Ends all leases of a client.
    pub(crate) fn end_leases_of(&mut self, client: Slot) {
        while let Some(lease) = self.clients.get(client).leases.first() {
            self.end_lease(lease);
        }
    }

    /// Ends the oldest lease if it is past its deadline.
    pub(crate) fn expire_lease(&mut self, now: Time) -> bool {
        match self.leases.held.first() {
            Some(oldest) if self.lease_deadline(oldest) <= now => {
                self.end_lease(oldest);
                self.totals.lease_expired += 1;
                true
            }
            _ => false,
        }
    }

    /// Drops one pin of a lease that is over. False when there is none.
    pub(crate) fn drop_ended_pin(&mut self, now: Time) -> bool {
        if self.leases.ending.is_empty() && !self.expire_lease(now) {
            return false;
        }
        let lease = self.leases.ending.first().expect("a lease has just been put there");
        self.drop_first_pin(lease);
        true
    }

    /// Drops the pins that the item gives back. False when the budget is spent before.
    fn release_pins(&mut self, item: &ArchivedReleaseItem, budget: &mut u32) -> bool {
        // Looked up anew in each turn: others may have dropped the pins of an ended lease.
        let Some(lease) = self.leases.find(&item.lease) else { return true };
        let keep = item.keep.to_native();
        loop {
            if self.leases.get(lease).count <= keep {
                return true;
            }
            if !take_step(budget) {
                return false;
            }
            if keep == 0 {
                if self.drop_first_pin(lease) {
                    return true;
                }
            } else {
                let owner = self.leases.get(lease).owner;
                let object = self.leases.pop_last_pin(lease).expect("it has more than it keeps");
                self.unpin(owner, object);
            }
        }
    }

    /// Drops the first pin of an ended lease; the lease too when it was the last. Pins go in the
    /// order of the lookup, so that objects rejoin the LRU in that order.
    fn drop_first_pin(&mut self, lease: Slot) -> bool {
        let owner = self.leases.get(lease).owner;
        if let Some(object) = self.leases.pop_first_pin(lease) {
            self.unpin(owner, object);
        }
        let is_last = self.leases.get(lease).count == 0;
        if is_last {
            self.leases.forget(lease);
            self.clients.count(owner, |client| client.lease_count -= 1);
        }
        is_last
    }
}

#[cfg(test)]
mod tests;
