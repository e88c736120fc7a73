//! Store: reserve, copy, publish; in parts that stay below the client's caps.

use std::time::Duration;

use maru_wire::Key;

use crate::{Client, Error, Failure};

/// One chunk to store.
#[derive(Clone, Copy, Debug)]
pub struct StoreItem<'a> {
    /// The chunk's key.
    pub key: Key,
    /// Its bytes, at least one.
    pub bytes: &'a [u8],
}

/// What came of one chunk of [`Client::store`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// In the pool now, by this call.
    Stored,
    /// In the pool, with its first value.
    Present,
    /// Another writer is storing the key. Not stored; do not remember it.
    InFlight,
    /// The pool had no room. Not stored.
    Full,
    /// The pool is growing. Not stored; try again after this long.
    Growing(Duration),
    /// Larger than the pool takes, or empty. Never stored.
    Rejected,
    /// The namespace was cleared meanwhile. Not stored.
    Cleared,
    /// Not known to be stored: its shard or the copy failed.
    Failed(Failure),
}

impl StoreOutcome {
    /// Says whether the key was in the pool when the server answered.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self, Self::Stored | Self::Present)
    }
}

impl Client {
    /// Stores chunks: each outcome that says stored means that the key is in the pool.
    ///
    /// A key that repeats within `items` is stored once and answered alike. Blocks until all is
    /// done, at most `deadline` plus the copy in progress. One restart of the server within the
    /// call is survived.
    ///
    /// # Errors
    ///
    /// Nothing could be tried: no shard answered, or the regions cannot be attached (a TCP
    /// address). Skip the store.
    pub fn store(
        &self,
        items: &[StoreItem<'_>],
        deadline: Duration,
    ) -> Result<Vec<StoreOutcome>, Error> {
        let _ = (items, deadline);
        unreachable!("being written")
    }
}
