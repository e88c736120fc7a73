//! The one place where tests know the shard's interface: protocol scripts with explicit times.

use std::vec;
use std::vec::Vec;

use maru_ledger::{Admission, Call, ClientId, Config, Extent, Peer, Progress, Shard, Time, Work};
use maru_wire::{
    Abandon, Assembler, BODY_BYTES_MAX, Checksum, Clear, EvictedSince, EvictedSinceReply, Exists,
    Generation, Hello, Incarnation, Key, LeaseId, Lookup, LookupOutcome, LookupReply, Match,
    Namespace, PageCounts, Publish, PublishItem, PublishOutcome, Purpose, Refusal, Release,
    ReleaseItem, Remove, RemoveItem, RemoveOutcome, RequestBody, Reserve, ReserveItem,
    ReserveOutcome, StatsReply, Ticket, decode_request, encode_request,
};

/// Size of a page in the scripts.
pub(crate) const PAGE_BYTES: u64 = 1024;
/// The generation of the scripts.
pub(crate) const GENERATION: Generation = Generation(7);
/// TTL of reservations in the scripts.
pub(crate) const RESERVATION_TTL: u64 = 100;
/// TTL of leases in the scripts.
pub(crate) const LEASE_TTL: u64 = 200;
/// Fence time in the scripts.
pub(crate) const FENCE: u64 = 70;
/// Transfer time-out that clients state in the scripts.
pub(crate) const TRANSFER_TIMEOUT: u64 = 50;

/// A shard under test, at a time.
pub(crate) struct Bench {
    pub(crate) shard: Shard,
    pub(crate) work: Work,
    pub(crate) now: Time,
    next_number: u64,
}

/// The settings of the scripts: short times, caps as large as the shard.
pub(crate) fn config() -> Config {
    let mut config = Config::new(0, 1, GENERATION, PAGE_BYTES);
    config.limits.reservation_ttl_us = RESERVATION_TTL;
    config.limits.lease_ttl_us = LEASE_TTL;
    config.limits.fence_us = FENCE;
    config.limits.reserved_pages_max = 1 << 20;
    config.limits.pinned_pages_max = 1 << 20;
    config
}

/// Key number `n`.
pub(crate) fn key(n: u64) -> Key {
    Key::new(&Namespace::default(), &n.to_le_bytes())
}

/// The hello of client `name`: each has a peer and a namespace of its own.
pub(crate) fn hello(name: u8, purpose: Purpose, connection_number: u64) -> Hello {
    Hello {
        client_nonce: [0; 32],
        version_min: 1,
        version_max: 1,
        purpose,
        incarnation: Incarnation([name; 16]),
        connection_number,
        shard: 0,
        namespace: Namespace([name; 32]),
        namespace_name: std::format!("space {name}"),
        node_name: std::string::String::new(),
        pool_list_digest: [0; 32],
        transfer_timeout_us: TRANSFER_TIMEOUT,
        object_bytes_max: PAGE_BYTES,
        tickets: vec![],
    }
}

/// Hands `body` to `then` as a request that came over a connection.
pub(crate) fn with_request<T>(
    body: &RequestBody<'_>,
    then: impl FnOnce(maru_wire::Request<'_>) -> T,
) -> T {
    let mut bytes = vec![];
    encode_request(&mut bytes, 1, GENERATION, body);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut input = bytes.as_slice();
    let frame = assembler.next(&mut input).unwrap().unwrap();
    then(decode_request(&frame).unwrap())
}

impl Bench {
    /// A shard of one extent.
    pub(crate) fn new(page_count: u32) -> Self {
        Self::with(config(), &[Extent { region: 0, page_index: 0, page_count }])
    }

    pub(crate) fn with(config: Config, extents: &[Extent]) -> Self {
        let shard = Shard::new(config, extents);
        Self { shard, work: Work::new(), now: Time(0), next_number: 1 }
    }

    /// Sets the time, and carries out what is due.
    pub(crate) fn at(&mut self, us: u64) -> &mut Self {
        self.now = Time(us);
        assert!(!self.shard.tick(self.now, &mut u32::MAX.clone()));
        self.shard.check_books().unwrap();
        self
    }

    pub(crate) fn hello(&mut self, hello: &Hello) -> Result<Admission, Refusal> {
        let [name, ..] = hello.incarnation.0;
        let admission = self.shard.hello(self.now, hello, Peer::Uid(u32::from(name)));
        self.shard.check_books().unwrap();
        admission
    }

    /// Connects client `name`, as a new connection when it has one.
    pub(crate) fn client(&mut self, name: u8) -> ClientId {
        self.next_number += 1;
        self.hello(&hello(name, Purpose::Data, self.next_number)).unwrap().client
    }

    /// Number of the latest data connection.
    pub(crate) fn number(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn close(&mut self, client: ClientId, connection_number: u64) {
        self.shard.connection_closed(self.now, client, Purpose::Data, connection_number);
        self.shard.check_books().unwrap();
    }

    /// Executes a request within `budget`. The reply is in `work.replies`.
    pub(crate) fn call_within(
        &mut self,
        client: ClientId,
        body: &RequestBody<'_>,
        budget: &mut u32,
    ) -> Progress {
        let Self { shard, work, now, .. } = self;
        let progress = with_request(body, |request| {
            let call = Call { client, generation: GENERATION, request };
            shard.handle(*now, &call, work, budget)
        });
        self.shard.check_books().unwrap();
        progress
    }

    /// Executes a request to its end.
    pub(crate) fn call(&mut self, client: ClientId, body: &RequestBody<'_>) {
        let progress = self.call_within(client, body, &mut u32::MAX.clone());
        assert_eq!(progress, Progress::Done);
    }

    /// Reserves objects of (key, pages).
    pub(crate) fn reserve_all(
        &mut self,
        client: ClientId,
        objects: &[(u64, u64)],
    ) -> Vec<ReserveOutcome> {
        let item = |(n, pages): &(u64, u64)| ReserveItem {
            key: key(*n),
            object_bytes: pages * PAGE_BYTES,
        };
        let request = Reserve { items: objects.iter().map(item).collect() };
        self.call(client, &RequestBody::Reserve(&request));
        self.work.replies.reserve.outcomes.clone()
    }

    pub(crate) fn try_reserve(&mut self, client: ClientId, n: u64, pages: u64) -> ReserveOutcome {
        self.reserve_all(client, &[(n, pages)])[0]
    }

    /// Reserves an object that must be granted.
    pub(crate) fn reserve(&mut self, client: ClientId, n: u64, pages: u64) -> Ticket {
        match self.try_reserve(client, n, pages) {
            ReserveOutcome::Granted(grant) => grant.ticket,
            other => panic!("key {n} was not granted: {other:?}"),
        }
    }

    pub(crate) fn publish(&mut self, client: ClientId, ticket: Ticket, n: u64) -> PublishOutcome {
        let checksum = Checksum { kind: 1, value: n };
        let items = vec![PublishItem { ticket, key: key(n), checksum }];
        self.call(client, &RequestBody::Publish(&Publish { items }));
        self.work.replies.publish.outcomes[0]
    }

    /// Reserves and publishes an object.
    pub(crate) fn store(&mut self, client: ClientId, n: u64, pages: u64) -> Ticket {
        let ticket = self.reserve(client, n, pages);
        assert_eq!(self.publish(client, ticket, n), PublishOutcome::Created);
        ticket
    }

    pub(crate) fn abandon(&mut self, client: ClientId, ticket: Ticket, after_error: bool) -> u32 {
        let request = Abandon { tickets: vec![ticket], after_error };
        self.call(client, &RequestBody::Abandon(&request));
        self.work.replies.abandon.abandoned_count
    }

    /// Which of the keys are present.
    pub(crate) fn exists(&mut self, client: ClientId, keys: &[u64]) -> Vec<bool> {
        let request = Exists { keys: all(keys), matching: Match::All };
        self.call(client, &RequestBody::Exists(&request));
        let bitmap = &self.work.replies.exists.bitmap;
        (0..keys.len()).map(|i| bitmap[i / 64] >> (i % 64) & 1 == 1).collect()
    }

    pub(crate) fn has(&mut self, client: ClientId, n: u64) -> bool {
        self.exists(client, &[n])[0]
    }

    pub(crate) fn lookup(
        &mut self,
        client: ClientId,
        keys: &[u64],
        matching: Match,
    ) -> LookupReply {
        let request = Lookup { keys: all(keys), matching };
        self.call(client, &RequestBody::Lookup(&request));
        self.work.replies.lookup.clone()
    }

    /// Looks keys up that must all be there. Returns the lease.
    pub(crate) fn pin(&mut self, client: ClientId, keys: &[u64]) -> LeaseId {
        let reply = self.lookup(client, keys, Match::All);
        let is_found = |outcome: &LookupOutcome| matches!(outcome, LookupOutcome::Found(_));
        assert!(reply.outcomes.iter().all(is_found), "{:?}", reply.outcomes);
        reply.lease
    }

    /// Whether the lease was held to this moment.
    pub(crate) fn release(&mut self, client: ClientId, lease: LeaseId, keep: u32) -> bool {
        let request = Release { items: vec![ReleaseItem { lease, keep }] };
        self.call(client, &RequestBody::Release(&request));
        self.work.replies.release.held[0]
    }

    pub(crate) fn remove(&mut self, client: ClientId, n: u64, ticket: Ticket) -> RemoveOutcome {
        let request = Remove { items: vec![RemoveItem { key: key(n), ticket }] };
        self.call(client, &RequestBody::Remove(&request));
        self.work.replies.remove.outcomes[0]
    }

    /// Returns how many chunks the client's namespace had.
    pub(crate) fn clear(&mut self, client: ClientId) -> u64 {
        self.call(client, &RequestBody::Clear(&Clear { confirm: 1 }));
        self.work.replies.clear.cleared_count
    }

    pub(crate) fn evicted_since(
        &mut self,
        client: ClientId,
        number: u64,
        keys_max: u32,
    ) -> EvictedSinceReply {
        let request = EvictedSince { number, keys_max };
        self.call(client, &RequestBody::EvictedSince(&request));
        self.work.replies.evicted_since.clone()
    }

    pub(crate) fn pages(&self) -> PageCounts {
        self.shard.page_counts()
    }

    pub(crate) fn stats(&self) -> StatsReply {
        let mut stats = StatsReply::default();
        self.shard.fill_stats(self.now, &mut stats);
        stats
    }
}

fn all(keys: &[u64]) -> Vec<Key> {
    keys.iter().map(|n| key(*n)).collect()
}
