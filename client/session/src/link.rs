//! One connection's life: down, connecting, greeting, proving, contending, up.

use alloc::boxed::Box;
use alloc::vec::Vec;

use maru_wire::{Generation, HelloProof, HelloReply, LeaseId, Purpose, ReleaseItem};

use crate::requests::Requests;
use crate::tickets::Tickets;
use crate::{Dial, LinkFault, SessionLimits, Time};

/// What a link carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Requests.
    Data,
    /// Ping and stats.
    Monitor,
}

impl Channel {
    pub(crate) fn purpose(self) -> Purpose {
        match self {
            Self::Data => Purpose::Data,
            Self::Monitor => Purpose::Monitor,
        }
    }
}

/// Names a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId {
    /// What it carries.
    pub channel: Channel,
    /// The shard it goes to.
    pub shard: u32,
}

/// Where a link stands.
#[derive(Debug)]
pub(crate) enum State {
    Down,
    Connecting {
        dial: Dial,
        deadline: Time,
    },
    /// Connected; the challenge is due.
    Greeting {
        dial: Dial,
        deadline: Time,
    },
    /// The hello is sent; its answer is due.
    Proving {
        dial: Dial,
        deadline: Time,
        proof: Box<HelloProof>,
        server_nonce: [u8; 32],
    },
    /// Accepted by a new generation, while links of the old one may still be alive.
    Contending {
        dial: Dial,
        deadline: Time,
        generation: Generation,
        reply: Box<HelloReply>,
    },
    Up {
        dial: Dial,
    },
}

/// A failed dial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) at: Time,
    pub(crate) fault: LinkFault,
    /// Wait before the next dial that a call asks for.
    pub(crate) call_wait_us: u64,
    /// Wait before the next dial that none asks for.
    pub(crate) idle_wait_us: u64,
}

/// One link with all that hangs on it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) state: State,
    pub(crate) failed: Option<Failed>,
    /// Failures in a row.
    pub(crate) failure_count: u32,
    pub(crate) requests: Requests,
    pub(crate) tickets: Tickets,
    /// Leases whose readers went away, released on this connection or ended with it.
    pub(crate) releases: Vec<ReleaseItem>,
    pub(crate) is_releasing: bool,
    /// Grants may have been lost with a connection; the next hello frees them.
    pub(crate) owes_hello: bool,
    /// Frames to send.
    pub(crate) out: Vec<u8>,
}

impl Link {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Down,
            failed: None,
            failure_count: 0,
            requests: Requests::default(),
            tickets: Tickets::default(),
            releases: Vec::new(),
            is_releasing: false,
            owes_hello: false,
            out: Vec::new(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    pub(crate) fn dial(&self) -> Option<Dial> {
        match self.state {
            State::Down => None,
            State::Connecting { dial, .. }
            | State::Greeting { dial, .. }
            | State::Proving { dial, .. }
            | State::Contending { dial, .. }
            | State::Up { dial } => Some(dial),
        }
    }

    /// Returns when the state runs out by itself.
    pub(crate) fn deadline(&self, limits: &SessionLimits) -> Option<Time> {
        match self.state {
            State::Connecting { deadline, .. }
            | State::Greeting { deadline, .. }
            | State::Proving { deadline, .. }
            | State::Contending { deadline, .. } => Some(deadline),
            State::Up { .. } => {
                self.requests.silent_since.map(|since| since.after(limits.silence_timeout_us))
            }
            State::Down => self.dial_at(limits),
        }
    }

    /// Returns from when on a down link is dialled, `None` while nothing asks for it.
    pub(crate) fn dial_at(&self, limits: &SessionLimits) -> Option<Time> {
        let has_call = !self.requests.waiting.is_empty();
        let has_debt = self.owes_hello || self.tickets.owes_abandon();
        if !has_call && !has_debt {
            return None;
        }
        let Some(failed) = &self.failed else { return Some(Time(0)) };
        let wait_us = if failed.fault.is_lasting() {
            limits.retry_period_us
        } else if has_call {
            failed.call_wait_us
        } else {
            failed.idle_wait_us
        };
        Some(failed.at.after(wait_us))
    }

    /// Returns the lasting fault that callers are told instead of a dial.
    pub(crate) fn lasting_fault(&self, now: Time, limits: &SessionLimits) -> Option<LinkFault> {
        let failed = self.failed.as_ref().filter(|failed| failed.fault.is_lasting())?;
        let is_told = now < failed.at.after(limits.retry_period_us);
        (is_told && matches!(self.state, State::Down)).then_some(failed.fault)
    }

    pub(crate) fn queue_release(&mut self, lease: LeaseId, keep: u32) {
        self.releases.push(ReleaseItem { lease, keep });
    }
}
