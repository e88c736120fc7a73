//! The steps of a load: lookup, release.

use std::time::Duration;

use maru_wire::{Checksum, Generation, Key, Match, PageRun, Ticket};

use crate::{Client, Error, Failure};

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

/// The chunks of one lookup with their leases. Dropping it releases them in the background.
#[derive(Debug)]
pub struct Pinned {
    outcomes: Vec<LookedUp>,
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
        unreachable!("being written")
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
        let _ = (keys, matching, deadline);
        unreachable!("being written")
    }

    /// Releases what a lookup pinned. Says per key whether it was held to the end.
    ///
    /// `false` for keys that were not found, whose lease ran out, or whose shard did not answer:
    /// bytes read under those are void. Never retried. Blocks for one round trip, at most
    /// `deadline`.
    #[must_use = "bytes that were not held to the end are void"]
    pub fn release(&self, pinned: Pinned, deadline: Duration) -> Vec<bool> {
        let _ = (pinned, deadline);
        unreachable!("being written")
    }
}
