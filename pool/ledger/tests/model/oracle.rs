//! The model: one list of objects, one of leases, every question answered by a scan.

use std::collections::BTreeMap;

use maru_ledger::Config;
use maru_wire::{
    EvictedSinceReply, Key, LeaseId, Match, PageCounts, PageRun, PublishOutcome, RemoveOutcome,
    Ticket,
};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Promised to a client at a time; void once its namespace was cleared.
    Reserved { owner: u8, granted: u64, is_overdue: bool, is_void: bool },
    /// Abandoned after an error, kept until a time.
    Fenced { until: u64 },
    /// Visible, or cleared by the Clear of this count.
    Published { cleared: Option<u64> },
    /// Without a name, pinned.
    Unlinked,
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) namespace: u8,
    pub(crate) pages: u64,
    pub(crate) ticket: Ticket,
    pub(crate) runs: Vec<PageRun>,
    pub(crate) state: State,
    pub(crate) pins: u32,
    /// Rises with each touch.
    pub(crate) touched: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) owner: u8,
    pub(crate) granted: u64,
    /// Tickets of the objects, which name them for ever.
    pub(crate) pins: Vec<Ticket>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ClientModel {
    pub(crate) number: Option<u64>,
    pub(crate) is_connected: bool,
}

/// What a Reserve of one key must answer; a grant's ticket and pages are the ledger's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Granted,
    Present,
    InFlight,
    Full,
    Rejected,
    ClientLimit,
    Duplicate,
}

pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) total: u64,
    pub(crate) now: u64,
    pub(crate) objects: Vec<Object>,
    pub(crate) leases: Vec<Lease>,
    pub(crate) clients: BTreeMap<u8, ClientModel>,
    /// One entry for each eviction number, from 1: a key, or the namespace that was cleared.
    pub(crate) log: Vec<Result<Key, u8>>,
    touches: u64,
}

pub(crate) fn namespace_of(client: u8) -> u8 {
    client % 2
}

pub(crate) fn peer_of(client: u8) -> u32 {
    u32::from(client / 2)
}

impl Model {
    pub(crate) fn new(config: Config, total: u64) -> Self {
        Self {
            config,
            total,
            now: 0,
            objects: vec![],
            leases: vec![],
            clients: BTreeMap::new(),
            log: vec![],
            touches: 0,
        }
    }

    pub(crate) fn counts(&self) -> PageCounts {
        let mut counts = PageCounts { total: self.total, free: self.total, ..Default::default() };
        for object in &self.objects {
            counts.free -= object.pages;
            let part = match object.state {
                State::Reserved { is_overdue: false, .. } => &mut counts.reserved,
                State::Reserved { is_overdue: true, .. } => &mut counts.overdue,
                State::Fenced { .. } => &mut counts.fenced,
                State::Published { cleared: None } => &mut counts.published,
                State::Published { cleared: Some(_) } => &mut counts.cleared,
                State::Unlinked => &mut counts.unlinked,
            };
            *part += object.pages;
        }
        counts
    }

    /// Sets the time, and carries out all that is due, swept objects included.
    pub(crate) fn advance(&mut self, us: u64) {
        self.now += us;
        let limits = self.config.limits;
        for object in &mut self.objects {
            if let State::Reserved { granted, is_overdue, .. } = &mut object.state {
                *is_overdue = self.now >= *granted + limits.reservation_ttl_us;
            }
        }
        while let Some(at) = self.leases.iter().position(|lease| self.is_expired(lease)) {
            let lease = self.leases.remove(at);
            self.unpin_all(&lease.pins);
        }
        let now = self.now;
        self.objects.retain(|object| match object.state {
            State::Fenced { until } => until > now,
            State::Published { cleared: Some(_) } => object.pins > 0,
            _ => true,
        });
    }

    pub(crate) fn present(&self, key: &Key) -> Option<usize> {
        let is_it = |object: &Object| {
            object.key == *key && object.state == State::Published { cleared: None }
        };
        self.objects.iter().position(is_it)
    }

    /// Answers a Reserve of one key, and evicts for it. `grant` must follow on Granted.
    pub(crate) fn reserve(&mut self, client: u8, key: &Key, pages: u64) -> Expected {
        let cap = u64::from(self.config.limits.reserved_pages_max);
        if pages > 64.min(self.total).min(cap) {
            return Expected::Rejected;
        }
        if let Some(present) = self.present(key) {
            self.touch(present);
            return Expected::Present;
        }
        let timeout = crate::bench::TRANSFER_TIMEOUT;
        let is_in_flight = |object: &Object| match object.state {
            State::Reserved { owner, granted, is_void, .. } => {
                let is_other_s = owner != client && !is_void;
                object.key == *key && is_other_s && self.now < granted + timeout
            }
            _ => false,
        };
        if self.objects.iter().any(is_in_flight) {
            return Expected::InFlight;
        }
        let own = self.reserved_pages(|owner, _| owner == client);
        let peer_max = (self.total / 2).max(cap);
        let is_counted = |owner: u8, is_overdue: bool| {
            peer_of(owner) == peer_of(client) && (!is_overdue || self.clients[&owner].is_connected)
        };
        let peer = self.reserved_pages(is_counted) + self.fenced_pages_of_peer(client);
        if own + pages > cap || peer + pages > peer_max {
            return Expected::ClientLimit;
        }
        if self.make_room(pages) { Expected::Granted } else { Expected::Full }
    }

    pub(crate) fn grant(
        &mut self,
        client: u8,
        key: Key,
        pages: u64,
        (ticket, runs): (Ticket, Vec<PageRun>),
    ) {
        let state =
            State::Reserved { owner: client, granted: self.now, is_overdue: false, is_void: false };
        let namespace = namespace_of(client);
        let object = Object { key, namespace, pages, ticket, runs, state, pins: 0, touched: 0 };
        self.objects.push(object);
    }

    pub(crate) fn publish(&mut self, client: u8, ticket: &Ticket, key: &Key) -> PublishOutcome {
        let present = self.present(key);
        let Some(own) = self.own_reservation(client, ticket) else {
            if let Some(present) = present {
                self.touch(present);
                return PublishOutcome::AlreadyPresent;
            }
            return PublishOutcome::Unknown;
        };
        if self.objects[own].key != *key {
            return PublishOutcome::WrongKey;
        }
        if let Some(present) = present {
            self.touch(present);
            self.objects.remove(own);
            return PublishOutcome::AlreadyPresent;
        }
        if matches!(self.objects[own].state, State::Reserved { is_void: true, .. }) {
            self.objects.remove(own);
            return PublishOutcome::Cleared;
        }
        self.objects[own].state = State::Published { cleared: None };
        self.touch(own);
        let is_older = |object: &Object| {
            object.key == *key && matches!(object.state, State::Published { cleared: Some(_) })
        };
        if let Some(older) = self.objects.iter().position(is_older) {
            if self.objects[older].pins == 0 {
                self.objects.remove(older);
            } else {
                self.objects[older].state = State::Unlinked;
            }
        }
        PublishOutcome::Created
    }

    /// Whether the ticket was the client's to abandon.
    pub(crate) fn abandon(&mut self, client: u8, ticket: &Ticket, after_error: bool) -> bool {
        let Some(own) = self.own_reservation(client, ticket) else { return false };
        if after_error {
            let until = self.now + self.config.limits.fence_us;
            self.objects[own].state = State::Fenced { until };
            self.objects[own].touched = u64::from(client);
        } else {
            self.objects.remove(own);
        }
        true
    }

    /// Whether the client may pin an object's pages more.
    pub(crate) fn may_pin(&self, client: u8, pages: u64, needs_lease: bool) -> bool {
        let cap = u64::from(self.config.limits.pinned_pages_max);
        let own = self.pinned_pages(|owner| owner == client);
        let peer = self.pinned_pages(|owner| peer_of(owner) == peer_of(client));
        let leases = self.leases.iter().filter(|lease| lease.owner == client).count();
        let has_lease = !needs_lease || leases < self.config.limits.leases_max as usize;
        has_lease && own + pages <= cap && peer + pages <= (self.total / 2).max(cap)
    }

    pub(crate) fn pin(&mut self, client: u8, lease: LeaseId, object: usize) {
        self.objects[object].pins += 1;
        self.touch(object);
        let ticket = self.objects[object].ticket;
        match self.leases.iter_mut().find(|held| held.id == lease) {
            Some(held) => held.pins.push(ticket),
            None => self.leases.push(Lease {
                id: lease,
                owner: client,
                granted: self.now,
                pins: vec![ticket],
            }),
        }
    }

    /// Whether the lease was held.
    pub(crate) fn release(&mut self, client: u8, id: &LeaseId, keep: u32) -> bool {
        let is_it = |lease: &Lease| lease.id == *id && lease.owner == client;
        let Some(at) = self.leases.iter().position(is_it) else { return false };
        if keep == 0 {
            let lease = self.leases.remove(at);
            self.unpin_all(&lease.pins);
        } else {
            let keep = self.leases[at].pins.len().min(keep as usize);
            let mut tail = self.leases[at].pins.split_off(keep);
            tail.reverse();
            self.unpin_all(&tail);
        }
        true
    }

    pub(crate) fn remove(&mut self, key: &Key, ticket: &Ticket) -> RemoveOutcome {
        let Some(at) = self.present(key) else { return RemoveOutcome::Missing };
        if *ticket != Ticket::default() && *ticket != self.objects[at].ticket {
            return RemoveOutcome::OtherTicket;
        }
        self.log.push(Ok(*key));
        if self.objects[at].pins == 0 {
            self.objects.remove(at);
        } else {
            self.objects[at].state = State::Unlinked;
        }
        RemoveOutcome::Removed
    }

    pub(crate) fn clear(&mut self, client: u8) -> u64 {
        let namespace = namespace_of(client);
        self.log.push(Err(namespace));
        let clear = self.log.len() as u64;
        let mut count = 0;
        for object in self.objects.iter_mut().filter(|object| object.namespace == namespace) {
            match &mut object.state {
                State::Reserved { is_void, .. } => *is_void = true,
                State::Published { cleared } if cleared.is_none() => {
                    *cleared = Some(clear);
                    count += 1;
                }
                State::Published { .. } | State::Fenced { .. } | State::Unlinked => {}
            }
        }
        count
    }

    pub(crate) fn evicted_since(
        &self,
        client: u8,
        number: u64,
        keys_max: u32,
    ) -> EvictedSinceReply {
        let latest = self.log.len() as u64;
        let mut reply = EvictedSinceReply { eviction_number: latest, ..Default::default() };
        let own = Err(namespace_of(client));
        let is_cleared = |number: u64| {
            let since = self.log.iter().skip(usize::try_from(number).unwrap());
            since.into_iter().any(|record| *record == own)
        };
        let oldest = latest.saturating_sub(u64::from(self.config.eviction_log_keys));
        reply.number = number;
        if number > latest || number < oldest || is_cleared(number) {
            reply.lost = true;
            reply.number = latest;
        }
        while reply.number < latest && reply.keys.len() < keys_max as usize {
            reply.keys.extend(self.log[usize::try_from(reply.number).unwrap()]);
            reply.number += 1;
        }
        reply.more = reply.number < latest;
        reply
    }

    /// Ends what a client's older connections held, but the tickets it lists.
    pub(crate) fn take_over(&mut self, client: u8, listed: &[Ticket]) {
        self.end_leases(client);
        self.objects.retain(|object| match object.state {
            State::Reserved { owner, .. } => owner != client || listed.contains(&object.ticket),
            _ => true,
        });
    }

    pub(crate) fn end_leases(&mut self, client: u8) {
        while let Some(at) = self.leases.iter().position(|lease| lease.owner == client) {
            let lease = self.leases.remove(at);
            self.unpin_all(&lease.pins);
        }
    }

    pub(crate) fn own_reservation(&self, client: u8, ticket: &Ticket) -> Option<usize> {
        self.objects.iter().position(|object| {
            let is_own = matches!(object.state, State::Reserved { owner, .. } if owner == client);
            is_own && object.ticket == *ticket
        })
    }

    /// Which outcomes follow the first key that was not found.
    pub(crate) fn stops(matching: Match) -> bool {
        matching == Match::Leading
    }

    fn is_expired(&self, lease: &Lease) -> bool {
        self.now >= lease.granted + self.config.limits.lease_ttl_us
    }

    fn touch(&mut self, object: usize) {
        self.touches += 1;
        self.objects[object].touched = self.touches;
    }

    fn unpin_all(&mut self, tickets: &[Ticket]) {
        for ticket in tickets {
            let is_it = |object: &Object| object.ticket == *ticket;
            let at = self.objects.iter().position(is_it).expect("a pin holds its object");
            self.objects[at].pins -= 1;
            if self.objects[at].pins > 0 {
                continue;
            }
            match self.objects[at].state {
                State::Published { cleared: None } => self.touch(at),
                _ => {
                    self.objects.remove(at);
                }
            }
        }
    }

    fn reserved_pages(&self, is_counted: impl Fn(u8, bool) -> bool) -> u64 {
        let pages = self.objects.iter().map(|object| match object.state {
            State::Reserved { owner, is_overdue, .. } if is_counted(owner, is_overdue) => {
                object.pages
            }
            _ => 0,
        });
        pages.sum()
    }

    /// `touched` of a fenced object is its owner: see `abandon`.
    fn fenced_pages_of_peer(&self, client: u8) -> u64 {
        let is_peer_s = |object: &&Object| {
            let owner = u8::try_from(object.touched % 256).unwrap();
            matches!(object.state, State::Fenced { .. }) && peer_of(owner) == peer_of(client)
        };
        self.objects.iter().filter(is_peer_s).map(|object| object.pages).sum()
    }

    fn pinned_pages(&self, is_counted: impl Fn(u8) -> bool) -> u64 {
        let counted = self.leases.iter().filter(|lease| is_counted(lease.owner));
        let pages = counted.flat_map(|lease| &lease.pins).map(|ticket| {
            let is_it = |object: &&Object| object.ticket == *ticket;
            self.objects.iter().find(is_it).expect("a pin holds its object").pages
        });
        pages.sum()
    }

    /// Cleared objects go first, the first Clear's first; then the coldest published ones.
    fn make_room(&mut self, pages: u64) -> bool {
        let free = |model: &Self| model.counts().free;
        let is_unpinned =
            |object: &Object| object.pins == 0 && matches!(object.state, State::Published { .. });
        let evictable: u64 =
            self.objects.iter().filter(|o| is_unpinned(o)).map(|object| object.pages).sum();
        if free(self) + evictable < pages {
            return false;
        }
        while free(self) < pages {
            let order = |object: &Object| match object.state {
                State::Published { cleared: Some(clear) } => (0, clear, object.touched),
                _ => (1, 0, object.touched),
            };
            let unpinned = self.objects.iter().enumerate().filter(|(_, o)| is_unpinned(o));
            let (at, _) = unpinned.min_by_key(|(_, object)| order(object)).expect("enough");
            let object = self.objects.remove(at);
            if object.state == (State::Published { cleared: None }) {
                self.log.push(Ok(object.key));
            }
        }
        true
    }
}
