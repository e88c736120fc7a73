//! Reads commands and requests from the fuzzer's bytes. Names of tickets and leases are taken
//! from what was handed out, since no fuzzer guesses them.

use maru_wire::{
    Abandon, Checksum, Clear, EvictedSince, Exists, Generation, Key, LeaseId, Lookup, Match,
    Publish, PublishItem, Release, ReleaseItem, Remove, RemoveItem, RequestBody, Reserve,
    ReserveItem, Ticket, encode_request,
};

use crate::messages::GENERATION;

/// The fuzzer's bytes, taken from the front.
pub(super) struct Script<'a> {
    input: &'a [u8],
}

/// What a request is to look like.
struct Shape {
    kind: u8,
    count: usize,
    flag: bool,
}

impl<'a> Script<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*byte)
    }

    /// Two bytes as a number; 0 at the end.
    pub(super) fn number(&mut self) -> u64 {
        let (low, high) = (self.next(), self.next());
        u64::from(low) | u64::from(high) << 8
    }

    /// Bytes as they are: a length, then so many units of 16.
    pub(super) fn raw_frames(&mut self) -> Vec<u8> {
        let bytes = (usize::from(self.next()) * 16).min(self.input.len());
        let (frames, rest) = self.input.split_at(bytes);
        self.input = rest;
        frames.to_vec()
    }

    /// A request in its encoding: a kind with a count, a byte to damage, then the items.
    pub(super) fn request(&mut self, tickets: &[Ticket], leases: &[LeaseId]) -> Vec<u8> {
        let kind = self.next();
        let damage = self.next();
        let count = usize::from(kind >> 4) + if kind >> 4 == 15 { 60 } else { 0 };
        let flag = damage & 1 == 1;
        let generation = if damage == 255 { Generation(1) } else { GENERATION };
        let mut out = Vec::new();
        let shape = Shape { kind: kind & 15, count, flag };
        self.encode(shape, (tickets, leases), |body| {
            encode_request(&mut out, u64::from(kind), generation, body);
        });
        if damage & 2 == 2 && damage != 255 {
            let at = usize::from(self.next()) % out.len();
            out[at] ^= damage;
        }
        out
    }

    fn encode(
        &mut self,
        Shape { kind, count, flag }: Shape,
        (tickets, leases): (&[Ticket], &[LeaseId]),
        mut write: impl FnMut(&RequestBody<'_>),
    ) {
        let matching = if flag { Match::All } else { Match::Leading };
        match kind {
            0..=2 => write(&RequestBody::Reserve(&Reserve {
                items: self.items(count, |script| ReserveItem {
                    key: script.key(),
                    object_bytes: script.number() + 1,
                }),
            })),
            3 | 4 => write(&RequestBody::Publish(&Publish {
                items: self.items(count, |script| PublishItem {
                    key: script.key(),
                    ticket: pick(tickets, script.next()),
                    checksum: Checksum { kind: u8::from(flag), value: u64::from(flag) },
                }),
            })),
            5 => write(&RequestBody::Abandon(&Abandon {
                tickets: self.items(count, |script| pick(tickets, script.next())),
                after_error: flag,
            })),
            6 => write(&RequestBody::Exists(&Exists {
                keys: self.items(count, Self::key),
                matching,
            })),
            7 | 8 => {
                write(&RequestBody::Lookup(&Lookup {
                    keys: self.items(count, Self::key),
                    matching,
                }));
            }
            9 | 10 => write(&RequestBody::Release(&Release {
                items: self.items(count, |script| ReleaseItem {
                    lease: pick(leases, script.next()),
                    keep: u32::from(script.next() & 3),
                }),
            })),
            11 => {
                let number = self.number();
                let keys_max = u32::from(self.next());
                write(&RequestBody::EvictedSince(&EvictedSince { number, keys_max }));
            }
            12 => write(&RequestBody::Remove(&Remove {
                items: self.items(count, |script| RemoveItem {
                    key: script.key(),
                    ticket: pick(tickets, script.next()),
                }),
            })),
            13 => write(&RequestBody::Clear(&Clear { confirm: 1 })),
            14 => write(&RequestBody::Stats),
            _ => write(if flag { &RequestBody::Ping } else { &RequestBody::Regions }),
        }
    }

    fn items<T>(&mut self, count: usize, mut item: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..count).map(|_| item(self)).collect()
    }

    /// One of 32 keys.
    fn key(&mut self) -> Key {
        Key([self.next() & 31; 32])
    }

    /// The next byte; 0 at the end.
    fn next(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }
}

/// One of the names, the latest for 0; one that nobody was given when there is none.
fn pick<T: Copy + Default>(names: &[T], choice: u8) -> T {
    names.iter().rev().nth(usize::from(choice & 63)).copied().unwrap_or_default()
}
