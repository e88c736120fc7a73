//! The steps of a store: reserve, publish, abandon.

use std::sync::Arc;
use std::time::Duration;

use maru_session::{Channel, Failure, Layout, split};
use maru_wire::{
    Abandon, ArchivedPublishOutcome, ArchivedReserveOutcome, ArchivedReserveReply, Checksum,
    Generation, Key, Op, PageRun, Publish, PublishItem, PublishOutcome, Reply, Reserve,
    ReserveItem, Ticket,
};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::scatter::{PartBody, Target, none_or_stale};
use crate::shared::Abandoned;
use crate::{Client, Error};

/// Pages promised to this client. Dropping it unpublished abandons them in the background.
#[derive(Debug)]
pub struct Reservation {
    inner: Arc<Inner>,
    key: Key,
    ticket: Ticket,
    shard: u32,
    object_bytes: u64,
    runs: Vec<PageRun>,
    checksum: Checksum,
    generation: Generation,
    after_error: bool,
    is_settled: bool,
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

    /// Notes that a transfer to its pages failed: the server fences them when it is dropped.
    pub fn set_after_error(&mut self) {
        self.after_error = true;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.is_settled || self.inner.is_forked() {
            return;
        }
        let (shard, ticket, after_error) = (self.shard, self.ticket, self.after_error);
        let entry = Abandoned { shard, ticket, after_error };
        self.inner.shared.let_go(|dropped| dropped.abandoned.push(entry));
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
        let deadline = Deadline::new(deadline);
        self.inner.with_layout(deadline, |layout| reserve(&self.inner, layout, items, deadline))
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
        let deadline = Deadline::new(deadline);
        let outcomes = publish(&self.inner, reservations, deadline)?;
        let outcomes: Result<Vec<_>, Failure> = outcomes.into_iter().collect();
        outcomes.map_err(|failure| self.inner.error(failure, deadline))
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
        let deadline = Deadline::new(deadline);
        self.inner.ensure_running(deadline)?;
        let Some(layout) = self.inner.shared.layout() else { return Ok(0) };
        let mut held = reservations;
        held.retain(|reservation| reservation.generation == layout.generation);
        let keys = held.iter().map(Reservation::key);
        let parts = split(&layout, Op::Abandon, keys);
        let target = Target { channel: Channel::Data, generation: layout.generation, deadline };
        let results = self.inner.scatter(
            &parts,
            target,
            |part| {
                let tickets = part.indices.iter().map(|index| held[*index].ticket).collect();
                PartBody::Abandon(Abandon { tickets, after_error })
            },
            |_, reply, _| match reply {
                Reply::Abandon(reply) => Some(u64::from(reply.abandoned_count.to_native())),
                _ => None,
            },
        );
        // The session repeats what was not answered, so the handles have nothing left to do.
        for (part, result) in parts.iter().zip(&results) {
            for index in &part.indices {
                held[*index].after_error |= after_error;
                held[*index].is_settled = result.is_ok();
            }
        }
        drop(held);
        self.inner.shared.note_progress();
        let counts = crate::scatter::all(results);
        match counts {
            Ok(counts) => Ok(counts.into_iter().sum()),
            Err(Failure::Stale) => Ok(0),
            Err(failure) => Err(self.inner.error(failure, deadline)),
        }
    }
}

/// Reserves in one generation. Asks again for what a reply had no room for.
pub(crate) fn reserve(
    inner: &Arc<Inner>,
    layout: &Layout,
    items: &[ReserveItem],
    deadline: Deadline,
) -> Result<Vec<Reserved>, Failure> {
    let mut outcomes: Vec<Option<Reserved>> = Vec::new();
    outcomes.resize_with(items.len(), || None);
    let mut failure = None;
    let mut has_answer = items.is_empty();
    loop {
        let open: Vec<usize> =
            (0..items.len()).filter(|index| outcomes[*index].is_none()).collect();
        if open.is_empty() {
            break;
        }
        let parts = split(layout, Op::Reserve, open.iter().map(|index| items[*index].key));
        let target = Target { channel: Channel::Data, generation: layout.generation, deadline };
        let results = inner.scatter(
            &parts,
            target,
            |part| {
                let items = part.indices.iter().map(|index| items[open[*index]]).collect();
                PartBody::Reserve(Reserve { items })
            },
            |part, reply, generation| {
                let Reply::Reserve(reply) = reply else { return None };
                let grant = Grantor { inner, shard: part.shard, generation };
                let items: Vec<ReserveItem> =
                    part.indices.iter().map(|index| items[open[*index]]).collect();
                Some(grant.take(reply, &items))
            },
        );
        if let Some(Failure::Stale) = none_or_stale(&results) {
            return Err(Failure::Stale);
        }
        let mut has_progress = false;
        for (part, result) in parts.iter().zip(results) {
            match result {
                Ok(part_outcomes) => {
                    has_answer = true;
                    for (index, outcome) in part.indices.iter().zip(part_outcomes) {
                        has_progress |= outcome.is_some();
                        outcomes[open[*index]] = outcome;
                    }
                }
                Err(part_failure) => {
                    has_progress = true;
                    failure = Some(part_failure);
                    for index in &part.indices {
                        outcomes[open[*index]] = Some(Reserved::Failed(part_failure));
                    }
                }
            }
        }
        if !has_progress {
            // A reply with room for nothing at all is no answer.
            return Err(Failure::Disconnected);
        }
    }
    match failure {
        Some(failure) if !has_answer => Err(failure),
        Some(_) | None => Ok(outcomes.into_iter().flatten().collect()),
    }
}

/// Where grants come from.
struct Grantor<'a> {
    inner: &'a Arc<Inner>,
    shard: u32,
    generation: Generation,
}

impl Grantor<'_> {
    /// Takes a reply's outcomes; `None` for what it had no room for.
    fn take(&self, reply: &ArchivedReserveReply, items: &[ReserveItem]) -> Vec<Option<Reserved>> {
        let mut runs = reply.runs.iter().map(|run| PageRun {
            region: run.region.to_native(),
            page_index: run.page_index.to_native(),
            page_count: run.page_count.to_native(),
        });
        let outcome = |(item, outcome): (&ReserveItem, &ArchivedReserveOutcome)| {
            Some(match outcome {
                ArchivedReserveOutcome::Granted(grant) => {
                    let run_count = grant.run_count.to_native() as usize;
                    Reserved::Granted(Reservation {
                        inner: Arc::clone(self.inner),
                        key: item.key,
                        ticket: grant.ticket,
                        shard: self.shard,
                        object_bytes: item.object_bytes,
                        runs: runs.by_ref().take(run_count).collect(),
                        checksum: Checksum::default(),
                        generation: self.generation,
                        after_error: false,
                        is_settled: false,
                    })
                }
                ArchivedReserveOutcome::Present => Reserved::Present,
                ArchivedReserveOutcome::InFlight => Reserved::InFlight,
                ArchivedReserveOutcome::Full => Reserved::Full,
                ArchivedReserveOutcome::Growing(retry_us) => {
                    Reserved::Growing(Duration::from_micros(u64::from(retry_us.to_native())))
                }
                ArchivedReserveOutcome::Rejected => Reserved::Rejected,
                ArchivedReserveOutcome::ClientLimit => Reserved::ClientLimit,
                ArchivedReserveOutcome::Duplicate => Reserved::Duplicate,
                ArchivedReserveOutcome::NotTried => return None,
            })
        };
        items.iter().zip(reply.outcomes.iter()).map(outcome).collect()
    }
}

/// Publishes; one result per reservation. A definitive answer spends it.
pub(crate) fn publish(
    inner: &Arc<Inner>,
    reservations: &mut [Reservation],
    deadline: Deadline,
) -> Result<Vec<Result<PublishOutcome, Failure>>, Error> {
    inner.ensure_running(deadline)?;
    let layout = inner.layout(deadline).map_err(|failure| inner.error(failure, deadline))?;
    let mut outcomes = vec![Err(Failure::Stale); reservations.len()];
    let own: Vec<usize> = (0..reservations.len())
        .filter(|index| reservations[*index].generation == layout.generation)
        .collect();
    let parts = split(&layout, Op::Publish, own.iter().map(|index| reservations[*index].key));
    let target = Target { channel: Channel::Data, generation: layout.generation, deadline };
    let item = |reservation: &Reservation| PublishItem {
        ticket: reservation.ticket,
        key: reservation.key,
        checksum: reservation.checksum,
    };
    let results = inner.scatter(
        &parts,
        target,
        |part| {
            let items = part.indices.iter().map(|index| item(&reservations[own[*index]]));
            PartBody::Publish(Publish { items: items.collect() })
        },
        |_, reply, _| match reply {
            Reply::Publish(reply) => Some(reply.outcomes.iter().map(published).collect()),
            _ => None,
        },
    );
    for (part, result) in parts.iter().zip(results) {
        let part_outcomes: Result<Vec<PublishOutcome>, Failure> = result;
        for (place, index) in part.indices.iter().enumerate() {
            let index = own[*index];
            let outcome = part_outcomes.as_ref().map(|all| all[place]).map_err(|error| *error);
            reservations[index].is_settled = match outcome {
                Ok(PublishOutcome::WrongKey) | Err(_) => false,
                Ok(
                    PublishOutcome::Created
                    | PublishOutcome::AlreadyPresent
                    | PublishOutcome::Cleared
                    | PublishOutcome::Unknown,
                ) => true,
            };
            outcomes[index] = outcome;
        }
    }
    inner.shared.note_progress();
    Ok(outcomes)
}

fn published(outcome: &ArchivedPublishOutcome) -> PublishOutcome {
    match outcome {
        ArchivedPublishOutcome::Created => PublishOutcome::Created,
        ArchivedPublishOutcome::AlreadyPresent => PublishOutcome::AlreadyPresent,
        ArchivedPublishOutcome::Cleared => PublishOutcome::Cleared,
        ArchivedPublishOutcome::Unknown => PublishOutcome::Unknown,
        ArchivedPublishOutcome::WrongKey => PublishOutcome::WrongKey,
    }
}
