//! The client objects that the shard knows, what each holds, and what each peer holds in sum.

use maru_wire::{Incarnation, Namespace, Purpose};

use crate::config::{Caps, Config, Peer};
use crate::hashes::Hashes;
use crate::index::Index;
use crate::leases::LeaseByOwner;
use crate::list::{Linked, Links, List, Slot};
use crate::reservations::ReservationByOwner;
use crate::slab::Slab;

/// Names one client object on one shard, from its hello until it is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId {
    slot: Slot,
    tag: u32,
}

/// One client object.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) incarnation: Incarnation,
    tag: u32,
    peer: Slot,
    pub(crate) namespace: u16,
    pub(crate) namespace_digest: Namespace,
    /// Another's reserve of a key that this client writes is told InFlight for so long.
    pub(crate) transfer_timeout_us: u64,
    /// Pages of the largest object announced.
    pub(crate) object_pages: u32,
    /// Number of the open data connection.
    pub(crate) data_number: Option<u64>,
    /// The highest number of any data connection yet.
    pub(crate) data_number_max: Option<u64>,
    pub(crate) monitor_count: u32,
    pub(crate) live_pages: u64,
    pub(crate) overdue_pages: u64,
    pub(crate) fenced_pages: u64,
    /// Once for each pin.
    pub(crate) pinned_pages: u64,
    /// Live and overdue.
    pub(crate) reservation_count: u32,
    /// Ended ones too, until their last pin is gone.
    pub(crate) lease_count: u32,
    /// Live and overdue.
    pub(crate) reservations: List<ReservationByOwner>,
    /// Those that have not ended.
    pub(crate) leases: List<LeaseByOwner>,
    idle_links: Links,
    is_idle: bool,
}

/// The clients of one user or address.
#[derive(Debug)]
struct PeerBooks {
    peer: Peer,
    client_count: u32,
    reserved_pages: u64,
    pinned_pages: u64,
}

/// Names the list of clients that may be forgotten.
#[derive(Debug)]
struct ByIdle;

/// Clients by slot, and their peers.
#[derive(Debug)]
pub(crate) struct Clients {
    clients: Slab<Client>,
    by_incarnation: Index,
    peers: Slab<PeerBooks>,
    by_peer: Index,
    /// Hold nothing and have no connection; the first is forgotten first.
    idle: List<ByIdle>,
    next_tag: u32,
}

impl Client {
    pub(crate) fn connection_count(&self) -> u32 {
        u32::from(self.data_number.is_some()) + self.monitor_count
    }

    /// What counts against the peer's half. A client without a connection may be dead: its
    /// overdue pages are counted apart, so that restarts do not lock their peer out.
    fn reserved_share(&self) -> u64 {
        let overdue = if self.connection_count() > 0 { self.overdue_pages } else { 0 };
        self.live_pages + overdue + self.fenced_pages
    }

    fn holds_nothing(&self) -> bool {
        self.connection_count() == 0
            && self.reserved_share() + self.overdue_pages == 0
            && self.lease_count == 0
    }
}

impl Clients {
    pub(crate) fn new(incarnations_max: u32) -> Self {
        Self {
            clients: Slab::growing(incarnations_max),
            by_incarnation: Index::growing(incarnations_max as usize),
            peers: Slab::growing(incarnations_max),
            by_peer: Index::growing(incarnations_max as usize),
            idle: List::default(),
            next_tag: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn id(&self, slot: Slot) -> ClientId {
        ClientId { slot, tag: self.clients[slot].tag }
    }

    /// Returns the client's slot, or None when it was forgotten.
    pub(crate) fn slot(&self, id: ClientId) -> Option<Slot> {
        self.clients.get(id.slot).filter(|client| client.tag == id.tag).map(|_| id.slot)
    }

    pub(crate) fn find(&self, hashes: &Hashes, incarnation: &Incarnation) -> Option<Slot> {
        let tag = hashes.incarnation(incarnation);
        self.by_incarnation.find(tag, |slot| self.clients[slot].incarnation == *incarnation)
    }

    #[inline]
    pub(crate) fn get(&self, slot: Slot) -> &Client {
        &self.clients[slot]
    }

    /// The client's lists and settings. Counts change through `count` only.
    pub(crate) fn get_mut(&mut self, slot: Slot) -> &mut Client {
        &mut self.clients[slot]
    }

    /// Changes a client's counts, and its peer's with them.
    pub(crate) fn count(&mut self, slot: Slot, change: impl FnOnce(&mut Client)) {
        let client = &mut self.clients[slot];
        let (reserved, pinned) = (client.reserved_share(), client.pinned_pages);
        change(client);
        let peer = &mut self.peers[client.peer];
        peer.reserved_pages = peer.reserved_pages - reserved + client.reserved_share();
        peer.pinned_pages = peer.pinned_pages - pinned + client.pinned_pages;
        let is_idle = client.holds_nothing();
        if is_idle != core::mem::replace(&mut client.is_idle, is_idle) {
            if is_idle {
                self.idle.push_back(&mut self.clients, slot);
            } else {
                self.idle.remove(&mut self.clients, slot);
            }
        }
    }

    /// Opens or closes a connection.
    pub(crate) fn set_connection(&mut self, slot: Slot, purpose: Purpose, number: Option<u64>) {
        self.count(slot, |client| match (purpose, number) {
            (Purpose::Data, number) => {
                client.data_number = number;
                client.data_number_max = client.data_number_max.max(number);
            }
            (Purpose::Monitor, Some(_)) => client.monitor_count += 1,
            (Purpose::Monitor, None) => {
                client.monitor_count = client.monitor_count.saturating_sub(1);
            }
            (Purpose::Attach, _) => {}
        });
    }

    /// Whether the client may reserve `page_count` pages more.
    pub(crate) fn may_reserve(
        &self,
        config: &Config,
        shard_pages: u32,
        slot: Slot,
        page_count: u32,
    ) -> bool {
        let client = &self.clients[slot];
        let max = u64::from(self.caps(config, shard_pages, slot).reserved_pages_max);
        let peer_max = u64::from(shard_pages / 2).max(max);
        let wanted = u64::from(page_count);
        client.reservation_count < config.tickets_max()
            && client.live_pages + client.overdue_pages + wanted <= max
            && self.peers[client.peer].reserved_pages + wanted <= peer_max
    }

    /// Whether the client may pin `page_count` pages more.
    pub(crate) fn may_pin(
        &self,
        config: &Config,
        shard_pages: u32,
        slot: Slot,
        page_count: u32,
    ) -> bool {
        let client = &self.clients[slot];
        let max = u64::from(self.caps(config, shard_pages, slot).pinned_pages_max);
        let peer_max = u64::from(shard_pages / 2).max(max);
        let wanted = u64::from(page_count);
        client.pinned_pages + wanted <= max
            && self.peers[client.peer].pinned_pages + wanted <= peer_max
    }

    pub(crate) fn caps(&self, config: &Config, shard_pages: u32, slot: Slot) -> Caps {
        config.caps_for(shard_pages, self.clients[slot].object_pages)
    }

    pub(crate) fn peer(&self, slot: Slot) -> Peer {
        self.peers[self.clients[slot].peer].peer
    }

    /// Makes room for one more client. Returns the namespace of the one forgotten for it.
    ///
    /// # Errors
    ///
    /// The table is full of clients that hold something.
    pub(crate) fn make_room(&mut self, hashes: &Hashes) -> Result<Option<u16>, ()> {
        if !self.clients.is_full() {
            return Ok(None);
        }
        let slot = self.idle.first().ok_or(())?;
        self.idle.remove(&mut self.clients, slot);
        let client = &self.clients[slot];
        self.by_incarnation.remove(hashes.incarnation(&client.incarnation), slot);
        let (peer, namespace) = (client.peer, client.namespace);
        self.leave_peer(hashes, peer);
        self.clients.remove(slot);
        // The slot is in the free list; its tag must not answer to the old id.
        self.next_tag = self.next_tag.wrapping_add(1);
        self.clients[slot].tag = self.next_tag;
        Ok(Some(namespace))
    }

    /// Adds a client without a connection. `make_room` was asked before.
    pub(crate) fn add(
        &mut self,
        hashes: &Hashes,
        incarnation: Incarnation,
        peer: Peer,
        namespace: (u16, Namespace),
    ) -> Slot {
        let peer = self.join_peer(hashes, peer);
        self.next_tag = self.next_tag.wrapping_add(1);
        let slot = self.clients.insert(Client {
            incarnation,
            tag: self.next_tag,
            peer,
            namespace: namespace.0,
            namespace_digest: namespace.1,
            transfer_timeout_us: 0,
            object_pages: 1,
            data_number: None,
            data_number_max: None,
            monitor_count: 0,
            live_pages: 0,
            overdue_pages: 0,
            fenced_pages: 0,
            pinned_pages: 0,
            reservation_count: 0,
            lease_count: 0,
            reservations: List::default(),
            leases: List::default(),
            idle_links: Links::default(),
            is_idle: true,
        });
        self.by_incarnation.insert(hashes.incarnation(&incarnation), slot);
        self.idle.push_back(&mut self.clients, slot);
        slot
    }

    /// Counts all that the client holds against another peer.
    pub(crate) fn move_to_peer(&mut self, hashes: &Hashes, slot: Slot, peer: Peer) {
        let old = self.clients[slot].peer;
        if self.peers[old].peer == peer {
            return;
        }
        let (reserved, pinned) =
            (self.clients[slot].reserved_share(), self.clients[slot].pinned_pages);
        self.peers[old].reserved_pages -= reserved;
        self.peers[old].pinned_pages -= pinned;
        self.leave_peer(hashes, old);
        let new = self.join_peer(hashes, peer);
        self.peers[new].reserved_pages += reserved;
        self.peers[new].pinned_pages += pinned;
        self.clients[slot].peer = new;
    }

    fn join_peer(&mut self, hashes: &Hashes, peer: Peer) -> Slot {
        let tag = hashes.peer(peer);
        let slot =
            self.by_peer.find(tag, |slot| self.peers[slot].peer == peer).unwrap_or_else(|| {
                let books = PeerBooks { peer, client_count: 0, reserved_pages: 0, pinned_pages: 0 };
                let slot = self.peers.insert(books);
                self.by_peer.insert(tag, slot);
                slot
            });
        self.peers[slot].client_count += 1;
        slot
    }

    fn leave_peer(&mut self, hashes: &Hashes, slot: Slot) {
        self.peers[slot].client_count -= 1;
        if self.peers[slot].client_count == 0 {
            self.by_peer.remove(hashes.peer(self.peers[slot].peer), slot);
            self.peers.remove(slot);
        }
    }
}

impl Linked<ByIdle> for Slab<Client> {
    fn links(&mut self, slot: Slot) -> &mut Links {
        &mut self[slot].idle_links
    }

    fn next(&self, slot: Slot) -> Slot {
        self[slot].idle_links.next
    }
}

mod books;
