//! Makes room for a Reserve: what is dead first, then growth, then the coldest objects.

use crate::config::{Eviction, Growth, Time};
use crate::shard::Shard;
use crate::work::take_step;

/// What came of a wish for pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// So many pages are free now.
    Ready,
    /// The shard is growing; try again after this many microseconds.
    Growing(u32),
    /// They cannot be had. Nothing was evicted.
    Full,
    /// The budget went into pins that are over; try again next turn.
    Later,
}

impl Shard {
    /// Makes `page_count` pages free, evicting exactly what that needs.
    ///
    /// Each evicted object costs a step, but the pages of one key are made free in one go.
    pub(crate) fn make_room(&mut self, now: Time, page_count: u32, budget: &mut u32) -> Room {
        if self.pages.free_count() >= page_count {
            return Room::Ready;
        }
        while self.pages.free_count() < page_count && self.end_due_fence(now) {}
        if self.reachable_pages() >= u64::from(page_count) {
            self.free_cleared(page_count, budget);
            return Room::Ready;
        }
        match self.growth {
            Growth::Running { retry_after_us } => return Room::Growing(retry_after_us),
            Growth::Startable => {
                self.is_growth_wanted = true;
                return Room::Growing(self.config.growth_retry_us);
            }
            Growth::Impossible => {}
        }
        self.evict_for(now, page_count, budget)
    }

    /// Pages that are free, or are dead and can be freed at once.
    fn reachable_pages(&self) -> u64 {
        u64::from(self.pages.free_count()) + self.lru.cleared_pages()
    }

    fn evict_for(&mut self, now: Time, page_count: u32, budget: &mut u32) -> Room {
        let evictable = |shard: &Self| match shard.config.eviction {
            Eviction::Lru => shard.lru.evictable_pages(),
            Eviction::None => 0,
        };
        while self.reachable_pages() + evictable(self) < u64::from(page_count) {
            // In this order, so that the smallest budget gets on.
            if !self.drop_ended_pin(now) {
                return Room::Full;
            }
            if !take_step(budget) {
                return Room::Later;
            }
        }
        self.free_cleared(page_count, budget);
        while self.pages.free_count() < page_count {
            let coldest = self.lru.coldest().expect("evictable pages belong to some object");
            self.evict(coldest);
            *budget = budget.saturating_sub(1);
        }
        Room::Ready
    }

    /// Frees cleared objects until `page_count` pages are free, or there is none left.
    fn free_cleared(&mut self, page_count: u32, budget: &mut u32) {
        while self.pages.free_count() < page_count {
            let Some(cleared) = self.lru.first_cleared() else { break };
            self.unlink_cleared(cleared);
            *budget = budget.saturating_sub(1);
        }
    }
}
