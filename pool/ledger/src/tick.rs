//! What is due by the clock, and what is left over from earlier steps, within a budget.

use crate::config::Time;
use crate::list::Slot;
use crate::shard::Shard;
use crate::work::take_step;

impl Shard {
    /// Carries out what is due by `now`: reservations become overdue, leases expire, fences end,
    /// pins of ended leases go, cleared objects are freed. True when more is due.
    pub fn tick(&mut self, now: Time, budget: &mut u32) -> bool {
        while self.is_due(now) {
            if !take_step(budget) {
                return true;
            }
            self.tick_one(now);
        }
        false
    }

    /// When `tick` has something to do; a time that is past when it has already.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.leases.ending.is_empty() || self.lru.first_cleared().is_some() {
            return Some(Time(0));
        }
        let live = self.reservations.live.first().map(|slot| self.reservation_deadline(slot));
        let held = self.leases.held.first().map(|slot| self.lease_deadline(slot));
        let fenced = self.reservations.fenced.first();
        let fenced = fenced.map(|slot| self.reservations.get(slot).fenced_until);
        [live, held, fenced].into_iter().flatten().min()
    }

    /// Frees the pages of the oldest fence if its time is over. False when none is.
    pub(crate) fn end_due_fence(&mut self, now: Time) -> bool {
        let due = self.reservations.fenced.first();
        let due = due.filter(|slot| self.reservations.get(*slot).fenced_until <= now);
        let Some(slot) = due else { return false };
        let reservation = self.reservations.get(slot);
        let (object, owner) = (reservation.object, reservation.owner);
        let page_count = u64::from(self.objects.get(object).page_count);
        self.counts.fenced -= page_count;
        self.clients.count(owner, |client| client.fenced_pages -= page_count);
        self.reservations.end_fence(slot);
        self.reservations.forget(slot);
        self.free_object(object);
        true
    }

    fn is_due(&self, now: Time) -> bool {
        self.next_deadline().is_some_and(|deadline| deadline <= now)
    }

    fn tick_one(&mut self, now: Time) {
        if self.set_oldest_overdue(now) || self.expire_lease(now) || self.end_due_fence(now) {
            return;
        }
        if !self.drop_ended_pin(now)
            && let Some(cleared) = self.lru.first_cleared()
        {
            self.unlink_cleared(cleared);
        }
    }

    fn reservation_deadline(&self, slot: Slot) -> Time {
        self.reservations.get(slot).granted.after(self.config.limits.reservation_ttl_us)
    }

    fn set_oldest_overdue(&mut self, now: Time) -> bool {
        let due = self.reservations.live.first();
        let due = due.filter(|slot| self.reservation_deadline(*slot) <= now);
        let Some(slot) = due else { return false };
        let reservation = self.reservations.get(slot);
        let owner = reservation.owner;
        let page_count = u64::from(self.objects.get(reservation.object).page_count);
        self.counts.reserved -= page_count;
        self.counts.overdue += page_count;
        self.totals.overdue += 1;
        self.reservations.set_overdue(slot);
        self.clients.count(owner, |client| {
            client.live_pages -= page_count;
            client.overdue_pages += page_count;
        });
        true
    }
}

#[cfg(test)]
mod tests;
