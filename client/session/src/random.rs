//! Nonces and jitter from the seed.

/// A keyed counter. Never repeats a value in one session.
#[derive(Debug)]
pub(crate) struct Random {
    seed: [u8; 32],
    counter: u64,
}

impl Random {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { seed, counter: 0 }
    }

    /// Returns 32 bytes that nobody without the seed can guess.
    pub(crate) fn nonce(&mut self) -> [u8; 32] {
        self.counter += 1;
        *blake3::keyed_hash(&self.seed, &self.counter.to_le_bytes()).as_bytes()
    }

    /// Returns `base` shortened or lengthened by up to a quarter.
    pub(crate) fn jitter(&mut self, base: u64) -> u64 {
        let [a, b, ..] = self.nonce();
        let draw = u64::from(u16::from_le_bytes([a, b]));
        base - base / 4 + base / 2 * draw / u64::from(u16::MAX)
    }
}
