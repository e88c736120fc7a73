//! Load: lookup, copy, release; bytes count only if held to the release.

use std::time::Duration;

use maru_wire::{Key, Match};

use crate::{Client, Error, Failure};

/// One chunk to load, and where to.
#[derive(Debug)]
pub struct LoadItem<'a> {
    /// The chunk's key.
    pub key: Key,
    /// Where its bytes go; its content is undefined unless the outcome is `Loaded`.
    pub into: &'a mut [u8],
}

/// What came of one chunk of [`Client::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The front of `into` holds the chunk, which has this many bytes.
    Loaded(usize),
    /// Not in the pool.
    Missing,
    /// Past the first miss of a leading match.
    NotTried,
    /// The chunk has this many bytes, more than `into` takes.
    TooLarge(u64),
    /// The lease ended before the copy did: the bytes are void.
    NotHeld,
    /// Its shard or the copy failed: the bytes are void.
    Failed(Failure),
}

impl LoadOutcome {
    /// Says whether the bytes are there.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        matches!(self, Self::Loaded(_))
    }
}

impl Client {
    /// Loads chunks. With `Match::Leading` it stops at the first one that is missing.
    ///
    /// Batches above the client's caps go in parts. Blocks until all is done, at most `deadline`
    /// plus the copy in progress. One restart of the server within the call is survived.
    ///
    /// # Errors
    ///
    /// Nothing could be tried: no shard answered, or the regions cannot be attached (a TCP
    /// address). Treat the chunks as missing.
    pub fn load(
        &self,
        items: &mut [LoadItem<'_>],
        matching: Match,
        deadline: Duration,
    ) -> Result<Vec<LoadOutcome>, Error> {
        let _ = (items, matching, deadline);
        unreachable!("being written")
    }
}
