//! How leases end: release, expiry, the client's last connection.

use std::vec;
use std::vec::Vec;

use maru_wire::{LeaseId, Release, ReleaseItem, RequestBody, ReserveOutcome};

use crate::Progress;
use crate::bench::{Bench, LEASE_TTL};

// S16: held to the end or not; accepted only from its incarnation, and only once.
#[test]
fn held_or_not() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.store(a, 1, 1);
    let lease = bench.pin(a, &[1]);
    assert!(!bench.release(b, lease, 0));
    assert!(!bench.release(a, LeaseId([1; 16]), 0));
    assert!(!bench.release(a, LeaseId::default(), 0));
    assert!(bench.at(LEASE_TTL - 1).release(a, lease, 0));
    assert!(!bench.release(a, lease, 0));
    assert_eq!(bench.stats().pinned_count, 0);
}

// S11, S16: expiry is judged by the deadline, whether or not the sweep was there.
#[test]
fn an_expired_lease_is_not_held() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let lease = bench.pin(a, &[1]);
    bench.now = crate::Time(LEASE_TTL);
    assert!(!bench.release(a, lease, 0));
    assert_eq!(bench.stats().pinned_count, 1);
    bench.at(LEASE_TTL);
    let stats = bench.stats();
    assert_eq!((stats.pinned_count, stats.lease_count, stats.lease_expired_total), (0, 0, 1));
}

// S11: a Reserve takes pins that are over before it answers Full.
#[test]
fn room_is_found_behind_expired_pins() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    bench.pin(a, &(0..16).collect::<Vec<_>>());
    assert_eq!(bench.try_reserve(a, 100, 1), ReserveOutcome::Full);
    bench.now = crate::Time(LEASE_TTL);
    bench.reserve(a, 100, 1);
    assert_eq!(bench.stats().evicted_total, 1);
}

#[test]
fn the_tail_past_an_index() {
    let mut bench = Bench::new(128);
    let a = bench.client(1);
    let keys: Vec<u64> = (0..100).collect();
    for n in &keys {
        bench.store(a, *n, 1);
    }
    let lease = bench.pin(a, &keys);
    assert!(bench.release(a, lease, 200));
    assert_eq!(bench.stats().pinned_count, 100);
    for keep in [90, 61, 60, 31, 30, 29, 1] {
        assert!(bench.release(a, lease, keep));
        assert_eq!(bench.stats().pinned_count, u64::from(keep));
    }
    assert!(bench.release(a, lease, 0));
    assert_eq!((bench.stats().pinned_count, bench.stats().lease_count), (0, 0));
}

// Objects rejoin the LRU in the order of the lookup: the trace's hit ratio depends on it.
#[test]
fn objects_rejoin_in_order() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    let lease = bench.pin(a, &(0..16).rev().collect::<Vec<_>>());
    bench.release(a, lease, 0);
    bench.store(a, 100, 1);
    bench.store(a, 101, 1);
    assert_eq!(bench.exists(a, &[15, 14, 13, 0]), [false, false, true, true]);
}

// Design §4: pins go within the budget, and the answer is that of the first turn.
#[test]
fn a_release_goes_on_in_the_next_turn() {
    let mut bench = Bench::new(64);
    let a = bench.client(1);
    let keys: Vec<u64> = (0..40).collect();
    for n in &keys {
        bench.store(a, *n, 1);
    }
    let leases = [bench.pin(a, &keys), bench.pin(a, &keys)];
    let items = leases.iter().map(|lease| ReleaseItem { lease: *lease, keep: 0 });
    let request = Release { items: items.collect() };
    let body = RequestBody::Release(&request);
    assert_eq!(bench.call_within(a, &body, &mut 10), Progress::Paused);
    assert_eq!(bench.stats().lease_count, 1);
    // The sweep may drop the pins of the lease that is half released.
    bench.shard.tick(bench.now, &mut 5);
    bench.at(1);
    bench.call(a, &body);
    assert_eq!(bench.work.replies.release.held, vec![true, true]);
    assert_eq!((bench.stats().lease_count, bench.stats().pinned_count), (0, 0));
}

// X6: with its incarnation's last connection, not with a superseded one.
#[test]
fn leases_end_with_the_last_connection() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let first = bench.number();
    bench.store(a, 1, 1);
    bench.pin(a, &[1]);
    bench.close(a, first);
    assert_eq!(bench.at(1).stats().pinned_count, 0);
    let a = bench.client(1);
    let second = bench.number();
    let lease = bench.pin(a, &[1]);
    bench.close(a, first);
    assert_eq!(bench.at(2).stats().pinned_count, 1);
    assert!(bench.release(a, lease, 0));
    bench.close(a, second);
}
