use alloc::vec::Vec;

use super::*;
use crate::{BODY_BYTES_MAX, Exists, Generation, Key, Match, Op, RequestBody, encode_request};

const GENERATION: Generation = Generation(7);

/// Three frames with 0, 3 and 64 keys, and their sizes in bytes.
fn stream() -> (AlignedVec<FRAME_ALIGN>, Vec<usize>) {
    let (mut out, mut sizes) = (Vec::new(), Vec::new());
    for (request_id, count) in [(1, 0), (2, 3), (3, 64)] {
        let before = out.len();
        let keys = alloc::vec![Key([0xee; 32]); count];
        let body = Exists { keys, matching: Match::All };
        encode_request(&mut out, request_id, GENERATION, &RequestBody::Exists(&body));
        sizes.push(out.len() - before);
    }
    let mut aligned = AlignedVec::new();
    aligned.extend_from_slice(&out);
    (aligned, sizes)
}

/// Feeds `bytes` in one piece; returns the request ids of the frames.
fn feed(assembler: &mut Assembler, mut bytes: &[u8]) -> Result<Vec<u64>, DecodeError> {
    let mut ids = Vec::new();
    while let Some(frame) = assembler.next(&mut bytes)? {
        assert!(frame.body.as_ptr().addr().is_multiple_of(FRAME_ALIGN));
        assert_eq!(frame.body.len(), frame.header.body_bytes as usize);
        ids.push(frame.header.request_id);
    }
    assert!(bytes.is_empty());
    Ok(ids)
}

#[test]
fn whole_aligned_frames_are_not_copied() {
    let (bytes, _) = stream();
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut input = bytes.as_slice();
    let range = bytes.as_slice().as_ptr_range();
    while let Some(frame) = assembler.next(&mut input).expect("frames") {
        assert!(range.contains(&frame.body.as_ptr()));
    }
    assert_eq!((assembler.scratch_frames(), assembler.buffered_bytes()), (0, 0));
}

#[test]
fn frames_survive_every_split() {
    let (bytes, _) = stream();
    for first in 0..=bytes.len() {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut ids = feed(&mut assembler, &bytes[..first]).expect("frames");
        ids.extend(feed(&mut assembler, &bytes[first..]).expect("frames"));
        assert_eq!(ids, [1, 2, 3]);
        assert!(!assembler.is_mid_frame());
    }
}

#[test]
fn frames_survive_single_bytes_and_misaligned_input() {
    let (bytes, _) = stream();
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let single: Vec<u64> =
        bytes.iter().flat_map(|byte| feed(&mut assembler, &[*byte]).expect("a byte")).collect();
    assert_eq!(single, [1, 2, 3]);
    assert_eq!(assembler.scratch_frames(), 3);

    let mut shifted: AlignedVec<FRAME_ALIGN> = AlignedVec::new();
    shifted.extend_from_slice(&[0; 4]);
    shifted.extend_from_slice(&bytes);
    assert_eq!(feed(&mut assembler, &shifted[4..]), Ok(alloc::vec![1, 2, 3]));
    assert_eq!(assembler.scratch_frames(), 6);
}

#[test]
fn only_the_frame_that_is_split_is_copied() {
    let (bytes, sizes) = stream();
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let split = sizes[0] + 16;
    assert_eq!(feed(&mut assembler, &bytes[..split]), Ok(alloc::vec![1]));
    assert_eq!((assembler.buffered_bytes(), assembler.is_mid_frame()), (16, true));
    assert_eq!(feed(&mut assembler, &bytes[split..]), Ok(alloc::vec![2, 3]));
    assert_eq!(assembler.scratch_frames(), 1);
}

/// A 100 MB length field costs nothing: it is an error before anything is kept.
#[test]
fn a_length_over_the_limit_is_an_error_at_once() {
    let (bytes, _) = stream();
    let mut head = [0_u8; HEADER_BYTES];
    head.copy_from_slice(&bytes[..HEADER_BYTES]);
    head[8..12].copy_from_slice(&100_000_000_u32.to_le_bytes());
    let error = DecodeError::BodyTooLarge { bytes: 100_000_000, max: 4096 };
    for first in 0..HEADER_BYTES {
        let mut assembler = Assembler::new(4096);
        assert_eq!(feed(&mut assembler, &head[..first]), Ok(Vec::new()));
        assert_eq!(feed(&mut assembler, &head[first..]), Err(error));
        assert_eq!((assembler.buffered_bytes(), assembler.scratch.capacity()), (0, 0));
    }
}

#[test]
fn the_scratch_grows_with_the_bytes_that_came() {
    let body = Exists { keys: alloc::vec![Key([1; 32]); 4096], matching: Match::All };
    let mut out = Vec::new();
    encode_request(&mut out, 1, GENERATION, &RequestBody::Exists(&body));
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut sent = 0;
    for piece in out[..out.len() - 1].chunks(1000) {
        assert_eq!(feed(&mut assembler, piece), Ok(Vec::new()));
        sent += piece.len();
        assert_eq!(assembler.buffered_bytes(), sent);
        assert!(assembler.scratch.capacity() <= sent + sent / 2);
    }
    assert_eq!(feed(&mut assembler, &out[out.len() - 1..]), Ok(alloc::vec![1]));
    assert_eq!(assembler.scratch.capacity(), 0, "a large scratch is given back");
}

#[test]
fn a_smaller_limit_holds_from_the_next_header_on() {
    let (bytes, sizes) = stream();
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let two = sizes[0] + sizes[1];
    assert_eq!(feed(&mut assembler, &bytes[..two]), Ok(alloc::vec![1, 2]));
    assembler.set_body_bytes_max(1024);
    let announced = u32::from_le_bytes(bytes[two + 8..two + 12].try_into().expect("four bytes"));
    let error = DecodeError::BodyTooLarge { bytes: announced, max: 1024 };
    assert_eq!(feed(&mut assembler, &bytes[two..]), Err(error));
}

/// A peer of another protocol is recognised by its first byte, not after 32 of them.
#[test]
fn a_wrong_magic_is_an_error_before_the_header_is_whole() {
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    assert_eq!(feed(&mut assembler, b"GET "), Err(DecodeError::BadMagic));
    assert_eq!(feed(&mut assembler, b"MA"), Ok(Vec::new()));
    assert_eq!(feed(&mut assembler, b"IL"), Err(DecodeError::BadMagic));
}

#[test]
fn padding_is_checked_in_place_and_in_the_scratch() {
    let (bytes, sizes) = stream();
    let mut frame = AlignedVec::<FRAME_ALIGN>::new();
    frame.extend_from_slice(&bytes[sizes[0]..sizes[0] + sizes[1]]);
    let last = frame.len() - 1;
    let body_bytes = Header::decode(frame.first_chunk().expect("a header"), BODY_BYTES_MAX)
        .expect("a header")
        .body_bytes as usize;
    assert!(HEADER_BYTES + body_bytes <= last, "the frame has padding");
    frame[last] = 1;
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    assert_eq!(feed(&mut assembler, &frame), Err(DecodeError::BadPadding));
    assert_eq!(feed(&mut assembler, &frame[..40]), Ok(Vec::new()));
    assert_eq!(feed(&mut assembler, &frame[40..]), Err(DecodeError::BadPadding));
    assert_eq!(Op::Exists.number(), frame[6]);
}
