//! The session: calls in, frames in, time in; dials, bytes and completions out.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use maru_wire::{Generation, LeaseId, Op, RequestBody, Ticket, encode_request};

use crate::link::{Link, State};
use crate::random::Random;
use crate::requests::{Asker, Request, Waiting};
use crate::{Channel, Failure, Layout, LinkFault, LinkId, SessionConfig};

/// Microseconds since a moment that the caller chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// Returns the time `us` microseconds later.
    #[must_use]
    pub fn after(self, us: u64) -> Self {
        Self(self.0.saturating_add(us))
    }
}

/// Names a call; also its request id on the wire. The top bit is the session's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Highest number that a refusal, which nothing proves, may move the dials' numbers to.
const DIAL_JUMP_MAX: u64 = 1 << 62;

/// Request ids of the session itself have this bit.
pub(crate) const OWN_ID: u64 = 1 << 63;

/// Names one attempt to connect; also the connection's number in its hello. Rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dial(pub u64);

/// One request as its caller encoded it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The call; the frame's request id must be the same.
    pub id: CallId,
    /// Where it goes.
    pub link: LinkId,
    /// The generation that the frame names; zero for any.
    pub generation: Generation,
    /// What it asks for.
    pub op: Op,
    /// How many keys, tickets or leases it names.
    pub item_count: usize,
    /// The tickets that a Publish or Abandon names.
    pub tickets: &'a [Ticket],
    /// Of an Abandon: whether a transfer failed.
    pub after_error: bool,
    /// One whole encoded frame with its padding.
    pub frame: &'a [u8],
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The system reported this error number.
    System(i32),
    /// The host's name has no address.
    NoAddress,
    /// The peer closed it, or this end did.
    Closed,
}

/// What the session wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Connect, then say `connected` or `closed`.
    Connect(Dial),
    /// Close at once; nothing more of this connection is heard.
    Close(Dial, &'static str),
    /// The connection has bytes to send: `take_output`.
    Send(Dial),
    /// The call ended without a reply frame. `Ok`: the link it waited for is up.
    Complete(CallId, Result<(), Failure>),
}

/// What a session did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Replies that came after their caller had gone.
    pub late_replies: u64,
    /// Connections lost while up.
    pub links_lost: u64,
    /// Dials that failed.
    pub dials_failed: u64,
    /// Tickets voided by a new generation.
    pub tickets_voided: u64,
    /// Abandons that the server refused.
    pub abandons_refused: u64,
    /// Generations met.
    pub generations: u64,
}

/// The client's side of one pool node.
#[derive(Debug)]
pub struct Session {
    pub(crate) config: SessionConfig,
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) dials: BTreeMap<Dial, LinkId>,
    /// Where each call waits or is in flight.
    pub(crate) calls: BTreeMap<CallId, LinkId>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) counters: Counters,
    pub(crate) random: Random,
    dial_last: u64,
    own_id_last: u64,
}

impl Session {
    /// Makes a session. Asks for no connection before there is a call.
    #[must_use]
    pub fn new(config: SessionConfig) -> Self {
        Self {
            random: Random::new(config.seed),
            config,
            layout: None,
            links: BTreeMap::new(),
            dials: BTreeMap::new(),
            calls: BTreeMap::new(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
            dial_last: 0,
            own_id_last: 0,
        }
    }

    /// Returns the shape of the present generation, `None` before the first hello.
    #[must_use]
    pub fn layout(&self) -> Option<&Arc<Layout>> {
        self.layout.as_ref()
    }

    /// Returns what the session did so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many tickets are held on `shard`.
    #[must_use]
    pub fn ticket_count(&self, shard: u32) -> usize {
        let id = LinkId { channel: Channel::Data, shard };
        self.links.get(&id).map_or(0, |link| link.tickets.held().len())
    }

    /// Whether some ticket still has to be abandoned, or some lost grant to be freed.
    #[must_use]
    pub fn has_debt(&self) -> bool {
        self.links.values().any(|link| link.owes_hello || link.tickets.has_ended())
    }

    /// Waits until a link is up, then completes `call` with `Ok`.
    pub fn reach(&mut self, now: Time, call: CallId, link: LinkId) {
        let waiting = Waiting { call, generation: Generation(0), frame: None };
        self.enqueue(now, link, waiting);
    }

    /// Takes a request. Sends it when its link is up, else dials and keeps it until then.
    ///
    /// It ends by a reply frame (see `frame`), by `Output::Complete`, or by `give_up`.
    ///
    /// # Panics
    ///
    /// When the id has the session's bit, or is in use.
    pub fn submit(&mut self, now: Time, call: &Call<'_>) {
        let request = Request {
            asker: Asker::Call(call.id),
            op: call.op,
            item_count: call.item_count,
            tickets: call.tickets.to_vec(),
            after_error: call.after_error,
        };
        if let Some(failure) = self.refuses(call) {
            return self.fail_unsent(call.link, &request, failure);
        }
        if self.links.get(&call.link).is_some_and(Link::is_up) {
            assert!(call.id.0 & OWN_ID == 0, "the top bit of a request id is the session's own");
            assert!(self.calls.insert(call.id, call.link).is_none(), "a call id is used once");
            return self.send(now, call.link, (call.id.0, request), call.frame);
        }
        let frame = Some((call.frame.to_vec(), request));
        let waiting = Waiting { call: call.id, generation: call.generation, frame };
        self.enqueue(now, call.link, waiting);
    }

    /// Says that nobody waits for `call` any more. What its late reply grants is given back.
    pub fn give_up(&mut self, now: Time, call: CallId) {
        let Some(id) = self.calls.remove(&call) else { return };
        let link = self.links.get_mut(&id).expect("a call's link exists");
        if let Some(request) = link.requests.in_flight.get_mut(&call.0) {
            request.asker = Asker::Gone;
            return;
        }
        let place = link.requests.waiting.iter().position(|waiting| waiting.call == call);
        let waiting = place.and_then(|index| link.requests.waiting.remove(index));
        if let Some((_, request)) = waiting.and_then(|waiting| waiting.frame) {
            end_unsent(link, &request);
        }
        self.settle_debts(now, id);
    }

    /// Says that no write under these tickets of `shard` is in flight. Repeats it to the server
    /// until that answers; forgets it in a new generation.
    pub fn abandon(&mut self, now: Time, shard: u32, tickets: &[Ticket], after_error: bool) {
        let id = LinkId { channel: Channel::Data, shard };
        let Some(link) = self.links.get_mut(&id) else { return };
        for ticket in tickets {
            link.tickets.end(*ticket, after_error);
        }
        self.settle_debts(now, id);
    }

    /// Releases the pins of `lease` on `shard` past the first `keep`, if its connection still is.
    /// A lost connection releases them too.
    pub fn release(
        &mut self,
        now: Time,
        generation: Generation,
        shard: u32,
        (lease, keep): (LeaseId, u32),
    ) {
        let id = LinkId { channel: Channel::Data, shard };
        if self.generation() != Some(generation) {
            return;
        }
        if let Some(link) = self.links.get_mut(&id).filter(|link| link.is_up()) {
            link.queue_release(lease, keep);
            self.settle_debts(now, id);
        }
    }

    /// Takes the next thing to do.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Appends the bytes that wait to be sent on a connection to `out`.
    pub fn take_output(&mut self, dial: Dial, out: &mut Vec<u8>) {
        let link = self.dials.get(&dial).and_then(|id| self.links.get_mut(id));
        if let Some(link) = link {
            out.extend_from_slice(&link.out);
            link.out.clear();
        }
    }

    /// Whether the session still listens to a connection.
    #[must_use]
    pub fn is_open(&self, dial: Dial) -> bool {
        self.dials.contains_key(&dial)
    }

    pub(crate) fn generation(&self) -> Option<Generation> {
        self.layout.as_ref().map(|layout| layout.generation)
    }

    pub(crate) fn next_dial(&mut self) -> Dial {
        self.dial_last += 1;
        Dial(self.dial_last)
    }

    /// Lets the next dial have a number above `used`. Returns whether that is one.
    pub(crate) fn dial_past(&mut self, used: u64) -> bool {
        let is_usable = used <= DIAL_JUMP_MAX;
        if is_usable {
            self.dial_last = self.dial_last.max(used);
        }
        is_usable
    }

    pub(crate) fn link_mut(&mut self, id: LinkId) -> &mut Link {
        self.links.get_mut(&id).expect("links are never removed")
    }

    /// Returns why a request cannot even wait.
    fn refuses(&self, call: &Call<'_>) -> Option<Failure> {
        let is_stale = |own| call.generation != Generation(0) && call.generation != own;
        if self.generation().is_some_and(is_stale) {
            return Some(Failure::Stale);
        }
        let link = self.links.get(&call.link)?;
        let tickets = link.tickets.count_max() + call.item_count;
        let is_over = tickets > self.config.limits.tickets_per_shard_max;
        (call.op == Op::Reserve && is_over).then_some(Failure::Busy)
    }

    fn enqueue(&mut self, now: Time, id: LinkId, waiting: Waiting) {
        let call = waiting.call;
        assert!(call.0 & OWN_ID == 0, "the top bit of a request id is the session's own");
        let limits = self.config.limits;
        let is_known_shard = id.shard < self.layout.as_ref().map_or(1, |l| l.shard_count);
        let link = if is_known_shard {
            self.links.entry(id).or_insert_with(Link::new)
        } else {
            let count = self.layout.as_ref().map_or(1, |layout| layout.shard_count);
            let fault = LinkFault::Refused(maru_wire::Refusal::NoSuchShard(count));
            return self.complete(call, Err(Failure::Unreachable(fault)));
        };
        let failure = if link.requests.count() >= limits.requests_per_link_max {
            Some(Failure::Busy)
        } else {
            link.lasting_fault(now, &limits).map(Failure::Unreachable)
        };
        if let Some(failure) = failure {
            return match waiting.frame {
                Some((_, request)) => self.fail_unsent(id, &request, failure),
                None => self.complete(call, Err(failure)),
            };
        }
        if waiting.frame.is_none() && link.is_up() {
            return self.complete(call, Ok(()));
        }
        if let Some((_, request)) = &waiting.frame
            && request.op == Op::Reserve
        {
            link.tickets.expect(request.item_count);
        }
        link.requests.waiting.push_back(waiting);
        assert!(self.calls.insert(call, id).is_none(), "a call id is used once");
        self.dial_if_due(now, id);
    }

    /// Sends one encoded request on a link that is up.
    pub(crate) fn send(
        &mut self,
        now: Time,
        id: LinkId,
        (request_id, request): (u64, Request),
        frame: &[u8],
    ) {
        let requests_max = self.config.limits.requests_per_link_max;
        let link = self.link_mut(id);
        if let Asker::Call(call) = request.asker
            && link.requests.in_flight.len() >= requests_max
        {
            self.calls.remove(&call);
            return self.fail_unsent(id, &request, Failure::Busy);
        }
        if request.op == Op::Reserve {
            link.tickets.expect(request.item_count);
        }
        link.out.extend_from_slice(frame);
        link.requests.sent(now, request_id, request);
        self.wants_send(id);
    }

    pub(crate) fn wants_send(&mut self, id: LinkId) {
        let dial = self.link_mut(id).dial();
        if let Some(dial) = dial
            && !self.outputs.contains(&Output::Send(dial))
        {
            self.outputs.push_back(Output::Send(dial));
        }
    }

    /// Sends a request of the session's own on a link that is up.
    pub(crate) fn send_own(
        &mut self,
        now: Time,
        id: LinkId,
        mut request: Request,
        body: &RequestBody<'_>,
    ) {
        self.own_id_last += 1;
        let request_id = OWN_ID | self.own_id_last;
        let generation = self.generation().unwrap_or_default();
        request.asker = Asker::Session;
        let link = self.link_mut(id);
        encode_request(&mut link.out, request_id, generation, body);
        link.requests.sent(now, request_id, request);
        self.wants_send(id);
    }

    pub(crate) fn complete(&mut self, call: CallId, result: Result<(), Failure>) {
        self.calls.remove(&call);
        self.outputs.push_back(Output::Complete(call, result));
    }

    /// Ends a request that was never sent.
    pub(crate) fn fail_unsent(&mut self, id: LinkId, request: &Request, failure: Failure) {
        if let Some(link) = self.links.get_mut(&id) {
            end_abandon(link, request);
        }
        if let Asker::Call(call) = request.asker {
            self.complete(call, Err(failure));
        }
    }

    /// Ends what waits on a link, each call with what `failure` says of it.
    pub(crate) fn fail_waiting(&mut self, id: LinkId, failure: Failure) {
        let waiting = core::mem::take(&mut self.link_mut(id).requests.waiting);
        for entry in waiting {
            if let Some((_, request)) = &entry.frame {
                end_unsent(self.link_mut(id), request);
            }
            self.complete(entry.call, Err(failure));
        }
    }

    /// Whether the link is in the given dial's hands.
    pub(crate) fn state_of(&mut self, dial: Dial) -> Option<(LinkId, &mut State)> {
        let id = *self.dials.get(&dial)?;
        let link = self.links.get_mut(&id)?;
        Some((id, &mut link.state))
    }
}

/// Takes a request that waited off its link's books.
fn end_unsent(link: &mut Link, request: &Request) {
    if request.op == Op::Reserve {
        link.tickets.unexpect(request.item_count);
    }
    end_abandon(link, request);
}

/// An Abandon that its caller cannot repeat is repeated by the session.
pub(crate) fn end_abandon(link: &mut Link, request: &Request) {
    if request.op == Op::Abandon && request.asker != Asker::Session {
        for ticket in &request.tickets {
            link.tickets.end(*ticket, request.after_error);
        }
    }
}

#[cfg(test)]
mod tests;
