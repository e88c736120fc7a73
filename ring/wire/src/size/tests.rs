use alloc::vec;
use alloc::vec::Vec;

use super::*;
use crate::{
    Abandon, BODY_BYTES_MAX, Checksum, EvictedSinceReply, Exists, Found, Generation, Grant,
    HEADER_BYTES, Header, LeaseId, Lookup, LookupOutcome, LookupReply, Match, PageRun, Publish,
    PublishItem, Release, ReleaseItem, Remove, RemoveItem, ReplyBuffer, RequestBody, Reserve,
    ReserveItem, ReserveOutcome, ReserveReply, encode_reply, encode_request,
};

const RUN: PageRun = PageRun { region: 1, page_index: 2, page_count: 3 };
const GRANT: Grant = Grant { ticket: Ticket([2; 16]), run_count: 1 };
const COUNTS: [usize; 8] = [0, 1, 2, 3, 5, 63, 64, 1000];

fn reply_bytes(op: Op, replies: &ReplyBuffer) -> usize {
    let mut out = Vec::new();
    encode_reply(&mut out, op, 1, Generation(7), replies);
    body_bytes_of(&out)
}

fn body_bytes_of(frame: &[u8]) -> usize {
    let head: &[u8; HEADER_BYTES] = frame.first_chunk().expect("a header");
    Header::decode(head, BODY_BYTES_MAX).expect("a header").body_bytes as usize
}

/// Outcomes by turns, so that both kinds stand beside each other.
fn alternate<T: Clone>(count: usize, a: &T, b: &T) -> Vec<T> {
    (0..count).map(|index| if index % 2 == 0 { a.clone() } else { b.clone() }).collect()
}

#[test]
fn reserve_replies_are_exactly_as_large_as_said() {
    for (outcomes, runs) in COUNTS.iter().flat_map(|a| COUNTS.map(|b| (*a, b))) {
        let (granted, full) = (ReserveOutcome::Granted(GRANT), ReserveOutcome::Full);
        let reserve = ReserveReply {
            eviction_number: u64::MAX,
            outcomes: alternate(outcomes, &granted, &full),
            runs: vec![RUN; runs],
        };
        let replies = ReplyBuffer { reserve, ..ReplyBuffer::default() };
        assert_eq!(reply_bytes(Op::Reserve, &replies), reserve_reply_bytes(outcomes, runs));
    }
}

#[test]
fn lookup_replies_are_exactly_as_large_as_said() {
    for (outcomes, runs) in COUNTS.iter().flat_map(|a| COUNTS.map(|b| (*a, b))) {
        let checksum = Checksum { kind: 1, value: 5 };
        let found = Found { object_bytes: 9, checksum, ticket: GRANT.ticket, run_count: 1 };
        let (found, missing) = (LookupOutcome::Found(found), LookupOutcome::Missing);
        let lookup = LookupReply {
            eviction_number: 1,
            lease: LeaseId([4; 16]),
            lease_left_us: 3,
            outcomes: alternate(outcomes, &missing, &found),
            runs: vec![RUN; runs],
        };
        let replies = ReplyBuffer { lookup, ..ReplyBuffer::default() };
        assert_eq!(reply_bytes(Op::Lookup, &replies), lookup_reply_bytes(outcomes, runs));
    }
}

#[test]
fn evicted_since_replies_are_exactly_as_large_as_said() {
    for count in COUNTS {
        let keys = vec![Key([1; 32]); count];
        let evicted_since = EvictedSinceReply { keys, lost: true, ..EvictedSinceReply::default() };
        let replies = ReplyBuffer { evicted_since, ..ReplyBuffer::default() };
        assert_eq!(reply_bytes(Op::EvictedSince, &replies), evicted_since_reply_bytes(count));
    }
}

fn request_bytes(op: Op, count: usize) -> usize {
    let (key, ticket, lease) = (Key([1; 32]), Ticket([2; 16]), LeaseId([3; 16]));
    let (keys, matching) = (vec![key; count], Match::All);
    let checksum = Checksum::default();
    let mut out = Vec::new();
    let mut encode = |body: RequestBody<'_>| encode_request(&mut out, 1, Generation(7), &body);
    match op {
        Op::Reserve => encode(RequestBody::Reserve(&Reserve {
            items: vec![ReserveItem { key, object_bytes: 1 }; count],
        })),
        Op::Publish => encode(RequestBody::Publish(&Publish {
            items: vec![PublishItem { ticket, key, checksum }; count],
        })),
        Op::Abandon => encode(RequestBody::Abandon(&Abandon {
            tickets: vec![ticket; count],
            after_error: false,
        })),
        Op::Exists => encode(RequestBody::Exists(&Exists { keys, matching })),
        Op::Lookup => encode(RequestBody::Lookup(&Lookup { keys, matching })),
        Op::Release => encode(RequestBody::Release(&Release {
            items: vec![ReleaseItem { lease, keep: 0 }; count],
        })),
        Op::Remove => {
            encode(RequestBody::Remove(&Remove { items: vec![RemoveItem { key, ticket }; count] }))
        }
        Op::Challenge | Op::Hello | Op::EvictedSince | Op::Clear => return 0,
        Op::Ping | Op::Stats | Op::Regions => return 0,
    }
    body_bytes_of(&out)
}

#[test]
fn as_many_items_fit_a_request_as_said_and_no_more() {
    for max in [0, 8, 24, 100, 4096, 4097, 65_536, 200_000] {
        for op in Op::ALL {
            let count = request_items_max(op, max);
            if count > 0 {
                assert!(request_bytes(op, count) <= max as usize);
                let is_capped = count == KEYS_PER_FRAME_MAX as usize;
                assert!(is_capped || request_bytes(op, count + 1) > max as usize);
            }
        }
    }
    assert_eq!(request_items_max(Op::Reserve, BODY_BYTES_MAX), 4096);
    // 4,096 items of a Publish are 8 bytes over the largest body.
    assert_eq!(request_items_max(Op::Publish, BODY_BYTES_MAX), 4095);
}

/// Sizes and alignments that `docs/protocol.md` draws. They never change within a version.
#[test]
fn layouts_are_those_of_the_protocol() {
    use crate::hello::{
        ArchivedChallenge, ArchivedHello, ArchivedHelloReply, ArchivedMover, ArchivedRegionInfo,
    };
    use crate::limits::ArchivedLimits;
    use crate::refusal::ArchivedRefusal;
    use crate::{
        ArchivedAbandonReply, ArchivedClear, ArchivedClearReply, ArchivedClosedCount,
        ArchivedEvictedSince, ArchivedExistsReply, ArchivedNamespaceUsage, ArchivedPingReply,
        ArchivedPublishReply, ArchivedRegionsReply, ArchivedReleaseReply, ArchivedRemoveReply,
        ArchivedStatsReply,
    };
    macro_rules! layouts {
        ($($name:ident $size:literal $align:literal,)*) => {
            $(assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $align), stringify!($name));)*
        };
    }
    layouts! {
        ArchivedChallenge 38 2, ArchivedHello 176 8, ArchivedHelloReply 112 8,
        ArchivedLimits 64 8, ArchivedRegionInfo 24 8, ArchivedMover 12 4, ArchivedRefusal 16 8,
        ArchivedReserve 8 4, ArchivedReserveItem 40 8, ArchivedPublish 8 4,
        ArchivedPublishItem 64 8, ArchivedAbandon 12 4, ArchivedExists 12 4, ArchivedLookup 12 4,
        ArchivedRelease 8 4, ArchivedReleaseItem 20 4, ArchivedEvictedSince 16 8,
        ArchivedRemove 8 4, ArchivedRemoveItem 48 1, ArchivedClear 1 1,
        ArchivedReserveReply 24 8, ArchivedReserveOutcome 24 4, ArchivedPageRun 12 4,
        ArchivedPublishReply 16 8, ArchivedAbandonReply 16 8, ArchivedExistsReply 24 8,
        ArchivedLookupReply 48 8, ArchivedLookupOutcome 56 8, ArchivedReleaseReply 16 8,
        ArchivedEvictedSinceReply 32 8, ArchivedRemoveReply 16 8, ArchivedClearReply 16 8,
        ArchivedPingReply 16 8, ArchivedRegionsReply 16 8, ArchivedStatsReply 328 8,
        ArchivedClosedCount 16 8, ArchivedNamespaceUsage 32 8,
    }
}
