//! The life of an object: every change of its state, with the counts that belong to it.

use maru_wire::Key;

use crate::list::Slot;
use crate::objects::ObjectState;
use crate::shard::Shard;

impl Shard {
    /// Returns the published object of this key.
    #[inline]
    pub(crate) fn present(&self, key: &Key) -> Option<Slot> {
        let slot = self.linked(self.hashes.key(key), key)?;
        (!self.is_cleared(slot)).then_some(slot)
    }

    #[inline]
    pub(crate) fn linked(&self, tag: u32, key: &Key) -> Option<Slot> {
        self.index.find(tag, |slot| self.objects.get(slot).key == *key)
    }

    /// Whether the object's namespace was cleared since the object was reserved or last touched.
    #[inline]
    pub(crate) fn is_cleared(&self, slot: Slot) -> bool {
        let object = self.objects.get(slot);
        object.stamp < self.namespaces.get(object.namespace).cleared_stamp
    }

    /// Makes a reserved object visible. Its key is not present.
    pub(crate) fn link(&mut self, slot: Slot) {
        let key = self.objects.get(slot).key;
        let tag = self.hashes.key(&key);
        if let Some(cleared) = self.linked(tag, &key) {
            self.unlink_cleared(cleared);
        }
        self.index.insert(tag, slot);
        let object = self.objects.get_mut(slot);
        object.state = ObjectState::Linked;
        let page_count = u64::from(object.page_count);
        self.counts.published += page_count;
        let namespace = self.namespaces.get_mut(object.namespace);
        namespace.key_count += 1;
        namespace.used_pages += page_count;
        self.lru.add(&mut self.objects, slot);
    }

    /// Makes a published object the most recently used one.
    pub(crate) fn touch(&mut self, slot: Slot) {
        if self.objects.get(slot).pins == 0 {
            self.lru.touch(&mut self.objects, slot);
        } else {
            self.objects.get_mut(slot).stamp = self.lru.stamp();
        }
    }

    /// Frees a published object for room. It is in the LRU.
    pub(crate) fn evict(&mut self, slot: Slot) {
        self.unlink(slot);
        self.lru.take(&mut self.objects, slot);
        self.free_object(slot);
        self.totals.evicted += 1;
    }

    /// Takes the name from a published object; its pages stay while a lease pins them.
    pub(crate) fn remove_name(&mut self, slot: Slot) {
        self.unlink(slot);
        self.totals.removed += 1;
        let object = self.objects.get_mut(slot);
        if object.pins == 0 {
            self.lru.take(&mut self.objects, slot);
            self.free_object(slot);
        } else {
            object.state = ObjectState::Unlinked;
            self.counts.unlinked += u64::from(object.page_count);
        }
    }

    /// Frees a cleared object, or leaves it to the leases that pin it.
    pub(crate) fn unlink_cleared(&mut self, slot: Slot) {
        let object = self.objects.get_mut(slot);
        let page_count = u64::from(object.page_count);
        self.counts.cleared -= page_count;
        self.index.remove(self.hashes.key(&object.key), slot);
        if object.pins == 0 {
            self.lru.take_cleared(&mut self.objects, slot);
            self.free_object(slot);
        } else {
            object.state = ObjectState::Unlinked;
            self.counts.unlinked += page_count;
        }
    }

    /// Pins a published object, and makes it the most recently used one.
    pub(crate) fn pin(&mut self, client: Slot, slot: Slot) {
        if self.objects.get(slot).pins == 0 {
            self.lru.take(&mut self.objects, slot);
            self.totals.pinned += 1;
        }
        let stamp = self.lru.stamp();
        let object = self.objects.get_mut(slot);
        object.stamp = stamp;
        object.pins += 1;
        let page_count = u64::from(object.page_count);
        self.clients.count(client, |client| client.pinned_pages += page_count);
    }

    /// Takes one pin from an object. With the last one it rejoins the LRU at the warm end, or
    /// is freed when its name is gone.
    pub(crate) fn unpin(&mut self, client: Slot, slot: Slot) {
        let is_cleared = self.is_cleared(slot);
        let object = self.objects.get_mut(slot);
        let page_count = u64::from(object.page_count);
        object.pins -= 1;
        let is_last = object.pins == 0;
        let state = object.state;
        self.clients.count(client, |client| client.pinned_pages -= page_count);
        if !is_last {
            return;
        }
        self.totals.pinned -= 1;
        match state {
            ObjectState::Unlinked => {
                self.counts.unlinked -= page_count;
                self.free_object(slot);
            }
            ObjectState::Linked if is_cleared => {
                self.counts.cleared -= page_count;
                let key = &self.objects.get(slot).key;
                self.index.remove(self.hashes.key(key), slot);
                self.free_object(slot);
            }
            ObjectState::Linked => self.lru.add(&mut self.objects, slot),
            ObjectState::Reserved => unreachable!("only what was published is pinned"),
        }
    }

    /// Gives an object's pages and slot back. It is in no list and in no count.
    pub(crate) fn free_object(&mut self, slot: Slot) {
        let object = self.objects.get(slot);
        self.namespaces.get_mut(object.namespace).refs -= 1;
        self.pages.free(object.first_page);
        self.objects.remove(slot);
    }

    /// Takes a published object out of the index and the counts; its key takes a number.
    fn unlink(&mut self, slot: Slot) {
        let object = self.objects.get(slot);
        let page_count = u64::from(object.page_count);
        self.counts.published -= page_count;
        let namespace = self.namespaces.get_mut(object.namespace);
        namespace.key_count -= 1;
        namespace.used_pages -= page_count;
        self.index.remove(self.hashes.key(&object.key), slot);
        self.log.push(object.key);
    }
}
