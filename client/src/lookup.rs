//! The steps of a load: lookup, release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use maru_session::{Channel, Failure, Layout, Part, split};
use maru_wire::{
    ArchivedLookupOutcome, ArchivedLookupReply, Checksum, Generation, Key, LeaseId, Lookup, Match,
    Op, PageRun, Release, ReleaseItem, Reply, Ticket,
};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::scatter::{PartBody, Target, none_or_stale};
use crate::shared::Released;
use crate::{Client, Error};

/// A chunk that a lookup found and pinned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The chunk's size in bytes.
    pub object_bytes: u64,
    /// The checksum that its writer stated.
    pub checksum: Checksum,
    /// The ticket that created it.
    pub ticket: Ticket,
    /// Its pages, in order.
    pub runs: Vec<PageRun>,
}

/// What came of one key of [`Client::lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookedUp {
    /// Pinned until the release.
    Found(Chunk),
    /// Not there.
    Missing,
    /// There, but this client pins as much as it may. Release first.
    ClientLimit,
    /// Past the first miss of a leading match.
    NotTried,
    /// Its shard did not answer; other shards did.
    Failed(Failure),
}

/// One lease, and the keys that it pins, in the order of its pins.
#[derive(Debug)]
struct Lease {
    shard: u32,
    lease: LeaseId,
    ends_at: Instant,
    indices: Vec<usize>,
}

/// The chunks of one lookup with their leases. Dropping it releases them in the background.
#[derive(Debug)]
pub struct Pinned {
    inner: Arc<Inner>,
    outcomes: Vec<LookedUp>,
    leases: Vec<Lease>,
    generation: Generation,
}

impl Pinned {
    /// Returns one outcome per key, in order.
    #[must_use]
    pub fn outcomes(&self) -> &[LookedUp] {
        &self.outcomes
    }

    /// Returns how many leading keys were found.
    #[must_use]
    pub fn leading_count(&self) -> usize {
        self.outcomes.iter().take_while(|o| matches!(o, LookedUp::Found(_))).count()
    }

    /// Returns the server generation that pinned them.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns the time left to the shortest lease, `None` when nothing is pinned.
    #[must_use]
    pub fn lease_left(&self) -> Option<Duration> {
        let now = Instant::now();
        self.leases.iter().map(|lease| lease.ends_at.saturating_duration_since(now)).min()
    }

    /// Releases what lies past the first `count` keys in the background.
    fn trim(&mut self, count: usize) {
        let (generation, mut released) = (self.generation, Vec::new());
        self.leases.retain_mut(|entry| {
            let keep = entry.indices.partition_point(|index| *index < count);
            if keep < entry.indices.len() {
                let (shard, lease) = (entry.shard, entry.lease);
                let keep = u32::try_from(keep).expect("a frame has at most 4,096 keys");
                released.push(Released { generation, shard, lease, keep });
                entry.indices.truncate(keep as usize);
            }
            !entry.indices.is_empty()
        });
        for outcome in self.outcomes.iter_mut().skip(count) {
            if matches!(outcome, LookedUp::Found(_)) {
                *outcome = LookedUp::NotTried;
            }
        }
        if !released.is_empty() {
            self.inner.shared.let_go(|dropped| dropped.released.append(&mut released));
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.leases.is_empty() || self.inner.is_forked() {
            return;
        }
        let generation = self.generation;
        let leases = std::mem::take(&mut self.leases);
        let released = leases.iter().map(|lease| Released {
            generation,
            shard: lease.shard,
            lease: lease.lease,
            keep: 0,
        });
        self.inner.shared.let_go(|dropped| dropped.released.extend(released));
    }
}

impl Client {
    /// Finds chunks and pins them. With `Match::Leading`, what lies past the first miss is
    /// released again and answered `NotTried`.
    ///
    /// Blocks for one round trip per part, at most `deadline`. Leases that arrive later are
    /// released in the background.
    ///
    /// # Errors
    ///
    /// No shard answered: treat the chunks as missing.
    pub fn lookup(
        &self,
        keys: &[Key],
        matching: Match,
        deadline: Duration,
    ) -> Result<Pinned, Error> {
        let deadline = Deadline::new(deadline);
        self.inner
            .with_layout(deadline, |layout| lookup(&self.inner, layout, (keys, matching), deadline))
    }

    /// Releases what a lookup pinned. Says per key whether it was held to the end.
    ///
    /// `false` for keys that were not found, whose lease ran out, or whose shard did not answer:
    /// bytes read under those are void. Never retried. Blocks for one round trip, at most
    /// `deadline`.
    #[must_use = "bytes that were not held to the end are void"]
    pub fn release(&self, pinned: Pinned, deadline: Duration) -> Vec<bool> {
        release(&self.inner, pinned, Deadline::new(deadline))
    }
}

/// Looks up in one generation. Asks again for what a reply had no room for.
pub(crate) fn lookup(
    inner: &Arc<Inner>,
    layout: &Layout,
    (keys, matching): (&[Key], Match),
    deadline: Deadline,
) -> Result<Pinned, Failure> {
    let mut pinned = Pinned {
        inner: Arc::clone(inner),
        outcomes: vec![LookedUp::NotTried; keys.len()],
        leases: Vec::new(),
        generation: layout.generation,
    };
    let mut open: Vec<usize> = (0..keys.len()).collect();
    let mut failure = None;
    let mut has_answer = keys.is_empty();
    while !open.is_empty() {
        let parts = split(layout, Op::Lookup, open.iter().map(|index| keys[*index]));
        let target = Target { channel: Channel::Data, generation: layout.generation, deadline };
        let mut again = Vec::new();
        let results = inner.scatter(
            &parts,
            target,
            |part| {
                let keys = part.indices.iter().map(|index| keys[open[*index]]).collect();
                PartBody::Lookup(Lookup { keys, matching })
            },
            |part, reply, _| {
                let Reply::Lookup(reply) = reply else { return None };
                again.extend(pinned.take(part, &open, reply, matching));
                Some(())
            },
        );
        if let Some(Failure::Stale) = none_or_stale(&results) {
            return Err(Failure::Stale);
        }
        for (part, result) in parts.iter().zip(results) {
            match result {
                Ok(()) => has_answer = true,
                Err(part_failure) => {
                    failure = Some(part_failure);
                    for index in &part.indices {
                        pinned.outcomes[open[*index]] = LookedUp::Failed(part_failure);
                    }
                }
            }
        }
        again.sort_unstable();
        if again.len() == open.len() {
            // A reply with room for nothing at all is no answer.
            return Err(Failure::Disconnected);
        }
        if matching == Match::Leading {
            let miss = first_miss(&pinned.outcomes);
            again.retain(|index| *index < miss);
        }
        open = again;
    }
    if matching == Match::Leading {
        let miss = first_miss(&pinned.outcomes);
        pinned.trim(miss);
    }
    match failure {
        Some(failure) if !has_answer => Err(failure),
        Some(_) | None => Ok(pinned),
    }
}

/// The first key that is known to be missing; nothing past it counts in a leading match.
fn first_miss(outcomes: &[LookedUp]) -> usize {
    let is_miss = |outcome: &LookedUp| matches!(outcome, LookedUp::Missing);
    outcomes.iter().position(is_miss).unwrap_or(outcomes.len())
}

impl Pinned {
    /// Takes one part's reply. Returns the keys to ask for again: the reply had no room for them.
    fn take(
        &mut self,
        part: &Part,
        open: &[usize],
        reply: &ArchivedLookupReply,
        matching: Match,
    ) -> Vec<usize> {
        let mut runs = reply.runs.iter().map(|run| PageRun {
            region: run.region.to_native(),
            page_index: run.page_index.to_native(),
            page_count: run.page_count.to_native(),
        });
        let (mut pins, mut again, mut is_past_miss) = (Vec::new(), Vec::new(), false);
        for (index, outcome) in part.indices.iter().zip(reply.outcomes.iter()) {
            let index = open[*index];
            self.outcomes[index] = match outcome {
                ArchivedLookupOutcome::Found(found) => {
                    pins.push(index);
                    LookedUp::Found(Chunk {
                        object_bytes: found.object_bytes.to_native(),
                        checksum: Checksum {
                            kind: found.checksum.kind,
                            value: found.checksum.value.to_native(),
                        },
                        ticket: found.ticket,
                        runs: runs.by_ref().take(found.run_count.to_native() as usize).collect(),
                    })
                }
                ArchivedLookupOutcome::Missing => {
                    is_past_miss = matching == Match::Leading;
                    LookedUp::Missing
                }
                ArchivedLookupOutcome::ClientLimit => LookedUp::ClientLimit,
                ArchivedLookupOutcome::NotTried => {
                    if !is_past_miss {
                        again.push(index);
                    }
                    LookedUp::NotTried
                }
            };
        }
        if reply.lease != LeaseId::default() {
            let left = Duration::from_micros(reply.lease_left_us.to_native());
            let ends_at = Instant::now().checked_add(left).unwrap_or_else(Instant::now);
            let (shard, lease) = (part.shard, reply.lease);
            self.leases.push(Lease { shard, lease, ends_at, indices: pins });
        }
        again
    }
}

/// Releases; says per key whether it was held to the end.
pub(crate) fn release(inner: &Arc<Inner>, mut pinned: Pinned, deadline: Deadline) -> Vec<bool> {
    let mut held = vec![false; pinned.outcomes.len()];
    let leases = std::mem::take(&mut pinned.leases);
    let is_stale = inner.check_process().is_err() || inner.is_stale(pinned.generation);
    if leases.is_empty() || is_stale || inner.ensure_running(deadline).is_err() {
        return held;
    }
    let parts = by_shard(&leases);
    let target = Target { channel: Channel::Data, generation: pinned.generation, deadline };
    let results = inner.scatter(
        &parts,
        target,
        |part| {
            let item = |index: &usize| ReleaseItem { lease: leases[*index].lease, keep: 0 };
            PartBody::Release(Release { items: part.indices.iter().map(item).collect() })
        },
        |part, reply, _| {
            let Reply::Release(reply) = reply else { return None };
            for (index, is_held) in part.indices.iter().zip(reply.held.iter()) {
                for key in &leases[*index].indices {
                    held[*key] = *is_held;
                }
            }
            Some(())
        },
    );
    // Bytes without an answer are void, but their pins must not wait for the lease's end.
    let generation = pinned.generation;
    let unanswered = parts.iter().zip(&results).filter(|(_, result)| result.is_err());
    let released: Vec<Released> = unanswered
        .flat_map(|(part, _)| &part.indices)
        .map(|index| &leases[*index])
        .map(|entry| Released { generation, shard: entry.shard, lease: entry.lease, keep: 0 })
        .collect();
    if released.is_empty() {
        inner.shared.note_progress();
    } else {
        inner.shared.let_go(|dropped| dropped.released.extend(released));
    }
    held
}

/// One frame of leases for each shard.
fn by_shard(leases: &[Lease]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (index, lease) in leases.iter().enumerate() {
        let open = parts.iter_mut().rev().find(|part| part.shard == lease.shard);
        match open.filter(|part| part.indices.len() < LEASES_PER_FRAME_MAX) {
            Some(part) => part.indices.push(index),
            None => parts.push(Part { shard: lease.shard, indices: vec![index] }),
        }
    }
    parts
}

/// Fits the smallest body that a server may announce.
const LEASES_PER_FRAME_MAX: usize = 128;
