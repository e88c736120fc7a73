//! Clients that come and go, well-behaved or not, all of them at the same pace.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use maru_uring::IoMode;
use maru_wire::{Exists, Key, LeaseId, Lookup, Match, Purpose, Release, ReleaseItem};
use maru_wire::{Reply, RequestBody, Secret, encode_request};

use super::garbage::Attacker;
use super::random::Random;
use crate::dial::{Address, Dialled};
use crate::keys::{ShardKeys, key};
use crate::load::Load;
use crate::work::{Operation, Work};

/// Keys that the well-behaved ask for.
const RESIDENT_KEYS: u64 = 4096;
/// Keys of most frames.
pub(super) const FEW_KEYS: usize = 32;
/// One session in so many has a frame of all keys.
pub(super) const LARGE_ONE_IN: u64 = 64;
/// Connections that each client keeps open behind it.
pub(super) const HELD_MAX: usize = 8;

/// A number of clients, each on a thread of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crowd<'a> {
    pub(crate) address: &'a Address,
    pub(crate) clients: usize,
    /// Sessions of all clients together; 0 for as many as they can.
    pub(crate) sessions_per_s: u64,
    pub(crate) seed: u64,
    /// The core of all of them.
    pub(crate) core: u32,
}

/// What the clients sent.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Traffic {
    pub(crate) sessions: u64,
    pub(crate) bytes: u64,
}

/// Stores what the well-behaved ask for.
pub(crate) fn store_resident(address: &Address) -> anyhow::Result<()> {
    let dialled = Dialled::connect(address, &Secret::none(), Purpose::Data, 0)?;
    let keys = ShardKeys::new(0, 1, 0, RESIDENT_KEYS);
    let work = Work::new((Operation::Reserve, 256), dialled.generation(), &[], keys, 1);
    let streams = vec![(dialled.into_stream(), 0)];
    let stored = Load::start(IoMode::Auto, streams, vec![work], 1)?.run_to_end()?.counts.keys;
    ensure!(stored == RESIDENT_KEYS, "only {stored} of {RESIDENT_KEYS} keys were stored");
    Ok(())
}

impl Crowd<'_> {
    /// Runs well-behaved clients until told to stop. None of them may meet an error.
    pub(crate) fn behave(&self, stop: &AtomicBool) -> anyhow::Result<Traffic> {
        self.run(stop, |number| {
            let mut client = Behaved::new(self.address, self.seed + number);
            Box::new(move || client.session().context("a well-behaved client met an error"))
        })
    }

    /// Runs attackers until told to stop. What they meet does not matter.
    pub(crate) fn attack(&self, stop: &AtomicBool) -> anyhow::Result<Traffic> {
        self.run(stop, |number| {
            let mut attacker = Attacker::new(self.address, self.seed + number);
            Box::new(move || Ok(attacker.session().unwrap_or_default()))
        })
    }

    fn run<'s>(
        &'s self,
        stop: &AtomicBool,
        session: impl Fn(u64) -> Session<'s> + Sync,
    ) -> anyhow::Result<Traffic> {
        std::thread::scope(|scope| {
            let session = &session;
            let start = |number| {
                scope.spawn(move || {
                    // Unpinned it measures something else, which the spread then shows.
                    maru_numa::pin_current_thread(self.core).unwrap_or_default();
                    self.keep_pace(number, stop, session(number))
                })
            };
            let threads: Vec<_> = (0..self.clients as u64).map(start).collect();
            let mut sum = Traffic::default();
            for thread in threads {
                let joined = thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
                let traffic = joined?;
                sum.sessions += traffic.sessions;
                sum.bytes += traffic.bytes;
            }
            Ok(sum)
        })
    }

    /// Begins a session of one client whenever its time has come. What is missed is not made up.
    fn keep_pace(
        &self,
        number: u64,
        stop: &AtomicBool,
        mut session: Session<'_>,
    ) -> anyhow::Result<Traffic> {
        let clients = self.clients as u64;
        let interval = 1_000_000_000_u64.checked_div(self.sessions_per_s).unwrap_or(0);
        let mut due = Instant::now() + Duration::from_nanos(interval * number);
        let mut traffic = Traffic::default();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if due > now {
                std::thread::sleep(due - now);
            }
            due = due.max(now) + Duration::from_nanos(interval * clients);
            traffic.bytes += session()?;
            traffic.sessions += 1;
        }
        Ok(traffic)
    }
}

/// One session of a client: connects, sends, and returns how many bytes it sent.
type Session<'s> = Box<dyn FnMut() -> anyhow::Result<u64> + 's>;

/// A client that keeps to the protocol.
struct Behaved<'a> {
    address: &'a Address,
    random: Random,
    held: VecDeque<Dialled>,
}

impl<'a> Behaved<'a> {
    fn new(address: &'a Address, seed: u64) -> Self {
        Self { address, random: Random::new(seed), held: VecDeque::new() }
    }

    /// Connects, asks whether keys are there, pins and releases some, and stays for a while.
    fn session(&mut self) -> anyhow::Result<u64> {
        let mut client = Dialled::connect(self.address, &Secret::none(), Purpose::Data, 0)?;
        let mut bytes = 0;
        if self.random.below(LARGE_ONE_IN) == 0 {
            let keys = (0..RESIDENT_KEYS).map(key).collect();
            bytes += exists(&mut client, Exists { keys, matching: Match::All })?;
        }
        for _ in 0..2 {
            let keys = few_keys(&mut self.random);
            bytes += exists(&mut client, Exists { keys: keys.clone(), matching: Match::All })?;
            bytes += lookup(&mut client, Lookup { keys, matching: Match::All })?;
        }
        self.held.push_back(client);
        if self.held.len() > HELD_MAX {
            self.held.pop_front();
        }
        Ok(bytes)
    }
}

/// Chooses some of the keys that are there.
pub(super) fn few_keys(random: &mut Random) -> Vec<Key> {
    (0..FEW_KEYS).map(|_| key(random.below(RESIDENT_KEYS))).collect()
}

/// Returns a frame as it is sent.
pub(super) fn frame(client: &Dialled, body: &RequestBody<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&mut out, 2, client.generation(), body);
    out
}

fn exists(client: &mut Dialled, exists: Exists) -> anyhow::Result<u64> {
    let body = RequestBody::Exists(&exists);
    let found = client.ask(&body, |reply| match reply {
        Reply::Exists(reply) => Some(reply.leading_count.to_native() as usize),
        _ => None,
    })?;
    ensure!(found == Some(exists.keys.len()), "{found:?} keys are there, and not all");
    Ok(frame(client, &body).len() as u64)
}

fn lookup(client: &mut Dialled, lookup: Lookup) -> anyhow::Result<u64> {
    let body = RequestBody::Lookup(&lookup);
    let lease = client.ask(&body, |reply| match reply {
        Reply::Lookup(reply) => reply.lease,
        _ => LeaseId::default(),
    })?;
    ensure!(lease != LeaseId::default(), "a lookup of keys that are there found none");
    let release = Release { items: vec![ReleaseItem { lease, keep: 0 }] };
    let is_held = client.ask(&RequestBody::Release(&release), |reply| match reply {
        Reply::Release(reply) => reply.held.iter().all(|held| *held),
        _ => false,
    })?;
    ensure!(is_held, "a lease ended before its release");
    Ok(frame(client, &body).len() as u64)
}
