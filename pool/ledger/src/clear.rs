//! Clear: unlinks every chunk of a namespace in one step, however many there are.

use crate::list::Slot;
use crate::shard::Shard;
use crate::work::Work;

impl Shard {
    /// Clears the client's namespace. Always complete.
    ///
    /// Objects with an older stamp are missing from here on. They keep their pages until the
    /// sweep, a Reserve that needs room, or the end of the last pin.
    pub(crate) fn clear(&mut self, client: Slot, work: &mut Work) -> bool {
        let namespace = self.clients.get(client).namespace;
        let stamp = self.lru.stamp();
        let number = self.log.push_cleared();
        self.lru.clear(&mut self.objects, namespace);
        let books = self.namespaces.get_mut(namespace);
        books.cleared_stamp = stamp;
        books.cleared_number = number;
        work.replies.clear.cleared_count = core::mem::take(&mut books.key_count);
        let page_count = core::mem::take(&mut books.used_pages);
        self.counts.published -= page_count;
        self.counts.cleared += page_count;
        true
    }
}

#[cfg(test)]
mod tests;
