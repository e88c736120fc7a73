//! An attacker: says things that are no message, or nothing, or half of something, and comes back.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use maru_wire::{
    Exists, Generation, Handshake, Lookup, Match, Purpose, RequestBody, Reserve, ReserveItem,
    Secret, encode_hello,
};

use super::crowd::{FEW_KEYS, HELD_MAX, LARGE_ONE_IN, few_keys, frame};
use super::random::Random;
use crate::dial::{Address, Dialled, OBJECT_BYTES, Stream, hello};
use crate::keys::key;

/// Bytes of a session's garbage: twice those of a well-behaved session, as half of the attacks
/// send next to nothing.
const SESSION_BYTES: usize = 8 * (FEW_KEYS * 32 + 64);
/// Length that a frame announces and no server takes.
const HUGE_BYTES: u32 = 100 << 20;
/// Where the length stands in a frame's header.
const LENGTH_AT: usize = 8;
/// How long an attacker waits for a server that reads nothing more from it.
const WRITE_LIMIT: Duration = Duration::from_millis(20);

/// What a session does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    /// Random bytes instead of a hello.
    NoHello,
    /// Nothing instead of a hello.
    SilentStranger,
    /// A hello that was said on another connection.
    Replay,
    /// The front of a hello.
    HalfHello,
    /// Random bytes behind the hello.
    Random,
    /// Good frames with some bits turned over.
    Mutated,
    /// A frame that announces 100 MB.
    Huge,
    /// A frame without its end.
    Half,
    /// A frame byte by byte.
    Slow,
    /// Nothing behind the hello.
    Silent,
}

const ATTACKS: [Attack; 10] = [
    Attack::NoHello,
    Attack::SilentStranger,
    Attack::Replay,
    Attack::HalfHello,
    Attack::Random,
    Attack::Mutated,
    Attack::Huge,
    Attack::Half,
    Attack::Slow,
    Attack::Silent,
];

/// One attacker, and the connections that it has left behind.
pub(super) struct Attacker<'a> {
    address: &'a Address,
    random: Random,
    held: VecDeque<Held>,
}

/// A connection that was left open.
struct Held {
    stream: Stream,
    /// What trickles in, one byte a session.
    trickle: VecDeque<u8>,
}

impl<'a> Attacker<'a> {
    pub(super) fn new(address: &'a Address, seed: u64) -> Self {
        Self { address, random: Random::new(seed), held: VecDeque::new() }
    }

    /// Attacks once and returns how many bytes that sent. It may fail: the server defends itself.
    pub(super) fn session(&mut self) -> anyhow::Result<u64> {
        self.trickle();
        match ATTACKS[self.random.index(ATTACKS.len())] {
            Attack::NoHello => {
                let bytes = self.random.bytes(SESSION_BYTES);
                self.stranger(&bytes)
            }
            Attack::SilentStranger => self.stranger(&[]),
            Attack::Replay => {
                let bytes = replayed_hello()?;
                self.stranger(&bytes)
            }
            Attack::HalfHello => {
                let bytes = replayed_hello()?;
                let end = self.random.index(bytes.len());
                self.stranger(&bytes[..end])
            }
            Attack::Random => self.guest(|random, _| random.bytes(SESSION_BYTES)),
            Attack::Mutated => self.guest(mutated),
            Attack::Huge => self.guest(|random, client| {
                let mut bytes = good(random, client);
                bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&HUGE_BYTES.to_le_bytes());
                bytes
            }),
            Attack::Half => self.guest(half),
            Attack::Slow => {
                let client = self.connect()?;
                let trickle = good(&mut self.random, &client).into();
                self.hold(client.into_stream(), trickle);
                Ok(0)
            }
            Attack::Silent => self.guest(|_, _| Vec::new()),
        }
    }

    /// Sends a byte more on each connection that is slow.
    fn trickle(&mut self) {
        for held in &mut self.held {
            if let Some(byte) = held.trickle.pop_front()
                && held.stream.write_all(&[byte]).is_err()
            {
                held.trickle.clear();
            }
        }
    }

    /// Connects and throws bytes instead of a hello.
    fn stranger(&mut self, bytes: &[u8]) -> anyhow::Result<u64> {
        let stream = Stream::connect(self.address)?;
        self.throw(stream, bytes)
    }

    /// Says hello and throws what `make` makes.
    fn guest(
        &mut self,
        make: impl FnOnce(&mut Random, &Dialled) -> Vec<u8>,
    ) -> anyhow::Result<u64> {
        let client = self.connect()?;
        let bytes = make(&mut self.random, &client);
        self.throw(client.into_stream(), &bytes)
    }

    fn connect(&self) -> anyhow::Result<Dialled> {
        Dialled::connect(self.address, &Secret::none(), Purpose::Data, 0)
    }

    fn throw(&mut self, mut stream: Stream, bytes: &[u8]) -> anyhow::Result<u64> {
        stream.set_write_limit(WRITE_LIMIT)?;
        stream.write_all(bytes)?;
        // Some leave at once, with the answer unread.
        if self.random.below(2) == 0 {
            self.hold(stream, VecDeque::new());
        }
        Ok(bytes.len() as u64)
    }

    fn hold(&mut self, stream: Stream, trickle: VecDeque<u8>) {
        self.held.push_back(Held { stream, trickle });
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
    }
}

/// A hello with the proof for another connection.
fn replayed_hello() -> anyhow::Result<Vec<u8>> {
    let handshake = Handshake { secret: &Secret::none(), server_nonce: &[0; 32] };
    let mut bytes = Vec::new();
    encode_hello(&mut bytes, 1, Generation(0), &hello(Purpose::Data, 0)?, &handshake);
    Ok(bytes)
}

/// Good frames, as many bytes as a session sends.
fn good(random: &mut Random, client: &Dialled) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < SESSION_BYTES {
        let keys = few_keys(random);
        let item = |key: &_| ReserveItem { key: *key, object_bytes: OBJECT_BYTES };
        let reserve = Reserve { items: keys.iter().map(item).collect() };
        let exists = Exists { keys: keys.clone(), matching: Match::All };
        let lookup = Lookup { keys, matching: Match::All };
        let body = match random.below(4) {
            0 => RequestBody::Exists(&exists),
            1 => RequestBody::Lookup(&lookup),
            2 => RequestBody::Reserve(&reserve),
            _ => RequestBody::Stats,
        };
        bytes.extend(frame(client, &body));
    }
    bytes
}

fn mutated(random: &mut Random, client: &Dialled) -> Vec<u8> {
    let mut bytes = good(random, client);
    for _ in 0..=random.below(8) {
        let at = random.index(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// A frame without its last bytes; one in some is as large as frames get.
fn half(random: &mut Random, client: &Dialled) -> Vec<u8> {
    let is_large = random.below(LARGE_ONE_IN / ATTACKS.len() as u64) == 0;
    let keys = if is_large { (0..4096).map(key).collect() } else { few_keys(random) };
    let mut bytes = frame(client, &RequestBody::Exists(&Exists { keys, matching: Match::All }));
    let cut = 1 + random.below(16);
    bytes.truncate(bytes.len().saturating_sub(usize::try_from(cut).unwrap_or(1)));
    bytes
}

#[cfg(test)]
mod tests {
    use maru_wire::{HELLO_BODY_BYTES_MAX, Header};

    use super::*;

    #[test]
    fn a_replayed_hello_is_whole() {
        let bytes = replayed_hello().unwrap();
        let header = Header::decode(bytes.first_chunk().unwrap(), HELLO_BODY_BYTES_MAX).unwrap();
        assert_eq!(header.frame_bytes(), bytes.len());
    }

    #[test]
    fn every_attack_is_in_the_list() {
        for (index, attack) in ATTACKS.iter().enumerate() {
            assert_eq!(*attack as usize, index);
        }
        assert_eq!(Attack::Silent as usize + 1, ATTACKS.len());
    }
}
