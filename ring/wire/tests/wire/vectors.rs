//! Replays the hex files of the protocol: each message encodes to exactly its file's bytes, and
//! the bytes decode to the message. `docs/protocol.md` refers to these files.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::messages::{Message, SECRET, SERVER_NONCE};
use crate::samples::{hello, samples};
use maru_wire::{Key, Namespace};

fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Reads a hex file: whatever stands behind `#` is for people.
fn read(name: &str) -> Vec<u8> {
    let path = vectors().join(format!("{name}.hex"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: String = text
        .lines()
        .filter_map(|line| line.split('#').next())
        .flat_map(str::chars)
        .filter(|digit| !digit.is_whitespace())
        .collect();
    assert_eq!(digits.len() % 2, 0, "{name}: half a byte");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two hex digits"))
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn messages_encode_to_the_vectors_and_back() {
    for (name, message) in samples() {
        let encoded = message.encode(&hello());
        let vector = read(name);
        assert_eq!(hex(&encoded), hex(&vector), "{name}");
        assert_eq!(Message::decode(&vector, &hello()), Ok(message), "{name}");
    }
}

#[test]
fn every_vector_is_replayed() {
    let files: BTreeSet<String> = std::fs::read_dir(vectors())
        .expect("the folder of the vectors")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter_map(|name| name.strip_suffix(".hex").map(str::to_owned))
        .collect();
    let replayed: BTreeSet<String> = samples().iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, replayed);
}

/// Writes the proofs' input out by hand, as the protocol states it.
#[test]
fn proofs_are_made_as_the_protocol_says() {
    let key = blake3::derive_key("maru-shard secret v1", SECRET);
    let prove = |parts: &[&[u8]]| *blake3::keyed_hash(&key, &parts.concat()).as_bytes();
    let transcript = |frame: &[u8]| {
        let body_bytes = u32::from_le_bytes(frame[8..12].try_into().expect("four bytes")) as usize;
        let signed = [&frame[..32], &frame[64..32 + body_bytes]].concat();
        *blake3::hash(&signed).as_bytes()
    };
    let client_nonce = hello().client_nonce;

    let frame = read("hello");
    let role = b"maru-shard client";
    let client = prove(&[role, &SERVER_NONCE, &client_nonce, &transcript(&frame)]);
    assert_eq!(hex(&frame[32..64]), hex(&client));

    let frame = read("hello_reply");
    let role = b"maru-shard server";
    let server = prove(&[role, &SERVER_NONCE, &client_nonce, &client, &transcript(&frame)]);
    assert_eq!(hex(&frame[32..64]), hex(&server));
}

/// Key, shard count, shard: what every implementation must agree on.
#[test]
fn keys_route_as_the_protocol_says() {
    let text = std::fs::read_to_string(vectors().join("routing.txt")).expect("the routing vectors");
    let mut count = 0;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [key, shard_count, shard] = fields[..] else { panic!("three fields: {line}") };
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&key[2 * index..2 * index + 2], 16).expect("hex");
        }
        let shard_count: u32 = shard_count.parse().expect("a number");
        assert_eq!(
            Key(bytes).shard(shard_count),
            shard.parse::<u32>().expect("a number"),
            "{line}"
        );
        count += 1;
    }
    assert!(count >= 30, "{count} routing vectors");
}

/// Namespace, user key, digests: how names become keys.
#[test]
fn names_digest_as_the_protocol_says() {
    let namespace = Namespace::new("tests");
    assert_eq!(namespace.to_string(), NAMESPACE_TESTS);
    assert_eq!(Key::new(&namespace, b"").to_string(), KEY_EMPTY);
    assert_eq!(Key::new(&namespace, b"chunk 0").to_string(), KEY_CHUNK_0);
}

const NAMESPACE_TESTS: &str = "490b891236493e00a7bcbe15b17a0d8ea73fd7ab04a57648efaed671c2b7ada9";
const KEY_EMPTY: &str = "b8ab97ab49a0fe81c14065fdcbe56d2e4b32e3615d17f79004be670dd8003e11";
const KEY_CHUNK_0: &str = "fd59084aeb6857033f5976f0856fa00c2f49413f5ca31044016b6ea314466866";
