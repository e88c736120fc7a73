//! Keyed hashes for the tables, so that no one outside can choose keys that collide.

use maru_wire::{Incarnation, Key};

use crate::config::Peer;

/// The seeds of one shard's tables.
#[derive(Debug)]
pub(crate) struct Hashes {
    seeds: [u64; 5],
}

impl Hashes {
    pub(crate) fn new(seed: &[u8; 32]) -> Self {
        let mut bytes = [0; 40];
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(b"maru-ledger tables");
        hasher.finalize_xof().fill(&mut bytes);
        let (words, _) = bytes.as_chunks();
        Self { seeds: core::array::from_fn(|i| u64::from_le_bytes(words[i])) }
    }

    /// Returns the tag of a key.
    #[inline]
    pub(crate) fn key(&self, key: &Key) -> u32 {
        let (words, _) = key.0.as_chunks();
        self.words(core::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    pub(crate) fn incarnation(&self, incarnation: &Incarnation) -> u32 {
        self.wide(&incarnation.0, 1)
    }

    pub(crate) fn peer(&self, peer: Peer) -> u32 {
        match peer {
            Peer::Uid(uid) => self.words([u64::from(uid), 2, 0, 0]),
            Peer::Address(address) => self.wide(&address, 3),
        }
    }

    fn wide(&self, bytes: &[u8; 16], kind: u64) -> u32 {
        let (words, _) = bytes.as_chunks();
        self.words([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1]), kind, 0])
    }

    #[inline]
    fn words(&self, words: [u64; 4]) -> u32 {
        let [a, b, c, d, last] = self.seeds;
        let [w, x, y, z] = words;
        let folded = fold(w ^ a, x ^ b) ^ fold(y ^ c, z ^ d);
        (fold(folded ^ last, 0x9E37_79B9_7F4A_7C15) >> 32) as u32
    }
}

/// Multiplies to 128 bits and folds the halves: the mixing step of wyhash.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}
