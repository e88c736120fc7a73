//! Calls that move no bytes: exists, remove, clear, evicted-since, stats, ping.

use std::time::{Duration, Instant};

use maru_session::{Channel, Failure, Layout, LinkId, Part, split};
use maru_wire::{
    ArchivedExistsReply, ArchivedRemoveOutcome, ArchivedStatsReply, Clear, EvictedSince,
    EvictedSinceReply, Exists, Generation, Key, Match, Op, PingReply, Remove, RemoveItem,
    RemoveOutcome, Reply, StatsReply,
};

use crate::deadline::Deadline;
use crate::scatter::{PartBody, Target, all, every_shard};
use crate::{Client, Error};

/// What [`Client::exists`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// How many leading keys are present.
    pub leading_count: usize,
    /// Per key. After a leading match, only the leading run is told.
    pub present: Vec<bool>,
}

/// The answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The server's generation.
    pub generation: Generation,
    /// The shard's load.
    pub reply: PingReply,
    /// From the request's hand-off to the answer.
    pub round_trip: Duration,
}

impl Client {
    /// Asks which keys are present. Touches and pins nothing.
    ///
    /// Blocks for one round trip, at most `deadline`.
    ///
    /// # Errors
    ///
    /// Some shard did not answer: treat the keys as missing.
    pub fn exists(
        &self,
        keys: &[Key],
        matching: Match,
        deadline: Duration,
    ) -> Result<Presence, Error> {
        let deadline = Deadline::new(deadline);
        self.inner.with_layout(deadline, |layout| {
            let mut present = vec![false; keys.len()];
            let parts = split(layout, Op::Exists, keys.iter().copied());
            let results = self.inner.scatter(
                &parts,
                data(layout, deadline),
                |part| {
                    let keys = part.indices.iter().map(|index| keys[*index]).collect();
                    PartBody::Exists(Exists { keys, matching })
                },
                |part, reply, _| {
                    let Reply::Exists(reply) = reply else { return None };
                    mark_present(&mut present, part, reply, matching)
                },
            );
            all(results)?;
            let leading_count = present.iter().take_while(|is_present| **is_present).count();
            if matching == Match::Leading {
                present[leading_count..].fill(false);
            }
            Ok(Presence { leading_count, present })
        })
    }

    /// Unlinks keys; a zero ticket removes whatever is there.
    ///
    /// # Errors
    ///
    /// Some shard did not answer; the keys may or may not be gone. Safe to repeat.
    pub fn remove(
        &self,
        items: &[RemoveItem],
        deadline: Duration,
    ) -> Result<Vec<RemoveOutcome>, Error> {
        let deadline = Deadline::new(deadline);
        self.inner.with_layout(deadline, |layout| {
            let mut outcomes = vec![RemoveOutcome::Missing; items.len()];
            let parts = split(layout, Op::Remove, items.iter().map(|item| item.key));
            let results = self.inner.scatter(
                &parts,
                data(layout, deadline),
                |part| {
                    let items = part.indices.iter().map(|index| items[*index]).collect();
                    PartBody::Remove(Remove { items })
                },
                |part, reply, _| {
                    let Reply::Remove(reply) = reply else { return None };
                    for (index, outcome) in part.indices.iter().zip(reply.outcomes.iter()) {
                        outcomes[*index] = removed(outcome);
                    }
                    Some(())
                },
            );
            all(results)?;
            Ok(outcomes)
        })
    }

    /// Unlinks every chunk of the namespace on all shards. Returns how many there were.
    ///
    /// # Errors
    ///
    /// Some shard did not answer; its chunks may still be there. Safe to repeat.
    pub fn clear(&self, deadline: Duration) -> Result<u64, Error> {
        let deadline = Deadline::new(deadline);
        self.inner.with_layout(deadline, |layout| {
            let results = self.inner.scatter(
                &every_shard(layout.shard_count),
                data(layout, deadline),
                |_| PartBody::Clear(Clear { confirm: 1 }),
                |_, reply, _| match reply {
                    Reply::Clear(reply) => Some(reply.cleared_count.to_native()),
                    _ => None,
                },
            );
            Ok(all(results)?.into_iter().sum())
        })
    }

    /// Asks one shard for the keys that vanished after eviction number `number`.
    ///
    /// # Errors
    ///
    /// The shard did not answer.
    pub fn evicted_since(
        &self,
        shard: u32,
        number: u64,
        deadline: Duration,
    ) -> Result<EvictedSinceReply, Error> {
        let deadline = Deadline::new(deadline);
        self.check_shard(shard, deadline)?;
        self.inner.with_layout(deadline, |layout| {
            let keys_max = layout.limits_of(shard).keys_per_frame_max;
            let results = self.inner.scatter(
                &[Part { shard, indices: Vec::new() }],
                data(layout, deadline),
                |_| PartBody::EvictedSince(EvictedSince { number, keys_max }),
                |_, reply, _| match reply {
                    Reply::EvictedSince(reply) => Some(EvictedSinceReply {
                        eviction_number: reply.eviction_number.to_native(),
                        number: reply.number.to_native(),
                        keys: reply.keys.as_slice().to_vec(),
                        more: reply.more,
                        lost: reply.lost,
                    }),
                    _ => None,
                },
            );
            one(results)
        })
    }

    /// Reads the books and counters of every shard, in order, over monitor connections.
    ///
    /// # Errors
    ///
    /// Some shard did not answer.
    pub fn stats(&self, deadline: Duration) -> Result<Vec<StatsReply>, Error> {
        let deadline = Deadline::new(deadline);
        self.watch(deadline)?;
        self.inner.with_layout(deadline, |layout| {
            let target = Target { channel: Channel::Monitor, ..data(layout, deadline) };
            let results = self.inner.scatter(
                &every_shard(layout.shard_count),
                target,
                |_| PartBody::Stats,
                |_, reply, _| match reply {
                    Reply::Stats(reply) => own(reply),
                    _ => None,
                },
            );
            all(results)
        })
    }

    /// Asks one shard for a sign of life, over a monitor connection.
    ///
    /// # Errors
    ///
    /// The shard did not answer.
    pub fn ping(&self, shard: u32, deadline: Duration) -> Result<Pong, Error> {
        let deadline = Deadline::new(deadline);
        self.watch(deadline)?;
        self.check_shard(shard, deadline)?;
        self.inner.with_layout(deadline, |layout| {
            let started = Instant::now();
            let generation = Generation(0);
            let channel = Channel::Monitor;
            let results = self.inner.scatter(
                &[Part { shard, indices: Vec::new() }],
                Target { channel, generation, ..data(layout, deadline) },
                |_| PartBody::Ping,
                |_, reply, generation| match reply {
                    Reply::Ping(reply) => {
                        let reply = PingReply {
                            eviction_number: reply.eviction_number.to_native(),
                            connection_count: reply.connection_count.to_native(),
                            waiting_count: reply.waiting_count.to_native(),
                        };
                        Some(Pong { generation, reply, round_trip: started.elapsed() })
                    }
                    _ => None,
                },
            );
            one(results)
        })
    }

    /// Learns the server's shape over a monitor connection, so that who only watches needs no
    /// namespace that the server serves.
    fn watch(&self, deadline: Deadline) -> Result<(), Error> {
        self.inner.ensure_running(deadline)?;
        if self.inner.shared.layout().is_some() {
            return Ok(());
        }
        let link = LinkId { channel: Channel::Monitor, shard: 0 };
        self.inner.reach(link, deadline).map_err(|failure| self.inner.error(failure, deadline))
    }

    fn check_shard(&self, shard: u32, deadline: Deadline) -> Result<(), Error> {
        let shard_count = self.inner.with_layout(deadline, |layout| Ok(layout.shard_count))?;
        if shard < shard_count { Ok(()) } else { Err(Error::NoSuchShard { shard, shard_count }) }
    }
}

fn data(layout: &Layout, deadline: Deadline) -> Target {
    Target { channel: Channel::Data, generation: layout.generation, deadline }
}

fn one<T>(results: Vec<Result<T, Failure>>) -> Result<T, Failure> {
    results.into_iter().next().unwrap_or(Err(Failure::Disconnected))
}

/// Marks one part's keys; `None` when the reply does not answer what was asked.
fn mark_present(
    present: &mut [bool],
    part: &Part,
    reply: &ArchivedExistsReply,
    matching: Match,
) -> Option<()> {
    let leading_count = reply.leading_count.to_native() as usize;
    for (place, index) in part.indices.iter().enumerate() {
        present[*index] = match matching {
            Match::Leading => place < leading_count,
            Match::All => reply.bitmap.get(place / 64)?.to_native() >> (place % 64) & 1 == 1,
        };
    }
    Some(())
}

fn removed(outcome: &ArchivedRemoveOutcome) -> RemoveOutcome {
    match outcome {
        ArchivedRemoveOutcome::Removed => RemoveOutcome::Removed,
        ArchivedRemoveOutcome::Missing => RemoveOutcome::Missing,
        ArchivedRemoveOutcome::OtherTicket => RemoveOutcome::OtherTicket,
    }
}

fn own(reply: &ArchivedStatsReply) -> Option<StatsReply> {
    rkyv::api::low::deserialize::<StatsReply, rkyv::rancor::Failure>(reply).ok()
}
