//! How pages of reservations come back, and how they do not.

use maru_wire::{PublishOutcome, ReserveOutcome};

use crate::bench::{Bench, FENCE, RESERVATION_TTL};

// S11: a lost writer's write may land at any later time. No clock may hand its pages out.
#[test]
fn overdue_pages_return_only_by_abandon() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let lost = bench.reserve(a, 1, 16);
    assert_eq!(bench.at(RESERVATION_TTL - 1).pages().overdue, 0);
    assert_eq!(bench.at(RESERVATION_TTL).pages().overdue, 16);
    assert_eq!(bench.at(1 << 60).try_reserve(b, 2, 1), ReserveOutcome::Full);
    assert_eq!(bench.stats().oldest_reservation_us, 1 << 60);
    assert_eq!(bench.abandon(a, lost, false), 1);
    bench.reserve(b, 2, 16);
}

// S11: its key is free at once.
#[test]
fn the_key_of_an_overdue_reservation_is_free() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let late = bench.reserve(a, 1, 1);
    bench.at(RESERVATION_TTL).store(b, 1, 1);
    assert_eq!(bench.pages().overdue, 1);
    assert_eq!(bench.publish(a, late, 1), PublishOutcome::AlreadyPresent);
    assert_eq!(bench.pages().overdue, 0);
}

// T3: after an error, pages are fenced for the fence time, the only timer that frees.
#[test]
fn pages_after_an_error_are_fenced() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let ticket = bench.reserve(a, 1, 16);
    assert_eq!(bench.at(10).abandon(a, ticket, true), 1);
    assert_eq!(bench.pages().fenced, 16);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Unknown);
    assert_eq!(bench.abandon(a, ticket, false), 0);
    assert_eq!(bench.at(10 + FENCE - 1).try_reserve(a, 2, 1), ReserveOutcome::Full);
    // A Reserve ends a due fence itself, before it would evict or answer Full.
    bench.now = crate::Time(10 + FENCE);
    bench.reserve(a, 2, 16);
    assert_eq!(bench.pages().fenced, 0);
}

// C31: published tickets are skipped, so that an abandon after a lost reply deletes no key.
#[test]
fn abandon_skips_what_is_published_unknown_or_another_s() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let published = bench.store(a, 1, 1);
    assert_eq!(bench.abandon(a, published, false), 0);
    assert!(bench.has(a, 1));
    let ticket = bench.reserve(a, 2, 1);
    assert_eq!(bench.abandon(b, ticket, false), 0);
    assert_eq!(bench.abandon(a, ticket, false), 1);
    assert_eq!(bench.abandon(a, ticket, false), 0);
}
