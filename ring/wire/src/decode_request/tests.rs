use alloc::vec;
use alloc::vec::Vec;

use rkyv::util::AlignedVec;

use super::*;
use crate::{
    Abandon, Assembler, BODY_BYTES_MAX, Checksum, Clear, EvictedSince, Exists, Generation, Key,
    LeaseId, Lookup, Match, Publish, PublishItem, Refusal, Release, ReleaseItem, Remove,
    RemoveItem, ReplyBuffer, RequestBody, Reserve, ReserveItem, Ticket, encode_refusal,
    encode_reply, encode_request,
};

const GENERATION: Generation = Generation(7);
const MAX: usize = KEYS_PER_FRAME_MAX as usize;
const KEY: Key = Key([1; 32]);
const TICKET: Ticket = Ticket([2; 16]);

/// Decodes the one frame in `bytes` and returns what `decode_request` says of it.
fn decode(bytes: &[u8]) -> Result<Op, DecodeError> {
    let mut aligned = AlignedVec::<16>::new();
    aligned.extend_from_slice(bytes);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut input = aligned.as_slice();
    let frame = assembler.next(&mut input)?.expect("a whole frame");
    decode_request(&frame).map(|request| request.op())
}

fn encoded(body: &RequestBody<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&mut out, 1, GENERATION, body);
    out
}

/// Decodes what `body` encodes to.
fn check(body: &RequestBody<'_>) -> Result<Op, DecodeError> {
    decode(&encoded(body))
}

fn too_many(op: Op, field: &'static str) -> Result<Op, DecodeError> {
    Err(DecodeError::TooMany { op, field, count: MAX + 1, max: MAX })
}

#[test]
fn batches_are_at_most_4096_items() {
    for (count, is_legal) in [(MAX, true), (MAX + 1, false)] {
        let keys = vec![KEY; count];
        let exists = Exists { keys: keys.clone(), matching: Match::All };
        let lookup = Lookup { keys, matching: Match::Leading };
        let reserve = Reserve { items: vec![ReserveItem { key: KEY, object_bytes: 1 }; count] };
        let abandon = Abandon { tickets: vec![TICKET; count], after_error: true };
        let release =
            Release { items: vec![ReleaseItem { lease: LeaseId([3; 16]), keep: 0 }; count] };
        let remove = Remove { items: vec![RemoveItem { key: KEY, ticket: TICKET }; count] };
        for (body, field) in [
            (RequestBody::Exists(&exists), "keys"),
            (RequestBody::Lookup(&lookup), "keys"),
            (RequestBody::Reserve(&reserve), "items"),
            (RequestBody::Abandon(&abandon), "tickets"),
            (RequestBody::Release(&release), "items"),
            (RequestBody::Remove(&remove), "items"),
        ] {
            let expected = if is_legal { Ok(body.op()) } else { too_many(body.op(), field) };
            assert_eq!(check(&body), expected);
        }
    }
}

/// 4,096 items of a Publish with their root are 8 bytes over the largest body.
#[test]
fn a_publish_is_limited_by_its_bytes() {
    let item = PublishItem { ticket: TICKET, key: KEY, checksum: Checksum::default() };
    let publish = Publish { items: vec![item; MAX - 1] };
    assert_eq!(check(&RequestBody::Publish(&publish)), Ok(Op::Publish));
}

#[test]
fn empty_batches_are_legal() {
    for body in [
        RequestBody::Exists(&Exists { keys: vec![], matching: Match::All }),
        RequestBody::Lookup(&Lookup { keys: vec![], matching: Match::All }),
        RequestBody::Reserve(&Reserve::default()),
        RequestBody::Publish(&Publish::default()),
        RequestBody::Abandon(&Abandon::default()),
        RequestBody::Release(&Release::default()),
        RequestBody::Remove(&Remove::default()),
        RequestBody::EvictedSince(&EvictedSince { number: 0, keys_max: 0 }),
    ] {
        assert_eq!(check(&body), Ok(body.op()));
    }
}

#[test]
fn an_object_has_at_least_one_byte() {
    let items = |sizes: [u64; 2]| Reserve {
        items: sizes.map(|object_bytes| ReserveItem { key: KEY, object_bytes }).to_vec(),
    };
    let bad = Err(DecodeError::BadValue(Op::Reserve, "object_bytes"));
    assert_eq!(check(&RequestBody::Reserve(&items([1, u64::MAX]))), Ok(Op::Reserve));
    assert_eq!(check(&RequestBody::Reserve(&items([1, 0]))), bad);
}

#[test]
fn a_checksum_is_of_a_known_kind_and_none_has_no_value() {
    let publish = |kind, value| Publish {
        items: vec![PublishItem { ticket: TICKET, key: KEY, checksum: Checksum { kind, value } }],
    };
    let bad = Err(DecodeError::BadValue(Op::Publish, "checksum"));
    for (kind, value, expected) in [
        (0, 0, Ok(Op::Publish)),
        (1, 0, Ok(Op::Publish)),
        (1, u64::MAX, Ok(Op::Publish)),
        (0, 1, bad),
        (2, 0, bad),
        (255, 7, bad),
    ] {
        assert_eq!(check(&RequestBody::Publish(&publish(kind, value))), expected);
    }
}

#[test]
fn a_release_keeps_at_most_what_a_lookup_pins() {
    let release = |keep| Release { items: vec![ReleaseItem { lease: LeaseId([3; 16]), keep }] };
    let bad = Err(DecodeError::BadValue(Op::Release, "keep"));
    assert_eq!(check(&RequestBody::Release(&release(KEYS_PER_FRAME_MAX))), Ok(Op::Release));
    assert_eq!(check(&RequestBody::Release(&release(KEYS_PER_FRAME_MAX + 1))), bad);
    assert_eq!(check(&RequestBody::Release(&release(u32::MAX))), bad);
}

#[test]
fn evicted_since_asks_for_at_most_one_frame_of_keys() {
    let since = |keys_max| EvictedSince { number: u64::MAX, keys_max };
    let max = KEYS_PER_FRAME_MAX;
    assert_eq!(check(&RequestBody::EvictedSince(&since(max))), Ok(Op::EvictedSince));
    let over = too_many(Op::EvictedSince, "keys_max");
    assert_eq!(check(&RequestBody::EvictedSince(&since(max + 1))), over);
}

#[test]
fn a_clear_is_confirmed() {
    let bad = Err(DecodeError::BadValue(Op::Clear, "confirm"));
    assert_eq!(check(&RequestBody::Clear(&Clear { confirm: 1 })), Ok(Op::Clear));
    assert_eq!(check(&RequestBody::Clear(&Clear { confirm: 0 })), bad);
    assert_eq!(check(&RequestBody::Clear(&Clear { confirm: 2 })), bad);
}

#[test]
fn ping_stats_and_regions_have_no_body() {
    for body in [RequestBody::Ping, RequestBody::Stats, RequestBody::Regions] {
        assert_eq!(check(&body), Ok(body.op()));
        let mut bytes = encoded(&body);
        bytes[8] = 1;
        bytes.extend([0; 16]);
        assert_eq!(decode(&bytes), Err(DecodeError::BadBody(body.op())));
    }
}

#[test]
fn an_unknown_variant_is_no_archive() {
    let mut bytes =
        encoded(&RequestBody::Exists(&Exists { keys: vec![KEY], matching: Match::All }));
    // The root ends the body: 8 bytes of list, then the variant and 3 bytes of filling.
    let body_bytes = usize::from(bytes[8]);
    let variant = 32 + body_bytes - 4;
    assert_eq!(bytes[variant], 1);
    bytes[variant] = 2;
    assert_eq!(decode(&bytes), Err(DecodeError::BadBody(Op::Exists)));
}

#[test]
fn a_list_that_points_outside_the_body_is_no_archive() {
    let good = encoded(&RequestBody::Reserve(&Reserve {
        items: vec![ReserveItem { key: KEY, object_bytes: 9 }],
    }));
    for (offset, value) in [(72, 0xff_u8), (76, 2), (79, 0x7f), (73, 0x80)] {
        let mut bytes = good.clone();
        bytes[offset] = value;
        assert_eq!(decode(&bytes), Err(DecodeError::BadBody(Op::Reserve)));
    }
}

#[test]
fn replies_are_no_requests() {
    let mut out = Vec::new();
    encode_reply(&mut out, Op::Ping, 1, GENERATION, &ReplyBuffer::default());
    assert_eq!(decode(&out), Err(DecodeError::WrongDirection(Op::Ping)));
    out.clear();
    encode_refusal(&mut out, Op::Exists, 1, GENERATION, Refusal::StaleGeneration);
    assert_eq!(decode(&out), Err(DecodeError::WrongDirection(Op::Exists)));
}

#[test]
fn a_hello_is_no_request() {
    let mut bytes = encoded(&RequestBody::Ping);
    bytes[6] = Op::Hello.number();
    assert_eq!(decode(&bytes), Err(DecodeError::WrongOp(Op::Hello)));
}

/// Frames made by hand, not by an `Assembler`, may be misaligned: an error, not a fault.
#[test]
fn a_misaligned_body_is_an_error() {
    let exists = Exists { keys: vec![KEY; 3], matching: Match::All };
    let bytes = encoded(&RequestBody::Exists(&exists));
    let header = *bytes.first_chunk().expect("a header");
    let header = crate::Header::decode(&header, BODY_BYTES_MAX).expect("a header");
    let mut shifted = AlignedVec::<16>::new();
    shifted.extend_from_slice(&[0]);
    shifted.extend_from_slice(&bytes[32..32 + header.body_bytes as usize]);
    let frame = Frame { header, body: &shifted[1..] };
    assert_eq!(decode_request(&frame).err(), Some(DecodeError::BadBody(Op::Exists)));
}
