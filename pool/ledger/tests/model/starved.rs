//! Frames of several clients in turns, with sweeps that lag behind. The order of things is then
//! the ledger's own, so that answers are not compared; what must never happen is.

use std::collections::BTreeMap;

use maru_ledger::{Call, ClientId, Peer, Progress, Shard, Time, Work};
use maru_wire::{
    Abandon, Clear, Exists, Incarnation, Key, LeaseId, Lookup, LookupOutcome, Match, PageRun,
    Publish, PublishItem, Purpose, Release, ReleaseItem, RequestBody, Reserve, ReserveItem,
    ReserveOutcome, Ticket,
};

use crate::bench::{GENERATION, LEASE_TTL, PAGE_BYTES, key, with_request};
use crate::oracle::peer_of;
use crate::steps::{CLIENTS, Op, Step, steps};
use crate::{extents, hello_of, runner, small_config};

/// A request that is kept for its next turns.
#[derive(Clone, Debug)]
enum Owned {
    Reserve(Reserve),
    Publish(Publish),
    Abandon(Abandon),
    Exists(Exists),
    Lookup(Lookup),
    Release(Release),
    Clear(Clear),
}

impl Owned {
    fn body(&self) -> RequestBody<'_> {
        match self {
            Self::Reserve(request) => RequestBody::Reserve(request),
            Self::Publish(request) => RequestBody::Publish(request),
            Self::Abandon(request) => RequestBody::Abandon(request),
            Self::Exists(request) => RequestBody::Exists(request),
            Self::Lookup(request) => RequestBody::Lookup(request),
            Self::Release(request) => RequestBody::Release(request),
            Self::Clear(request) => RequestBody::Clear(request),
        }
    }
}

/// One client's connection.
#[derive(Default)]
struct Connection {
    id: Option<ClientId>,
    number: u64,
    is_open: bool,
    pending: Option<Owned>,
    work: Work,
}

/// What someone may still read or write.
struct Starved {
    shard: Shard,
    now: u64,
    connections: Vec<Connection>,
    /// Pages that a writer may write: until it ends its ticket.
    written: BTreeMap<Ticket, (u8, Key, Vec<PageRun>)>,
    /// Pages that a reader may read, and until when.
    read: BTreeMap<LeaseId, (u8, u64, Vec<PageRun>)>,
    tickets: Vec<(Ticket, Key)>,
    leases: Vec<LeaseId>,
}

fn is_apart(a: &PageRun, b: &PageRun) -> bool {
    a.region != b.region
        || a.page_index + a.page_count <= b.page_index
        || b.page_index + b.page_count <= a.page_index
}

impl Starved {
    fn new() -> Self {
        Self {
            shard: Shard::new(small_config(), &extents()),
            now: 0,
            connections: (0..CLIENTS).map(|_| Connection::default()).collect(),
            written: BTreeMap::new(),
            read: BTreeMap::new(),
            tickets: vec![],
            leases: vec![],
        }
    }

    fn step(&mut self, step: &Step) {
        let client = step.client;
        match &step.op {
            Op::Advance(us) => self.now += us,
            Op::Hello(kept) => self.hello(client, *kept),
            Op::Close => self.close(client),
            Op::Dead => {
                self.close(client);
                self.shard.incarnation_dead(Time(self.now), Incarnation([client; 16]));
                self.written.retain(|_, (owner, ..)| *owner != client);
            }
            op => {
                let connection = &self.connections[usize::from(client)];
                if connection.is_open && connection.pending.is_none() {
                    let owned = self.owned(op);
                    self.give_up(client, owned.as_ref());
                    self.connections[usize::from(client)].pending = owned;
                }
            }
        }
        self.shard.tick(Time(self.now), &mut step.budget.min(2));
        for client in 0..CLIENTS {
            self.turn(client, step.budget.min(3));
        }
        self.shard.check_books().unwrap();
    }

    fn hello(&mut self, client: u8, kept: u64) {
        let own = self.written.iter().filter(|(_, (owner, ..))| *owner == client);
        let listed = own.enumerate().filter(|(i, _)| kept >> (i % 64) & 1 == 1);
        let listed: Vec<Ticket> = listed.map(|(_, (ticket, _))| *ticket).collect();
        self.written.retain(|ticket, (owner, ..)| *owner != client || listed.contains(ticket));
        self.read.retain(|_, (owner, ..)| *owner != client);
        let connection = &mut self.connections[usize::from(client)];
        connection.number += 1;
        connection.pending = None;
        connection.work.reset();
        let hello = hello_of(client, connection.number, listed);
        let peer = Peer::Uid(peer_of(client));
        let admission = self.shard.hello(Time(self.now), &hello, peer).unwrap();
        connection.id = Some(admission.client);
        connection.is_open = true;
    }

    fn close(&mut self, client: u8) {
        let connection = &mut self.connections[usize::from(client)];
        let Some(id) = connection.id else { return };
        let (now, number) = (Time(self.now), connection.number);
        self.shard.connection_closed(now, id, Purpose::Data, number);
        connection.is_open = false;
        connection.pending = None;
        connection.work.reset();
        self.read.retain(|_, (owner, ..)| *owner != client);
    }

    fn owned(&self, op: &Op) -> Option<Owned> {
        let ticket = |pick: &u8| {
            let recent = self.tickets.len().checked_sub(usize::from(*pick) + 1);
            recent.map_or((Ticket::default(), key(0)), |recent| self.tickets[recent])
        };
        let keys = |keys: &[u64]| keys.iter().map(|n| key(*n)).collect();
        Some(match op {
            Op::Reserve(items) => {
                let items = items.iter().map(|(n, pages)| ReserveItem {
                    key: key(*n),
                    object_bytes: pages * PAGE_BYTES,
                });
                Owned::Reserve(Reserve { items: items.collect() })
            }
            Op::Publish(picks) => {
                let items = picks.iter().map(|(pick, _)| {
                    let (ticket, key) = ticket(pick);
                    PublishItem { ticket, key, checksum: maru_wire::Checksum::default() }
                });
                Owned::Publish(Publish { items: items.collect() })
            }
            Op::Abandon(picks, after_error) => {
                let tickets = picks.iter().map(|pick| ticket(pick).0).collect();
                Owned::Abandon(Abandon { tickets, after_error: *after_error })
            }
            Op::Exists(named, matching) => {
                Owned::Exists(Exists { keys: keys(named), matching: *matching })
            }
            Op::Lookup(named, matching) => {
                Owned::Lookup(Lookup { keys: keys(named), matching: *matching })
            }
            Op::Release(picks) => {
                let items = picks.iter().map(|(pick, keep)| {
                    let recent = self.leases.len().checked_sub(usize::from(*pick) + 1);
                    let lease = recent.map_or(LeaseId::default(), |recent| self.leases[recent]);
                    ReleaseItem { lease, keep: *keep }
                });
                Owned::Release(Release { items: items.collect() })
            }
            Op::Clear => Owned::Clear(Clear { confirm: 1 }),
            Op::EvictedSince(..) | Op::Remove(..) => return None,
            Op::Advance(_) | Op::Hello(_) | Op::Close | Op::Dead => return None,
        })
    }

    /// Who sends the end of a ticket or lease no longer writes or reads under it.
    fn give_up(&mut self, client: u8, owned: Option<&Owned>) {
        let tickets: Vec<Ticket> = match owned {
            Some(Owned::Publish(request)) => request.items.iter().map(|item| item.ticket).collect(),
            Some(Owned::Abandon(request)) => request.tickets.clone(),
            _ => vec![],
        };
        self.written.retain(|ticket, own| own.0 != client || !tickets.contains(ticket));
        if let Some(Owned::Release(request)) = owned {
            for item in &request.items {
                let is_own = self.read.get(&item.lease).is_some_and(|own| own.0 == client);
                if is_own {
                    self.read.remove(&item.lease);
                }
            }
        }
    }

    fn turn(&mut self, client: u8, mut budget: u32) {
        let connection = &mut self.connections[usize::from(client)];
        let (Some(owned), Some(id)) = (&connection.pending, connection.id) else { return };
        let (shard, work) = (&mut self.shard, &mut connection.work);
        let progress = with_request(&owned.body(), |request| {
            let call = Call { client: id, generation: GENERATION, request };
            shard.handle(Time(self.now), &call, work, &mut budget)
        });
        match progress {
            Progress::Paused => {}
            Progress::Done => {
                let owned = connection.pending.take().expect("it was there");
                self.note(client, &owned);
            }
            Progress::Refused(refusal) => panic!("{refusal}"),
        }
    }

    /// Notes what the client learns from the answer.
    fn note(&mut self, client: u8, owned: &Owned) {
        let replies = self.connections[usize::from(client)].work.replies.clone();
        match owned {
            Owned::Reserve(request) => {
                let mut runs = replies.reserve.runs.iter().copied();
                for (item, outcome) in request.items.iter().zip(&replies.reserve.outcomes) {
                    if let ReserveOutcome::Granted(grant) = outcome {
                        let own = runs.by_ref().take(grant.run_count as usize).collect();
                        self.note_grant(client, item.key, grant.ticket, own);
                    }
                }
            }
            Owned::Publish(request) => {
                assert_eq!(replies.publish.outcomes.len(), request.items.len());
            }
            Owned::Abandon(request) => {
                assert!(replies.abandon.abandoned_count as usize <= request.tickets.len());
            }
            Owned::Lookup(_) => {
                let lookup = &replies.lookup;
                if lookup.lease_left_us > 0 {
                    let deadline = self.now + lookup.lease_left_us;
                    self.read.insert(lookup.lease, (client, deadline, lookup.runs.clone()));
                    self.leases.push(lookup.lease);
                }
                let mut is_found = lookup.outcomes.iter();
                let is_found = is_found.any(|outcome| matches!(outcome, LookupOutcome::Found(_)));
                assert_eq!(is_found, lookup.lease != LeaseId::default());
                assert!(lookup.lease_left_us <= LEASE_TTL);
            }
            Owned::Release(request) => {
                assert_eq!(replies.release.held.len(), request.items.len());
            }
            Owned::Exists(request) => {
                let is_leading = request.matching == Match::Leading;
                assert_eq!(replies.exists.bitmap.is_empty(), is_leading || request.keys.is_empty());
            }
            Owned::Clear(_) => {}
        }
    }

    /// A grant's pages are no other writer's, and no one reads them.
    fn note_grant(&mut self, client: u8, key: Key, ticket: Ticket, runs: Vec<PageRun>) {
        let now = self.now;
        let written = self.written.values().flat_map(|(_, _, runs)| runs);
        let read = self.read.values().filter(|(_, deadline, _)| *deadline > now);
        let in_use = written.chain(read.flat_map(|(_, _, runs)| runs));
        for other in in_use {
            assert!(runs.iter().all(|run| is_apart(run, other)), "{runs:?} meets {other:?}");
        }
        self.written.insert(ticket, (client, key, runs));
        self.tickets.push((ticket, key));
    }
}

// S11, S17: no page has two uses, whatever the order of turns and however late the sweep.
#[test]
fn no_page_has_two_uses() {
    let outcome = runner(250).run(&steps(), |steps| {
        let mut starved = Starved::new();
        for client in 0..CLIENTS {
            starved.hello(client, 0);
        }
        for step in &steps {
            starved.step(step);
        }
        Ok(())
    });
    outcome.unwrap();
}
