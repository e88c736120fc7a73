//! Time: what is due, and within which budget.

use maru_wire::ReserveOutcome;

use crate::Time;
use crate::bench::{Bench, FENCE, LEASE_TTL, RESERVATION_TTL};

#[test]
fn the_next_deadline_is_the_earliest() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    assert_eq!(bench.shard.next_deadline(), None);
    bench.store(a, 1, 1);
    let lease = bench.at(10).pin(a, &[1]);
    assert_eq!(bench.shard.next_deadline(), Some(Time(10 + LEASE_TTL)));
    let ticket = bench.at(20).reserve(a, 2, 1);
    assert_eq!(bench.shard.next_deadline(), Some(Time(20 + RESERVATION_TTL)));
    bench.abandon(a, ticket, true);
    assert_eq!(bench.shard.next_deadline(), Some(Time(20 + FENCE)));
    bench.at(20 + FENCE).release(a, lease, 0);
    assert_eq!(bench.shard.next_deadline(), None);
    bench.clear(a);
    assert_eq!(bench.shard.next_deadline(), Some(Time(0)));
    bench.at(200);
    assert_eq!(bench.shard.next_deadline(), None);
}

// S17: pins of an ended lease go within a budget, and nothing is late by it.
#[test]
fn expiry_keeps_within_the_budget() {
    let mut bench = Bench::new(64);
    let a = bench.client(1);
    for n in 0..60 {
        bench.store(a, n, 1);
    }
    bench.pin(a, &(0..60).collect::<std::vec::Vec<_>>());
    let mut budget = 31;
    assert!(bench.shard.tick(Time(LEASE_TTL), &mut budget));
    assert_eq!(budget, 0);
    bench.shard.check_books().unwrap();
    assert_eq!(bench.stats().pinned_count, 30);
    assert!(bench.shard.tick(Time(LEASE_TTL), &mut 29));
    assert!(!bench.shard.tick(Time(LEASE_TTL), &mut 29));
    assert_eq!(bench.stats().pinned_count, 0);
}

// S11: no timer frees the pages of a reservation.
#[test]
fn time_alone_frees_nothing() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.reserve(a, 1, 8);
    for step in 1..100 {
        bench.at(step * RESERVATION_TTL);
        assert_eq!(bench.pages().overdue, 8);
    }
    assert_eq!(bench.try_reserve(b, 2, 9), ReserveOutcome::Full);
    assert_eq!(bench.stats().overdue_total, 1);
}
