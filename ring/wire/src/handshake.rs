//! Challenge, hello and its answer, with the mutual proof of the shared secret.
//!
//! Both ends prove that they know the secret without sending it. Nonces come from the caller.

use alloc::vec::Vec;

use rkyv::rancor::Failure;

use crate::decode_reply::{refusal, regions};
use crate::decode_request::{archive, at_most, valid};
use crate::encode::FrameWriter;
use crate::hello::{ArchivedChallenge, ArchivedHello, ArchivedHelloReply};
use crate::limits::ArchivedLimits;
use crate::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, Challenge, DecodeError, ENDPOINT_BYTES_MAX, Flags, Frame,
    Generation, HEADER_BYTES, Hello, HelloReply, KEYS_PER_FRAME_MAX, MOVERS_PER_REPLY_MAX,
    MoverKind, NAME_BYTES_MAX, Op, Purpose, Refusal, TICKETS_PER_HELLO_MAX,
};

const PROOF_BYTES: usize = 32;
const ROLE_CLIENT: &[u8; 17] = b"maru-shard client";
const ROLE_SERVER: &[u8; 17] = b"maru-shard server";

/// The secret that a pool's servers and clients share, as a key. Prints nothing of it.
#[derive(Clone)]
pub struct Secret {
    key: [u8; 32],
    is_none: bool,
}

impl Secret {
    /// Makes the key of the secret `bytes`, as they stand in the secret file.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let key = blake3::derive_key("maru-shard secret v1", bytes);
        Self { key, is_none: bytes.is_empty() }
    }

    /// Makes the key of no secret: that of zero bytes, which everybody knows.
    #[must_use]
    pub fn none() -> Self {
        Self::new(&[])
    }

    /// Whether there is no secret, so that a proof proves nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.is_none
    }

    fn prove(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for part in parts {
            hasher.update(part);
        }
        hasher.finalize()
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(if self.is_none { "Secret(none)" } else { "Secret(..)" })
    }
}

/// What both ends know before a hello: their secret, and the nonce of the server's challenge.
#[derive(Clone, Copy, Debug)]
pub struct Handshake<'a> {
    /// This end's secret.
    pub secret: &'a Secret,
    /// The nonce of the challenge on this connection.
    pub server_nonce: &'a [u8; 32],
}

/// One hello as its proof binds it; kept until the hello is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HelloProof {
    proof: blake3::Hash,
    /// Digest of the hello's header and archive.
    transcript: blake3::Hash,
    client_nonce: [u8; 32],
    request_id: u64,
    version_min: u16,
    version_max: u16,
}

impl HelloProof {
    /// Whether the hello was proved with this secret on this connection. Constant time.
    #[must_use]
    pub fn verify(&self, handshake: &Handshake<'_>) -> bool {
        self.proof == self.expected(handshake)
    }

    fn expected(&self, handshake: &Handshake<'_>) -> blake3::Hash {
        let Handshake { secret, server_nonce } = handshake;
        let transcript = self.transcript.as_bytes();
        secret.prove(&[ROLE_CLIENT, *server_nonce, &self.client_nonce, transcript])
    }

    /// Proves a reply: the server's role, both nonces and the hello (through its proof), the reply.
    fn answer(&self, handshake: &Handshake<'_>, transcript: &blake3::Hash) -> blake3::Hash {
        let Handshake { secret, server_nonce } = handshake;
        let (hello, reply) = (self.proof.as_bytes(), transcript.as_bytes());
        secret.prove(&[ROLE_SERVER, *server_nonce, &self.client_nonce, hello, reply])
    }
}

/// Why the answer to a hello opens no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The bytes are no answer to this hello.
    #[error("the answer to the hello is no message: {0}")]
    Decode(#[from] DecodeError),
    /// The server refused the hello. Not proved: whoever answered may have said so.
    #[error("the server refused the hello: {0}")]
    Refused(Refusal),
    /// Whoever answered does not know the secret.
    #[error("the server could not prove that it knows the secret")]
    WrongProof,
}

/// Appends the server's challenge to `out`.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes.
pub fn encode_challenge(out: &mut Vec<u8>, generation: Generation, challenge: &Challenge) {
    let mut frame = FrameWriter::begin(out, Op::Challenge, Flags::REPLY, (0, generation));
    frame.archive(challenge);
    frame.seal();
}

/// Reads a challenge.
///
/// # Errors
///
/// The frame is no challenge: close the connection.
pub fn decode_challenge(frame: &Frame<'_>) -> Result<Challenge, DecodeError> {
    let op = frame.header.op;
    if op != Op::Challenge {
        return Err(DecodeError::WrongOp(op));
    }
    valid(op, "flags", frame.header.flags == Flags::REPLY)?;
    valid(op, "generation", frame.header.generation != Generation(0))?;
    let archived: &ArchivedChallenge = archive(op, frame.body)?;
    let challenge: Challenge = own(op, archived)?;
    valid(op, "version", is_range(challenge.version_min, challenge.version_max))?;
    Ok(challenge)
}

/// Appends a hello to `out`, and returns what its answer is checked against.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes.
pub fn encode_hello(
    out: &mut Vec<u8>,
    request_id: u64,
    generation: Generation,
    hello: &Hello,
    handshake: &Handshake<'_>,
) -> HelloProof {
    let mut frame = FrameWriter::begin(out, Op::Hello, Flags::REQUEST, (request_id, generation));
    frame.raw(&[0; PROOF_BYTES]);
    frame.archive(hello);
    let sealed = frame.seal();
    let mut proof = HelloProof {
        proof: blake3::Hash::from_bytes([0; PROOF_BYTES]),
        transcript: transcript(&sealed.header.encode(), &sealed.body[PROOF_BYTES..]),
        client_nonce: hello.client_nonce,
        request_id,
        version_min: hello.version_min,
        version_max: hello.version_max,
    };
    proof.proof = proof.expected(handshake);
    sealed.body[..PROOF_BYTES].copy_from_slice(proof.proof.as_bytes());
    proof
}

/// Reads a hello. Its proof is not verified yet: call `HelloProof::verify`.
///
/// # Errors
///
/// The frame is no hello: close the connection.
pub fn decode_hello(frame: &Frame<'_>) -> Result<(Hello, HelloProof), DecodeError> {
    let op = frame.header.op;
    if op != Op::Hello {
        return Err(DecodeError::WrongOp(op));
    }
    if frame.header.flags != Flags::REQUEST {
        return Err(DecodeError::WrongDirection(op));
    }
    let (proof, body) = split_proof(frame)?;
    let archived: &ArchivedHello = archive(op, body)?;
    check_hello(archived)?;
    let hello: Hello = own(op, archived)?;
    let proof = HelloProof {
        proof,
        transcript: transcript(&frame.header.encode(), body),
        client_nonce: hello.client_nonce,
        request_id: frame.header.request_id,
        version_min: hello.version_min,
        version_max: hello.version_max,
    };
    Ok((hello, proof))
}

/// Appends the answer to the hello that `proof` is of to `out`, proved in turn.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes.
pub fn encode_hello_reply(
    out: &mut Vec<u8>,
    generation: Generation,
    reply: &HelloReply,
    proof: &HelloProof,
    handshake: &Handshake<'_>,
) {
    let id = (proof.request_id, generation);
    let mut frame = FrameWriter::begin(out, Op::Hello, Flags::REPLY, id);
    frame.raw(&[0; PROOF_BYTES]);
    frame.archive(reply);
    let sealed = frame.seal();
    let transcript = transcript(&sealed.header.encode(), &sealed.body[PROOF_BYTES..]);
    let answer = proof.answer(handshake, &transcript);
    sealed.body[..PROOF_BYTES].copy_from_slice(answer.as_bytes());
}

/// Reads the answer to the hello that was `sent`, and verifies the server's proof.
///
/// # Errors
///
/// The connection is not open: close it. A refusal says what to change; it is not proved.
pub fn decode_hello_reply(
    frame: &Frame<'_>,
    sent: &HelloProof,
    handshake: &Handshake<'_>,
) -> Result<HelloReply, HandshakeError> {
    let op = frame.header.op;
    if op != Op::Hello {
        return Err(DecodeError::WrongOp(op).into());
    }
    if !frame.header.flags.is_reply() {
        return Err(DecodeError::WrongDirection(op).into());
    }
    valid(op, "request_id", frame.header.request_id == sent.request_id)?;
    valid(op, "generation", frame.header.generation != Generation(0))?;
    if frame.header.flags.is_refused() {
        return Err(HandshakeError::Refused(refusal(op, frame.body)?));
    }
    let (proof, body) = split_proof(frame)?;
    if proof != sent.answer(handshake, &transcript(&frame.header.encode(), body)) {
        return Err(HandshakeError::WrongProof);
    }
    let archived: &ArchivedHelloReply = archive(op, body)?;
    check_hello_reply(archived)?;
    let version = archived.version.to_native();
    valid(op, "version", (sent.version_min..=sent.version_max).contains(&version))?;
    Ok(own(op, archived)?)
}

fn check_hello(hello: &ArchivedHello) -> Result<(), DecodeError> {
    let op = Op::Hello;
    valid(op, "version", is_range(hello.version_min.to_native(), hello.version_max.to_native()))?;
    valid(op, "namespace_name", hello.namespace_name.len() <= NAME_BYTES_MAX)?;
    valid(op, "node_name", hello.node_name.len() <= NAME_BYTES_MAX)?;
    at_most(op, "tickets", hello.tickets.len(), TICKETS_PER_HELLO_MAX)?;
    let purpose: Purpose = own(op, &hello.purpose)?;
    if purpose == Purpose::Data {
        valid(op, "transfer_timeout_us", hello.transfer_timeout_us >= 1)?;
        valid(op, "object_bytes_max", hello.object_bytes_max >= 1)
    } else {
        valid(op, "tickets", hello.tickets.is_empty())
    }
}

fn check_hello_reply(reply: &ArchivedHelloReply) -> Result<(), DecodeError> {
    let op = Op::Hello;
    valid(op, "shard_count", reply.shard_count >= 1)?;
    valid(op, "shard", reply.shard.to_native() < reply.shard_count.to_native())?;
    valid(op, "node_name", reply.node_name.len() <= NAME_BYTES_MAX)?;
    check_limits(&reply.limits)?;
    regions(op, &reply.regions)?;
    at_most(op, "movers", reply.movers.len(), MOVERS_PER_REPLY_MAX)?;
    for mover in reply.movers.iter() {
        valid(op, "endpoint", mover.endpoint.len() <= ENDPOINT_BYTES_MAX)?;
        let kind: MoverKind = own(op, &mover.kind)?;
        valid(op, "endpoint", kind != MoverKind::Shm || mover.endpoint.is_empty())?;
    }
    Ok(())
}

fn check_limits(limits: &ArchivedLimits) -> Result<(), DecodeError> {
    let op = Op::Hello;
    let body_bytes_max = limits.body_bytes_max.to_native();
    valid(op, "body_bytes_max", (BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&body_bytes_max))?;
    let keys_max = limits.keys_per_frame_max.to_native();
    valid(op, "keys_per_frame_max", (1..=KEYS_PER_FRAME_MAX).contains(&keys_max))?;
    valid(op, "page_bytes", limits.page_bytes >= 1)?;
    valid(op, "object_bytes_max", limits.object_bytes_max >= 1)?;
    valid(op, "reservation_ttl_us", limits.reservation_ttl_us >= 1)?;
    valid(op, "lease_ttl_us", limits.lease_ttl_us >= 1)
}

fn is_range(min: u16, max: u16) -> bool {
    1 <= min && min <= max
}

/// Digest of a frame as it is sent, without the proof and the padding.
fn transcript(header: &[u8; HEADER_BYTES], archive: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(header).update(archive).finalize()
}

/// Splits a body of the handshake into its proof and its archive.
fn split_proof<'a>(frame: &Frame<'a>) -> Result<(blake3::Hash, &'a [u8]), DecodeError> {
    let split = frame.body.split_first_chunk::<PROOF_BYTES>();
    let (proof, body) = split.ok_or(DecodeError::BadBody(frame.header.op))?;
    Ok((blake3::Hash::from_bytes(*proof), body))
}

fn own<T, A>(op: Op, archived: &A) -> Result<T, DecodeError>
where
    A: rkyv::Deserialize<T, rkyv::api::low::LowDeserializer<Failure>>,
{
    rkyv::api::low::deserialize(archived).map_err(|_| DecodeError::BadBody(op))
}

#[cfg(test)]
mod tests;
