//! Lookup: pins in the same step, under one lease.

use std::vec::Vec;

use maru_wire::{LeaseId, Lookup, LookupOutcome, Match, RequestBody, ReserveOutcome, Ticket};

use crate::bench::{Bench, LEASE_TTL, config, key};
use crate::{Extent, Progress};

fn kinds(outcomes: &[LookupOutcome]) -> Vec<char> {
    let kind = |outcome: &LookupOutcome| match outcome {
        LookupOutcome::Found(_) => 'f',
        LookupOutcome::Missing => 'm',
        LookupOutcome::ClientLimit => 'l',
        LookupOutcome::NotTried => 'n',
    };
    outcomes.iter().map(kind).collect()
}

// S16
#[test]
fn a_missing_key_hides_none_after_it() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in [0, 1, 3] {
        bench.store(a, n, 2);
    }
    let reply = bench.at(5).lookup(a, &[0, 1, 2, 3], Match::All);
    assert_eq!(kinds(&reply.outcomes), ['f', 'f', 'm', 'f']);
    assert_eq!((reply.runs.len(), reply.lease_left_us), (3, LEASE_TTL));
    let reply = bench.lookup(a, &[0, 1, 2, 3], Match::Leading);
    assert_eq!(kinds(&reply.outcomes), ['f', 'f', 'm', 'n']);
    let stats = bench.stats();
    assert_eq!((stats.lookup_hit_total, stats.lookup_miss_total), (5, 2));
    assert_eq!((stats.lease_count, stats.pinned_count), (2, 3));
}

// S16: nothing found, no lease.
#[test]
fn nothing_found_gives_no_lease() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let reply = bench.lookup(a, &[1, 2], Match::All);
    assert_eq!((reply.lease, reply.lease_left_us), (LeaseId::default(), 0));
    assert_eq!(bench.stats().lease_count, 0);
}

// S9: lookup touches, and pinned objects are not evicted.
#[test]
fn lookup_touches_and_protects() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    let lease = bench.pin(a, &[0, 1]);
    bench.pin(b, &[2]);
    for n in 16..29 {
        bench.store(a, n, 1);
    }
    assert_eq!(bench.exists(a, &[0, 1, 2, 3, 15]), [true, true, true, false, false]);
    // They rejoin at the warm end.
    assert!(bench.release(a, lease, 0));
    bench.store(a, 29, 1);
    assert_eq!(bench.exists(a, &[0, 1, 16]), [true, true, false]);
}

// A pool whose objects are all pinned answers Full, and never blocks.
#[test]
fn all_pinned_is_full() {
    let mut bench = Bench::new(32);
    let clients = [bench.client(1), bench.client(2)];
    for n in 0..32 {
        bench.store(clients[0], n, 1);
    }
    bench.pin(clients[0], &(0..20).collect::<Vec<_>>());
    let lease = bench.pin(clients[1], &(20..32).collect::<Vec<_>>());
    assert_eq!(bench.try_reserve(clients[0], 100, 1), ReserveOutcome::Full);
    bench.release(clients[1], lease, 0);
    bench.reserve(clients[0], 100, 1);
}

// Design §7: pinned pages of one incarnation, and its leases, have caps.
#[test]
fn caps_of_pins_and_leases() {
    let mut config = config();
    config.limits.pinned_pages_max = 3;
    config.limits.leases_max = 2;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 20 }]);
    let (a, b) = (bench.client(1), bench.client(2));
    for n in 0..10 {
        bench.store(a, n, 1 + n % 2);
    }
    // Key 1 has two pages, key 3 too.
    let reply = bench.lookup(a, &[0, 1, 3, 9], Match::All);
    assert_eq!(kinds(&reply.outcomes), ['f', 'f', 'l', 'l']);
    let reply = bench.lookup(b, &[0, 1, 3, 9], Match::Leading);
    assert_eq!(kinds(&reply.outcomes), ['f', 'f', 'l', 'n']);
    assert!(bench.release(a, reply.lease, 0) != bench.release(b, reply.lease, 0));
    let leases = [bench.pin(b, &[0]), bench.pin(b, &[0])];
    assert_eq!(kinds(&bench.lookup(b, &[0], Match::All).outcomes), ['l']);
    assert!(bench.release(b, leases[0], 0));
    bench.pin(b, &[0]);
}

#[test]
fn a_reply_without_room_is_not_tried() {
    let mut config = config();
    config.limits.body_bytes_max = 512;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 40 }]);
    let a = bench.client(1);
    // Every other page stays with someone, so that each object has a run for each page.
    let singles: Vec<Ticket> = (0..40).map(|n| bench.reserve(a, n, 1)).collect();
    for ticket in singles.iter().step_by(2) {
        bench.abandon(a, *ticket, false);
    }
    bench.store(a, 100, 10);
    bench.store(a, 101, 10);
    let reply = bench.lookup(a, &[100, 101], Match::All);
    assert_eq!(kinds(&reply.outcomes), ['f', 'f']);
    assert_eq!(reply.runs.len(), 20);
    let reply = bench.lookup(a, &[100, 101, 100, 101, 100, 101], Match::All);
    assert_eq!(kinds(&reply.outcomes)[..3], ['f', 'n', 'n']);
}

// A lease that ends while its frame is paused is not filled any further.
#[test]
fn a_lease_that_ends_in_mid_frame() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..4 {
        bench.store(a, n, 1);
    }
    let request = Lookup { keys: (0..4).map(key).collect(), matching: Match::All };
    let body = RequestBody::Lookup(&request);
    assert_eq!(bench.call_within(a, &body, &mut 2), Progress::Paused);
    bench.at(LEASE_TTL);
    assert_eq!(bench.stats().pinned_count, 0);
    bench.call(a, &body);
    let reply = bench.work.replies.lookup.clone();
    assert_eq!(kinds(&reply.outcomes), ['f', 'f', 'n', 'n']);
    assert_eq!(reply.lease_left_us, 0);
    assert!(!bench.release(a, reply.lease, 0));
}

#[test]
fn full_tables_of_pins_and_leases() {
    let mut config = config();
    config.pins_max = 3;
    config.leases_max = 2;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }]);
    let a = bench.client(1);
    for n in 0..4 {
        bench.store(a, n, 1);
    }
    assert_eq!(kinds(&bench.lookup(a, &[0, 1, 2, 3], Match::All).outcomes), ['f', 'f', 'f', 'l']);
    assert_eq!(kinds(&bench.lookup(a, &[0], Match::All).outcomes), ['l']);
    bench.at(LEASE_TTL);
    bench.pin(a, &[0]);
    bench.pin(a, &[0]);
    assert_eq!(kinds(&bench.lookup(a, &[0], Match::All).outcomes), ['l']);
}
