//! What the clients were promised: which pages a writer may still write, and until when.

use std::collections::{BTreeMap, BTreeSet};

use maru_ledger::Time;
use maru_wire::{LeaseId, Reply, Request, Ticket};

use super::ticket_of;

/// The most names that are remembered for later requests.
const NAMES_MAX: usize = 64;

/// Why a page must not be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hold {
    /// The client of this index holds this ticket.
    Ticket(usize, Ticket),
    /// A write that failed may still land until then.
    Fence(Time),
}

/// The pages that writers may still write, and the names that were handed out.
#[derive(Default)]
pub(super) struct Held {
    pages: BTreeMap<(u32, u32), Hold>,
    tickets: Vec<Ticket>,
    leases: Vec<LeaseId>,
    regions: BTreeSet<u32>,
}

impl Held {
    pub(super) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    pub(super) fn leases(&self) -> &[LeaseId] {
        &self.leases
    }

    /// False when the region was added before.
    pub(super) fn add_region(&mut self, region: u32) -> bool {
        self.regions.insert(region)
    }

    pub(super) fn region_count(&self) -> usize {
        self.regions.len()
    }

    /// The tickets that a client holds, each once.
    pub(super) fn tickets_of(&self, index: usize) -> Vec<Ticket> {
        let held = self.pages.values().filter_map(|hold| match hold {
            Hold::Ticket(owner, ticket) if *owner == index => Some(*ticket),
            _ => None,
        });
        let distinct: BTreeSet<Ticket> = held.collect();
        distinct.into_iter().collect()
    }

    /// A client's other reservations have ended.
    pub(super) fn keep_only(&mut self, index: usize, tickets: &[Ticket]) {
        self.pages.retain(|_, hold| match hold {
            Hold::Ticket(owner, ticket) => *owner != index || tickets.contains(ticket),
            Hold::Fence(_) => true,
        });
    }

    /// A client has sent a request. What it gives up is given up from now on, though the shard may
    /// take its time.
    pub(super) fn announce(&mut self, index: usize, request: &Request<'_>, fenced_until: Time) {
        match request {
            Request::Publish(request) => {
                for item in request.items.iter() {
                    self.pages.retain(|_, hold| *hold != Hold::Ticket(index, item.ticket));
                }
            }
            Request::Abandon(request) => {
                for ticket in request.tickets.iter() {
                    let given_up = Hold::Ticket(index, *ticket);
                    if request.after_error {
                        for hold in self.pages.values_mut().filter(|hold| **hold == given_up) {
                            *hold = Hold::Fence(fenced_until);
                        }
                    } else {
                        self.pages.retain(|_, hold| *hold != given_up);
                    }
                }
            }
            _ => {}
        }
    }

    /// A client has read a reply.
    pub(super) fn learn(&mut self, index: usize, reply: &Reply<'_>, now: Time) {
        match reply {
            Reply::Reserve(reply) => {
                let mut runs = reply.runs.iter();
                for (ticket, run_count) in reply.outcomes.iter().filter_map(ticket_of) {
                    for run in runs.by_ref().take(run_count as usize) {
                        let first = run.page_index.to_native();
                        for page in first..first + run.page_count.to_native() {
                            let page = (run.region.to_native(), page);
                            self.grant(page, Hold::Ticket(index, ticket), now);
                        }
                    }
                    remember(&mut self.tickets, ticket);
                }
            }
            Reply::Lookup(reply) if reply.lease != LeaseId::default() => {
                remember(&mut self.leases, reply.lease);
            }
            _ => {}
        }
    }

    fn grant(&mut self, page: (u32, u32), hold: Hold, now: Time) {
        match self.pages.insert(page, hold) {
            None => {}
            Some(Hold::Fence(until)) => assert!(until <= now, "page {page:?} is fenced"),
            Some(Hold::Ticket(..)) => panic!("page {page:?} may still be written by another"),
        }
    }
}

fn remember<T>(names: &mut Vec<T>, name: T) {
    if names.len() == NAMES_MAX {
        names.remove(0);
    }
    names.push(name);
}
