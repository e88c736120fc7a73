//! Clear: one step, however many chunks there are.

use crate::bench::Bench;

// S9, design §7: one number; missing at once; swept within a budget.
#[test]
fn a_clear_takes_one_step() {
    let mut bench = Bench::new(64);
    let (a, b) = (bench.client(1), bench.client(2));
    for n in 0..40 {
        bench.store(a, n, 1);
    }
    bench.store(b, 100, 1);
    assert_eq!(bench.clear(a), 40);
    assert_eq!(bench.shard.eviction_number(), 1);
    assert_eq!(bench.exists(a, &[0, 39, 100]), [false, false, true]);
    assert_eq!((bench.pages().cleared, bench.pages().published), (40, 1));
    let mut budget = 15;
    assert!(bench.shard.tick(bench.now, &mut budget));
    assert_eq!((bench.pages().cleared, bench.pages().free), (25, 38));
    bench.at(1);
    assert_eq!((bench.pages().cleared, bench.pages().free), (0, 63));
    assert_eq!(bench.shard.eviction_number(), 1);
    assert_eq!(bench.clear(a), 0);
}

// Design §7: cleared chunks go first when room is needed.
#[test]
fn cleared_chunks_go_first() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    for n in 0..8 {
        bench.store(b, n, 1);
    }
    for n in 8..16 {
        bench.store(a, n, 1);
    }
    bench.clear(a);
    bench.reserve(b, 20, 4);
    assert_eq!((bench.pages().cleared, bench.stats().evicted_total), (4, 0));
    assert_eq!(bench.exists(b, &[0, 7]), [true, true]);
    bench.reserve(b, 21, 5);
    assert_eq!((bench.pages().cleared, bench.stats().evicted_total), (0, 1));
    assert_eq!(bench.exists(b, &[0, 1]), [false, true]);
}

#[test]
fn a_cleared_key_can_be_stored_again() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    bench.store(a, 2, 1);
    let lease = bench.pin(a, &[2]);
    bench.clear(a);
    bench.store(a, 1, 2);
    bench.store(a, 2, 2);
    assert_eq!((bench.pages().cleared, bench.pages().unlinked), (0, 1));
    assert_eq!(bench.exists(a, &[1, 2]), [true, true]);
    assert!(bench.release(a, lease, 0));
    assert_eq!((bench.pages().published, bench.pages().free), (4, 12));
}

#[test]
fn a_cleared_and_pinned_chunk_goes_with_its_last_pin() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let lease = bench.pin(a, &[1]);
    bench.clear(a);
    assert_eq!(bench.at(1).pages().cleared, 1);
    assert!(bench.release(a, lease, 0));
    assert_eq!(bench.pages().free, 16);
}
