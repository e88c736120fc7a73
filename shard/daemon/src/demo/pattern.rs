//! The bytes of a demo object, made from its key alone, and the check that reads them all back.
//!
//! Each 8 bytes depend on the key and on their place, so a wrong key, page or order shows.

use maru_wire::Key;

/// Bytes that one step of the generator makes.
const STEP_BYTES: usize = LANES * 8;
const LANES: usize = 8;

/// A stream of pseudo-random words: eight xorshift generators side by side.
struct Stream([u64; LANES]);

impl Stream {
    fn new(key: &Key) -> Self {
        let mut seed = key.0.chunks_exact(8).fold(0_u64, |seed, word| {
            let word: [u8; 8] = word.try_into().expect("chunks of 8 bytes");
            splitmix(seed ^ u64::from_le_bytes(word))
        });
        Self(core::array::from_fn(|_| {
            seed = splitmix(seed);
            // Zero is the one state that a xorshift generator never leaves.
            seed | 1
        }))
    }

    fn step(&mut self) -> [u64; LANES] {
        for lane in &mut self.0 {
            *lane ^= *lane << 13;
            *lane ^= *lane >> 7;
            *lane ^= *lane << 17;
        }
        self.0
    }
}

/// Fills `bytes` with the object named `key`.
pub(crate) fn fill(key: &Key, bytes: &mut [u8]) {
    let mut stream = Stream::new(key);
    let mut steps = bytes.chunks_exact_mut(STEP_BYTES);
    for step in &mut steps {
        for (bytes, word) in step.chunks_exact_mut(8).zip(stream.step()) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
    let rest = steps.into_remainder();
    let last = last_step(&mut stream);
    let rest_bytes = rest.len();
    rest.copy_from_slice(&last[..rest_bytes]);
}

/// Returns how many of `bytes` differ from the object named `key`.
pub(crate) fn wrong_bytes(key: &Key, bytes: &[u8]) -> u64 {
    let mut stream = Stream::new(key);
    let mut wrong = 0;
    let mut steps = bytes.chunks_exact(STEP_BYTES);
    for step in &mut steps {
        let mut difference = [0_u64; LANES];
        for ((difference, bytes), word) in
            difference.iter_mut().zip(step.chunks_exact(8)).zip(stream.step())
        {
            let bytes: [u8; 8] = bytes.try_into().expect("chunks of 8 bytes");
            *difference = u64::from_le_bytes(bytes) ^ word;
        }
        if difference.iter().fold(0, |all, word| all | word) != 0 {
            wrong += difference
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .filter(|byte| *byte != 0)
                .count() as u64;
        }
    }
    let last = last_step(&mut stream);
    wrong + steps.remainder().iter().zip(last).map(|(a, b)| u64::from(*a != b)).sum::<u64>()
}

fn last_step(stream: &mut Stream) -> [u8; STEP_BYTES] {
    let mut bytes = [0; STEP_BYTES];
    for (bytes, word) in bytes.chunks_exact_mut(8).zip(stream.step()) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// One step of the splitmix64 generator, used to spread seeds.
pub(crate) fn splitmix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests;
