//! Every message of the protocol as one owned value: encoded, decoded, compared.

use maru_wire::{
    Abandon, AbandonReply, Assembler, BODY_BYTES_MAX, Challenge, Clear, ClearReply, DecodeError,
    EvictedSince, EvictedSinceReply, Exists, ExistsReply, Frame, Generation, Handshake,
    HandshakeError, Hello, HelloProof, HelloReply, Lookup, LookupReply, Op, PingReply, Publish,
    PublishReply, Refusal, RegionsReply, Release, ReleaseReply, Remove, RemoveReply, Reply,
    ReplyBuffer, Request, RequestBody, Reserve, ReserveReply, Secret, StatsReply, decode_challenge,
    decode_hello, decode_hello_reply, decode_reply, decode_request, encode_challenge, encode_hello,
    encode_hello_reply, encode_refusal, encode_reply, encode_request,
};
use rkyv::api::low::deserialize;
use rkyv::rancor::Failure;
use rkyv::util::AlignedVec;

/// The secret, the server's nonce and the generation of every sample.
pub(crate) const SECRET: &[u8] = b"correct horse battery staple";
pub(crate) const SERVER_NONCE: [u8; 32] = [0x5a; 32];
pub(crate) const GENERATION: Generation = Generation(0x1122_3344_5566_7788);
pub(crate) const REQUEST_ID: u64 = 42;

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Message {
    Challenge(Challenge),
    Hello(Hello),
    HelloReply(Box<HelloReply>),
    Reserve(Reserve),
    Publish(Publish),
    Abandon(Abandon),
    Exists(Exists),
    Lookup(Lookup),
    Release(Release),
    EvictedSince(EvictedSince),
    Remove(Remove),
    Clear(Clear),
    Ping,
    Stats,
    Regions,
    ReserveReply(ReserveReply),
    PublishReply(PublishReply),
    AbandonReply(AbandonReply),
    ExistsReply(ExistsReply),
    LookupReply(LookupReply),
    ReleaseReply(ReleaseReply),
    EvictedSinceReply(EvictedSinceReply),
    RemoveReply(RemoveReply),
    ClearReply(ClearReply),
    PingReply(PingReply),
    StatsReply(Box<StatsReply>),
    RegionsReply(RegionsReply),
    Refused(Op, Refusal),
}

/// Why bytes gave no message.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    Decode(DecodeError),
    Handshake(HandshakeError),
    Unfinished,
    Unproved,
}

impl From<DecodeError> for Fault {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// The hello that a sample's answer answers.
fn sent(secret: &Secret, hello: &Hello) -> HelloProof {
    let handshake = Handshake { secret, server_nonce: &SERVER_NONCE };
    encode_hello(&mut Vec::new(), REQUEST_ID, Generation(0), hello, &handshake)
}

impl Message {
    pub(crate) fn encode(&self, hello: &Hello) -> Vec<u8> {
        let mut out = Vec::new();
        let secret = Secret::new(SECRET);
        let handshake = Handshake { secret: &secret, server_nonce: &SERVER_NONCE };
        match self {
            Self::Challenge(challenge) => encode_challenge(&mut out, GENERATION, challenge),
            Self::Hello(hello) => {
                encode_hello(&mut out, REQUEST_ID, Generation(0), hello, &handshake);
            }
            Self::HelloReply(reply) => {
                let proof = sent(&secret, hello);
                encode_hello_reply(&mut out, GENERATION, reply, &proof, &handshake);
            }
            Self::Refused(op, refusal) => {
                encode_refusal(&mut out, *op, REQUEST_ID, GENERATION, *refusal);
            }
            other => match (other.request(), other.reply()) {
                (Some(request), _) => encode_request(&mut out, REQUEST_ID, GENERATION, &request),
                (None, (op, replies)) => {
                    encode_reply(&mut out, op, REQUEST_ID, GENERATION, &replies);
                }
            },
        }
        out
    }

    pub(crate) fn request(&self) -> Option<RequestBody<'_>> {
        Some(match self {
            Self::Reserve(body) => RequestBody::Reserve(body),
            Self::Publish(body) => RequestBody::Publish(body),
            Self::Abandon(body) => RequestBody::Abandon(body),
            Self::Exists(body) => RequestBody::Exists(body),
            Self::Lookup(body) => RequestBody::Lookup(body),
            Self::Release(body) => RequestBody::Release(body),
            Self::EvictedSince(body) => RequestBody::EvictedSince(body),
            Self::Remove(body) => RequestBody::Remove(body),
            Self::Clear(body) => RequestBody::Clear(body),
            Self::Ping => RequestBody::Ping,
            Self::Stats => RequestBody::Stats,
            Self::Regions => RequestBody::Regions,
            _ => return None,
        })
    }

    pub(crate) fn reply(&self) -> (Op, ReplyBuffer) {
        let mut replies = ReplyBuffer::default();
        let op = match self.clone() {
            Self::ReserveReply(reply) => {
                replies.reserve = reply;
                Op::Reserve
            }
            Self::PublishReply(reply) => {
                replies.publish = reply;
                Op::Publish
            }
            Self::AbandonReply(reply) => {
                replies.abandon = reply;
                Op::Abandon
            }
            Self::ExistsReply(reply) => {
                replies.exists = reply;
                Op::Exists
            }
            Self::LookupReply(reply) => {
                replies.lookup = reply;
                Op::Lookup
            }
            Self::ReleaseReply(reply) => {
                replies.release = reply;
                Op::Release
            }
            Self::EvictedSinceReply(reply) => {
                replies.evicted_since = reply;
                Op::EvictedSince
            }
            Self::RemoveReply(reply) => {
                replies.remove = reply;
                Op::Remove
            }
            Self::ClearReply(reply) => {
                replies.clear = reply;
                Op::Clear
            }
            Self::PingReply(reply) => {
                replies.ping = reply;
                Op::Ping
            }
            Self::StatsReply(reply) => {
                replies.stats = *reply;
                Op::Stats
            }
            Self::RegionsReply(reply) => {
                replies.regions = reply;
                Op::Regions
            }
            // Not reached: requests and the handshake are encoded before.
            _ => Op::Challenge,
        };
        (op, replies)
    }

    /// Decodes `bytes` by every rule there is: one frame, of whichever kind its header says.
    pub(crate) fn decode(bytes: &[u8], hello: &Hello) -> Result<Self, Fault> {
        let mut aligned = AlignedVec::<16>::new();
        aligned.extend_from_slice(bytes);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = aligned.as_slice();
        let frame = assembler.next(&mut input)?.ok_or(Fault::Unfinished)?;
        match (frame.header.op, frame.header.flags.is_reply(), frame.header.flags.is_refused()) {
            (Op::Challenge, ..) => Ok(Self::Challenge(decode_challenge(&frame)?)),
            (Op::Hello, false, _) => decode_sample_hello(&frame),
            (Op::Hello, true, _) => decode_sample_answer(&frame, hello),
            (op, true, true) => match decode_reply(&frame)? {
                Reply::Refused(refusal) => Ok(Self::Refused(op, refusal)),
                _ => Err(Fault::Unfinished),
            },
            (_, true, false) => Ok(own_reply(&decode_reply(&frame)?)),
            (_, false, _) => Ok(own_request(&decode_request(&frame)?)),
        }
    }
}

fn decode_sample_hello(frame: &Frame<'_>) -> Result<Message, Fault> {
    let (hello, proof) = decode_hello(frame)?;
    let secret = Secret::new(SECRET);
    let handshake = Handshake { secret: &secret, server_nonce: &SERVER_NONCE };
    if proof.verify(&handshake) { Ok(Message::Hello(hello)) } else { Err(Fault::Unproved) }
}

fn decode_sample_answer(frame: &Frame<'_>, hello: &Hello) -> Result<Message, Fault> {
    let secret = Secret::new(SECRET);
    let handshake = Handshake { secret: &secret, server_nonce: &SERVER_NONCE };
    match decode_hello_reply(frame, &sent(&secret, hello), &handshake) {
        Ok(reply) => Ok(Message::HelloReply(Box::new(reply))),
        Err(HandshakeError::Refused(refusal)) => Ok(Message::Refused(Op::Hello, refusal)),
        Err(error) => Err(Fault::Handshake(error)),
    }
}

/// Copies an archived body out.
macro_rules! own {
    ($body:expr) => {
        deserialize::<_, Failure>(*$body).expect("a checked archive can be copied out")
    };
}

fn own_request(request: &Request<'_>) -> Message {
    match request {
        Request::Reserve(body) => Message::Reserve(own!(body)),
        Request::Publish(body) => Message::Publish(own!(body)),
        Request::Abandon(body) => Message::Abandon(own!(body)),
        Request::Exists(body) => Message::Exists(own!(body)),
        Request::Lookup(body) => Message::Lookup(own!(body)),
        Request::Release(body) => Message::Release(own!(body)),
        Request::EvictedSince(body) => Message::EvictedSince(own!(body)),
        Request::Remove(body) => Message::Remove(own!(body)),
        Request::Clear(body) => Message::Clear(own!(body)),
        Request::Ping => Message::Ping,
        Request::Stats => Message::Stats,
        Request::Regions => Message::Regions,
    }
}

fn own_reply(reply: &Reply<'_>) -> Message {
    match reply {
        Reply::Reserve(body) => Message::ReserveReply(own!(body)),
        Reply::Publish(body) => Message::PublishReply(own!(body)),
        Reply::Abandon(body) => Message::AbandonReply(own!(body)),
        Reply::Exists(body) => Message::ExistsReply(own!(body)),
        Reply::Lookup(body) => Message::LookupReply(own!(body)),
        Reply::Release(body) => Message::ReleaseReply(own!(body)),
        Reply::EvictedSince(body) => Message::EvictedSinceReply(own!(body)),
        Reply::Remove(body) => Message::RemoveReply(own!(body)),
        Reply::Clear(body) => Message::ClearReply(own!(body)),
        Reply::Ping(body) => Message::PingReply(own!(body)),
        Reply::Stats(body) => Message::StatsReply(Box::new(own!(body))),
        Reply::Regions(body) => Message::RegionsReply(own!(body)),
        Reply::Refused(refusal) => Message::Refused(Op::Ping, *refusal),
    }
}
