//! Reserve: who is granted what, in which order, and what is evicted for it.

use std::vec;
use std::vec::Vec;

use maru_wire::{Purpose, RequestBody, Reserve, ReserveItem, ReserveOutcome, Ticket};

use crate::bench::{Bench, PAGE_BYTES, TRANSFER_TIMEOUT, config, hello, key};
use crate::{Eviction, Extent, Growth, Peer, Progress};

fn is_granted(outcome: &ReserveOutcome) -> bool {
    matches!(outcome, ReserveOutcome::Granted(_))
}

// S9
#[test]
fn evicts_exactly_what_is_needed_coldest_first() {
    let mut bench = Bench::new(20);
    let a = bench.client(1);
    for n in 0..10 {
        bench.store(a, n, 2);
    }
    // Of 3 pages needed, one object of 2 pages is not enough, and two are.
    bench.store(a, 100, 3);
    let there: Vec<bool> = bench.exists(a, &[0, 1, 2, 3, 9, 100]);
    assert_eq!(there, [false, false, true, true, true, true]);
    assert_eq!(bench.pages().free, 1);
    assert_eq!(bench.stats().evicted_total, 2);
}

// S9: a writer that finds the key there used it.
#[test]
fn a_present_key_is_touched() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    assert_eq!(bench.try_reserve(a, 0, 1), ReserveOutcome::Present);
    bench.store(a, 16, 1);
    assert_eq!(bench.exists(a, &[0, 1]), [true, false]);
}

// S9: a reserve that cannot be met evicts nothing.
#[test]
fn full_evicts_nothing() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..8 {
        bench.store(a, n, 2);
    }
    bench.pin(a, &[0, 1, 2, 3, 4]);
    assert_eq!(bench.try_reserve(a, 100, 7), ReserveOutcome::Full);
    assert_eq!(bench.stats().evicted_total, 0);
    assert!(is_granted(&bench.try_reserve(a, 101, 6)));
    assert_eq!(bench.stats().evicted_total, 3);
    assert_eq!(bench.try_reserve(a, 102, 1), ReserveOutcome::Full);
}

// S9: granted in order, so that the leading run survives.
#[test]
fn a_batch_is_granted_in_order() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let batch: Vec<(u64, u64)> = (0..12).map(|n| (n, 2)).collect();
    let outcomes = bench.reserve_all(a, &batch);
    assert!(outcomes[..8].iter().all(is_granted));
    assert!(outcomes[8..].iter().all(|outcome| *outcome == ReserveOutcome::Full));
}

// S9: with eviction off, a full shard is full.
#[test]
fn eviction_can_be_off() {
    let mut config = config();
    config.eviction = Eviction::None;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }]);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    assert_eq!(bench.try_reserve(a, 16, 1), ReserveOutcome::Full);
    bench.clear(a);
    // Cleared chunks are no chunks: freeing them evicts nothing.
    assert!(is_granted(&bench.try_reserve(a, 16, 1)));
    assert_eq!(bench.stats().evicted_total, 0);
}

// S8, R9: growth comes before eviction, and only while it is possible.
#[test]
fn growth_comes_before_eviction() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    bench.shard.set_growth(Growth::Startable);
    assert_eq!(bench.try_reserve(a, 16, 1), ReserveOutcome::Growing(100_000));
    assert!(bench.shard.take_growth_wanted());
    assert!(!bench.shard.take_growth_wanted());
    bench.shard.set_growth(Growth::Running { retry_after_us: 5 });
    assert_eq!(bench.try_reserve(a, 16, 1), ReserveOutcome::Growing(5));
    assert!(!bench.shard.take_growth_wanted());
    bench.shard.set_growth(Growth::Impossible);
    assert!(is_granted(&bench.try_reserve(a, 16, 1)));
}

// S8
#[test]
fn new_pages_are_granted() {
    let mut config = config();
    config.page_count_max = 20;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }]);
    let a = bench.client(1);
    let batch: Vec<(u64, u64)> = (0..16).map(|n| (n, 1)).collect();
    bench.reserve_all(a, &batch);
    assert_eq!(bench.try_reserve(a, 16, 4), ReserveOutcome::Full);
    assert!(!bench.shard.add_extent(Extent { region: 1, page_index: 0, page_count: 5 }));
    assert!(bench.shard.add_extent(Extent { region: 1, page_index: 3, page_count: 4 }));
    assert!(is_granted(&bench.try_reserve(a, 16, 4)));
    let [run] = bench.work.replies.reserve.runs[..] else { panic!("one run") };
    assert_eq!((run.region, run.page_index, run.page_count), (1, 3, 4));
}

#[test]
fn present_and_too_large() {
    let mut bench = Bench::new(70);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let outcomes = bench.reserve_all(a, &[(1, 1), (2, 65), (3, 64)]);
    assert_eq!(outcomes[..2], [ReserveOutcome::Present, ReserveOutcome::Rejected]);
    assert!(is_granted(&outcomes[2]));
    let mut small = Bench::new(16);
    let a = small.client(1);
    assert_eq!(small.try_reserve(a, 1, 17), ReserveOutcome::Rejected);
}

// Whatever became of the first, the second of the same key in a frame is a duplicate.
#[test]
fn a_key_twice_in_one_frame() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let outcomes = bench.reserve_all(a, &[(1, 1), (2, 1), (1, 1), (2, 1), (3, 1)]);
    assert_eq!(outcomes[0], ReserveOutcome::Present);
    assert!(is_granted(&outcomes[1]) && is_granted(&outcomes[4]));
    assert_eq!(outcomes[2..4], [ReserveOutcome::Duplicate; 2]);
    // The next frame is another.
    assert!(is_granted(&bench.try_reserve(a, 2, 1)));
}

// X10: in flight is said to others only, and for one transfer time-out at most.
#[test]
fn two_writers_of_one_key() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    let first = bench.reserve(a, 1, 1);
    assert_eq!(bench.at(TRANSFER_TIMEOUT - 1).try_reserve(b, 1, 1), ReserveOutcome::InFlight);
    let again = bench.reserve(a, 1, 1);
    assert_ne!(first, again);
    // The holder's second grant holds the key for a time-out of its own.
    let later = 2 * TRANSFER_TIMEOUT - 1;
    assert_eq!(bench.at(later - 1).try_reserve(b, 1, 1), ReserveOutcome::InFlight);
    let second = bench.at(later).reserve(b, 1, 1);
    assert_eq!(bench.try_reserve(a, 1, 1), ReserveOutcome::InFlight);
    bench.abandon(b, second, false);
    // Without its holder the key is free of it.
    bench.reserve(a, 1, 1);
}

// X10: a write that Clear made void holds no key.
#[test]
fn a_cleared_reservation_holds_no_key() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.reserve(a, 1, 1);
    assert_eq!(bench.try_reserve(b, 1, 1), ReserveOutcome::InFlight);
    bench.clear(a);
    bench.reserve(b, 1, 1);
}

// Design §7: live and overdue reservations of one incarnation are at most an eighth of the
// shard; of one peer at most a half.
#[test]
fn caps_of_an_incarnation_and_of_a_peer() {
    let mut config = config();
    config.limits.reserved_pages_max = 0;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 800 }]);
    let mut clients = vec![];
    for name in 1..=5 {
        let hello = hello(name, Purpose::Data, 1);
        let admission = bench.shard.hello(bench.now, &hello, Peer::Uid(1)).unwrap();
        assert_eq!(admission.limits.reserved_pages_max, 100);
        clients.push(admission.client);
    }
    for (client, first) in clients.iter().zip([0, 1000, 2000, 3000]) {
        let batch: Vec<(u64, u64)> = (first..first + 101).map(|n| (n, 1)).collect();
        let outcomes = bench.reserve_all(*client, &batch);
        assert!(outcomes[..100].iter().all(is_granted));
        assert_eq!(outcomes[100], ReserveOutcome::ClientLimit);
    }
    // Four of them hold the half of their peer.
    assert_eq!(bench.try_reserve(clients[4], 5000, 1), ReserveOutcome::ClientLimit);
    let other = bench.client(9);
    assert!(is_granted(&bench.try_reserve(other, 5000, 1)));
    // Overdue reservations go on counting.
    bench.at(1_000_000);
    assert_eq!(bench.try_reserve(clients[0], 6000, 1), ReserveOutcome::ClientLimit);
    assert!(is_granted(&bench.try_reserve(other, 6000, 1)));
}

// Design §7: a client that may be dead does not lock its peer out.
#[test]
fn overdue_pages_of_the_dead_are_counted_apart() {
    let mut config = config();
    config.limits.reserved_pages_max = 0;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 80 }]);
    let mut numbers = vec![];
    for name in 1..=4 {
        let admission = bench.shard.hello(bench.now, &hello(name, Purpose::Data, 1), Peer::Uid(1));
        let client = admission.unwrap().client;
        let batch: Vec<(u64, u64)> = (0..10).map(|n| (u64::from(name) * 100 + n, 1)).collect();
        assert!(bench.reserve_all(client, &batch).iter().all(is_granted));
        numbers.push(client);
    }
    let hello = hello(5, Purpose::Data, 1);
    let fifth = bench.shard.hello(bench.now, &hello, Peer::Uid(1)).unwrap().client;
    assert_eq!(bench.try_reserve(fifth, 1, 1), ReserveOutcome::ClientLimit);
    bench.close(numbers[0], 1);
    assert_eq!(bench.try_reserve(fifth, 1, 1), ReserveOutcome::ClientLimit);
    bench.at(1_000_000);
    assert!(is_granted(&bench.try_reserve(fifth, 1, 1)));
    assert_eq!(bench.pages().overdue, 40);
}

// Design §6: a reply is sized before anything is granted.
#[test]
fn what_does_not_fit_the_reply_is_not_tried() {
    let mut config = config();
    config.limits.body_bytes_max = 800;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 2000 }]);
    let a = bench.client(1);
    let batch: Vec<(u64, u64)> = (0..20).map(|n| (n, 16)).collect();
    let outcomes = bench.reserve_all(a, &batch);
    let granted = outcomes.iter().take_while(|outcome| is_granted(outcome)).count();
    assert!(granted > 0 && granted < 20, "{granted}");
    assert!(outcomes[granted..].iter().all(|outcome| *outcome == ReserveOutcome::NotTried));
    assert_eq!(bench.pages().reserved, 16 * granted as u64);
}

// Design §4: a large frame resumes from its cursor, and the atomic step is one key.
#[test]
fn a_frame_goes_on_in_the_next_turn() {
    let mut bench = Bench::new(64);
    let a = bench.client(1);
    for n in 0..64 {
        bench.store(a, n, 1);
    }
    let items = (100..110).map(|n| ReserveItem { key: key(n), object_bytes: 4 * PAGE_BYTES });
    let request = Reserve { items: items.collect() };
    let mut turns = 0;
    while bench.call_within(a, &RequestBody::Reserve(&request), &mut 5) == Progress::Paused {
        // A step for the key and one for each of four evicted objects: one key a turn.
        turns += 1;
        assert_eq!(bench.pages().reserved, 4 * turns);
        assert_eq!(bench.pages().free, 0);
    }
    assert_eq!(turns, 9);
    assert!(bench.work.replies.reserve.outcomes.iter().all(is_granted));
    assert_eq!(bench.stats().evicted_total, 40);
}

// Tables have limits; full is an answer.
#[test]
fn a_full_table_of_reservations_is_full() {
    let mut config = config();
    config.reservations_max = 3;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }]);
    let (a, b) = (bench.client(1), bench.client(2));
    let first = bench.reserve(a, 1, 1);
    bench.reserve(b, 2, 1);
    bench.reserve(b, 3, 1);
    assert_eq!(bench.try_reserve(a, 4, 1), ReserveOutcome::Full);
    bench.abandon(a, first, false);
    bench.reserve(a, 4, 1);
}

// Tickets never recur and cannot be guessed from one another.
#[test]
fn tickets_never_recur() {
    let mut bench = Bench::new(64);
    let a = bench.client(1);
    let mut tickets: Vec<Ticket> = vec![];
    for round in 0..20 {
        let ticket = bench.reserve(a, round, 1);
        bench.abandon(a, ticket, false);
        assert!(!tickets.contains(&ticket));
        tickets.push(ticket);
    }
    tickets.sort_by_key(|ticket| ticket.0[8..].to_vec());
    tickets.dedup_by_key(|ticket| ticket.0[8..].to_vec());
    assert_eq!(tickets.len(), 20);
}

// A pool of unpinned objects never answers Full to a burst of stores.
#[test]
fn a_burst_into_a_full_pool_is_granted() {
    let mut bench = Bench::new(32);
    let a = bench.client(1);
    for n in 0..300 {
        bench.store(a, n, 1 + n % 3);
    }
    assert_eq!(bench.stats().full_total, 0);
}

// A frame comes to its end with the smallest budget, also when it finds the shard full.
#[test]
fn the_smallest_budget_gets_on() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    bench.pin(a, &(0..16).collect::<Vec<_>>());
    let items = vec![ReserveItem { key: key(100), object_bytes: 3 * PAGE_BYTES }];
    let body = Reserve { items };
    let body = RequestBody::Reserve(&body);
    assert_eq!(bench.call_within(a, &body, &mut 1), Progress::Done);
    assert_eq!(bench.work.replies.reserve.outcomes, [ReserveOutcome::Full]);
    bench.now = crate::Time(crate::bench::LEASE_TTL);
    let paused = (0..5).take_while(|_| bench.call_within(a, &body, &mut 1) == Progress::Paused);
    assert_eq!(paused.count(), 3);
    assert!(is_granted(&bench.work.replies.reserve.outcomes[0]));
}
