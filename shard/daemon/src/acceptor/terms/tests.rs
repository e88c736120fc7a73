use maru_wire::{
    Assembler, Generation, HELLO_BODY_BYTES_MAX, Incarnation, Namespace, decode_hello, encode_hello,
};

use super::*;

const NONCE: [u8; 32] = [7; 32];

fn terms() -> Terms {
    Terms {
        secret: Secret::new(b"the secret of this pool"),
        node_name: "node-a".to_owned(),
        namespaces: vec!["llama".to_owned()],
        shard_count: 2,
        limits: limits(),
        regions: Vec::new(),
    }
}

fn limits() -> Limits {
    Limits {
        body_bytes_max: 4096,
        keys_per_frame_max: 64,
        page_bytes: 4096,
        object_bytes_max: 4096,
        reserved_pages_max: 1,
        pinned_pages_max: 1,
        leases_max: 1,
        connections_max: 1,
        reservation_ttl_us: 1,
        lease_ttl_us: 1,
        fence_us: 1,
    }
}

fn hello() -> Hello {
    Hello {
        client_nonce: [3; 32],
        version_min: PROTOCOL_VERSION,
        version_max: PROTOCOL_VERSION,
        purpose: Purpose::Data,
        incarnation: Incarnation([1; 16]),
        connection_number: 1,
        shard: 1,
        namespace: Namespace::new("llama"),
        namespace_name: "llama".to_owned(),
        node_name: "node-a".to_owned(),
        pool_list_digest: [0; 32],
        transfer_timeout_us: 1,
        object_bytes_max: 1,
        tickets: Vec::new(),
    }
}

/// Judges `hello` as it arrives on the connection of `NONCE`, proved with `secret` for `nonce`.
fn judge(hello: &Hello, secret: &Secret, nonce: &[u8; 32], is_local: bool) -> Result<(), Refusal> {
    let mut bytes = Vec::new();
    let handshake = Handshake { secret, server_nonce: nonce };
    encode_hello(&mut bytes, 1, Generation(0), hello, &handshake);
    let mut assembler = Assembler::new(HELLO_BODY_BYTES_MAX);
    let frame = assembler.next(&mut &bytes[..]).unwrap().unwrap();
    let (hello, proof) = decode_hello(&frame).unwrap();
    terms().judge(&hello, &proof, &NONCE, is_local)
}

fn judged(hello: &Hello) -> Result<(), Refusal> {
    judge(hello, &terms().secret, &NONCE, true)
}

#[test]
fn good_hellos_pass() {
    assert_eq!(judged(&hello()), Ok(()));
    assert_eq!(judged(&Hello { node_name: String::new(), ..hello() }), Ok(()));
    assert_eq!(judged(&Hello { purpose: Purpose::Attach, shard: 9, ..hello() }), Ok(()));
}

/// Bad input, named: wrong secret, protocol version, namespace, node or shard.
#[test]
fn bad_hellos_are_refused_by_name() {
    let versions = Hello { version_min: 2, version_max: 9, ..hello() };
    assert_eq!(judged(&versions), Err(Refusal::WrongVersion(PROTOCOL_VERSION)));
    let namespace_name = "qwen".to_owned();
    let namespace = Hello { namespace_name, ..hello() };
    assert_eq!(judged(&namespace), Err(Refusal::WrongNamespace));
    let node = Hello { node_name: "node-b".to_owned(), ..hello() };
    assert_eq!(judged(&node), Err(Refusal::WrongNode));
    let shard = Hello { shard: 2, ..hello() };
    assert_eq!(judged(&shard), Err(Refusal::NoSuchShard(2)));
    let attach = Hello { purpose: Purpose::Attach, ..hello() };
    assert_eq!(judge(&attach, &terms().secret, &NONCE, false), Err(Refusal::NotLocal));
}

/// Who does not know the secret, or replays a hello of another connection, learns nothing else.
#[test]
fn the_proof_comes_first() {
    let bad_in_every_way = Hello { version_min: 9, version_max: 9, shard: 9, ..hello() };
    let wrong = Secret::new(b"another secret altogether");
    for secret in [wrong, Secret::none()] {
        let judged = judge(&bad_in_every_way, &secret, &NONCE, false);
        assert_eq!(judged, Err(Refusal::WrongSecret));
    }
    let replayed = judge(&hello(), &terms().secret, &[8; 32], true);
    assert_eq!(replayed, Err(Refusal::WrongSecret));
}

/// An operator watches a server whatever namespaces it serves.
#[test]
fn monitors_may_come_from_any_namespace() {
    let namespace_name = "maru-operator".to_owned();
    let monitor = Hello { purpose: Purpose::Monitor, namespace_name, ..hello() };
    assert_eq!(judged(&monitor), Ok(()));
    assert!(!terms().serves("maru-operator"));
    assert!(terms().serves("llama"));
}
