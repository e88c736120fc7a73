//! EvictedSince: exact, or it says that it is not.

use maru_wire::{EvictedSince, RequestBody, Ticket};

use crate::bench::{Bench, config, key};
use crate::{Extent, Progress};

fn bench_with_log(keys: u32) -> Bench {
    let mut config = config();
    config.eviction_log_keys = keys;
    Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }])
}

// S9: every way a published key vanishes takes a number.
#[test]
fn evicted_and_removed_keys_are_told() {
    let mut bench = bench_with_log(100);
    let a = bench.client(1);
    for n in 0..18 {
        bench.store(a, n, 1);
    }
    bench.remove(a, 9, Ticket::default());
    let reply = bench.evicted_since(a, 0, 10);
    assert_eq!(reply.keys, [key(0), key(1), key(9)]);
    assert_eq!((reply.number, reply.eviction_number), (3, 3));
    assert!(!reply.more && !reply.lost);
    let reply = bench.evicted_since(a, 1, 1);
    assert_eq!((reply.keys.as_slice(), reply.number, reply.more), (&[key(1)][..], 2, true));
    let reply = bench.evicted_since(a, 3, 10);
    assert_eq!((reply.keys.len(), reply.number, reply.more, reply.lost), (0, 3, false, false));
    let reply = bench.evicted_since(a, 0, 0);
    assert_eq!((reply.keys.len(), reply.number, reply.more), (0, 0, true));
}

// C30: an incomplete log makes clients forget all.
#[test]
fn what_the_log_no_longer_holds_is_lost() {
    let mut bench = bench_with_log(4);
    let a = bench.client(1);
    for n in 0..22 {
        bench.store(a, n, 1);
    }
    assert_eq!(bench.shard.eviction_number(), 6);
    let reply = bench.evicted_since(a, 1, 10);
    assert_eq!((reply.lost, reply.number, reply.keys.len(), reply.more), (true, 6, 0, false));
    let reply = bench.evicted_since(a, 2, 10);
    assert_eq!((reply.lost, reply.keys.len(), reply.keys[0]), (false, 4, key(2)));
    // A number of the future is of another run.
    assert!(bench.evicted_since(a, 7, 10).lost);
}

#[test]
fn a_clear_is_lost_for_its_namespace_only() {
    let mut bench = bench_with_log(100);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.store(a, 1, 1);
    bench.store(a, 2, 1);
    bench.remove(a, 1, Ticket::default());
    bench.clear(a);
    bench.store(a, 3, 1);
    bench.remove(a, 3, Ticket::default());
    let reply = bench.evicted_since(a, 1, 10);
    assert_eq!((reply.lost, reply.number), (true, 3));
    let reply = bench.evicted_since(a, 2, 10);
    assert_eq!((reply.lost, reply.keys.as_slice()), (false, &[key(3)][..]));
    let reply = bench.evicted_since(b, 0, 10);
    assert_eq!((reply.lost, reply.keys.as_slice()), (false, &[key(1), key(3)][..]));
    assert_eq!(reply.number, 3);
}

#[test]
fn goes_on_in_the_next_turn_and_notices_loss() {
    let mut bench = bench_with_log(8);
    let a = bench.client(1);
    for n in 0..24 {
        bench.store(a, n, 1);
    }
    let request = EvictedSince { number: 0, keys_max: 100 };
    let body = RequestBody::EvictedSince(&request);
    assert_eq!(bench.call_within(a, &body, &mut 3), Progress::Paused);
    bench.call(a, &body);
    assert_eq!(bench.work.replies.evicted_since.keys.len(), 8);
    assert_eq!(bench.call_within(a, &body, &mut 3), Progress::Paused);
    let paused = core::mem::take(&mut bench.work);
    for n in 24..40 {
        bench.store(a, n, 1);
    }
    bench.work = paused;
    bench.call(a, &body);
    let reply = &bench.work.replies.evicted_since;
    assert_eq!((reply.lost, reply.number, reply.keys.len()), (true, 24, 0));
}

#[test]
fn a_reply_keeps_within_the_body() {
    let mut config = config();
    config.limits.body_bytes_max = 300;
    let mut bench = Bench::with(config, &[Extent { region: 0, page_index: 0, page_count: 16 }]);
    let a = bench.client(1);
    for n in 0..40 {
        bench.store(a, n, 1);
    }
    let reply = bench.evicted_since(a, 0, 4096);
    assert!(reply.more && !reply.keys.is_empty());
    let bytes = maru_wire::evicted_since_reply_bytes(reply.keys.len());
    assert!(bytes <= 300 && bytes + 32 > 300);
}
