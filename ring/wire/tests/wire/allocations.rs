//! Counts heap allocations: a warm encoder and a decoder make none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use maru_wire::{Assembler, BODY_BYTES_MAX};

use crate::messages::{GENERATION, Message, REQUEST_ID};
use crate::samples::{hello, samples};

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands every call to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Returns how many allocations of this thread `work` makes.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    work();
    COUNT.get() - before
}

#[test]
fn a_warm_encoder_allocates_nothing() {
    for (name, message) in samples() {
        let (request, (op, replies)) = (message.request(), message.reply());
        let mut out = Vec::with_capacity(4096);
        let count = allocations(|| match (&message, &request) {
            (Message::Challenge(challenge), _) => {
                maru_wire::encode_challenge(&mut out, GENERATION, challenge);
            }
            (Message::Hello(_) | Message::HelloReply(_), _) => {}
            (Message::Refused(op, refusal), _) => {
                maru_wire::encode_refusal(&mut out, *op, REQUEST_ID, GENERATION, *refusal);
            }
            (_, Some(body)) => maru_wire::encode_request(&mut out, REQUEST_ID, GENERATION, body),
            (_, None) => maru_wire::encode_reply(&mut out, op, REQUEST_ID, GENERATION, &replies),
        });
        assert_eq!(count, 0, "{name}");
    }
}

/// Frames of 4,096 keys too: the serialiser's notes stay on the stack.
#[test]
fn a_large_batch_allocates_nothing() {
    let outcome = maru_wire::ReserveOutcome::Granted(maru_wire::Grant {
        ticket: maru_wire::Ticket([1; 16]),
        run_count: 1,
    });
    let run = maru_wire::PageRun { region: 0, page_index: 0, page_count: 1 };
    let mut replies = maru_wire::ReplyBuffer::default();
    replies.reserve.outcomes = vec![outcome; 4096];
    replies.reserve.runs = vec![run; 4096];
    replies.lookup.outcomes = vec![maru_wire::LookupOutcome::Missing; 4096];
    let mut out = Vec::with_capacity(512 * 1024);
    let count = allocations(|| {
        for op in [maru_wire::Op::Reserve, maru_wire::Op::Lookup] {
            maru_wire::encode_reply(&mut out, op, REQUEST_ID, GENERATION, &replies);
        }
    });
    assert_eq!(count, 0);
}

/// Frames that lie whole and aligned are read in place; the rest in a scratch that stays warm.
#[test]
fn decoding_allocates_nothing() {
    let stream: Vec<u8> = samples()
        .iter()
        .filter(|(_, message)| message.request().is_some())
        .flat_map(|(_, message)| message.encode(&hello()))
        .collect();
    let mut aligned = rkyv::util::AlignedVec::<16>::new();
    aligned.extend_from_slice(&stream);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut decode = |mut input: &[u8]| {
        let mut frames = 0;
        while let Some(frame) = assembler.next(&mut input).expect("good frames") {
            assert!(maru_wire::decode_request(&frame).is_ok());
            frames += 1;
        }
        frames
    };
    assert_eq!(allocations(|| assert_eq!(decode(&aligned), 13)), 0);

    let pieces =
        |decode: &mut dyn FnMut(&[u8]) -> usize| aligned.chunks(7).map(decode).sum::<usize>();
    assert_eq!(pieces(&mut decode), 13);
    assert_eq!(allocations(|| assert_eq!(pieces(&mut decode), 13)), 0);
}
