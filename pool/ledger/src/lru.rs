//! Which objects may be evicted, and in what order: the only file that knows the policy.
//!
//! Each namespace has a list of its own in order of last use, so that a Clear moves it whole. A
//! tournament over the lists' cold ends gives the coldest object of all. Pinned objects are in no
//! list, so that no eviction walks over them.

use alloc::vec;
use alloc::vec::Vec;

use crate::list::{List, Slot};
use crate::objects::{ByUse, Objects};

/// One namespace's objects in order of last use, the coldest first.
#[derive(Debug, Default)]
struct Lane {
    list: List<ByUse>,
    page_count: u64,
}

/// The evictable objects of the shard, and the cleared ones.
#[derive(Debug)]
pub(crate) struct Lru {
    lanes: Vec<Lane>,
    coldest: Tournament,
    evictable_pages: u64,
    /// Linked objects of cleared namespaces that no lease pins.
    cleared: List<ByUse>,
    cleared_pages: u64,
    next_stamp: u64,
}

impl Lru {
    pub(crate) fn new() -> Self {
        Self {
            lanes: Vec::new(),
            coldest: Tournament::new(1),
            evictable_pages: 0,
            cleared: List::default(),
            cleared_pages: 0,
            next_stamp: 1,
        }
    }

    /// Pages of the objects that may be evicted.
    pub(crate) fn evictable_pages(&self) -> u64 {
        self.evictable_pages
    }

    /// Pages of the cleared objects that nothing pins.
    pub(crate) fn cleared_pages(&self) -> u64 {
        self.cleared_pages
    }

    /// Returns a number above all that were given out.
    pub(crate) fn stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp - 1
    }

    /// Makes sure that the namespace has a lane.
    pub(crate) fn open_lane(&mut self, namespace: u16) {
        let lane_count = usize::from(namespace) + 1;
        if self.lanes.len() < lane_count {
            self.lanes.resize_with(lane_count, Lane::default);
            self.coldest.widen(lane_count);
        }
    }

    /// Puts an object at the warm end.
    pub(crate) fn add(&mut self, objects: &mut Objects, slot: Slot) {
        let stamp = self.stamp();
        let object = objects.get_mut(slot);
        object.stamp = stamp;
        let (namespace, page_count) = (object.namespace, u64::from(object.page_count));
        let lane = &mut self.lanes[usize::from(namespace)];
        if lane.list.is_empty() {
            self.coldest.set(namespace, stamp);
        }
        lane.list.push_back(objects, slot);
        lane.page_count += page_count;
        self.evictable_pages += page_count;
    }

    /// Takes out an object that is about to be pinned, unlinked or evicted.
    pub(crate) fn take(&mut self, objects: &mut Objects, slot: Slot) {
        let object = objects.get(slot);
        let (namespace, page_count) = (object.namespace, u64::from(object.page_count));
        let lane = &mut self.lanes[usize::from(namespace)];
        let was_coldest = lane.list.first() == Some(slot);
        lane.list.remove(objects, slot);
        lane.page_count -= page_count;
        self.evictable_pages -= page_count;
        if was_coldest {
            let stamp = lane.list.first().map_or(EMPTY, |first| objects.get(first).stamp);
            self.coldest.set(namespace, stamp);
        }
    }

    /// Moves an object to the warm end.
    pub(crate) fn touch(&mut self, objects: &mut Objects, slot: Slot) {
        self.take(objects, slot);
        self.add(objects, slot);
    }

    /// The object to evict next.
    pub(crate) fn coldest(&self) -> Option<Slot> {
        let namespace = self.coldest.winner()?;
        self.lanes[namespace].list.first()
    }

    /// The coldest objects of the coldest one's namespace, in order.
    pub(crate) fn coldest_few<'a>(&'a self, objects: &'a Objects) -> impl Iterator<Item = Slot> {
        let lane = self.coldest.winner().map(|namespace| &self.lanes[namespace]);
        lane.into_iter().flat_map(|lane| lane.list.iter(objects))
    }

    /// Moves a namespace's objects among the cleared ones, in one step.
    pub(crate) fn clear(&mut self, objects: &mut Objects, namespace: u16) {
        let lane = &mut self.lanes[usize::from(namespace)];
        self.cleared.append(objects, &mut lane.list);
        self.cleared_pages += lane.page_count;
        self.evictable_pages -= lane.page_count;
        lane.page_count = 0;
        self.coldest.set(namespace, EMPTY);
    }

    /// The cleared object to free next.
    pub(crate) fn first_cleared(&self) -> Option<Slot> {
        self.cleared.first()
    }

    /// Takes out a cleared object that is about to be freed.
    pub(crate) fn take_cleared(&mut self, objects: &mut Objects, slot: Slot) {
        self.cleared_pages -= u64::from(objects.get(slot).page_count);
        self.cleared.remove(objects, slot);
    }
}

/// The stamp of an empty lane: never the coldest.
const EMPTY: u64 = u64::MAX;

/// A tree of minima over the lanes' coldest stamps. Stamps are unique.
#[derive(Debug)]
struct Tournament {
    /// The root is at 1, the children of `i` at `2i` and `2i + 1`, the leaves in the second half.
    nodes: Vec<u64>,
}

impl Tournament {
    fn new(lane_count: usize) -> Self {
        Self { nodes: vec![EMPTY; 2 * lane_count.next_power_of_two()] }
    }

    fn leaf_count(&self) -> usize {
        self.nodes.len() / 2
    }

    fn widen(&mut self, lane_count: usize) {
        if lane_count <= self.leaf_count() {
            return;
        }
        let mut wider = Self::new(lane_count);
        for (lane, stamp) in (0u16..).zip(&self.nodes[self.leaf_count()..]) {
            wider.set(lane, *stamp);
        }
        *self = wider;
    }

    fn set(&mut self, lane: u16, stamp: u64) {
        let mut at = self.leaf_count() + usize::from(lane);
        self.nodes[at] = stamp;
        while at > 1 {
            at /= 2;
            let least = self.nodes[2 * at].min(self.nodes[2 * at + 1]);
            if self.nodes[at] == least {
                break;
            }
            self.nodes[at] = least;
        }
    }

    fn winner(&self) -> Option<usize> {
        let least = self.nodes[1];
        if least == EMPTY {
            return None;
        }
        let mut at = 1;
        while at < self.leaf_count() {
            at = if self.nodes[2 * at] == least { 2 * at } else { 2 * at + 1 };
        }
        Some(at - self.leaf_count())
    }
}

mod books;
