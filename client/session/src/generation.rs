//! One generation at a time: adopting a new one, and telling a restart from several servers.
//!
//! An old generation counts only while one of its links still answers a ping.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use maru_wire::{Generation, HelloReply, Op, RequestBody};

use crate::link::{Link, State};
use crate::requests::{Asker, Request};
use crate::{Failure, Layout, LinkFault, LinkId, Session, Time};

impl Session {
    /// Takes an accepted hello: the link is up, or contends with an older generation.
    pub(crate) fn accept(
        &mut self,
        now: Time,
        id: LinkId,
        generation: Generation,
        reply: HelloReply,
    ) {
        if self.generation() == Some(generation) {
            return self.join(now, id, &reply);
        }
        let rivals: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.is_up()).map(|(id, _)| *id).collect();
        if rivals.is_empty() {
            return self.adopt(now, id, generation, &reply);
        }
        let deadline = now.after(self.config.limits.handshake_timeout_us);
        let Some(dial) = self.link_mut(id).dial() else { return };
        let reply = Box::new(reply);
        self.link_mut(id).state = State::Contending { dial, deadline, generation, reply };
        for rival in rivals {
            self.send_own(now, rival, own_request(Op::Ping), &RequestBody::Ping);
        }
    }

    /// A link of the present generation answered a ping: the others are other servers.
    pub(crate) fn defend(&mut self, now: Time) {
        for (id, _) in self.contenders() {
            self.fail_dial(now, id, LinkFault::SeveralServers);
        }
    }

    /// The old generation did not answer in time: closes its links, which lets the new one win.
    pub(crate) fn drop_old_generation(&mut self, now: Time) {
        let old: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.is_up()).map(|(id, _)| *id).collect();
        for id in old {
            // The first loss that leaves no old link settles the contest.
            if self.contenders().is_empty() {
                break;
            }
            self.lose(now, id, "old_generation_silent");
        }
        self.contest_ended(now);
    }

    /// Adopts the latest contender once no link of the old generation is left.
    pub(crate) fn contest_ended(&mut self, now: Time) {
        if self.links.values().any(Link::is_up) {
            return;
        }
        let mut contenders = self.contenders();
        contenders.sort_by_key(|(id, _)| self.links.get(id).and_then(Link::dial));
        let Some((winner, generation)) = contenders.pop() else { return };
        let same: Vec<(LinkId, Generation)> = contenders;
        self.adopt_contender(now, winner);
        for (id, other) in same {
            if other == generation {
                self.adopt_contender(now, id);
            } else {
                self.fail_dial(now, id, LinkFault::ClosedInHandshake);
            }
        }
    }

    fn adopt_contender(&mut self, now: Time, id: LinkId) {
        let state = core::mem::replace(&mut self.link_mut(id).state, State::Down);
        let State::Contending { dial, generation, reply, .. } = state else { return };
        self.link_mut(id).state = State::Up { dial };
        if self.generation() == Some(generation) {
            self.join(now, id, &reply);
        } else {
            self.adopt(now, id, generation, &reply);
        }
    }

    fn contenders(&self) -> Vec<(LinkId, Generation)> {
        let of = |state: &State| match state {
            State::Contending { generation, .. } => Some(*generation),
            State::Down
            | State::Connecting { .. }
            | State::Greeting { .. }
            | State::Proving { .. }
            | State::Up { .. } => None,
        };
        self.links.iter().filter_map(|(id, link)| Some((*id, of(&link.state)?))).collect()
    }

    /// Makes `generation` the present one: the old one's tickets, debts and faults are void.
    fn adopt(&mut self, now: Time, id: LinkId, generation: Generation, reply: &HelloReply) {
        self.counters.generations += 1;
        self.layout = Some(Arc::new(Layout::new(generation, reply)));
        for link in self.links.values_mut() {
            self.counters.tickets_voided += link.tickets.held_count();
            link.tickets.void();
            link.owes_hello = false;
            link.failed = None;
            link.failure_count = 0;
        }
        let others: Vec<LinkId> = self.links.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.fail_stale(other);
        }
        self.come_up(now, id);
    }

    /// Adds a link of the present generation.
    fn join(&mut self, now: Time, id: LinkId, reply: &HelloReply) {
        let layout = self.layout.as_mut().expect("a generation has a layout");
        if reply.shard_count != layout.shard_count {
            return self.violated(now, id, "shard_count_changed");
        }
        if layout.shard_limits.get(reply.shard as usize) != Some(&Some(reply.limits)) {
            Arc::make_mut(layout).add(reply);
        }
        self.come_up(now, id);
    }

    fn come_up(&mut self, now: Time, id: LinkId) {
        self.fail_stale(id);
        let link = self.link_mut(id);
        if let Some(dial) = link.dial() {
            link.state = State::Up { dial };
        }
        link.failed = None;
        link.failure_count = 0;
        link.owes_hello = false;
        let waiting = core::mem::take(&mut link.requests.waiting);
        for entry in waiting {
            match entry.frame {
                None => self.complete(entry.call, Ok(())),
                Some((frame, request)) => {
                    if request.op == Op::Reserve {
                        self.link_mut(id).tickets.unexpect(request.item_count);
                    }
                    self.send(now, id, (entry.call.0, request), &frame);
                }
            }
        }
        self.settle_debts(now, id);
    }

    /// Ends requests that wait on a link and name another generation than the present one.
    fn fail_stale(&mut self, id: LinkId) {
        let own = self.generation().unwrap_or_default();
        let waiting = core::mem::take(&mut self.link_mut(id).requests.waiting);
        for entry in waiting {
            if entry.generation == Generation(0) || entry.generation == own {
                self.link_mut(id).requests.waiting.push_back(entry);
                continue;
            }
            if let Some((_, request)) = &entry.frame
                && request.op == Op::Reserve
            {
                self.link_mut(id).tickets.unexpect(request.item_count);
            }
            self.complete(entry.call, Err(Failure::Stale));
        }
    }
}

pub(crate) fn own_request(op: Op) -> Request {
    Request { asker: Asker::Session, op, item_count: 0, tickets: Vec::new(), after_error: false }
}
