//! Replies: matched to their requests, and what they say about tickets and leases.

use alloc::vec::Vec;

use maru_wire::{
    Abandon, ArchivedPublishOutcome, ArchivedReserveOutcome, Frame, Op, Release, Reply,
    RequestBody, Ticket, decode_reply,
};

use crate::generation::own_request;
use crate::link::State;
use crate::requests::{Asker, Request};
use crate::session::end_abandon;
use crate::split::items_per_frame;
use crate::{CallId, Channel, Dial, Failure, LinkId, Session, Time};

impl Session {
    /// Takes one frame of a connection. Returns the call that it answers, if somebody waits.
    ///
    /// When that call's caller turns out to be gone, hand the frame to `late`.
    pub fn frame(&mut self, now: Time, dial: Dial, frame: &Frame<'_>) -> Option<CallId> {
        let id = *self.dials.get(&dial)?;
        match self.link_mut(id).state {
            State::Greeting { .. } => self.greeted(now, id, frame),
            State::Proving { .. } => self.proved(now, id, frame),
            State::Up { .. } => return self.reply(now, id, frame),
            State::Down | State::Connecting { .. } | State::Contending { .. } => {
                self.violated(now, id, "unexpected_frame");
            }
        }
        None
    }

    /// Takes the reply that `frame` returned a call for, whose caller is gone.
    pub fn late(&mut self, now: Time, dial: Dial, frame: &Frame<'_>) {
        let Some(id) = self.dials.get(&dial).copied() else { return };
        if let Ok(reply) = decode_reply(frame) {
            self.give_back(id, &reply);
            self.settle_debts(now, id);
        }
    }

    fn reply(&mut self, now: Time, id: LinkId, frame: &Frame<'_>) -> Option<CallId> {
        let header = &frame.header;
        if self.generation() != Some(header.generation) {
            self.violated(now, id, "other_generation");
            return None;
        }
        let reply = match decode_reply(frame) {
            Ok(reply) => reply,
            Err(error) => {
                self.violated(now, id, error.reason());
                return None;
            }
        };
        let link = self.link_mut(id);
        let known = link.requests.in_flight.get(&header.request_id);
        let fits = known.is_some_and(|request| answers(&reply, header.op, request));
        // A request that is answered wrongly stays in flight, to be lost with its connection.
        let answered = if fits { link.requests.answered(now, header.request_id) } else { None };
        let Some(request) = answered else {
            self.violated(now, id, "unmatched_reply");
            return None;
        };
        self.note(id, &request, &reply);
        let call = match request.asker {
            Asker::Call(call) => {
                self.calls.remove(&call);
                Some(call)
            }
            Asker::Gone => {
                self.give_back(id, &reply);
                None
            }
            Asker::Session => {
                self.own_answer(now, id, &request, &reply);
                None
            }
        };
        self.settle_debts(now, id);
        call
    }

    /// Notes what a reply says about tickets, whoever asked.
    fn note(&mut self, id: LinkId, request: &Request, reply: &Reply<'_>) {
        let link = self.links.get_mut(&id).expect("links are never removed");
        if request.op == Op::Reserve {
            link.tickets.unexpect(request.item_count);
        }
        match reply {
            Reply::Reserve(reply) => {
                granted(reply).for_each(|ticket| link.tickets.hold(ticket));
            }
            Reply::Publish(reply) => {
                for (ticket, outcome) in request.tickets.iter().zip(reply.outcomes.iter()) {
                    match outcome {
                        ArchivedPublishOutcome::Created
                        | ArchivedPublishOutcome::AlreadyPresent
                        | ArchivedPublishOutcome::Cleared
                        | ArchivedPublishOutcome::Unknown => link.tickets.settle(*ticket),
                        ArchivedPublishOutcome::WrongKey => {}
                    }
                }
            }
            Reply::Abandon(_) => {
                request.tickets.iter().for_each(|ticket| link.tickets.settle(*ticket));
            }
            Reply::Refused(_) if request.op == Op::Abandon => {
                // Repeating it would be refused again; the next hello does not list them.
                self.counters.abandons_refused += 1;
                request.tickets.iter().for_each(|ticket| link.tickets.settle(*ticket));
            }
            Reply::Exists(_)
            | Reply::Lookup(_)
            | Reply::Release(_)
            | Reply::EvictedSince(_)
            | Reply::Remove(_)
            | Reply::Clear(_)
            | Reply::Ping(_)
            | Reply::Stats(_)
            | Reply::Regions(_)
            | Reply::Refused(_) => {}
        }
    }

    /// Gives back what a reply granted to a caller that is gone.
    fn give_back(&mut self, id: LinkId, reply: &Reply<'_>) {
        self.counters.late_replies += 1;
        let link = self.link_mut(id);
        match reply {
            Reply::Reserve(reply) => {
                granted(reply).for_each(|ticket| link.tickets.end(ticket, false));
            }
            Reply::Lookup(reply) if reply.lease != maru_wire::LeaseId::default() => {
                link.queue_release(reply.lease, 0);
            }
            Reply::Lookup(_)
            | Reply::Publish(_)
            | Reply::Abandon(_)
            | Reply::Exists(_)
            | Reply::Release(_)
            | Reply::EvictedSince(_)
            | Reply::Remove(_)
            | Reply::Clear(_)
            | Reply::Ping(_)
            | Reply::Stats(_)
            | Reply::Regions(_)
            | Reply::Refused(_) => {}
        }
    }

    fn own_answer(&mut self, now: Time, id: LinkId, request: &Request, reply: &Reply<'_>) {
        match request.op {
            Op::Release => self.link_mut(id).is_releasing = false,
            Op::Ping if !matches!(reply, Reply::Refused(_)) => self.defend(now),
            Op::Ping
            | Op::Abandon
            | Op::Challenge
            | Op::Hello
            | Op::Reserve
            | Op::Publish
            | Op::Exists
            | Op::Lookup
            | Op::EvictedSince
            | Op::Remove
            | Op::Clear
            | Op::Stats
            | Op::Regions => {}
        }
    }

    /// Forgets a lost connection: grants not read are void, what was in flight is unknown.
    pub(crate) fn forget_connection(&mut self, id: LinkId) {
        let link = self.link_mut(id);
        link.state = State::Down;
        link.out.clear();
        link.releases.clear();
        link.is_releasing = false;
        link.requests.silent_since = None;
        link.tickets.stay();
        let lost = core::mem::take(&mut link.requests.in_flight);
        for request in lost.into_values() {
            let link = self.link_mut(id);
            if request.op == Op::Reserve {
                link.tickets.unexpect(request.item_count);
                link.owes_hello = true;
            }
            end_abandon(link, &request);
            if request.op == Op::Publish && request.asker == Asker::Gone {
                request.tickets.iter().for_each(|ticket| link.tickets.end(*ticket, false));
            }
            if let Asker::Call(call) = request.asker {
                self.complete(call, Err(Failure::Disconnected));
            }
        }
    }

    /// Sends the abandons and releases that a link owes, or dials it for them.
    pub(crate) fn settle_debts(&mut self, now: Time, id: LinkId) {
        if id.channel == Channel::Monitor {
            return;
        }
        if !self.link_mut(id).is_up() {
            return self.dial_if_due(now, id);
        }
        let Some(layout) = self.layout.clone() else { return };
        while self.link_mut(id).tickets.owes_abandon() {
            let count_max = items_per_frame(&layout, Op::Abandon, id.shard);
            let (tickets, after_error) = self.link_mut(id).tickets.leave(count_max);
            let mut request = own_request(Op::Abandon);
            request.tickets.clone_from(&tickets);
            request.after_error = after_error;
            let body = Abandon { tickets, after_error };
            self.send_own(now, id, request, &RequestBody::Abandon(&body));
        }
        let link = self.link_mut(id);
        if !link.is_releasing && !link.releases.is_empty() {
            link.is_releasing = true;
            let count_max = items_per_frame(&layout, Op::Release, id.shard);
            let count = link.releases.len().min(count_max);
            let items: Vec<_> = link.releases.drain(..count).collect();
            let mut request = own_request(Op::Release);
            request.item_count = items.len();
            self.send_own(now, id, request, &RequestBody::Release(&Release { items }));
        }
    }
}

fn granted(reply: &maru_wire::ArchivedReserveReply) -> impl Iterator<Item = Ticket> {
    reply.outcomes.iter().filter_map(|outcome| match outcome {
        ArchivedReserveOutcome::Granted(grant) => Some(grant.ticket),
        ArchivedReserveOutcome::Present
        | ArchivedReserveOutcome::InFlight
        | ArchivedReserveOutcome::Full
        | ArchivedReserveOutcome::Growing(_)
        | ArchivedReserveOutcome::Rejected
        | ArchivedReserveOutcome::ClientLimit
        | ArchivedReserveOutcome::Duplicate
        | ArchivedReserveOutcome::NotTried => None,
    })
}

/// Whether a reply is of its request's operation, with as many outcomes as that had items.
fn answers(reply: &Reply<'_>, op: Op, request: &Request) -> bool {
    let items = request.item_count;
    if op != request.op {
        return false;
    }
    match reply {
        Reply::Reserve(reply) => reply.outcomes.len() == items,
        Reply::Publish(reply) => reply.outcomes.len() == items,
        Reply::Lookup(reply) => reply.outcomes.len() == items,
        Reply::Release(reply) => reply.held.len() == items,
        Reply::Remove(reply) => reply.outcomes.len() == items,
        Reply::Exists(reply) => {
            reply.leading_count.to_native() as usize <= items
                && (reply.bitmap.is_empty() || reply.bitmap.len() == items.div_ceil(64))
        }
        Reply::Abandon(_)
        | Reply::EvictedSince(_)
        | Reply::Clear(_)
        | Reply::Ping(_)
        | Reply::Stats(_)
        | Reply::Regions(_)
        | Reply::Refused(_) => true,
    }
}
