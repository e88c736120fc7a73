//! Exists: truth without touch.

use std::vec;

use maru_wire::{Exists, Match, RequestBody};

use crate::Progress;
use crate::bench::{Bench, key};

#[test]
fn leading_run_and_bitmap() {
    let mut bench = Bench::new(128);
    let a = bench.client(1);
    for n in (0..100).filter(|n| *n != 70) {
        bench.store(a, n, 1);
    }
    let keys = (0..100).map(key).collect();
    let mut request = Exists { keys, matching: Match::Leading };
    bench.call(a, &RequestBody::Exists(&request));
    let reply = bench.work.replies.exists.clone();
    assert_eq!((reply.leading_count, reply.bitmap.len()), (70, 0));
    request.matching = Match::All;
    bench.call(a, &RequestBody::Exists(&request));
    let reply = bench.work.replies.exists.clone();
    assert_eq!(reply.leading_count, 70);
    assert_eq!(reply.bitmap, vec![u64::MAX, ((1 << 36) - 1) & !(1 << 6)]);
    let stats = bench.stats();
    assert_eq!((stats.exists_hit_total, stats.exists_miss_total), (70 + 99, 2));
}

// S9: exists does not touch.
#[test]
fn exists_does_not_touch() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..16 {
        bench.store(a, n, 1);
    }
    assert!(bench.has(a, 0));
    bench.store(a, 16, 1);
    assert!(!bench.has(a, 0));
}

#[test]
fn a_reservation_is_not_there() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.reserve(a, 1, 1);
    assert!(!bench.has(a, 1));
}

#[test]
fn goes_on_in_the_next_turn() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    for n in 0..10 {
        bench.store(a, n, 1);
    }
    let request = Exists { keys: (0..12).map(key).collect(), matching: Match::All };
    let body = RequestBody::Exists(&request);
    assert_eq!(bench.call_within(a, &body, &mut 5), Progress::Paused);
    assert_eq!(bench.call_within(a, &body, &mut 0), Progress::Paused);
    let mut budget = 100;
    assert_eq!(bench.call_within(a, &body, &mut budget), Progress::Done);
    assert_eq!(budget, 93);
    assert_eq!(bench.work.replies.exists.leading_count, 10);
    assert_eq!(bench.work.replies.exists.bitmap, [0x3FF]);
}
