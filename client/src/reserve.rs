//! The steps of a store: reserve, publish, abandon.

use std::time::Duration;

use maru_wire::{Checksum, Generation, Key, PageRun, PublishOutcome, ReserveItem, Ticket};

use crate::{Client, Error, Failure};

/// Pages promised to this client. Dropping it unpublished abandons them in the background.
#[derive(Debug)]
pub struct Reservation {
    key: Key,
    ticket: Ticket,
    object_bytes: u64,
    runs: Vec<PageRun>,
    checksum: Checksum,
    generation: Generation,
}

impl Reservation {
    /// Returns the chunk's key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the name of the reservation.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Returns the chunk's size in bytes.
    #[must_use]
    pub fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Returns the pages to write to, in order.
    #[must_use]
    pub fn runs(&self) -> &[PageRun] {
        &self.runs
    }

    /// Returns the server generation that granted it.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// States the bytes' checksum, sent when it is published.
    pub fn set_checksum(&mut self, checksum: Checksum) {
        self.checksum = checksum;
    }
}

/// What came of one key of [`Client::reserve`].
#[derive(Debug)]
pub enum Reserved {
    /// Write the bytes, then publish.
    Granted(Reservation),
    /// The key is published already. Skip the store.
    Present,
    /// Another writer holds the key at present. Nothing is stored yet.
    InFlight,
    /// No page is free and none can be evicted.
    Full,
    /// The pool is growing; try again after this long.
    Growing(Duration),
    /// The object is larger than the shard takes, or empty.
    Rejected,
    /// This client holds as many pages as it may. Publish or abandon some, then try again.
    ClientLimit,
    /// The same key stands earlier in the batch.
    Duplicate,
    /// Its shard did not answer; other shards did.
    Failed(Failure),
}

impl Client {
    /// Reserves pages for new chunks, in order per shard.
    ///
    /// Blocks for one round trip per part, at most `deadline`. Grants that arrive later are
    /// abandoned in the background.
    ///
    /// # Errors
    ///
    /// No shard answered: treat the pool as absent and skip the store.
    pub fn reserve(
        &self,
        items: &[ReserveItem],
        deadline: Duration,
    ) -> Result<Vec<Reserved>, Error> {
        let _ = (items, deadline);
        unreachable!("being written")
    }

    /// Makes written chunks visible. On a definitive answer a reservation is spent.
    ///
    /// `Created` and `AlreadyPresent` mean that the key is in the pool.
    ///
    /// # Errors
    ///
    /// Some shard did not answer. The call may be repeated with the same reservations and then
    /// gets a true answer; a dropped reservation is abandoned, which never deletes a chunk.
    pub fn publish(
        &self,
        reservations: &mut [Reservation],
        deadline: Duration,
    ) -> Result<Vec<PublishOutcome>, Error> {
        let _ = (reservations, deadline);
        unreachable!("being written")
    }

    /// Gives reservations back: no write under them is in flight any more. Returns how many ended.
    ///
    /// `after_error`: a transfer failed, so the server fences the pages before it frees them.
    ///
    /// # Errors
    ///
    /// Some shard did not answer; its part is repeated in the background until it does.
    pub fn abandon(
        &self,
        reservations: Vec<Reservation>,
        after_error: bool,
        deadline: Duration,
    ) -> Result<u64, Error> {
        let _ = (reservations, after_error, deadline);
        unreachable!("being written")
    }
}
