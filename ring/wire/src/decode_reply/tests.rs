use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use rkyv::util::AlignedVec;

use super::*;
use crate::{
    AbandonReply, Assembler, BODY_BYTES_MAX, Checksum, ClosedCount, Found, Grant, Key,
    LookupOutcome, NamespaceUsage, PageRun, RegionInfo, RegionKind, ReplyBuffer, RequestBody,
    ReserveOutcome, encode_refusal, encode_reply, encode_request,
};

const GENERATION: Generation = Generation(7);
const TICKET: Ticket = Ticket([2; 16]);
const MAX: usize = KEYS_PER_FRAME_MAX as usize;

fn decode(bytes: &[u8]) -> Result<Option<Refusal>, DecodeError> {
    let mut aligned = AlignedVec::<16>::new();
    aligned.extend_from_slice(bytes);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut input = aligned.as_slice();
    let frame = assembler.next(&mut input)?.expect("a whole frame");
    decode_reply(&frame).map(|reply| if let Reply::Refused(why) = reply { Some(why) } else { None })
}

/// Decodes the reply to `op` after `fill` has filled it in. `None` stands for "no refusal".
fn check(op: Op, fill: impl FnOnce(&mut ReplyBuffer)) -> Result<Option<Refusal>, DecodeError> {
    let mut replies = ReplyBuffer::default();
    fill(&mut replies);
    let mut out = Vec::new();
    encode_reply(&mut out, op, 1, GENERATION, &replies);
    decode(&out)
}

fn bad(op: Op, field: &'static str) -> Result<Option<Refusal>, DecodeError> {
    Err(DecodeError::BadValue(op, field))
}

fn run(page_index: u32, page_count: u32) -> PageRun {
    PageRun { region: 1, page_index, page_count }
}

fn granted(run_count: u32) -> ReserveOutcome {
    ReserveOutcome::Granted(Grant { ticket: TICKET, run_count })
}

fn found(run_count: u32) -> Found {
    Found { object_bytes: 1, checksum: Checksum::default(), ticket: TICKET, run_count }
}

fn reserve(outcomes: &[ReserveOutcome], runs: &[PageRun]) -> Result<Option<Refusal>, DecodeError> {
    check(Op::Reserve, |replies| {
        replies.reserve.outcomes = outcomes.to_vec();
        replies.reserve.runs = runs.to_vec();
    })
}

#[test]
fn empty_replies_are_legal() {
    for op in Op::ALL {
        if !matches!(op, Op::Challenge | Op::Hello) {
            assert_eq!(check(op, |_| {}), Ok(None));
        }
    }
}

#[test]
fn run_counts_add_up_to_the_runs() {
    let full = ReserveOutcome::Full;
    let three = [run(0, 1), run(4, 2), run(8, 1)];
    assert_eq!(reserve(&[granted(1), full, granted(2)], &three), Ok(None));
    assert_eq!(reserve(&[granted(1), granted(1)], &three), bad(Op::Reserve, "runs"));
    assert_eq!(reserve(&[granted(2), granted(2)], &three), bad(Op::Reserve, "run_count"));
    assert_eq!(reserve(&[granted(u32::MAX)], &three), bad(Op::Reserve, "run_count"));
    assert_eq!(reserve(&[granted(0)], &[]), bad(Op::Reserve, "run_count"));
    assert_eq!(reserve(&[full], &three), bad(Op::Reserve, "runs"));
}

#[test]
fn runs_are_of_pages_and_an_object_has_at_most_64() {
    let page_count = bad(Op::Reserve, "page_count");
    assert_eq!(reserve(&[granted(1)], &[run(0, 0)]), page_count);
    assert_eq!(reserve(&[granted(1)], &[run(0, 64)]), Ok(None));
    assert_eq!(reserve(&[granted(1)], &[run(0, 65)]), page_count);
    assert_eq!(reserve(&[granted(2)], &[run(0, 64), run(70, 1)]), page_count);
    assert_eq!(reserve(&[granted(1)], &[run(u32::MAX, 1)]), bad(Op::Reserve, "page_index"));
    assert_eq!(reserve(&[granted(1)], &[run(u32::MAX - 1, 1)]), Ok(None));
}

#[test]
fn a_grant_has_a_ticket() {
    let nameless = ReserveOutcome::Granted(Grant { ticket: Ticket::default(), run_count: 1 });
    assert_eq!(reserve(&[nameless], &[run(0, 1)]), bad(Op::Reserve, "ticket"));
}

#[test]
fn lists_are_at_most_4096_items() {
    type Fill = fn(&mut ReplyBuffer, usize);
    let lists: [(Op, &str, Fill); 7] = [
        (Op::Reserve, "outcomes", |replies, count| {
            replies.reserve.outcomes = vec![ReserveOutcome::Present; count];
        }),
        (Op::Publish, "outcomes", |replies, count| {
            replies.publish.outcomes = vec![crate::PublishOutcome::Created; count];
        }),
        (Op::Lookup, "outcomes", |replies, count| {
            replies.lookup.outcomes = vec![LookupOutcome::Missing; count];
        }),
        (Op::Release, "held", |replies, count| replies.release.held = vec![true; count]),
        (Op::EvictedSince, "keys", |replies, count| {
            replies.evicted_since.keys = vec![Key([1; 32]); count];
        }),
        (Op::Remove, "outcomes", |replies, count| {
            replies.remove.outcomes = vec![crate::RemoveOutcome::Missing; count];
        }),
        (Op::Exists, "bitmap", |replies, count| replies.exists.bitmap = vec![0; count / 64]),
    ];
    for (op, field, fill) in lists {
        assert_eq!(check(op, |replies| fill(replies, MAX)), Ok(None));
        let over = check(op, |replies| fill(replies, MAX + 64));
        let is_right = matches!(over, Err(DecodeError::TooMany { op: o, field: f, .. })
            if o == op && f == field);
        assert!(is_right, "{over:?}");
    }
}

#[test]
fn counts_are_at_most_what_a_request_holds() {
    let abandoned = |abandoned_count| {
        check(Op::Abandon, |replies| {
            replies.abandon = AbandonReply { eviction_number: 1, abandoned_count };
        })
    };
    assert_eq!(abandoned(KEYS_PER_FRAME_MAX), Ok(None));
    assert_eq!(abandoned(KEYS_PER_FRAME_MAX + 1), bad(Op::Abandon, "abandoned_count"));
    let leading =
        |leading_count| check(Op::Exists, |replies| replies.exists.leading_count = leading_count);
    assert_eq!(leading(KEYS_PER_FRAME_MAX), Ok(None));
    assert_eq!(leading(KEYS_PER_FRAME_MAX + 1), bad(Op::Exists, "leading_count"));
}

#[test]
fn a_bitmap_agrees_with_its_leading_count() {
    let exists = |leading_count, bitmap: &[u64]| {
        check(Op::Exists, |replies| {
            replies.exists.leading_count = leading_count;
            replies.exists.bitmap = bitmap.to_vec();
        })
    };
    let disagree = bad(Op::Exists, "leading_count");
    assert_eq!(exists(3, &[0b1_0111]), Ok(None));
    assert_eq!(exists(66, &[u64::MAX, 0b11]), Ok(None));
    assert_eq!(exists(64, &[u64::MAX]), Ok(None));
    assert_eq!(exists(2, &[0b111]), disagree);
    assert_eq!(exists(64, &[u64::MAX, 1]), disagree);
    assert_eq!(exists(0, &[1]), disagree);
}

#[test]
fn a_lookup_has_a_lease_when_and_only_when_it_found_something() {
    let lookup = |lease, outcome: LookupOutcome, runs: &[PageRun]| {
        check(Op::Lookup, |replies| {
            replies.lookup.lease = lease;
            replies.lookup.outcomes = vec![LookupOutcome::Missing, outcome];
            replies.lookup.runs = runs.to_vec();
        })
    };
    let (lease, none) = (LeaseId([3; 16]), LeaseId::default());
    let one = [run(0, 1)];
    assert_eq!(lookup(lease, LookupOutcome::Found(found(1)), &one), Ok(None));
    assert_eq!(lookup(none, LookupOutcome::ClientLimit, &[]), Ok(None));
    assert_eq!(lookup(none, LookupOutcome::Found(found(1)), &one), bad(Op::Lookup, "lease"));
    assert_eq!(lookup(lease, LookupOutcome::NotTried, &[]), bad(Op::Lookup, "lease"));
    assert_eq!(lookup(lease, LookupOutcome::Found(found(2)), &one), bad(Op::Lookup, "run_count"));
}

#[test]
fn a_found_chunk_makes_sense() {
    let lookup = |found: Found| {
        check(Op::Lookup, |replies| {
            replies.lookup.lease = LeaseId([3; 16]);
            replies.lookup.outcomes = vec![LookupOutcome::Found(found)];
            replies.lookup.runs = vec![run(5, 2)];
        })
    };
    let checksum = |kind, value| Found { checksum: Checksum { kind, value }, ..found(1) };
    assert_eq!(lookup(checksum(1, 9)), Ok(None));
    assert_eq!(lookup(checksum(2, 9)), bad(Op::Lookup, "checksum"));
    assert_eq!(lookup(checksum(0, 9)), bad(Op::Lookup, "checksum"));
    let empty = Found { object_bytes: 0, ..found(1) };
    assert_eq!(lookup(empty), bad(Op::Lookup, "object_bytes"));
    let nameless = Found { ticket: Ticket::default(), ..found(1) };
    assert_eq!(lookup(nameless), bad(Op::Lookup, "ticket"));
}

#[test]
fn evicted_since_does_not_tell_the_future() {
    let since = |number, eviction_number| {
        check(Op::EvictedSince, |replies| {
            replies.evicted_since.number = number;
            replies.evicted_since.eviction_number = eviction_number;
        })
    };
    assert_eq!(since(4, 4), Ok(None));
    assert_eq!(since(5, 4), bad(Op::EvictedSince, "number"));
}

#[test]
fn regions_have_rising_numbers_and_bytes() {
    let info = |region, bytes, node| RegionInfo { region, kind: RegionKind::Memfd, node, bytes };
    let regions = |regions: &[RegionInfo]| {
        check(Op::Regions, |replies| replies.regions.regions = regions.to_vec())
    };
    assert_eq!(regions(&[info(0, 1, -1), info(7, 1, 0)]), Ok(None));
    assert_eq!(regions(&[info(7, 1, 0), info(7, 1, 0)]), bad(Op::Regions, "region"));
    assert_eq!(regions(&[info(7, 1, 0), info(0, 1, 0)]), bad(Op::Regions, "region"));
    assert_eq!(regions(&[info(0, 0, 0)]), bad(Op::Regions, "bytes"));
    assert_eq!(regions(&[info(0, 1, -2)]), bad(Op::Regions, "node"));
    let many: Vec<_> = (0..=REGIONS_PER_REPLY_MAX).map(|region| info(region, 1, 0)).collect();
    assert!(matches!(regions(&many), Err(DecodeError::TooMany { .. })));
    assert_eq!(regions(&many[1..]), Ok(None));
}

#[test]
fn stats_lists_and_names_are_bounded_and_the_longest_fit_a_frame() {
    let name = |len| String::from_utf8(vec![b'x'; len]).expect("ASCII");
    let usage = |len| NamespaceUsage { name: name(len), ..NamespaceUsage::default() };
    let closed = |len| ClosedCount { reason: name(len), count: 1 };
    let stats = |namespaces: Vec<NamespaceUsage>, reasons: Vec<ClosedCount>| {
        check(Op::Stats, |replies| {
            replies.stats.namespaces = namespaces;
            replies.stats.closed = reasons;
        })
    };
    let (namespaces, reasons) = (NAMESPACES_PER_REPLY_MAX as usize, REASONS_PER_REPLY_MAX as usize);
    assert_eq!(stats(vec![usage(64); namespaces], vec![closed(64); reasons]), Ok(None));
    let over = stats(vec![usage(1); namespaces + 1], vec![]);
    assert!(matches!(over, Err(DecodeError::TooMany { field: "namespaces", .. })));
    let over = stats(vec![], vec![closed(1); reasons + 1]);
    assert!(matches!(over, Err(DecodeError::TooMany { field: "closed", .. })));
    assert_eq!(stats(vec![usage(65)], vec![]), bad(Op::Stats, "name"));
    assert_eq!(stats(vec![], vec![closed(65)]), bad(Op::Stats, "reason"));
    assert_eq!(check(Op::Stats, |replies| replies.stats.io = name(65)), bad(Op::Stats, "io"));
    assert_eq!(check(Op::Stats, |replies| replies.stats.core = -2), bad(Op::Stats, "core"));
}

#[test]
fn a_refusal_answers_any_op() {
    for op in Op::ALL {
        if !matches!(op, Op::Challenge | Op::Hello) {
            let mut out = Vec::new();
            encode_refusal(&mut out, op, 1, GENERATION, Refusal::WrongShard(3));
            assert_eq!(decode(&out), Ok(Some(Refusal::WrongShard(3))));
            out[32] = 200;
            assert_eq!(decode(&out), Err(DecodeError::BadBody(op)));
        }
    }
}

#[test]
fn the_number_of_a_refusal_stands_at_its_alignment() {
    for (refusal, at, bytes) in [
        (Refusal::WrongVersion(0x0102), 2, &[2, 1][..]),
        (Refusal::TooManyKeys(0x0102), 4, &[2, 1, 0, 0]),
        (Refusal::TtlTooShort(0x0102), 8, &[2, 1, 0, 0, 0, 0, 0, 0]),
    ] {
        let mut out = Vec::new();
        encode_refusal(&mut out, Op::Ping, 1, GENERATION, refusal);
        assert_eq!(&out[32 + at..32 + at + bytes.len()], bytes);
        assert_eq!(decode(&out), Ok(Some(refusal)));
    }
}

#[test]
fn requests_and_handshakes_are_no_replies() {
    let mut out = Vec::new();
    encode_request(&mut out, 1, GENERATION, &RequestBody::Ping);
    assert_eq!(decode(&out), Err(DecodeError::WrongDirection(Op::Ping)));
    out.clear();
    encode_refusal(&mut out, Op::Hello, 1, GENERATION, Refusal::WrongSecret);
    assert_eq!(decode(&out), Err(DecodeError::WrongOp(Op::Hello)));
}

#[test]
fn a_server_has_a_generation() {
    let mut out = Vec::new();
    encode_reply(&mut out, Op::Ping, 1, Generation(0), &ReplyBuffer::default());
    assert_eq!(decode(&out), bad(Op::Ping, "generation"));
}
