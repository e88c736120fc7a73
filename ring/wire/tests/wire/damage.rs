//! Damaged frames: decoding is total, and whatever still decodes is legal and encodes again.

use maru_wire::{Assembler, BODY_BYTES_MAX};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::messages::Message;
use crate::samples::{hello, samples};
use crate::strategies::message;

/// Decodes `bytes` as one stream by every decoder; what decodes must recode.
fn decode_all(bytes: &[u8]) {
    crate::decode::run(&[&[0], bytes].concat());
}

#[test]
fn every_single_byte_of_every_sample_may_change() {
    for (_, message) in samples() {
        let bytes = message.encode(&hello());
        for at in 0..bytes.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
                let mut changed = bytes.clone();
                changed[at] = value;
                decode_all(&changed);
            }
        }
    }
}

#[test]
fn every_truncation_of_every_sample_is_no_message() {
    for (name, message) in samples() {
        let bytes = message.encode(&hello());
        for len in 0..bytes.len() {
            decode_all(&bytes[..len]);
            assert!(Message::decode(&bytes[..len], &hello()).is_err(), "{name} of {len} bytes");
        }
    }
}

/// A body cut short, with the header telling so: no archive, or a legal other one.
#[test]
fn every_shorter_body_of_every_sample_is_survived() {
    for (_, message) in samples() {
        let bytes = message.encode(&hello());
        for body_bytes in 0..bytes.len() - 32 {
            let mut shorter = bytes[..32 + body_bytes].to_vec();
            let announced = u32::try_from(body_bytes).expect("a small body");
            shorter[8..12].copy_from_slice(&announced.to_le_bytes());
            shorter.resize(shorter.len().next_multiple_of(16), 0);
            decode_all(&shorter);
        }
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(3),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        decode_all(&bytes);
    }

    /// A good header over a random body.
    #[test]
    fn random_bodies_are_survived(
        op in 0..16_u8,
        flags in 0..4_u8,
        body in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut bytes = b"MARU\x01\x00".to_vec();
        bytes.extend([op, flags]);
        bytes.extend(u32::try_from(body.len()).expect("a small body").to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend([7; 16]);
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        decode_all(&bytes);
    }

    #[test]
    fn random_messages_with_three_changes_are_survived(
        message in message(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 3),
    ) {
        let mut bytes = message.encode(&hello());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode_all(&bytes);
    }

    /// However a stream is cut, the same frames come out.
    #[test]
    fn streams_may_be_cut_anywhere(
        messages in proptest::collection::vec(message(), 1..6),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let stream: Vec<u8> = messages.iter().flat_map(|message| message.encode(&hello())).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut bytes = Vec::new();
        for piece in cuts.windows(2) {
            let mut input = &stream[piece[0]..piece[1]];
            while let Some(frame) = assembler.next(&mut input).expect("good frames") {
                bytes.extend(frame.header.encode());
                bytes.extend(frame.body);
                bytes.resize(bytes.len().next_multiple_of(16), 0);
            }
        }
        prop_assert_eq!(bytes, stream);
        prop_assert!(!assembler.is_mid_frame());
    }
}
