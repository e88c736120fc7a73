//! Store: reserve, copy, publish; in parts that stay below the client's caps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use maru_session::{Failure, Layout};
use maru_wire::{Key, PublishOutcome, ReserveItem};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::reserve::{publish, reserve};
use crate::rounds::{RoundEnd, Rounds};
use crate::{Attachment, Client, Error, Reservation, Reserved};

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
        let deadline = Deadline::new(deadline);
        let (firsts, unique) = unique(items);
        let mut store = Store {
            inner: &self.inner,
            items,
            outcomes: vec![None; items.len()],
            rounds: Rounds::new(unique),
            deadline,
        };
        store.run()?;
        let outcomes = store.outcomes;
        let outcome = |first: usize| outcomes[first].expect("every first item has an outcome");
        Ok(firsts.into_iter().map(outcome).collect())
    }
}

/// Returns each item's first one of the same key, and the first ones in order.
fn unique(items: &[StoreItem<'_>]) -> (Vec<usize>, Vec<usize>) {
    let mut first_of: BTreeMap<Key, usize> = BTreeMap::new();
    let mut unique = Vec::with_capacity(items.len());
    let firsts = items.iter().enumerate().map(|(index, item)| {
        *first_of.entry(item.key).or_insert_with(|| {
            unique.push(index);
            index
        })
    });
    (firsts.collect(), unique)
}

/// One call of `store`.
struct Store<'a> {
    inner: &'a Arc<Inner>,
    items: &'a [StoreItem<'a>],
    outcomes: Vec<Option<StoreOutcome>>,
    rounds: Rounds,
    deadline: Deadline,
}

impl Store<'_> {
    fn run(&mut self) -> Result<(), Error> {
        for index in 0..self.items.len() {
            if self.items[index].bytes.is_empty() {
                self.outcomes[index] = Some(StoreOutcome::Rejected);
            }
        }
        let mut is_first = true;
        loop {
            let outcomes = &self.outcomes;
            self.rounds.open.retain(|index| outcomes[*index].is_none());
            if self.rounds.open.is_empty() && !is_first {
                break;
            }
            let (layout, attachment) = match self.inner.attached(self.deadline) {
                Ok(attached) => attached,
                Err(error) if is_first => return Err(error),
                Err(_) => {
                    self.fail_open(Failure::Stale);
                    break;
                }
            };
            is_first = false;
            let seen = self.inner.shared.progress();
            let end = self.round(&layout, &attachment);
            if let Err(failure) = self.rounds.ended(self.inner, end, seen, self.deadline) {
                self.fail_open(failure);
                break;
            }
        }
        self.judge()
    }

    /// An error when nothing but one failure came of the whole call.
    fn judge(&self) -> Result<(), Error> {
        let mut told = self.outcomes.iter().flatten();
        let Some(StoreOutcome::Failed(failure)) = told.next() else { return Ok(()) };
        let is_all = told.all(|outcome| matches!(outcome, StoreOutcome::Failed(_)));
        if is_all { Err(self.inner.error(*failure, self.deadline)) } else { Ok(()) }
    }

    fn fail_open(&mut self, failure: Failure) {
        for index in &self.rounds.open {
            self.outcomes[*index].get_or_insert(StoreOutcome::Failed(failure));
        }
    }

    /// Reserves, copies and publishes what one round may hold.
    fn round(&mut self, layout: &Layout, attachment: &Attachment) -> RoundEnd {
        let items = self.items;
        let item = |index: usize| (items[index].key, items[index].bytes.len() as u64);
        let round = self.rounds.next(layout, item, |limits| limits.reserved_pages_max);
        let asked: Vec<ReserveItem> = round
            .iter()
            .map(|index| item(*index))
            .map(|(key, object_bytes)| ReserveItem { key, object_bytes })
            .collect();
        let reserved = match reserve(self.inner, layout, &asked, self.deadline) {
            Ok(reserved) => reserved,
            Err(Failure::Stale) => return RoundEnd::Stale,
            Err(Failure::Busy) => return RoundEnd::Limited,
            Err(failure) => {
                for index in round {
                    self.outcomes[index] = Some(StoreOutcome::Failed(failure));
                }
                return RoundEnd::Progress;
            }
        };
        let mut granted = Granted::default();
        for (index, reserved) in round.iter().zip(reserved) {
            match reserved {
                Reserved::Granted(reservation) => granted.push(*index, reservation),
                other => self.outcomes[*index] = outcome(&other),
            }
        }
        let has_grants = !granted.indices.is_empty();
        if self.copy(attachment, &mut granted) || self.publish(&mut granted) {
            return RoundEnd::Stale;
        }
        let has_progress = has_grants || round.iter().any(|index| self.outcomes[*index].is_some());
        if has_progress || round.is_empty() { RoundEnd::Progress } else { RoundEnd::Limited }
    }

    /// Copies into the granted pages, and lets go of what cannot be copied. True: server lost.
    fn copy(&mut self, attachment: &Attachment, granted: &mut Granted) -> bool {
        let mut copied = Granted::default();
        let mut is_lost = false;
        for (index, reservation) in granted.drain() {
            if is_lost {
                continue;
            }
            if self.deadline.is_over() {
                self.outcomes[index] = Some(StoreOutcome::Failed(Failure::Timeout));
                continue;
            }
            match attachment.write(&reservation, 0, self.items[index].bytes) {
                Ok(()) => copied.push(index, reservation),
                Err(Error::AttachmentLost | Error::OtherGeneration) => is_lost = true,
                Err(_) => self.outcomes[index] = Some(StoreOutcome::Failed(Failure::Copy)),
            }
        }
        *granted = copied;
        is_lost
    }

    /// Publishes what was copied. Once more over a new connection: a repeat gets a true answer.
    /// True: server lost.
    fn publish(&mut self, granted: &mut Granted) -> bool {
        let mut is_stale = false;
        for attempt in 0..PUBLISH_ATTEMPTS {
            if granted.indices.is_empty() {
                break;
            }
            let results = match publish(self.inner, &mut granted.reservations, self.deadline) {
                Ok(results) => results,
                Err(_) => vec![Err(Failure::Disconnected); granted.indices.len()],
            };
            let is_last = attempt + 1 == PUBLISH_ATTEMPTS || self.deadline.is_over();
            let mut again = Granted::default();
            for ((index, reservation), result) in granted.drain().zip(results) {
                match result {
                    Ok(result) => self.outcomes[index] = Some(published(result)),
                    Err(Failure::Stale) => is_stale = true,
                    Err(Failure::Disconnected | Failure::Unreachable(_)) if !is_last => {
                        again.push(index, reservation);
                    }
                    Err(failure) => self.outcomes[index] = Some(StoreOutcome::Failed(failure)),
                }
            }
            *granted = again;
        }
        is_stale
    }
}

/// How often a publish is sent before its outcome counts as unknown.
const PUBLISH_ATTEMPTS: usize = 2;

/// Reservations with the items that they are for.
#[derive(Debug, Default)]
struct Granted {
    indices: Vec<usize>,
    reservations: Vec<Reservation>,
}

impl Granted {
    fn push(&mut self, index: usize, reservation: Reservation) {
        self.indices.push(index);
        self.reservations.push(reservation);
    }

    fn drain(&mut self) -> impl Iterator<Item = (usize, Reservation)> + use<> {
        let indices = std::mem::take(&mut self.indices);
        indices.into_iter().zip(std::mem::take(&mut self.reservations))
    }
}

/// The outcome of a key that was not granted; `None`: it waits for pages of one's own.
fn outcome(reserved: &Reserved) -> Option<StoreOutcome> {
    match reserved {
        Reserved::Present => Some(StoreOutcome::Present),
        // The batch has no duplicates; another call of this client may hold the key.
        Reserved::InFlight | Reserved::Duplicate => Some(StoreOutcome::InFlight),
        Reserved::Full => Some(StoreOutcome::Full),
        Reserved::Growing(retry_after) => Some(StoreOutcome::Growing(*retry_after)),
        Reserved::Rejected => Some(StoreOutcome::Rejected),
        Reserved::Granted(_) | Reserved::ClientLimit | Reserved::Failed(Failure::Busy) => None,
        Reserved::Failed(failure) => Some(StoreOutcome::Failed(*failure)),
    }
}

fn published(outcome: PublishOutcome) -> StoreOutcome {
    match outcome {
        PublishOutcome::Created => StoreOutcome::Stored,
        PublishOutcome::AlreadyPresent => StoreOutcome::Present,
        PublishOutcome::Cleared => StoreOutcome::Cleared,
        PublishOutcome::Unknown | PublishOutcome::WrongKey => {
            StoreOutcome::Failed(Failure::TicketUnknown)
        }
    }
}
