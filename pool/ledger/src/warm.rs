//! Reads ahead for a group of keys, so that their cache misses overlap instead of adding up.
//!
//! It changes nothing and decides nothing: without it every answer is the same, later.

use core::hint::black_box;

use maru_wire::Key;

use crate::list::{NONE, Slot};
use crate::shard::Shard;

/// How many keys are read ahead together: about as many misses as a core keeps in flight.
const GROUP: usize = 16;

/// The tags, then the slots, of a group.
type Group = [u32; GROUP];

impl Shard {
    /// Brings what `present` reads of the keys from `cursor` on into the cache, once a group.
    #[inline]
    pub(crate) fn warm_names<'a>(
        &self,
        cursor: usize,
        count: usize,
        key: impl Fn(usize) -> &'a Key,
    ) {
        if cursor.is_multiple_of(GROUP) && count > 1 {
            self.warm_group(cursor, count, key);
        }
    }

    /// As `warm_names`, and what pinning the objects found reads.
    #[inline]
    pub(crate) fn warm_pins<'a>(
        &self,
        cursor: usize,
        count: usize,
        key: impl Fn(usize) -> &'a Key,
    ) {
        if cursor.is_multiple_of(GROUP) && count > 1 {
            let (slots, found) = self.warm_group(cursor, count, key);
            let slots = &slots[..found];
            let neighbours = slots.iter().map(|slot| self.objects.links_of(*slot));
            let neighbour = |slot: Slot| match slot {
                NONE => 0,
                slot => self.objects.links_of(slot).next,
            };
            let seen = neighbours
                .fold(0, |seen, links| seen ^ neighbour(links.prev) ^ neighbour(links.next));
            black_box(seen);
            let values = slots.iter().map(|slot| self.objects.details(*slot).checksum_value);
            black_box(values.fold(0, |seen, value| seen ^ value));
        }
    }

    /// Brings what evicting the next objects reads into the cache, once a group.
    pub(crate) fn warm_victims(&self, cursor: usize, count: usize) {
        let wanted = (count - cursor).min(GROUP);
        if !cursor.is_multiple_of(GROUP) || count < 2 || self.pages.free_count() as usize >= wanted
        {
            return;
        }
        let mut slots: Group = [NONE; GROUP];
        let mut found = 0;
        for (victim, slot) in self.lru.coldest_few(&self.objects).zip(&mut slots[..wanted]) {
            *slot = victim;
            found += 1;
        }
        let victims = slots[..found].iter().map(|slot| self.objects.get(*slot));
        black_box(victims.clone().fold(0, |seen, object| seen ^ object.stamp));
        let mut tags: Group = [0; GROUP];
        for (object, tag) in victims.clone().zip(&mut tags) {
            *tag = self.hashes.key(&object.key);
        }
        let pages = victims.map(|object| self.pages.touch(object.first_page));
        black_box(pages.fold(0, |seen, page| seen ^ page));
        black_box(self.index.touch(&tags[..found]));
    }

    /// Returns the slots that the index has for the keys' tags, and how many.
    fn warm_group<'a>(
        &self,
        cursor: usize,
        count: usize,
        key: impl Fn(usize) -> &'a Key,
    ) -> (Group, usize) {
        let mut tags: Group = [0; GROUP];
        let wanted = (count - cursor).min(GROUP);
        for (item, tag) in (cursor..).zip(&mut tags[..wanted]) {
            *tag = self.hashes.key(key(item));
        }
        black_box(self.index.touch(&tags[..wanted]));
        let mut slots: Group = [NONE; GROUP];
        let mut found = 0;
        let mut seen = 0;
        for tag in &tags[..wanted] {
            if let Some(slot) = self.index.find(*tag, |_| true) {
                seen ^= self.objects.get(slot).stamp;
                slots[found] = slot;
                found += 1;
            }
        }
        black_box(seen);
        (slots, found)
    }
}
