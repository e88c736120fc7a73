//! Remove: pins hold pages, not names.

use maru_wire::{RemoveOutcome, Ticket};

use crate::bench::Bench;

#[test]
fn by_ticket_or_whatever_is_there() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let ticket = bench.store(a, 1, 1);
    assert_eq!(bench.remove(a, 1, Ticket([3; 16])), RemoveOutcome::OtherTicket);
    assert_eq!(bench.remove(a, 1, ticket), RemoveOutcome::Removed);
    assert_eq!(bench.remove(a, 1, ticket), RemoveOutcome::Missing);
    bench.store(a, 1, 1);
    assert_eq!(bench.remove(a, 1, ticket), RemoveOutcome::OtherTicket);
    assert_eq!(bench.remove(a, 1, Ticket::default()), RemoveOutcome::Removed);
    assert_eq!(bench.stats().removed_total, 2);
    assert_eq!(bench.pages().free, 16);
}

// S9: a removed key takes an eviction number.
#[test]
fn a_pinned_object_keeps_its_pages_and_loses_its_name() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 3);
    let lease = bench.pin(a, &[1]);
    assert_eq!(bench.remove(a, 1, Ticket::default()), RemoveOutcome::Removed);
    assert!(!bench.has(a, 1));
    assert_eq!(bench.shard.eviction_number(), 1);
    assert_eq!((bench.pages().unlinked, bench.pages().published), (3, 0));
    // The name is free for another value meanwhile.
    bench.store(a, 1, 2);
    assert!(bench.release(a, lease, 0));
    assert_eq!((bench.pages().unlinked, bench.pages().published), (0, 2));
    assert!(bench.has(a, 1));
}
