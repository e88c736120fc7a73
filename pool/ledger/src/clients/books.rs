//! Checks of what each client and each peer holds.

use alloc::vec;
use alloc::vec::Vec;

use super::{Clients, PeerBooks};
use crate::books::{Checked, equal, holds};
use crate::hashes::Hashes;
use crate::leases::Leases;
use crate::list::Slot;
use crate::objects::Objects;
use crate::reservations::{ReservationState, Reservations};

/// What one client holds, counted anew.
#[derive(Clone, Copy, Default)]
struct Sums {
    live_pages: u64,
    overdue_pages: u64,
    fenced_pages: u64,
    pinned_pages: u64,
    reservation_count: u32,
    lease_count: u32,
}

impl Clients {
    /// The namespace of each client.
    pub(crate) fn namespaces(&self) -> Vec<u16> {
        self.clients.used().into_iter().map(|slot| self.clients[slot].namespace).collect()
    }

    /// Checks every client and peer.
    pub(crate) fn check(
        &self,
        hashes: &Hashes,
        reservations: &Reservations,
        leases: &Leases,
        objects: &Objects,
    ) -> Checked {
        let used = self.clients.used();
        let count = used.last().map_or(0, |last| *last as usize + 1);
        let mut sums = vec![Sums::default(); count];
        add_reservations(&mut sums, reservations, objects)?;
        leases.for_each_pin(|owner, object| {
            sums[owner as usize].pinned_pages += u64::from(objects.get(object).page_count);
        });
        leases.for_each(|owner| sums[owner as usize].lease_count += 1);
        for slot in &used {
            let (client, sum) = (&self.clients[*slot], sums[*slot as usize]);
            equal("live pages of a client", client.live_pages, sum.live_pages)?;
            equal("overdue pages of a client", client.overdue_pages, sum.overdue_pages)?;
            equal("fenced pages of a client", client.fenced_pages, sum.fenced_pages)?;
            equal("pinned pages of a client", client.pinned_pages, sum.pinned_pages)?;
            let (counted, found) = (client.reservation_count, sum.reservation_count);
            equal("reservations of a client", counted.into(), found.into())?;
            let owned = client.reservations.iter(&reservations.slab);
            let owned = owned.filter(|owned| reservations.get(*owned).owner == *slot).count();
            equal("a client's list of reservations", owned as u64, found.into())?;
            equal("leases of a client", client.lease_count.into(), sum.lease_count.into())?;
            let found = self.find(hashes, &client.incarnation);
            holds("a client is found", found == Some(*slot))?;
            holds("an idle client is known", client.is_idle == client.holds_nothing())?;
        }
        let idle_count = self.idle.iter(&self.clients).count() as u64;
        let expected = used.iter().filter(|slot| self.clients[**slot].is_idle).count() as u64;
        equal("idle clients", idle_count, expected)?;
        self.check_peers(&used)
    }

    fn check_peers(&self, used: &[Slot]) -> Checked {
        for peer in self.peers.used() {
            let PeerBooks { client_count, reserved_pages, pinned_pages, .. } = self.peers[peer];
            let clients = used.iter().map(|slot| &self.clients[*slot]);
            let clients: Vec<_> = clients.filter(|client| client.peer == peer).collect();
            equal("clients of a peer", client_count.into(), clients.len() as u64)?;
            let reserved = clients.iter().map(|client| client.reserved_share()).sum();
            equal("reserved pages of a peer", reserved_pages, reserved)?;
            let pinned = clients.iter().map(|client| client.pinned_pages).sum();
            equal("pinned pages of a peer", pinned_pages, pinned)?;
        }
        Ok(())
    }
}

fn add_reservations(sums: &mut [Sums], reservations: &Reservations, objects: &Objects) -> Checked {
    for slot in reservations.slab.used() {
        let reservation = reservations.get(slot);
        let pages = u64::from(objects.get(reservation.object).page_count);
        let owner = reservation.owner as usize;
        holds("a reservation has an owner", owner < sums.len())?;
        let sum = &mut sums[owner];
        match reservation.state {
            ReservationState::Live => sum.live_pages += pages,
            ReservationState::Overdue => sum.overdue_pages += pages,
            ReservationState::Fenced => sum.fenced_pages += pages,
        }
        let has_ticket = reservation.state != ReservationState::Fenced;
        sum.reservation_count += u32::from(has_ticket);
    }
    Ok(())
}
