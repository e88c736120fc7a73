use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;

use rkyv::util::AlignedVec;

use super::*;
use crate::{
    Assembler, Incarnation, Limits, Mover, Namespace, RegionInfo, RegionKind, Ticket,
    encode_refusal,
};

const NONCE: [u8; 32] = [0x51; 32];
const GENERATION: Generation = Generation(7);

fn challenge() -> Challenge {
    Challenge { server_nonce: NONCE, version_min: 1, version_max: 1, secret_required: true }
}

fn hello() -> Hello {
    Hello {
        client_nonce: [0xc1; 32],
        version_min: 1,
        version_max: 2,
        purpose: Purpose::Data,
        incarnation: Incarnation([9; 16]),
        connection_number: 3,
        shard: 1,
        namespace: Namespace::new("tests"),
        namespace_name: "tests".to_string(),
        node_name: String::new(),
        pool_list_digest: [0; 32],
        transfer_timeout_us: 30_000_000,
        object_bytes_max: 1 << 20,
        tickets: vec![Ticket([1; 16])],
    }
}

fn reply() -> HelloReply {
    let region = RegionInfo { region: 0, kind: RegionKind::Memfd, node: -1, bytes: 1 << 30 };
    HelloReply {
        version: 1,
        shard_count: 4,
        shard: 1,
        node_name: "node-a".to_string(),
        eviction_number: 11,
        limits: Limits {
            body_bytes_max: BODY_BYTES_MAX,
            keys_per_frame_max: KEYS_PER_FRAME_MAX,
            page_bytes: 1 << 20,
            object_bytes_max: 64 << 20,
            reserved_pages_max: 128,
            pinned_pages_max: 256,
            leases_max: 64,
            connections_max: 8,
            reservation_ttl_us: 60_000_000,
            lease_ttl_us: 120_000_000,
            fence_us: 60_000_000,
        },
        regions: vec![region],
        movers: vec![Mover { kind: MoverKind::Shm, endpoint: vec![] }],
    }
}

/// Hands the one frame in `bytes` to `read`.
fn with_frame<T>(bytes: &[u8], read: impl FnOnce(&Frame<'_>) -> T) -> T {
    let mut aligned = AlignedVec::<16>::new();
    aligned.extend_from_slice(bytes);
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut input = aligned.as_slice();
    let frame = assembler.next(&mut input).expect("a frame").expect("a whole frame");
    read(&frame)
}

fn read_hello(bytes: &[u8]) -> Result<(Hello, HelloProof), DecodeError> {
    with_frame(bytes, decode_hello)
}

fn check_hello_of(change: impl FnOnce(&mut Hello)) -> Result<(), DecodeError> {
    let mut hello = hello();
    change(&mut hello);
    let (mut out, secret) = (vec![], Secret::none());
    let handshake = Handshake { secret: &secret, server_nonce: &NONCE };
    encode_hello(&mut out, 1, GENERATION, &hello, &handshake);
    read_hello(&out).map(|_| ())
}

/// A client and a server, each with a secret of its own, and the frames between them.
struct Greeting {
    client: Secret,
    server: Secret,
}

impl Greeting {
    fn new(client: &[u8], server: &[u8]) -> Self {
        Self { client: Secret::new(client), server: Secret::new(server) }
    }

    fn client(&self) -> Handshake<'_> {
        Handshake { secret: &self.client, server_nonce: &NONCE }
    }

    fn server(&self) -> Handshake<'_> {
        Handshake { secret: &self.server, server_nonce: &NONCE }
    }

    fn hello(&self) -> (Vec<u8>, HelloProof) {
        let mut out = vec![];
        let sent = encode_hello(&mut out, 5, Generation(0), &hello(), &self.client());
        (out, sent)
    }

    /// Answers `hello` with `reply`, whoever sent it.
    fn answer(&self, hello: &[u8], reply: &HelloReply) -> Vec<u8> {
        let (_, proof) = read_hello(hello).expect("a hello");
        let mut out = vec![];
        encode_hello_reply(&mut out, GENERATION, reply, &proof, &self.server());
        out
    }

    fn read(&self, answer: &[u8], sent: &HelloProof) -> Result<HelloReply, HandshakeError> {
        with_frame(answer, |frame| decode_hello_reply(frame, sent, &self.client()))
    }

    fn check_reply(&self, change: impl FnOnce(&mut HelloReply)) -> Result<(), HandshakeError> {
        let mut reply = reply();
        change(&mut reply);
        let (bytes, sent) = self.hello();
        self.read(&self.answer(&bytes, &reply), &sent).map(|_| ())
    }
}

#[test]
fn a_challenge_comes_back() {
    let mut out = vec![];
    encode_challenge(&mut out, GENERATION, &challenge());
    assert_eq!(with_frame(&out, decode_challenge), Ok(challenge()));
}

#[test]
fn a_challenge_has_a_version_range_and_a_generation() {
    for (min, max, is_legal) in [(1, 1, true), (1, 9, true), (0, 1, false), (3, 2, false)] {
        let challenge = Challenge { version_min: min, version_max: max, ..challenge() };
        let mut out = vec![];
        encode_challenge(&mut out, GENERATION, &challenge);
        let bad = Err(DecodeError::BadValue(Op::Challenge, "version"));
        let expected = if is_legal { Ok(challenge) } else { bad };
        assert_eq!(with_frame(&out, decode_challenge), expected);
    }
    let mut out = vec![];
    encode_challenge(&mut out, Generation(0), &challenge());
    let bad = Err(DecodeError::BadValue(Op::Challenge, "generation"));
    assert_eq!(with_frame(&out, decode_challenge), bad);
}

#[test]
fn both_ends_prove_the_secret() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, sent) = greeting.hello();
    let (read, proof) = read_hello(&bytes).expect("a hello");
    assert_eq!((read, proof), (hello(), sent));
    assert!(proof.verify(&greeting.server()));
    assert_eq!(greeting.read(&greeting.answer(&bytes, &reply()), &sent), Ok(reply()));
}

#[test]
fn without_a_secret_the_proofs_are_made_with_the_empty_one() {
    let greeting = Greeting::new(b"", b"");
    assert!(Secret::none().is_none() && greeting.client.is_none());
    assert!(!Secret::new(b"x").is_none());
    assert_eq!(greeting.check_reply(|_| {}), Ok(()));
}

#[test]
fn a_wrong_secret_is_found_by_the_server() {
    for (client, server) in [("secret", "other"), ("", "secret"), ("secret", "")] {
        let greeting = Greeting::new(client.as_bytes(), server.as_bytes());
        let (bytes, _) = greeting.hello();
        let (_, proof) = read_hello(&bytes).expect("a hello");
        assert!(!proof.verify(&greeting.server()));
    }
}

/// A rogue server may answer a hello that it cannot verify. The client finds out.
#[test]
fn a_rogue_server_is_found_by_the_client() {
    for server in ["", "other"] {
        let greeting = Greeting::new(b"secret", server.as_bytes());
        assert_eq!(greeting.check_reply(|_| {}), Err(HandshakeError::WrongProof));
    }
}

#[test]
fn a_replayed_hello_fails_under_a_new_nonce() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, _) = greeting.hello();
    let (_, proof) = read_hello(&bytes).expect("a hello");
    let next = Handshake { secret: &greeting.server, server_nonce: &[0x52; 32] };
    assert!(!proof.verify(&next));
}

/// The answer to one hello is none to another, nor is a hello's proof an answer.
#[test]
fn an_answer_is_bound_to_its_hello() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, sent) = greeting.hello();
    let answer = greeting.answer(&bytes, &reply());
    let other = Hello { client_nonce: [0xc2; 32], ..hello() };
    let mut out = vec![];
    let other = encode_hello(&mut out, 5, Generation(0), &other, &greeting.client());
    assert_eq!(greeting.read(&answer, &other), Err(HandshakeError::WrongProof));

    let mut reflected = answer.clone();
    reflected[32..64].copy_from_slice(&bytes[32..64]);
    assert_eq!(greeting.read(&reflected, &sent), Err(HandshakeError::WrongProof));

    let mut late = vec![];
    let other = encode_hello(&mut late, 6, Generation(0), &hello(), &greeting.client());
    let bad = DecodeError::BadValue(Op::Hello, "request_id");
    assert_eq!(greeting.read(&answer, &other), Err(HandshakeError::Decode(bad)));
}

/// Every bit of header and archive is under the proof; padding is not, and must be zero.
#[test]
fn no_byte_of_a_hello_can_be_changed() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, _) = greeting.hello();
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        let mut aligned = AlignedVec::<16>::new();
        aligned.extend_from_slice(&changed);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = aligned.as_slice();
        if let Ok(Some(frame)) = assembler.next(&mut input)
            && let Ok((_, proof)) = decode_hello(&frame)
        {
            assert!(!proof.verify(&greeting.server()), "byte {index} is not proved");
        }
    }
}

#[test]
fn no_byte_of_an_answer_can_be_changed() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, sent) = greeting.hello();
    let answer = greeting.answer(&bytes, &reply());
    for index in 0..answer.len() {
        let mut changed = answer.clone();
        changed[index] ^= 1;
        let mut aligned = AlignedVec::<16>::new();
        aligned.extend_from_slice(&changed);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = aligned.as_slice();
        if let Ok(Some(frame)) = assembler.next(&mut input) {
            let read = decode_hello_reply(&frame, &sent, &greeting.client());
            assert!(read.is_err(), "byte {index} is not proved");
        }
    }
}

#[test]
fn hello_fields_are_checked() {
    let bad = |field| Err(DecodeError::BadValue(Op::Hello, field));
    let name = |len: usize| "x".repeat(len);
    assert_eq!(check_hello_of(|_| {}), Ok(()));
    assert_eq!(check_hello_of(|hello| hello.version_min = 0), bad("version"));
    assert_eq!(check_hello_of(|hello| hello.version_min = 3), bad("version"));
    assert_eq!(check_hello_of(|hello| hello.namespace_name = name(64)), Ok(()));
    assert_eq!(check_hello_of(|hello| hello.namespace_name = name(65)), bad("namespace_name"));
    assert_eq!(check_hello_of(|hello| hello.node_name = name(64)), Ok(()));
    assert_eq!(check_hello_of(|hello| hello.node_name = name(65)), bad("node_name"));
    assert_eq!(check_hello_of(|hello| hello.transfer_timeout_us = 0), bad("transfer_timeout_us"));
    assert_eq!(check_hello_of(|hello| hello.object_bytes_max = 0), bad("object_bytes_max"));
}

#[test]
fn only_data_connections_list_tickets_and_at_most_4096() {
    let max = TICKETS_PER_HELLO_MAX as usize;
    let list = |purpose, count| {
        check_hello_of(|hello| {
            hello.purpose = purpose;
            hello.tickets = vec![Ticket([1; 16]); count];
            hello.namespace_name = "x".repeat(64);
            hello.node_name = "x".repeat(64);
        })
    };
    assert_eq!(list(Purpose::Data, max), Ok(()));
    let too_many = DecodeError::TooMany { op: Op::Hello, field: "tickets", count: max + 1, max };
    assert_eq!(list(Purpose::Data, max + 1), Err(too_many));
    for purpose in [Purpose::Monitor, Purpose::Attach] {
        assert_eq!(list(purpose, 0), Ok(()));
        assert_eq!(list(purpose, 1), Err(DecodeError::BadValue(Op::Hello, "tickets")));
    }
}

#[test]
fn the_longest_hello_fits_what_a_server_takes() {
    let longest = Hello {
        namespace_name: "x".repeat(NAME_BYTES_MAX),
        node_name: "x".repeat(NAME_BYTES_MAX),
        tickets: vec![Ticket([1; 16]); TICKETS_PER_HELLO_MAX as usize],
        ..hello()
    };
    let (mut out, secret) = (vec![], Secret::none());
    let handshake = Handshake { secret: &secret, server_nonce: &NONCE };
    encode_hello(&mut out, 1, GENERATION, &longest, &handshake);
    let mut assembler = Assembler::new(crate::HELLO_BODY_BYTES_MAX);
    assert!(matches!(assembler.next(&mut out.as_slice()), Ok(Some(_))));
}

#[test]
fn answer_fields_are_checked() {
    let greeting = Greeting::new(b"secret", b"secret");
    let check = |change: fn(&mut HelloReply)| greeting.check_reply(change);
    let bad = |field| Err(HandshakeError::Decode(DecodeError::BadValue(Op::Hello, field)));
    assert_eq!(check(|reply| reply.version = 2), Ok(()));
    assert_eq!(check(|reply| reply.version = 0), bad("version"));
    assert_eq!(check(|reply| reply.version = 3), bad("version"));
    assert_eq!(check(|reply| reply.shard_count = 0), bad("shard_count"));
    assert_eq!(check(|reply| reply.shard = 4), bad("shard"));
    assert_eq!(check(|reply| reply.node_name = "x".repeat(65)), bad("node_name"));
    assert_eq!(check(|reply| reply.limits.body_bytes_max = 4095), bad("body_bytes_max"));
    let over = |reply: &mut HelloReply| reply.limits.body_bytes_max = BODY_BYTES_MAX + 1;
    assert_eq!(check(over), bad("body_bytes_max"));
    assert_eq!(check(|reply| reply.limits.keys_per_frame_max = 0), bad("keys_per_frame_max"));
    assert_eq!(check(|reply| reply.limits.keys_per_frame_max = 4097), bad("keys_per_frame_max"));
    assert_eq!(check(|reply| reply.limits.page_bytes = 0), bad("page_bytes"));
    assert_eq!(check(|reply| reply.limits.object_bytes_max = 0), bad("object_bytes_max"));
    assert_eq!(check(|reply| reply.limits.reservation_ttl_us = 0), bad("reservation_ttl_us"));
    assert_eq!(check(|reply| reply.limits.lease_ttl_us = 0), bad("lease_ttl_us"));
    assert_eq!(check(|reply| reply.regions[0].bytes = 0), bad("bytes"));
    assert_eq!(check(|reply| reply.movers[0].endpoint = vec![1]), bad("endpoint"));
    let long = |reply: &mut HelloReply| {
        reply.movers[0] = Mover { kind: MoverKind::Tcp, endpoint: vec![1; ENDPOINT_BYTES_MAX + 1] };
    };
    assert_eq!(check(long), bad("endpoint"));
    let many = check(|reply| reply.movers = vec![reply.movers[0].clone(); 9]);
    assert!(matches!(many, Err(HandshakeError::Decode(DecodeError::TooMany { .. }))));
}

#[test]
fn a_refused_hello_says_why() {
    let greeting = Greeting::new(b"secret", b"other");
    let (_, sent) = greeting.hello();
    let mut out = vec![];
    encode_refusal(&mut out, Op::Hello, 5, GENERATION, Refusal::WrongSecret);
    let refused = Err(HandshakeError::Refused(Refusal::WrongSecret));
    assert_eq!(greeting.read(&out, &sent), refused);
}

#[test]
fn each_step_takes_its_own_frame_only() {
    let greeting = Greeting::new(b"secret", b"secret");
    let (bytes, sent) = greeting.hello();
    let answer = greeting.answer(&bytes, &reply());
    let mut challenged = vec![];
    encode_challenge(&mut challenged, GENERATION, &challenge());
    assert_eq!(with_frame(&bytes, decode_challenge), Err(DecodeError::WrongOp(Op::Hello)));
    assert_eq!(read_hello(&challenged), Err(DecodeError::WrongOp(Op::Challenge)));
    assert_eq!(read_hello(&answer), Err(DecodeError::WrongDirection(Op::Hello)));
    let reflected = HandshakeError::Decode(DecodeError::WrongDirection(Op::Hello));
    assert_eq!(greeting.read(&bytes, &sent), Err(reflected));
    let other = HandshakeError::Decode(DecodeError::WrongOp(Op::Challenge));
    assert_eq!(greeting.read(&challenged, &sent), Err(other));
}

#[test]
fn a_secret_is_not_printed() {
    let text = format!("{:?} {:?}", Secret::new(b"hunter2"), Secret::none());
    assert_eq!(text, "Secret(..) Secret(none)");
}
