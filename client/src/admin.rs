//! Calls that move no bytes: exists, remove, clear, evicted-since, stats, ping.

use std::time::Duration;

use maru_wire::{
    EvictedSinceReply, Generation, Key, Match, PingReply, RemoveItem, RemoveOutcome, StatsReply,
};

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
        let _ = (keys, matching, deadline);
        unreachable!("being written")
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
        let _ = (items, deadline);
        unreachable!("being written")
    }

    /// Unlinks every chunk of the namespace on all shards. Returns how many there were.
    ///
    /// # Errors
    ///
    /// Some shard did not answer; its chunks may still be there. Safe to repeat.
    pub fn clear(&self, deadline: Duration) -> Result<u64, Error> {
        let _ = deadline;
        unreachable!("being written")
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
        let _ = (shard, number, deadline);
        unreachable!("being written")
    }

    /// Reads the books and counters of every shard, in order, over monitor connections.
    ///
    /// # Errors
    ///
    /// Some shard did not answer.
    pub fn stats(&self, deadline: Duration) -> Result<Vec<StatsReply>, Error> {
        let _ = deadline;
        unreachable!("being written")
    }

    /// Asks one shard for a sign of life, over a monitor connection.
    ///
    /// # Errors
    ///
    /// The shard did not answer.
    pub fn ping(&self, shard: u32, deadline: Duration) -> Result<Pong, Error> {
        let _ = (shard, deadline);
        unreachable!("being written")
    }
}
