//! Challenge, hello, and the judgement of the server's answer.

use alloc::boxed::Box;
use alloc::vec::Vec;

use maru_wire::{
    Challenge, Frame, Generation, Handshake, HandshakeError, Hello, HelloProof, HelloReply,
    PROTOCOL_VERSION, Purpose, Refusal, decode_challenge, decode_hello_reply, encode_hello,
};

use crate::link::State;
use crate::{Channel, Failure, LinkFault, LinkId, Session, SessionConfig, Time};

impl Session {
    /// Answers the challenge with a hello that lists the shard's tickets.
    pub(crate) fn greeted(&mut self, now: Time, id: LinkId, frame: &Frame<'_>) {
        let State::Greeting { dial, deadline } = self.link_mut(id).state else { return };
        let challenge = match decode_challenge(frame) {
            Ok(challenge) => challenge,
            Err(error) => return self.fail_dial(now, id, LinkFault::Protocol(error.reason())),
        };
        if let Err(fault) = judge_challenge(&self.config, &challenge) {
            return self.fail_dial(now, id, fault);
        }
        let client_nonce = self.random.nonce();
        let mut hello = hello(&self.config, id.channel.purpose(), client_nonce, dial.0);
        hello.shard = id.shard;
        if id.channel == Channel::Data {
            hello.tickets = self.link_mut(id).tickets.held();
        }
        let server_nonce = challenge.server_nonce;
        let handshake = Handshake { secret: &self.config.secret, server_nonce: &server_nonce };
        let link = self.links.get_mut(&id).expect("links are never removed");
        link.out.clear();
        let proof = encode_hello(&mut link.out, dial.0, Generation(0), &hello, &handshake);
        let proof = Box::new(proof);
        link.state = State::Proving { dial, deadline, proof, server_nonce };
        self.wants_send(id);
    }

    /// Takes the server's answer to the hello.
    pub(crate) fn proved(&mut self, now: Time, id: LinkId, frame: &Frame<'_>) {
        let State::Proving { proof, server_nonce, .. } = &self.link_mut(id).state else { return };
        let (proof, server_nonce): (HelloProof, _) = (**proof, *server_nonce);
        let judged = judge_reply(&self.config, &proof, &server_nonce, frame);
        let judged = judged.and_then(|reply| {
            let is_asked = reply.shard == id.shard;
            if is_asked { Ok(reply) } else { Err(LinkFault::Protocol("other_shard")) }
        });
        match judged {
            Ok(reply) => self.accept(now, id, frame.header.generation, reply),
            Err(LinkFault::Refused(Refusal::NoSuchShard(_)))
                if self.generation().is_some_and(|own| own != frame.header.generation) =>
            {
                // Another generation with fewer shards: a proved hello of shard 0 will tell.
                self.fail_waiting(id, Failure::Stale);
                self.fail_dial(now, id, LinkFault::ClosedInHandshake);
                let first = LinkId { channel: Channel::Data, shard: 0 };
                if let Some(link) = self.links.get_mut(&first).filter(|link| !link.is_up()) {
                    link.owes_hello = true;
                    self.dial_if_due(now, first);
                }
            }
            Err(fault) => self.fail_dial(now, id, fault),
        }
    }
}

/// The handshake of a connection that hands out the regions. Its socket is not the session's.
#[derive(Debug)]
pub struct AttachHandshake {
    proof: HelloProof,
    server_nonce: [u8; 32],
}

impl AttachHandshake {
    /// Answers the challenge in `frame` with a hello appended to `out`.
    ///
    /// `client_nonce` must be hard to guess, and `number` rise with each attempt.
    ///
    /// # Errors
    ///
    /// The server is not one to attach to: close the connection.
    pub fn answer(
        config: &SessionConfig,
        frame: &Frame<'_>,
        client_nonce: [u8; 32],
        number: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, LinkFault> {
        let challenge =
            decode_challenge(frame).map_err(|error| LinkFault::Protocol(error.reason()))?;
        judge_challenge(config, &challenge)?;
        let hello = hello(config, Purpose::Attach, client_nonce, number);
        let server_nonce = challenge.server_nonce;
        let handshake = Handshake { secret: &config.secret, server_nonce: &server_nonce };
        let proof = encode_hello(out, number, Generation(0), &hello, &handshake);
        Ok(Self { proof, server_nonce })
    }

    /// Judges the server's answer in `frame`.
    ///
    /// # Errors
    ///
    /// The server is not one to attach to: close the connection.
    pub fn finish(
        &self,
        config: &SessionConfig,
        frame: &Frame<'_>,
    ) -> Result<(Generation, HelloReply), LinkFault> {
        let reply = judge_reply(config, &self.proof, &self.server_nonce, frame)?;
        Ok((frame.header.generation, reply))
    }
}

fn judge_challenge(config: &SessionConfig, challenge: &Challenge) -> Result<(), LinkFault> {
    let Challenge { version_min: min, version_max: max, .. } = *challenge;
    if !(min..=max).contains(&PROTOCOL_VERSION) {
        return Err(LinkFault::WrongVersion { min, max, ours: PROTOCOL_VERSION });
    }
    match (challenge.secret_required, config.secret.is_none()) {
        (true, true) => Err(LinkFault::SecretRequired),
        (false, false) => Err(LinkFault::ServerHasNoSecret),
        (true, false) | (false, true) => Ok(()),
    }
}

fn hello(
    config: &SessionConfig,
    purpose: Purpose,
    client_nonce: [u8; 32],
    connection_number: u64,
) -> Hello {
    Hello {
        client_nonce,
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        purpose,
        incarnation: config.incarnation,
        connection_number,
        shard: 0,
        namespace: config.namespace,
        namespace_name: config.namespace_name.clone(),
        node_name: config.node_name.clone(),
        pool_list_digest: config.pool_list_digest,
        transfer_timeout_us: config.transfer_timeout_us,
        object_bytes_max: config.object_bytes_max,
        tickets: Vec::new(),
    }
}

fn judge_reply(
    config: &SessionConfig,
    proof: &HelloProof,
    server_nonce: &[u8; 32],
    frame: &Frame<'_>,
) -> Result<HelloReply, LinkFault> {
    let handshake = Handshake { secret: &config.secret, server_nonce };
    let reply = decode_hello_reply(frame, proof, &handshake).map_err(|error| match error {
        HandshakeError::Decode(error) => LinkFault::Protocol(error.reason()),
        HandshakeError::Refused(refusal) => LinkFault::Refused(refusal),
        HandshakeError::WrongProof => LinkFault::WrongProof,
    })?;
    if reply.shard_count > config.limits.shards_max {
        return Err(LinkFault::Protocol("too_many_shards"));
    }
    // C25: both ends assert it, at every attach.
    let ttl_us = reply.limits.reservation_ttl_us.min(reply.limits.lease_ttl_us);
    if ttl_us < config.transfer_timeout_us.saturating_mul(2) {
        return Err(LinkFault::Refused(Refusal::TtlTooShort(ttl_us)));
    }
    Ok(reply)
}
