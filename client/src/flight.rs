//! One request on its way: encoded, handed over, waited for, read. All on the caller's thread.

use std::thread;
use std::time::Instant;

use maru_session::{CallId, Failure, LinkId};
use maru_wire::{
    ArchivedReserveOutcome, Frame, Generation, LeaseId, Refusal, Reply, RequestBody, Ticket,
    decode_reply,
};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::shared::{Abandoned, Dropped, Released};
use crate::slots::{Intent, Phase};

/// What is asked, and of whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) link: LinkId,
    pub(crate) generation: Generation,
    pub(crate) body: RequestBody<'a>,
    pub(crate) item_count: usize,
    /// The tickets that a Publish or Abandon names.
    pub(crate) tickets: &'a [Ticket],
}

/// A request under way. Dropping it gives it up; what its reply grants is then given back.
#[derive(Debug)]
pub(crate) struct Flight<'a> {
    inner: &'a Inner,
    id: CallId,
    is_read: bool,
}

impl Inner {
    /// Waits until a link is up.
    pub(crate) fn reach(&self, link: LinkId, deadline: Deadline) -> Result<(), Failure> {
        let id = self.slot(deadline)?;
        let intent =
            Intent { link, generation: Generation(0), op: None, item_count: 0, after_error: false };
        self.hand_over(id, intent, |_, _| {})?.wait(deadline)
    }

    /// Sends a request. Waits for nothing but a free slot.
    pub(crate) fn ask(&self, ask: &Ask<'_>, deadline: Deadline) -> Result<Flight<'_>, Failure> {
        let id = self.slot(deadline)?;
        self.ask_with(id, ask)
    }

    /// As `ask`, but `None` at once when no slot is free.
    pub(crate) fn try_ask(&self, ask: &Ask<'_>) -> Option<Result<Flight<'_>, Failure>> {
        self.shared.slots.take().map(|id| self.ask_with(id, ask))
    }

    fn ask_with(&self, id: CallId, ask: &Ask<'_>) -> Result<Flight<'_>, Failure> {
        let after_error = match ask.body {
            RequestBody::Abandon(body) => body.after_error,
            RequestBody::Reserve(_)
            | RequestBody::Publish(_)
            | RequestBody::Exists(_)
            | RequestBody::Lookup(_)
            | RequestBody::Release(_)
            | RequestBody::EvictedSince(_)
            | RequestBody::Remove(_)
            | RequestBody::Clear(_)
            | RequestBody::Ping
            | RequestBody::Stats
            | RequestBody::Regions => false,
        };
        let intent = Intent {
            link: ask.link,
            generation: ask.generation,
            op: Some(ask.body.op()),
            item_count: ask.item_count,
            after_error,
        };
        self.hand_over(id, intent, |request, tickets| {
            maru_wire::encode_request(request, id.0, ask.generation, &ask.body);
            tickets.extend_from_slice(ask.tickets);
        })
    }

    fn slot(&self, deadline: Deadline) -> Result<CallId, Failure> {
        loop {
            if let Some(id) = self.shared.slots.take() {
                return Ok(id);
            }
            let seen = self.shared.progress();
            if deadline.is_over() {
                return Err(Failure::Busy);
            }
            if let Some(id) = self.shared.slots.take() {
                return Ok(id);
            }
            let poll = Instant::now() + SLOT_POLL;
            self.shared.await_progress(seen, poll.min(deadline.at));
        }
    }

    fn hand_over(
        &self,
        id: CallId,
        intent: Intent,
        fill: impl FnOnce(&mut Vec<u8>, &mut Vec<Ticket>),
    ) -> Result<Flight<'_>, Failure> {
        let mut slot = self.shared.slots.lock(id).expect("the slot is this call's");
        let slot_ref = &mut *slot;
        slot_ref.request.clear();
        slot_ref.tickets.clear();
        fill(&mut slot_ref.request, &mut slot_ref.tickets);
        slot.intent = Some(intent);
        slot.phase = Phase::Pending(thread::current());
        drop(slot);
        let flight = Flight { inner: self, id, is_read: false };
        if self.shared.submitted.push(id).is_err() {
            // The ring thread is behind by twice the slots: it stands still. As it will never
            // hear of the call, there is nothing for it to give up.
            if let Some(mut slot) = self.shared.slots.lock(id) {
                slot.phase = Phase::Idle;
            }
            return Err(Failure::Busy);
        }
        if self.shared.wake() { Ok(flight) } else { Err(Failure::Disconnected) }
    }
}

/// How often a caller without a slot looks again.
const SLOT_POLL: std::time::Duration = std::time::Duration::from_millis(1);

impl Flight<'_> {
    /// Waits for a link to be up.
    fn wait(self, deadline: Deadline) -> Result<(), Failure> {
        self.park(deadline)?;
        let slot = self.inner.shared.slots.lock(self.id).expect("the slot is this call's");
        match slot.phase {
            Phase::Ended(result) => result,
            Phase::Idle | Phase::Pending(_) | Phase::Replied(_) => Err(Failure::Timeout),
        }
    }

    /// Waits for the reply and reads it in place. A refusal is a failure.
    pub(crate) fn read<T>(
        mut self,
        deadline: Deadline,
        read: impl FnOnce(Reply<'_>, Generation) -> Option<T>,
    ) -> Result<T, Failure> {
        self.park(deadline)?;
        let slot = self.inner.shared.slots.lock(self.id).expect("the slot is this call's");
        let header = match slot.phase {
            Phase::Replied(header) => header,
            Phase::Ended(Err(failure)) => return Err(failure),
            Phase::Ended(Ok(())) | Phase::Idle | Phase::Pending(_) => return Err(Failure::Timeout),
        };
        let frame = Frame { header, body: &slot.reply };
        // The session let only well-formed replies pass.
        let result = match decode_reply(&frame).map_err(|_| Failure::Disconnected)? {
            Reply::Refused(Refusal::StaleGeneration) => Err(Failure::Stale),
            Reply::Refused(refusal) => Err(Failure::Refused(refusal)),
            reply => read(reply, header.generation).ok_or(Failure::Disconnected),
        };
        self.is_read = result.is_ok();
        result
    }

    /// Parks until the slot is done, at most until the deadline.
    fn park(&self, deadline: Deadline) -> Result<(), Failure> {
        loop {
            let slot = self.inner.shared.slots.lock(self.id).expect("the slot is this call's");
            if !matches!(slot.phase, Phase::Pending(_)) {
                return Ok(());
            }
            drop(slot);
            let left = deadline.at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Failure::Timeout);
            }
            thread::park_timeout(left);
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let shared = &self.inner.shared;
        let mut dropped = shared.slots.free(self.id, |slot| {
            let mut dropped = Dropped::default();
            match &slot.phase {
                Phase::Pending(_) => dropped.given_up.push(self.id),
                Phase::Replied(header) if !self.is_read => {
                    let shard = slot.intent.as_ref().map_or(0, |intent| intent.link.shard);
                    let frame = Frame { header: *header, body: &slot.reply };
                    give_back(&frame, shard, &mut dropped);
                }
                Phase::Idle | Phase::Replied(_) | Phase::Ended(_) => {}
            }
            dropped
        });
        if !dropped.is_empty() {
            shared.let_go(|all| all.append(&mut dropped));
        }
    }
}

/// Notes what a reply that nobody reads granted.
fn give_back(frame: &Frame<'_>, shard: u32, dropped: &mut Dropped) {
    let generation = frame.header.generation;
    match decode_reply(frame) {
        Ok(Reply::Reserve(reply)) => {
            for outcome in reply.outcomes.iter() {
                if let ArchivedReserveOutcome::Granted(grant) = outcome {
                    let ticket = grant.ticket;
                    dropped.abandoned.push(Abandoned { shard, ticket, after_error: false });
                }
            }
        }
        Ok(Reply::Lookup(reply)) if reply.lease != LeaseId::default() => {
            let lease = reply.lease;
            dropped.released.push(Released { generation, shard, lease, keep: 0 });
        }
        Ok(_) | Err(_) => {}
    }
}
