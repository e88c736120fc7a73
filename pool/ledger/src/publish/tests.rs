//! Publish: the first value wins, and every answer is true.

use maru_wire::{LookupOutcome, Match, PublishOutcome, ReserveOutcome, Ticket};

use crate::bench::{Bench, PAGE_BYTES, RESERVATION_TTL, TRANSFER_TIMEOUT};

// S15
#[test]
fn the_first_value_wins_and_frees_only_the_own_pages() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let first = bench.reserve(a, 1, 2);
    let second = bench.at(TRANSFER_TIMEOUT).reserve(b, 1, 3);
    assert_eq!(bench.publish(b, second, 1), PublishOutcome::Created);
    assert_eq!((bench.pages().published, bench.pages().reserved), (3, 2));
    assert_eq!(bench.publish(a, first, 1), PublishOutcome::AlreadyPresent);
    assert_eq!((bench.pages().published, bench.pages().reserved), (3, 0));
    let LookupOutcome::Found(found) = bench.lookup(a, &[1], Match::All).outcomes[0] else {
        panic!("key 1 is there")
    };
    assert_eq!((found.ticket, found.object_bytes), (second, 3 * PAGE_BYTES));
    assert_eq!((found.checksum.kind, found.checksum.value), (1, 1));
}

// S15: unknown tickets, of nobody and of another incarnation.
#[test]
fn a_repeat_gets_a_true_answer() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let ticket = bench.reserve(a, 1, 1);
    assert_eq!(bench.publish(b, ticket, 1), PublishOutcome::Unknown);
    assert_eq!(bench.publish(a, Ticket([9; 16]), 1), PublishOutcome::Unknown);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Created);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::AlreadyPresent);
    assert_eq!(bench.publish(b, ticket, 1), PublishOutcome::AlreadyPresent);
    bench.remove(a, 1, ticket);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Unknown);
    assert!(!bench.has(a, 1));
}

#[test]
fn a_ticket_of_another_key_stays() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let ticket = bench.reserve(a, 1, 1);
    bench.store(a, 2, 1);
    assert_eq!(bench.publish(a, ticket, 2), PublishOutcome::WrongKey);
    assert_eq!(bench.publish(a, ticket, 3), PublishOutcome::WrongKey);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Created);
}

// S11, S15
#[test]
fn an_overdue_ticket_may_publish() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let ticket = bench.reserve(a, 1, 1);
    bench.at(10 * RESERVATION_TTL);
    assert_eq!(bench.pages().overdue, 1);
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Created);
    assert_eq!((bench.pages().overdue, bench.pages().published), (0, 1));
}

// Design §7: older tickets answer Cleared, but never when the key is there.
#[test]
fn a_ticket_from_before_a_clear() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let older = bench.reserve(a, 1, 1);
    let second = bench.reserve(a, 2, 1);
    bench.clear(a);
    assert_eq!(bench.publish(a, older, 1), PublishOutcome::Cleared);
    assert_eq!(bench.publish(a, older, 1), PublishOutcome::Unknown);
    bench.store(a, 2, 1);
    assert_eq!(bench.publish(a, second, 2), PublishOutcome::AlreadyPresent);
    assert_eq!((bench.pages().free, bench.pages().published), (15, 1));
}

// S9: publish and already-present touch.
#[test]
fn already_present_touches() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let first = bench.store(a, 0, 1);
    for n in 1..16 {
        bench.store(a, n, 1);
    }
    assert_eq!(bench.publish(a, first, 0), PublishOutcome::AlreadyPresent);
    bench.store(a, 16, 1);
    assert_eq!(bench.exists(a, &[0, 1]), [true, false]);
}

// Peers' fault: no answer says stored when nothing is.
#[test]
fn a_key_held_by_another_is_not_stored() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.reserve(a, 1, 1);
    assert_eq!(bench.try_reserve(b, 1, 1), ReserveOutcome::InFlight);
    assert!(!bench.has(b, 1));
}
