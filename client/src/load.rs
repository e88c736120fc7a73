//! Load: lookup, copy, release; bytes count only if held to the release.

use std::sync::Arc;
use std::time::Duration;

use maru_session::{Failure, Layout};
use maru_wire::{Key, Match};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::lookup::{lookup, release};
use crate::rounds::{RoundEnd, Rounds};
use crate::{Attachment, Client, Error, LookedUp, Pinned};

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
        let mut load = Load {
            inner: &self.inner,
            outcomes: vec![None; items.len()],
            rounds: Rounds::new((0..items.len()).collect()),
            items,
            matching,
            deadline: Deadline::new(deadline),
        };
        load.run()?;
        let outcomes = load.outcomes.into_iter();
        Ok(outcomes.map(|outcome| outcome.unwrap_or(LoadOutcome::NotTried)).collect())
    }
}

/// One call of `load`.
struct Load<'a, 'b> {
    inner: &'a Arc<Inner>,
    items: &'a mut [LoadItem<'b>],
    outcomes: Vec<Option<LoadOutcome>>,
    rounds: Rounds,
    matching: Match,
    deadline: Deadline,
}

impl Load<'_, '_> {
    fn run(&mut self) -> Result<(), Error> {
        let mut is_first = true;
        loop {
            let outcomes = &self.outcomes;
            self.rounds.open.retain(|index| outcomes[*index].is_none());
            if !is_first && (self.rounds.open.is_empty() || self.is_past_miss()) {
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

    fn is_past_miss(&self) -> bool {
        let is_miss = |outcome: &Option<LoadOutcome>| *outcome == Some(LoadOutcome::Missing);
        self.matching == Match::Leading && self.outcomes.iter().any(is_miss)
    }

    /// An error when nothing but failures came of the whole call.
    fn judge(&self) -> Result<(), Error> {
        let mut told = self.outcomes.iter().flatten();
        let Some(LoadOutcome::Failed(failure)) = told.next() else { return Ok(()) };
        let is_all = told.all(|outcome| matches!(outcome, LoadOutcome::Failed(_)));
        if is_all { Err(self.inner.error(*failure, self.deadline)) } else { Ok(()) }
    }

    fn fail_open(&mut self, failure: Failure) {
        if self.is_past_miss() {
            return;
        }
        for index in &self.rounds.open {
            self.outcomes[*index].get_or_insert(LoadOutcome::Failed(failure));
        }
    }

    /// Looks up, copies and releases what one round may pin.
    fn round(&mut self, layout: &Layout, attachment: &Attachment) -> RoundEnd {
        let items = &*self.items;
        let item = |index: usize| (items[index].key, items[index].into.len() as u64);
        let round = self.rounds.next(layout, item, |limits| limits.pinned_pages_max);
        let keys: Vec<Key> = round.iter().map(|index| items[*index].key).collect();
        let pinned = match lookup(self.inner, layout, (&keys, self.matching), self.deadline) {
            Ok(pinned) => pinned,
            Err(Failure::Stale) => return RoundEnd::Stale,
            Err(Failure::Busy) => return RoundEnd::Limited,
            Err(failure) => {
                for index in round {
                    self.outcomes[index] = Some(LoadOutcome::Failed(failure));
                }
                return RoundEnd::Progress;
            }
        };
        let Some(copied) = self.copy(attachment, &round, &pinned) else { return RoundEnd::Stale };
        let generation = pinned.generation();
        let held = release(self.inner, pinned, self.deadline);
        for (place, outcome) in copied.into_iter().enumerate() {
            let outcome = match outcome {
                Some(LoadOutcome::Loaded(_)) if !held[place] => {
                    if self.inner.is_stale(generation) {
                        return RoundEnd::Stale;
                    }
                    Some(LoadOutcome::NotHeld)
                }
                other => other,
            };
            self.outcomes[round[place]] = outcome;
        }
        let has_progress = round.iter().any(|index| self.outcomes[*index].is_some());
        if has_progress || round.is_empty() { RoundEnd::Progress } else { RoundEnd::Limited }
    }

    /// Copies what was found. Returns what came of each key if it is held to the release; `None`
    /// when the server was lost. A key without an outcome is looked up again.
    fn copy(
        &mut self,
        attachment: &Attachment,
        round: &[usize],
        pinned: &Pinned,
    ) -> Option<Vec<Option<LoadOutcome>>> {
        let mut outcomes = Vec::with_capacity(round.len());
        for (place, index) in round.iter().enumerate() {
            outcomes.push(match &pinned.outcomes()[place] {
                LookedUp::Found(_) if self.deadline.is_over() => {
                    Some(LoadOutcome::Failed(Failure::Timeout))
                }
                LookedUp::Found(chunk) => {
                    let into = &mut *self.items[*index].into;
                    if chunk.object_bytes > into.len() as u64 {
                        Some(LoadOutcome::TooLarge(chunk.object_bytes))
                    } else {
                        match attachment.read(pinned, place, into) {
                            Ok(bytes) => Some(LoadOutcome::Loaded(bytes)),
                            Err(Error::AttachmentLost | Error::OtherGeneration) => return None,
                            Err(_) => Some(LoadOutcome::Failed(Failure::Copy)),
                        }
                    }
                }
                LookedUp::Missing => Some(LoadOutcome::Missing),
                LookedUp::NotTried => Some(LoadOutcome::NotTried),
                LookedUp::ClientLimit | LookedUp::Failed(Failure::Busy) => None,
                LookedUp::Failed(failure) => Some(LoadOutcome::Failed(*failure)),
            });
        }
        Some(outcomes)
    }
}
