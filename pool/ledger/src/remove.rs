//! Remove: unlinks keys. Pins hold pages, not names.

use maru_wire::{ArchivedRemove, ArchivedRemoveItem, RemoveOutcome, Ticket};

use crate::shard::Shard;
use crate::work::{Work, take_step};

impl Shard {
    /// True when every item is answered.
    pub(crate) fn remove(
        &mut self,
        request: &ArchivedRemove,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        while let Some(item) = request.items.get(work.cursor) {
            if !take_step(budget) {
                return false;
            }
            let outcome = self.remove_one(item);
            work.replies.remove.outcomes.push(outcome);
            work.cursor += 1;
        }
        true
    }

    fn remove_one(&mut self, item: &ArchivedRemoveItem) -> RemoveOutcome {
        let Some(slot) = self.present(&item.key) else {
            return RemoveOutcome::Missing;
        };
        if item.ticket != Ticket::default() && item.ticket != self.objects.details(slot).ticket {
            return RemoveOutcome::OtherTicket;
        }
        self.remove_name(slot);
        RemoveOutcome::Removed
    }
}

#[cfg(test)]
mod tests;
