//! Names that never recur and cannot be guessed: a counter and a keyed hash of it.

/// Hashes that one call of BLAKE3 gives.
const TAGS_PER_BLOCK: u8 = 8;

/// Issues the tickets, or the leases, of one shard.
#[derive(Debug)]
pub(crate) struct Issuer {
    key: [u8; 32],
    next: u64,
    tags: [u64; TAGS_PER_BLOCK as usize],
}

impl Issuer {
    /// `kind` separates issuers of one seed.
    pub(crate) fn new(seed: &[u8; 32], kind: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(kind);
        let mut issuer = Self { key: *hasher.finalize().as_bytes(), next: 1, tags: [0; 8] };
        issuer.fill();
        issuer
    }

    /// Returns the next name. It is never zero.
    pub(crate) fn issue(&mut self) -> [u8; 16] {
        let counter = self.next;
        if counter.is_multiple_of(u64::from(TAGS_PER_BLOCK)) {
            self.fill();
        }
        self.next += 1;
        let place = usize::try_from(counter % u64::from(TAGS_PER_BLOCK)).expect("below 8");
        let tag = self.tags[place];
        let mut name = [0; 16];
        name[..8].copy_from_slice(&counter.to_le_bytes());
        name[8..].copy_from_slice(&tag.to_le_bytes());
        name
    }

    fn fill(&mut self) {
        let mut bytes = [0; 64];
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&(self.next / u64::from(TAGS_PER_BLOCK)).to_le_bytes());
        hasher.finalize_xof().fill(&mut bytes);
        let (words, _) = bytes.as_chunks();
        self.tags = core::array::from_fn(|i| u64::from_le_bytes(words[i]));
    }
}

/// Returns the tag by which tables find a name: a part of its hash.
#[inline]
pub(crate) fn tag_of(name: &[u8; 16]) -> u32 {
    let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *name;
    u32::from_le_bytes([a, b, c, d])
}
