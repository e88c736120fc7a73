//! Any bytes through the assembler and every decoder: no panic, limits hold, legal frames recode.
//!
//! Shared by the fuzz target and by the test of `maru-wire` that replays its corpus.

use maru_wire::{
    Assembler, BODY_BYTES_MAX, Frame, Handshake, Secret, decode_challenge, decode_hello,
    decode_hello_reply, decode_reply, decode_request,
};

use crate::messages::{Message, SERVER_NONCE};
use crate::samples::hello;

/// Runs one input: a byte that says how the stream is cut, then the stream.
pub(crate) fn run(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let piece_bytes = match cut {
        0..16 => stream.len().max(1),
        _ => usize::from(*cut) - 15,
    };
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    for mut piece in stream.chunks(piece_bytes) {
        loop {
            match assembler.next(&mut piece) {
                Ok(Some(frame)) => decode(&frame),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.reason().is_empty());
                    return;
                }
            }
        }
        assert!(piece.is_empty(), "all of the input is taken");
        assert!(assembler.buffered_bytes() <= stream.len());
    }
}

fn decode(frame: &Frame<'_>) {
    assert_eq!(frame.body.len(), frame.header.body_bytes as usize);
    assert!(frame.header.body_bytes <= BODY_BYTES_MAX);
    let secret = Secret::none();
    let handshake = Handshake { secret: &secret, server_nonce: &SERVER_NONCE };
    let is_request = decode_request(frame).is_ok();
    let is_reply = decode_reply(frame).is_ok();
    let is_challenge = decode_challenge(frame).is_ok();
    let greeting = decode_hello(frame);
    let kinds = [is_request, is_reply, is_challenge, greeting.is_ok()];
    assert!(kinds.iter().filter(|kind| **kind).count() <= 1, "a frame is of one kind");
    if let Ok((_, proof)) = &greeting {
        assert!(!proof.verify(&handshake), "nobody guesses a proof");
        assert!(decode_hello_reply(frame, proof, &handshake).is_err());
    }
    recode(frame);
}

/// What decodes is legal: it encodes, and comes back.
fn recode(frame: &Frame<'_>) {
    let mut bytes = frame.header.encode().to_vec();
    bytes.extend_from_slice(frame.body);
    bytes.resize(bytes.len().next_multiple_of(16), 0);
    if let Ok(message) = Message::decode(&bytes, &hello()) {
        // No two lists of an archive share bytes, so the honest encoding is not larger.
        let again = message.encode(&hello());
        assert!(again.len() <= bytes.len());
        assert_eq!(Message::decode(&again, &hello()), Ok(message));
    }
}
