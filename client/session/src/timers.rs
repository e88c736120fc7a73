//! Dials, back-off, and what happens when a link takes too long.

use maru_wire::Refusal;

use crate::link::Link;
use crate::link::{Failed, State};
use crate::{CloseCause, Dial, Failure, LinkFault, LinkId, Output, Session, Time};

/// The error number of a connection that the listener's full backlog refused (EAGAIN).
const TRY_AGAIN: i32 = 11;
/// How often a dial that the next may mend is repeated before its callers are told.
const ATTEMPTS_MAX: u32 = 8;

impl Session {
    /// Returns when `timer` wants to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let limits = &self.config.limits;
        self.links.values().filter_map(|link| link.deadline(limits)).min()
    }

    /// Carries out what is due by `now`.
    pub fn timer(&mut self, now: Time) {
        let limits = self.config.limits;
        let is_due = |link: &Link| link.deadline(&limits).is_some_and(|deadline| deadline <= now);
        let due = self.links.iter().filter(|(_, link)| is_due(link)).map(|(id, _)| *id);
        let due: alloc::vec::Vec<LinkId> = due.collect();
        for id in due {
            match self.link_mut(id).state {
                State::Down => self.dial_if_due(now, id),
                State::Connecting { .. } | State::Greeting { .. } | State::Proving { .. } => {
                    self.fail_dial(now, id, LinkFault::HandshakeTimeout);
                }
                State::Contending { .. } => self.drop_old_generation(now),
                State::Up { .. } => self.lose(now, id, "silent"),
            }
        }
    }

    /// The connection of `dial` stands; the server speaks first.
    pub fn connected(&mut self, _now: Time, dial: Dial) {
        if let Some((_, state)) = self.state_of(dial)
            && let State::Connecting { deadline, .. } = *state
        {
            *state = State::Greeting { dial, deadline };
        }
    }

    /// The connection of `dial` failed or ended.
    pub fn closed(&mut self, now: Time, dial: Dial, cause: CloseCause) {
        let Some(id) = self.dials.remove(&dial) else { return };
        let fault = match (&self.link_mut(id).state, cause) {
            (State::Connecting { .. }, CloseCause::System(errno)) => {
                LinkFault::ConnectFailed(errno)
            }
            (State::Connecting { .. }, CloseCause::NoAddress) => LinkFault::NoAddress,
            (State::Up { .. }, _) => return self.end_up(now, id),
            (_, _) => LinkFault::ClosedInHandshake,
        };
        self.end_dial(now, id, fault);
    }

    /// The bytes of `dial` are no frames: closes it.
    pub fn broken(&mut self, now: Time, dial: Dial, reason: &'static str) {
        if let Some(id) = self.dials.get(&dial).copied() {
            self.violated(now, id, reason);
        }
    }

    /// Closes a connection whose peer breaks the protocol.
    pub(crate) fn violated(&mut self, now: Time, id: LinkId, reason: &'static str) {
        if self.link_mut(id).is_up() {
            self.lose(now, id, reason);
        } else {
            self.fail_dial(now, id, LinkFault::Protocol(reason));
        }
    }

    /// Dials a down link if something asks for it and its back-off is over.
    pub(crate) fn dial_if_due(&mut self, now: Time, id: LinkId) {
        let limits = self.config.limits;
        let link = self.link_mut(id);
        let is_due = link.dial_at(&limits).is_some_and(|at| at <= now);
        if !matches!(link.state, State::Down) || !is_due {
            return;
        }
        let dial = self.next_dial();
        let deadline = now.after(limits.handshake_timeout_us);
        self.link_mut(id).state = State::Connecting { dial, deadline };
        self.dials.insert(dial, id);
        self.outputs.push_back(Output::Connect(dial));
    }

    /// Closes a dial that did not become a link, and tells why.
    pub(crate) fn fail_dial(&mut self, now: Time, id: LinkId, fault: LinkFault) {
        if let Some(dial) = self.link_mut(id).dial() {
            self.dials.remove(&dial);
            self.outputs.push_back(Output::Close(dial, reason(fault)));
        }
        self.end_dial(now, id, fault);
    }

    fn end_dial(&mut self, now: Time, id: LinkId, fault: LinkFault) {
        let limits = self.config.limits;
        self.counters.dials_failed += 1;
        let doublings = self.link_mut(id).failure_count.min(20);
        let wait_us = limits.backoff_min_us.saturating_mul(1 << doublings);
        let idle_wait_us = self.random.jitter(wait_us.min(limits.backoff_idle_max_us));
        let call_wait_us = self.random.jitter(wait_us.min(limits.backoff_call_max_us));
        let link = self.link_mut(id);
        link.failed = Some(Failed { at: now, fault, call_wait_us, idle_wait_us });
        link.failure_count = link.failure_count.saturating_add(1);
        link.state = State::Down;
        link.out.clear();
        if self.may_pass(fault) && doublings < ATTEMPTS_MAX {
            return;
        }
        self.fail_waiting(id, Failure::Unreachable(fault));
    }

    /// Whether the next dial may mend it at once.
    fn may_pass(&mut self, fault: LinkFault) -> bool {
        if let LinkFault::Refused(Refusal::ConnectionNumberUsed(used)) = fault {
            return self.dial_past(used);
        }
        fault == LinkFault::ConnectFailed(TRY_AGAIN)
    }

    /// Closes a link that was up.
    pub(crate) fn lose(&mut self, now: Time, id: LinkId, reason: &'static str) {
        if let Some(dial) = self.link_mut(id).dial() {
            self.dials.remove(&dial);
            self.outputs.push_back(Output::Close(dial, reason));
        }
        self.end_up(now, id);
    }

    fn end_up(&mut self, now: Time, id: LinkId) {
        self.counters.links_lost += 1;
        self.forget_connection(id);
        self.contest_ended(now);
        self.settle_debts(now, id);
    }
}

/// Why this end closes a dial, for counters.
fn reason(fault: LinkFault) -> &'static str {
    match fault {
        LinkFault::HandshakeTimeout => "handshake_timeout",
        LinkFault::Refused(_) => "hello_refused",
        LinkFault::WrongProof => "wrong_proof",
        LinkFault::SecretRequired | LinkFault::ServerHasNoSecret => "secret_mismatch",
        LinkFault::WrongVersion { .. } => "wrong_version",
        LinkFault::SeveralServers => "several_servers",
        LinkFault::Protocol(reason) => reason,
        LinkFault::ConnectFailed(_) | LinkFault::NoAddress | LinkFault::ClosedInHandshake => {
            "connect_failed"
        }
    }
}
