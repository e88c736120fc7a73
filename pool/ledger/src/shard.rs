//! One shard: its tables, and the one place where a request becomes an operation.

use maru_wire::{
    ArchivedPublish, ArchivedRemove, ArchivedReserve, Key, Limits, PageCounts, Refusal, Request,
};

use crate::clients::Clients;
use crate::config::{Config, Extent, Growth, Time};
use crate::eviction_log::EvictionLog;
use crate::frame_keys::FrameKeys;
use crate::hashes::Hashes;
use crate::index::Index;
use crate::leases::Leases;
use crate::list::Slot;
use crate::lru::Lru;
use crate::namespaces::Namespaces;
use crate::objects::Objects;
use crate::pages::Pages;
use crate::reservations::Reservations;
use crate::stats::Totals;
use crate::work::{Call, Caller, Progress, Work};

/// One shard's keys, pages, reservations and leases.
///
/// At all times free + reserved + overdue + fenced + published + cleared + unlinked pages are all
/// pages, and every pin belongs to a lease.
#[derive(Debug)]
pub struct Shard {
    pub(crate) config: Config,
    pub(crate) hashes: Hashes,
    pub(crate) pages: Pages,
    /// The parts but `free` and `total`, which the allocator knows.
    pub(crate) counts: PageCounts,
    pub(crate) objects: Objects,
    /// The linked objects by key; the cleared ones too until they are swept.
    pub(crate) index: Index,
    pub(crate) lru: Lru,
    pub(crate) namespaces: Namespaces,
    pub(crate) clients: Clients,
    pub(crate) reservations: Reservations,
    pub(crate) leases: Leases,
    pub(crate) log: EvictionLog,
    pub(crate) frame_keys: FrameKeys,
    pub(crate) totals: Totals,
    pub(crate) growth: Growth,
    pub(crate) is_growth_wanted: bool,
    pub(crate) pool_list_digest: Option<[u8; 32]>,
}

impl Shard {
    /// Makes an empty shard over `extents`, all of whose pages are free.
    ///
    /// # Panics
    ///
    /// When the extents exceed the limits of the configuration, or the shard is not below the
    /// shard count: the plan is wrong.
    #[must_use]
    pub fn new(mut config: Config, extents: &[Extent]) -> Self {
        assert!(config.shard < config.shard_count, "the plan numbers shards from 0");
        assert!(config.limits.page_bytes > 0, "a page has bytes");
        let page_count: u64 = extents.iter().map(|extent| u64::from(extent.page_count)).sum();
        let page_count = u32::try_from(page_count).expect("a shard has fewer than 2^31 pages");
        config.page_count_max = config.page_count_max.max(page_count);
        let page_count_max = config.page_count_max;
        let mut pages = Pages::new(page_count_max, config.extents_max);
        for extent in extents {
            assert!(pages.add(*extent), "the plan keeps within the limit of extents");
        }
        config.reservations_max = config.reservations_max.min(page_count_max);
        Self {
            hashes: Hashes::new(&config.seed),
            pages,
            counts: PageCounts::default(),
            objects: Objects::new(page_count_max),
            index: Index::fixed(page_count_max as usize),
            lru: Lru::new(),
            namespaces: Namespaces::new(config.namespaces_max),
            clients: Clients::new(config.incarnations_max),
            reservations: Reservations::new(&config.seed, config.reservations_max),
            leases: Leases::new(&config.seed, config.leases_max, config.pins_max),
            log: EvictionLog::new(config.eviction_log_keys),
            frame_keys: FrameKeys::new(config.limits.keys_per_frame_max),
            totals: Totals::default(),
            growth: Growth::Impossible,
            is_growth_wanted: false,
            pool_list_digest: None,
            config,
        }
    }

    /// Executes as many steps of the call as `budget` allows, and takes them from it.
    ///
    /// A step is one key, one pin or one evicted object; a key is never left half done. Done: the
    /// answer is in `work.replies`. Paused: call again with the same call and work. Refused:
    /// nothing was executed. Ping, Stats, Regions and Clear need no budget. Of Ping and Regions
    /// the ledger fills the eviction number only.
    pub fn handle(
        &mut self,
        now: Time,
        call: &Call<'_>,
        work: &mut Work,
        budget: &mut u32,
    ) -> Progress {
        let client = match self.admit(call, work) {
            Ok(client) => client,
            Err(refusal) => {
                work.reset();
                self.totals.refused += 1;
                return Progress::Refused(refusal);
            }
        };
        let is_done = self.execute(Caller { now, client }, &call.request, work, budget);
        self.assert_balance();
        if !is_done {
            return Progress::Paused;
        }
        self.number_reply(&call.request, work);
        work.reset();
        Progress::Done
    }

    /// The limits of a client whose largest object has one page.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits_for(1)
    }

    /// The shard's latest eviction number; 0 before the first.
    #[must_use]
    pub fn eviction_number(&self) -> u64 {
        self.log.number()
    }

    /// Where the pages are.
    #[must_use]
    pub fn page_counts(&self) -> PageCounts {
        PageCounts {
            free: u64::from(self.pages.free_count()),
            total: u64::from(self.pages.total_count()),
            ..self.counts
        }
    }

    /// Says whether the shard can get more pages.
    pub fn set_growth(&mut self, growth: Growth) {
        self.growth = growth;
    }

    /// Whether a Reserve lacked pages since the last call, while growth was startable.
    pub fn take_growth_wanted(&mut self) -> bool {
        core::mem::take(&mut self.is_growth_wanted)
    }

    /// Adds pages, all free. False when `page_count_max` or `extents_max` stands in the way.
    #[must_use]
    pub fn add_extent(&mut self, extent: Extent) -> bool {
        self.pages.add(extent)
    }

    pub(crate) fn limits_for(&self, object_pages: u32) -> Limits {
        let caps = self.config.caps_for(self.pages.total_count(), object_pages);
        Limits {
            reserved_pages_max: caps.reserved_pages_max,
            pinned_pages_max: caps.pinned_pages_max,
            ..self.config.limits
        }
    }

    /// Programmer errors end the process: a new generation is safe, wrong books are not.
    pub(crate) fn assert_balance(&self) {
        let counts = self.page_counts();
        let kept = counts.reserved + counts.overdue + counts.fenced;
        let sum = counts.free + kept + counts.published + counts.cleared + counts.unlinked;
        assert_eq!(sum, counts.total, "every page is counted once");
    }

    /// Refuses what must not be executed. Looks at whole frames, and only before their first step.
    fn admit(&mut self, call: &Call<'_>, work: &mut Work) -> Result<Slot, Refusal> {
        let client = self.clients.slot(call.client).ok_or(Refusal::UnexpectedHello)?;
        if work.is_started {
            return Ok(client);
        }
        let is_ping = matches!(call.request, Request::Ping);
        if call.generation != self.config.generation && !is_ping {
            return Err(Refusal::StaleGeneration);
        }
        self.check_items(&call.request)?;
        if let Request::Reserve(request) = call.request {
            let key = |item: usize| &request.items[item].key;
            let duplicates = &mut work.duplicates;
            self.frame_keys.mark(&self.hashes, request.items.len(), key, duplicates);
        }
        work.begin();
        Ok(client)
    }

    fn check_items(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let max = self.config.limits.keys_per_frame_max;
        if item_count(request) > max as usize {
            return Err(Refusal::TooManyKeys(max));
        }
        match *request {
            Request::Reserve(ArchivedReserve { items }) => {
                self.check_shards(items.iter().map(|item| &item.key))
            }
            Request::Publish(ArchivedPublish { items }) => {
                self.check_shards(items.iter().map(|item| &item.key))
            }
            Request::Remove(ArchivedRemove { items }) => {
                self.check_shards(items.iter().map(|item| &item.key))
            }
            Request::Exists(request) => self.check_shards(request.keys.iter()),
            Request::Lookup(request) => self.check_shards(request.keys.iter()),
            Request::Abandon(_) | Request::Release(_) | Request::EvictedSince(_) => Ok(()),
            Request::Clear(_) | Request::Ping | Request::Stats | Request::Regions => Ok(()),
        }
    }

    fn check_shards<'a>(&self, mut keys: impl Iterator<Item = &'a Key>) -> Result<(), Refusal> {
        let shard_count = self.config.shard_count;
        let foreign = keys.find_map(|key| {
            let shard = key.shard(shard_count);
            (shard != self.config.shard).then_some(shard)
        });
        foreign.map_or(Ok(()), |shard| Err(Refusal::WrongShard(shard)))
    }

    fn execute(
        &mut self,
        caller: Caller,
        request: &Request<'_>,
        work: &mut Work,
        budget: &mut u32,
    ) -> bool {
        match *request {
            Request::Reserve(request) => self.reserve(caller, request, work, budget),
            Request::Publish(request) => self.publish(caller.client, request, work, budget),
            Request::Abandon(request) => self.abandon(caller, request, work, budget),
            Request::Exists(request) => self.exists(request, work, budget),
            Request::Lookup(request) => self.lookup(caller, request, work, budget),
            Request::Release(request) => self.release(caller, request, work, budget),
            Request::EvictedSince(request) => {
                self.evicted_since(caller.client, request, work, budget)
            }
            Request::Remove(request) => self.remove(request, work, budget),
            Request::Clear(_) => self.clear(caller.client, work),
            Request::Stats => {
                self.fill_stats(caller.now, &mut work.replies.stats);
                true
            }
            Request::Ping | Request::Regions => true,
        }
    }

    /// Writes the eviction number into a reply that is complete.
    fn number_reply(&self, request: &Request<'_>, work: &mut Work) {
        let number = self.log.number();
        let replies = &mut work.replies;
        match request {
            Request::Reserve(_) => replies.reserve.eviction_number = number,
            Request::Publish(_) => replies.publish.eviction_number = number,
            Request::Abandon(_) => replies.abandon.eviction_number = number,
            Request::Exists(_) => replies.exists.eviction_number = number,
            Request::Lookup(_) => replies.lookup.eviction_number = number,
            Request::Release(_) => replies.release.eviction_number = number,
            Request::EvictedSince(_) => replies.evicted_since.eviction_number = number,
            Request::Remove(_) => replies.remove.eviction_number = number,
            Request::Clear(_) => replies.clear.eviction_number = number,
            Request::Ping => replies.ping.eviction_number = number,
            Request::Stats => replies.stats.eviction_number = number,
            Request::Regions => replies.regions.eviction_number = number,
        }
    }
}

fn item_count(request: &Request<'_>) -> usize {
    match request {
        Request::Reserve(request) => request.items.len(),
        Request::Publish(request) => request.items.len(),
        Request::Abandon(request) => request.tickets.len(),
        Request::Exists(request) => request.keys.len(),
        Request::Lookup(request) => request.keys.len(),
        Request::Release(request) => request.items.len(),
        Request::Remove(request) => request.items.len(),
        Request::EvictedSince(_) | Request::Clear(_) => 0,
        Request::Ping | Request::Stats | Request::Regions => 0,
    }
}
