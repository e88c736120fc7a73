//! Checks of the LRU's lists.

use super::{EMPTY, Lru};
use crate::books::{Checked, equal, holds};
use crate::list::Slot;
use crate::objects::{ObjectState, Objects};

impl Lru {
    /// Checks that the lists hold exactly the `unpinned` linked objects, in order.
    pub(crate) fn check(
        &self,
        objects: &Objects,
        unpinned: u64,
        is_cleared: impl Fn(Slot) -> bool,
    ) -> Checked {
        let mut count = 0;
        let mut evictable_pages = 0;
        for (namespace, lane) in (0u16..).zip(&self.lanes) {
            let mut page_count = 0;
            let mut stamp = 0;
            for slot in lane.list.iter(objects) {
                let object = objects.get(slot);
                holds("a lane has its namespace", object.namespace == namespace)?;
                holds("a lane is in order of use", object.stamp > stamp)?;
                holds("a lane has nothing cleared", !is_cleared(slot))?;
                let is_idle = object.state == ObjectState::Linked && object.pins == 0;
                holds("a lane has evictable objects only", is_idle)?;
                stamp = object.stamp;
                page_count += u64::from(object.page_count);
                count += 1;
            }
            equal("pages of a lane", lane.page_count, page_count)?;
            evictable_pages += page_count;
            let coldest = lane.list.first().map_or(EMPTY, |slot| objects.get(slot).stamp);
            let leaf = self.coldest.nodes[self.coldest.leaf_count() + usize::from(namespace)];
            equal("the tournament knows a lane's cold end", leaf, coldest)?;
        }
        equal("evictable pages", self.evictable_pages, evictable_pages)?;
        let mut cleared_pages = 0;
        for slot in self.cleared.iter(objects) {
            let object = objects.get(slot);
            let is_idle = object.state == ObjectState::Linked && object.pins == 0;
            holds("the cleared list has cleared objects only", is_cleared(slot) && is_idle)?;
            cleared_pages += u64::from(object.page_count);
            count += 1;
        }
        equal("cleared pages that nothing pins", self.cleared_pages, cleared_pages)?;
        equal("every unpinned object is in a list", count, unpinned)?;
        self.check_tournament()
    }

    fn check_tournament(&self) -> Checked {
        let nodes = &self.coldest.nodes;
        for at in 1..self.coldest.leaf_count() {
            let least = nodes[2 * at].min(nodes[2 * at + 1]);
            equal("a node is the least of its children", nodes[at], least)?;
        }
        Ok(())
    }
}
