//! The requests of one link: those that wait for it and those in flight.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use maru_wire::{Generation, Op, Ticket};

use crate::{CallId, Time};

/// Who gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// A caller that waits.
    Call(CallId),
    /// A caller that went away; what the answer grants is given back.
    Gone,
    /// The session itself.
    Session,
}

/// What is remembered of a request until its answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) asker: Asker,
    pub(crate) op: Op,
    pub(crate) item_count: usize,
    /// The tickets that it publishes or abandons.
    pub(crate) tickets: Vec<Ticket>,
    /// Of an Abandon: whether a transfer failed.
    pub(crate) after_error: bool,
}

/// A request that waits for its link.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) call: CallId,
    pub(crate) generation: Generation,
    /// The frame with what is remembered of it; `None` waits for the link only.
    pub(crate) frame: Option<(Vec<u8>, Request)>,
}

/// The requests of one link, bounded by the session's limits.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) in_flight: BTreeMap<u64, Request>,
    /// Since when the link owes an answer and sends nothing.
    pub(crate) silent_since: Option<Time>,
}

impl Requests {
    pub(crate) fn count(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    pub(crate) fn sent(&mut self, now: Time, id: u64, request: Request) {
        self.silent_since.get_or_insert(now);
        self.in_flight.insert(id, request);
    }

    /// Takes the request that the reply with `id` answers.
    pub(crate) fn answered(&mut self, now: Time, id: u64) -> Option<Request> {
        let request = self.in_flight.remove(&id);
        self.silent_since = (!self.in_flight.is_empty()).then_some(now);
        request
    }
}
