//! Steady traffic allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use maru_uring::{Event, IoMode, Outbox, Reactor, now_ns};

use crate::bench::config;

on_both_backends!(steady_echo_allocates_nothing);

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn steady_echo_allocates_nothing(io: IoMode) {
    let mut reactor = Reactor::new(config(io)).unwrap();
    let mut peers: Vec<UnixStream> = (0..8)
        .map(|_| {
            let (ours, peer) = UnixStream::pair().unwrap();
            reactor.outbox().add(ours.into()).unwrap();
            peer
        })
        .collect();
    for _ in 0..100 {
        round(&mut reactor, &mut peers);
    }
    let before = ALLOCATIONS.get();
    for _ in 0..1000 {
        round(&mut reactor, &mut peers);
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

/// Each peer sends a few bytes, all are echoed, each peer reads them.
fn round(reactor: &mut Reactor, peers: &mut [UnixStream]) {
    let bytes = [7; 500];
    for peer in peers.iter_mut() {
        peer.write_all(&bytes).unwrap();
    }
    let mut echoed = 0;
    let expected = bytes.len() * peers.len();
    while echoed < expected {
        let deadline = Some(now_ns() + 60_000_000_000);
        let mut on_event = |outbox: &mut Outbox, event: Event<'_>| match event {
            Event::Received { connection, bytes } => {
                outbox.send(connection).unwrap().extend_from_slice(bytes);
                echoed += bytes.len();
            }
            other => panic!("{other:?}"),
        };
        reactor.turn(deadline, &mut on_event).unwrap();
    }
    // What was appended in the last turn goes out when the next begins.
    reactor.turn(Some(0), &mut |_, _| {}).unwrap();
    for peer in peers.iter_mut() {
        peer.read_exact(&mut [0; 500]).unwrap();
    }
}
