//! Counts heap allocations: exists, lookup and release make none once warm.

#![allow(clippy::unwrap_used, reason = "a failed test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use maru_ledger::{Call, Progress};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Exists, Lookup, Match, Publish, PublishItem, Release, ReleaseItem,
    Request, RequestBody, Reserve, ReserveItem, ReserveOutcome, decode_request, encode_request,
};

#[path = "../src/bench.rs"]
#[allow(dead_code, reason = "shared with the unit tests, which use more of it")]
mod bench;

use bench::{Bench, GENERATION, PAGE_BYTES, key};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator unchanged; the count is of the thread alone.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the block came from the system's allocator with this layout.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// Bytes of a request, and what reads it in place.
struct Sent {
    bytes: Vec<u8>,
    assembler: Assembler,
}

impl Sent {
    fn new() -> Self {
        let bytes = Vec::with_capacity(BODY_BYTES_MAX as usize);
        Self { bytes, assembler: Assembler::new(BODY_BYTES_MAX) }
    }

    fn send<T>(&mut self, body: &RequestBody<'_>, then: impl FnOnce(Request<'_>) -> T) -> T {
        self.bytes.clear();
        encode_request(&mut self.bytes, 1, GENERATION, body);
        let frame = self.assembler.next(&mut self.bytes.as_slice()).unwrap().unwrap();
        then(decode_request(&frame).unwrap())
    }
}

/// Executes a request without any check of the books. Returns the allocations in `handle` alone.
fn call(
    bench: &mut Bench,
    sent: &mut Sent,
    client: maru_ledger::ClientId,
    body: &RequestBody<'_>,
) -> u64 {
    let Bench { shard, work, now, .. } = bench;
    sent.send(body, |request| {
        let call = Call { client, generation: GENERATION, request };
        allocations_of(|| {
            let progress = shard.handle(*now, &call, work, &mut u32::MAX.clone());
            assert_eq!(progress, Progress::Done);
        })
    })
}

// "0 heap allocations per exists, lookup, release after warm-up"; reserve and publish too, also
// when they evict.
#[test]
fn a_warm_shard_allocates_nothing() {
    let mut bench = Bench::new(4096);
    let client = bench.client(1);
    let mut sent = Sent::new();
    let mut counted = [0; 5];
    for round in 0..40u64 {
        let first = round * 256;
        let items =
            (first..first + 256).map(|n| ReserveItem { key: key(n), object_bytes: PAGE_BYTES });
        let reserve = Reserve { items: items.collect() };
        let publish = {
            let body = RequestBody::Reserve(&reserve);
            let allocations = call(&mut bench, &mut sent, client, &body);
            counted[0] += if round > 17 { allocations } else { 0 };
            let granted = bench.work.replies.reserve.outcomes.iter().zip(&reserve.items);
            let items = granted.map(|(outcome, item)| match outcome {
                ReserveOutcome::Granted(grant) => PublishItem {
                    ticket: grant.ticket,
                    key: item.key,
                    checksum: maru_wire::Checksum::default(),
                },
                other => panic!("{other:?}"),
            });
            Publish { items: items.collect() }
        };
        let body = RequestBody::Publish(&publish);
        let allocations = call(&mut bench, &mut sent, client, &body);
        counted[1] += if round > 17 { allocations } else { 0 };
        let keys: Vec<_> = reserve.items.iter().map(|item| item.key).collect();
        for matching in [Match::Leading, Match::All] {
            let exists = Exists { keys: keys.clone(), matching };
            let allocations = call(&mut bench, &mut sent, client, &RequestBody::Exists(&exists));
            counted[2] += if round > 1 { allocations } else { 0 };
            let lookup = Lookup { keys: keys.clone(), matching };
            let allocations = call(&mut bench, &mut sent, client, &RequestBody::Lookup(&lookup));
            counted[3] += if round > 1 { allocations } else { 0 };
            let lease = bench.work.replies.lookup.lease;
            let items = vec![ReleaseItem { lease, keep: 17 }, ReleaseItem { lease, keep: 0 }];
            let release = Release { items };
            let allocations = call(&mut bench, &mut sent, client, &RequestBody::Release(&release));
            counted[4] += if round > 1 { allocations } else { 0 };
            assert_eq!(bench.work.replies.release.held, [true, true]);
        }
    }
    assert_eq!(counted, [0; 5], "reserve, publish, exists, lookup, release");
}
