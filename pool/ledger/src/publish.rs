//! Publish: makes written chunks visible. The first value of a key wins; every answer is true.

use maru_wire::{ArchivedPublish, ArchivedPublishItem, Checksum, PublishOutcome};

use crate::list::Slot;
use crate::shard::Shard;
use crate::work::{Work, take_step};

impl Shard {
    /// True when every item is answered.
    pub(crate) fn publish(
        &mut self,
        client: Slot,
        request: &ArchivedPublish,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        while let Some(item) = request.items.get(work.cursor) {
            self.warm_names(work.cursor, request.items.len(), |item| &request.items[item].key);
            if !take_step(budget) {
                return false;
            }
            let outcome = self.publish_one(client, item);
            work.replies.publish.outcomes.push(outcome);
            work.cursor += 1;
        }
        true
    }

    fn publish_one(&mut self, client: Slot, item: &ArchivedPublishItem) -> PublishOutcome {
        let present = self.present(&item.key);
        let Some(reservation) = self.own_reservation(client, &item.ticket) else {
            return match present {
                Some(present) => {
                    self.touch(present);
                    PublishOutcome::AlreadyPresent
                }
                None => PublishOutcome::Unknown,
            };
        };
        let object = self.reservations.get(reservation).object;
        if self.objects.get(object).key != item.key {
            return PublishOutcome::WrongKey;
        }
        if let Some(present) = present {
            self.touch(present);
            self.free_reservation(reservation);
            return PublishOutcome::AlreadyPresent;
        }
        if self.is_cleared(object) {
            self.free_reservation(reservation);
            return PublishOutcome::Cleared;
        }
        self.end_reservation(reservation);
        self.reservations.forget(reservation);
        let checksum = &item.checksum;
        let checksum = Checksum { kind: checksum.kind, value: checksum.value.to_native() };
        self.objects.set_checksum(object, checksum);
        self.link(object);
        self.totals.created += 1;
        PublishOutcome::Created
    }
}

#[cfg(test)]
mod tests;
