//! Random steps against a model too simple to be wrong. Books are checked after every step.
//!
//! `PROPTEST_CASES` sets the number of cases, `MARU_SEED` the seed.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use maru_ledger::{Extent, Peer};
use maru_wire::{
    Abandon, Clear, EvictedSince, Exists, Incarnation, LeaseId, Lookup, LookupOutcome, Match,
    Namespace, Publish, PublishItem, Purpose, Release, ReleaseItem, Remove, RemoveItem,
    RequestBody, Reserve, ReserveItem, ReserveOutcome, Ticket,
};
use proptest::test_runner::{Config as ProptestConfig, RngSeed, TestRunner};

#[path = "../../src/bench.rs"]
#[allow(dead_code, reason = "shared with the unit tests, which use more of it")]
mod bench;
mod oracle;
mod starved;
mod steps;

use bench::{Bench, PAGE_BYTES, config, key};
use oracle::{ClientModel, Expected, Model, namespace_of, peer_of};
use steps::{CLIENTS, Op, Step, TOTAL, steps};

/// Number of cases: enough for some seconds by default.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let read = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let cases = read("PROPTEST_CASES").map_or(cases, |cases: u64| u32::try_from(cases).unwrap());
    let seed = read("MARU_SEED").unwrap_or(1);
    TestRunner::new(ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..ProptestConfig::default()
    })
}

/// The ledger and the model, side by side.
struct Pair {
    bench: Bench,
    model: Model,
    clients: [Option<maru_ledger::ClientId>; CLIENTS as usize],
    tickets: Vec<(Ticket, u64)>,
    leases: Vec<LeaseId>,
}

pub(crate) fn small_config() -> maru_ledger::Config {
    let mut config = config();
    config.limits.reserved_pages_max = 12;
    config.limits.pinned_pages_max = 14;
    config.limits.leases_max = 3;
    config.eviction_log_keys = 12;
    config
}

pub(crate) fn extents() -> [Extent; 2] {
    [
        Extent { region: 0, page_index: 4, page_count: 20 },
        Extent { region: 1, page_index: 0, page_count: TOTAL - 20 },
    ]
}

pub(crate) fn hello_of(client: u8, number: u64, tickets: Vec<Ticket>) -> maru_wire::Hello {
    let mut hello = bench::hello(client, Purpose::Data, number);
    hello.namespace = Namespace([namespace_of(client); 32]);
    hello.tickets = tickets;
    hello
}

impl Pair {
    fn new() -> Self {
        Self {
            bench: Bench::with(small_config(), &extents()),
            model: Model::new(small_config(), u64::from(TOTAL)),
            clients: [None; CLIENTS as usize],
            tickets: vec![],
            leases: vec![],
        }
    }

    fn step(&mut self, step: &Step) {
        let client = step.client;
        match &step.op {
            Op::Advance(us) => {
                self.model.advance(*us);
                self.bench.at(self.model.now);
            }
            Op::Hello(kept) => self.hello(client, *kept),
            Op::Close => self.close(client),
            Op::Dead => self.dead(client),
            op => {
                if let Some(id) = self.clients[usize::from(client)] {
                    let is_connected = self.model.clients[&client].is_connected;
                    if is_connected {
                        self.request(client, id, op, step.budget);
                    }
                }
            }
        }
        let counts = self.model.counts();
        assert_eq!(self.bench.pages(), counts, "after {step:?}");
        assert_eq!(self.bench.shard.eviction_number(), self.model.log.len() as u64);
        let stats = self.bench.stats();
        assert_eq!(stats.lease_count, self.model.leases.len() as u64);
    }

    fn hello(&mut self, client: u8, kept: u64) {
        let own = self.model.objects.iter().filter(|object| {
            matches!(object.state, oracle::State::Reserved { owner, .. } if owner == client)
        });
        let listed: Vec<Ticket> = own
            .enumerate()
            .filter_map(|(i, object)| (kept >> (i % 64) & 1 == 1).then_some(object.ticket))
            .collect();
        let known = self.model.clients.entry(client).or_default();
        let number = known.number.map_or(0, |number| number + 1 + kept % 3);
        let superseded = known.is_connected;
        *known = ClientModel { number: Some(number), is_connected: true };
        self.model.take_over(client, &listed);
        let hello = hello_of(client, number, listed);
        let peer = Peer::Uid(peer_of(client));
        let admission = self.bench.shard.hello(self.bench.now, &hello, peer).unwrap();
        assert_eq!(admission.superseded, superseded);
        self.clients[usize::from(client)] = Some(admission.client);
        // The leases' pins go with the next tick.
        self.drain();
        let stale = hello_of(client, number, vec![]);
        self.bench.shard.hello(self.bench.now, &stale, peer).unwrap_err();
    }

    /// Drops the pins of ended leases. Cleared objects go too, in both.
    fn drain(&mut self) {
        self.model.advance(0);
        self.bench.at(self.model.now);
    }

    fn close(&mut self, client: u8) {
        let Some(known) = self.model.clients.get_mut(&client) else { return };
        let Some(id) = self.clients[usize::from(client)] else { return };
        let number = known.number.unwrap();
        if number > 0 {
            // The end of a superseded connection changes nothing.
            self.bench.close(id, number - 1);
        }
        if core::mem::take(&mut known.is_connected) {
            self.model.end_leases(client);
        }
        self.bench.close(id, number);
        self.drain();
    }

    fn dead(&mut self, client: u8) {
        self.close(client);
        let before = self.model.counts();
        self.model.take_over(client, &[]);
        let freed = self.model.counts().free - before.free;
        let incarnation = Incarnation([client; 16]);
        assert_eq!(self.bench.shard.incarnation_dead(self.bench.now, incarnation), freed);
    }

    /// Executes a request to its end, in as many turns as the budget makes of it.
    fn call(&mut self, id: maru_ledger::ClientId, body: &RequestBody<'_>, budget: u32) {
        let mut turns = 0;
        while self.bench.call_within(id, body, &mut budget.clone()) == maru_ledger::Progress::Paused
        {
            turns += 1;
            assert!(turns < 1000, "a frame comes to its end");
        }
    }

    fn request(&mut self, client: u8, id: maru_ledger::ClientId, op: &Op, budget: u32) {
        match op {
            Op::Reserve(items) => self.reserve((client, id), items, budget),
            Op::Publish(picks) => self.publish((client, id), picks, budget),
            Op::Abandon(picks, after_error) => {
                let tickets: Vec<Ticket> = picks.iter().map(|pick| self.ticket(*pick).0).collect();
                let mine = |ticket: &&Ticket| self.model.abandon(client, ticket, *after_error);
                let expected = tickets.iter().filter(mine).count();
                let request = Abandon { tickets, after_error: *after_error };
                self.call(id, &RequestBody::Abandon(&request), budget);
                let count = self.bench.work.replies.abandon.abandoned_count;
                assert_eq!(count as usize, expected);
            }
            Op::Exists(keys, matching) => self.exists(id, keys, *matching, budget),
            Op::Lookup(keys, matching) => self.lookup((client, id), keys, *matching, budget),
            Op::Release(picks) => self.release((client, id), picks, budget),
            Op::EvictedSince(back, keys_max) => {
                let latest = self.model.log.len() as u64;
                let number = (latest + 1).saturating_sub(u64::from(*back));
                let expected = self.model.evicted_since(client, number, *keys_max);
                let request = EvictedSince { number, keys_max: *keys_max };
                self.call(id, &RequestBody::EvictedSince(&request), budget);
                assert_eq!(self.bench.work.replies.evicted_since, expected);
            }
            Op::Remove(n, pick) => {
                let ticket = pick.map_or(Ticket::default(), |pick| self.ticket(pick).0);
                let expected = self.model.remove(&key(*n), &ticket);
                let items = vec![RemoveItem { key: key(*n), ticket }];
                self.call(id, &RequestBody::Remove(&Remove { items }), budget);
                assert_eq!(self.bench.work.replies.remove.outcomes, [expected]);
            }
            Op::Clear => {
                let expected = self.model.clear(client);
                self.call(id, &RequestBody::Clear(&Clear { confirm: 1 }), budget);
                assert_eq!(self.bench.work.replies.clear.cleared_count, expected);
            }
            Op::Advance(_) | Op::Hello(_) | Op::Close | Op::Dead => {}
        }
    }

    fn reserve(
        &mut self,
        (client, id): (u8, maru_ledger::ClientId),
        items: &[(u64, u64)],
        budget: u32,
    ) {
        let item = |(n, pages): &(u64, u64)| ReserveItem {
            key: key(*n),
            object_bytes: (pages - 1) * PAGE_BYTES + 1,
        };
        let request = Reserve { items: items.iter().map(item).collect() };
        self.call(id, &RequestBody::Reserve(&request), budget);
        let reply = self.bench.work.replies.reserve.clone();
        let mut runs = reply.runs.iter();
        for (i, (n, pages)) in items.iter().enumerate() {
            let is_duplicate = items[..i].iter().any(|(earlier, _)| earlier == n);
            let expected = if is_duplicate {
                Expected::Duplicate
            } else {
                self.model.reserve(client, &key(*n), *pages)
            };
            let found = match reply.outcomes[i] {
                ReserveOutcome::Granted(grant) => {
                    let own: Vec<_> =
                        runs.by_ref().take(grant.run_count as usize).copied().collect();
                    self.check_runs(&own, *pages);
                    self.model.grant(client, key(*n), *pages, (grant.ticket, own));
                    self.tickets.push((grant.ticket, *n));
                    Expected::Granted
                }
                ReserveOutcome::Present => Expected::Present,
                ReserveOutcome::InFlight => Expected::InFlight,
                ReserveOutcome::Full => Expected::Full,
                ReserveOutcome::Rejected => Expected::Rejected,
                ReserveOutcome::ClientLimit => Expected::ClientLimit,
                ReserveOutcome::Duplicate => Expected::Duplicate,
                other => panic!("{other:?} has no cause here"),
            };
            assert_eq!(found, expected, "key {n}, {pages} pages");
        }
        assert_eq!(runs.next(), None);
    }

    /// A grant's pages are within an extent, and no other object's.
    fn check_runs(&self, runs: &[maru_wire::PageRun], pages: u64) {
        assert_eq!(runs.iter().map(|run| u64::from(run.page_count)).sum::<u64>(), pages);
        let end = |run: &maru_wire::PageRun| run.page_index + run.page_count;
        for run in runs {
            let is_within = |extent: &Extent| {
                run.region == extent.region
                    && run.page_index >= extent.page_index
                    && end(run) <= extent.page_index + extent.page_count
            };
            assert!(extents().iter().any(is_within), "{run:?}");
            for other in self.model.objects.iter().flat_map(|object| &object.runs) {
                let is_apart = run.region != other.region
                    || end(run) <= other.page_index
                    || end(other) <= run.page_index;
                assert!(is_apart, "{run:?} was granted, {other:?} is in use");
            }
        }
    }

    fn publish(
        &mut self,
        (client, id): (u8, maru_ledger::ClientId),
        picks: &[(u8, bool)],
        budget: u32,
    ) {
        let item = |(pick, is_right): &(u8, bool)| {
            let (ticket, n) = self.ticket(*pick);
            let n = if *is_right { n } else { n + 1 };
            PublishItem { ticket, key: key(n), checksum: maru_wire::Checksum::default() }
        };
        let request = Publish { items: picks.iter().map(item).collect() };
        self.call(id, &RequestBody::Publish(&request), budget);
        let outcomes = self.bench.work.replies.publish.outcomes.clone();
        for (item, outcome) in request.items.iter().zip(outcomes) {
            assert_eq!(outcome, self.model.publish(client, &item.ticket, &item.key));
        }
    }

    fn exists(&mut self, id: maru_ledger::ClientId, keys: &[u64], matching: Match, budget: u32) {
        let there: Vec<bool> =
            keys.iter().map(|n| self.model.present(&key(*n)).is_some()).collect();
        let leading = there.iter().take_while(|there| **there).count();
        let request = Exists { keys: keys.iter().map(|n| key(*n)).collect(), matching };
        self.call(id, &RequestBody::Exists(&request), budget);
        let reply = &self.bench.work.replies.exists;
        assert_eq!(reply.leading_count as usize, leading);
        if matching == Match::All {
            for (i, there) in there.into_iter().enumerate() {
                assert_eq!(reply.bitmap[i / 64] >> (i % 64) & 1 == 1, there);
            }
        }
    }

    fn lookup(
        &mut self,
        (client, id): (u8, maru_ledger::ClientId),
        keys: &[u64],
        matching: Match,
        budget: u32,
    ) {
        let request = Lookup { keys: keys.iter().map(|n| key(*n)).collect(), matching };
        self.call(id, &RequestBody::Lookup(&request), budget);
        let reply = self.bench.work.replies.lookup.clone();
        let mut runs = reply.runs.iter();
        let mut is_over = false;
        let mut is_leased = false;
        for (n, outcome) in keys.iter().zip(&reply.outcomes) {
            let present = self.model.present(&key(*n));
            match (is_over, present) {
                (true, _) => assert_eq!(*outcome, LookupOutcome::NotTried),
                (false, None) => assert_eq!(*outcome, LookupOutcome::Missing),
                (false, Some(at)) => {
                    let object = self.model.objects[at].clone();
                    if self.model.may_pin(client, object.pages, !is_leased) {
                        let LookupOutcome::Found(found) = outcome else { panic!("{outcome:?}") };
                        assert_eq!(found.ticket, object.ticket);
                        let own = runs.by_ref().take(found.run_count as usize);
                        assert!(own.eq(object.runs.iter()), "pages of an object never change");
                        is_leased = true;
                        self.model.pin(client, reply.lease, at);
                        continue;
                    }
                    assert_eq!(*outcome, LookupOutcome::ClientLimit);
                }
            }
            is_over |= Model::stops(matching);
        }
        assert_eq!(reply.lease != LeaseId::default(), is_leased);
        if is_leased {
            assert!(!self.leases.contains(&reply.lease), "leases never recur");
            self.leases.push(reply.lease);
        }
    }

    fn release(
        &mut self,
        (client, id): (u8, maru_ledger::ClientId),
        picks: &[(u8, u32)],
        budget: u32,
    ) {
        let item = |(pick, keep): &(u8, u32)| {
            let recent = self.leases.len().saturating_sub(usize::from(*pick) + 1);
            let lease = self.leases.get(recent).copied().unwrap_or_default();
            ReleaseItem { lease, keep: *keep }
        };
        let request = Release { items: picks.iter().map(item).collect() };
        self.call(id, &RequestBody::Release(&request), budget);
        let held = self.bench.work.replies.release.held.clone();
        for (item, held) in request.items.iter().zip(held) {
            assert_eq!(held, self.model.release(client, &item.lease, item.keep));
        }
    }

    /// One of the latest tickets, and its key.
    fn ticket(&self, pick: u8) -> (Ticket, u64) {
        let recent = self.tickets.len().saturating_sub(usize::from(pick) + 1);
        self.tickets.get(recent).copied().unwrap_or((Ticket([255; 16]), 0))
    }
}

// S5-S16, X5, X6, X10: every answer is the model's.
#[test]
fn every_answer_is_the_model_s() {
    let outcome = runner(400).run(&steps(), |steps| {
        let mut pair = Pair::new();
        for client in 0..CLIENTS {
            pair.hello(client, 0);
        }
        for step in &steps {
            pair.step(step);
        }
        Ok(())
    });
    outcome.unwrap();
}
