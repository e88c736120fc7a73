//! The tickets that this client holds on one shard, and those it is giving back.
//!
//! A ticket is here from the moment its grant is read until a definitive answer or a new
//! generation, so that every hello lists it: the server frees what a hello does not list.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use maru_wire::Ticket;

/// One shard's tickets.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    held: BTreeSet<Ticket>,
    /// Held ones that no write uses any more, with whether a transfer failed.
    ended: BTreeMap<Ticket, bool>,
    /// Ended ones that an Abandon in flight names.
    leaving: BTreeSet<Ticket>,
    /// Grants that outstanding Reserves may bring.
    expected: usize,
}

impl Tickets {
    /// Returns how many a hello would list, at worst.
    pub(crate) fn count_max(&self) -> usize {
        self.held.len() + self.expected
    }

    pub(crate) fn expect(&mut self, count: usize) {
        self.expected += count;
    }

    pub(crate) fn unexpect(&mut self, count: usize) {
        self.expected = self.expected.checked_sub(count).expect("each Reserve counts once");
    }

    pub(crate) fn hold(&mut self, ticket: Ticket) {
        self.held.insert(ticket);
    }

    pub(crate) fn held_count(&self) -> u64 {
        self.held.len() as u64
    }

    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    pub(crate) fn held(&self) -> Vec<Ticket> {
        self.held.iter().copied().collect()
    }

    /// Notes that no write under `ticket` is in flight. Ignores tickets that are not held.
    pub(crate) fn end(&mut self, ticket: Ticket, after_error: bool) {
        if self.held.contains(&ticket) {
            *self.ended.entry(ticket).or_default() |= after_error;
        }
    }

    /// Forgets a ticket that a definitive answer named.
    pub(crate) fn settle(&mut self, ticket: Ticket) {
        self.held.remove(&ticket);
        self.ended.remove(&ticket);
        self.leaving.remove(&ticket);
    }

    /// Whether some ended ticket is not named by an Abandon in flight.
    pub(crate) fn owes_abandon(&self) -> bool {
        self.ended.len() > self.leaving.len()
    }

    /// Takes up to `count_max` ended tickets of one kind for an Abandon; returns its kind too.
    pub(crate) fn leave(&mut self, count_max: usize) -> (Vec<Ticket>, bool) {
        let open = |(ticket, _): &(&Ticket, &bool)| !self.leaving.contains(*ticket);
        let Some(after_error) = self.ended.iter().find(open).map(|(_, after)| *after) else {
            return (Vec::new(), false);
        };
        let of_kind = self.ended.iter().filter(open).filter(|(_, after)| **after == after_error);
        let tickets: Vec<Ticket> = of_kind.map(|(ticket, _)| *ticket).take(count_max).collect();
        self.leaving.extend(tickets.iter().copied());
        (tickets, after_error)
    }

    /// Notes that the Abandon in flight was lost with its connection.
    pub(crate) fn stay(&mut self) {
        self.leaving.clear();
    }

    /// Forgets everything: the generation that granted it is over.
    pub(crate) fn void(&mut self) {
        self.held.clear();
        self.ended.clear();
        self.leaving.clear();
    }
}
