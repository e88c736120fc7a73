//! Who may talk to the shard: admission, superseding, closed connections, proof of death.

use maru_wire::{Hello, Incarnation, Limits, PROTOCOL_VERSION, Purpose, Refusal};

use crate::clients::ClientId;
use crate::config::{Growth, Peer, Time};
use crate::list::Slot;
use crate::shard::Shard;

/// The least number of its largest objects that a shard must hold.
const OBJECTS_MIN: u32 = 16;

/// An accepted hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Admission {
    /// Names the client object in calls.
    pub client: ClientId,
    /// An older data connection of the client is open: close it, and drop its unread input.
    pub superseded: bool,
    /// The limits to state in the reply.
    pub limits: Limits,
}

impl Shard {
    /// Admits a connection.
    ///
    /// Data: an older data connection of the incarnation is superseded. Its leases end, and the
    /// incarnation's reservations that the hello does not list are freed, since the client says
    /// that it writes under no other. Monitor: changes nothing but the count of connections.
    ///
    /// # Errors
    ///
    /// Close the connection after the refusal. Nothing was changed.
    pub fn hello(&mut self, _now: Time, hello: &Hello, peer: Peer) -> Result<Admission, Refusal> {
        let admitted = self.check_hello(hello).and_then(|()| self.admit_client(hello, peer));
        let client = admitted.inspect_err(|_| self.totals.refused += 1)?;
        let first_digest = *self.pool_list_digest.get_or_insert(hello.pool_list_digest);
        self.totals.pool_list_differs += u64::from(first_digest != hello.pool_list_digest);
        let mut superseded = false;
        if hello.purpose == Purpose::Data {
            superseded = self.clients.get(client).data_number.is_some();
            self.take_over(client, hello);
        }
        let number = Some(hello.connection_number);
        self.clients.set_connection(client, hello.purpose, number);
        self.assert_balance();
        let limits = self.limits_for(self.clients.get(client).object_pages);
        Ok(Admission { client: self.clients.id(client), superseded, limits })
    }

    /// Notes that a connection is gone. With the last data connection the client's leases end.
    ///
    /// Pages of reservations stay: a closed connection does not end a write. A superseded
    /// connection's end, and one of a forgotten client, change nothing.
    pub fn connection_closed(
        &mut self,
        _now: Time,
        client: ClientId,
        purpose: Purpose,
        connection_number: u64,
    ) {
        let Some(client) = self.clients.slot(client) else { return };
        if purpose == Purpose::Data {
            if self.clients.get(client).data_number != Some(connection_number) {
                return;
            }
            self.end_leases_of(client);
        }
        self.clients.set_connection(client, purpose, None);
        self.assert_balance();
    }

    /// Ends all that an incarnation holds, on proof that its process is dead and that nothing
    /// can write its pages any more. Returns how many pages were freed.
    ///
    /// Pages that it abandoned after an error stay fenced.
    pub fn incarnation_dead(&mut self, _now: Time, incarnation: Incarnation) -> u64 {
        let Some(client) = self.clients.find(&self.hashes, &incarnation) else { return 0 };
        self.end_leases_of(client);
        let mut freed = 0;
        while let Some(reservation) = self.clients.get(client).reservations.first() {
            freed += self.free_reservation(reservation);
        }
        self.clients.count(client, |client| {
            client.data_number = None;
            client.monitor_count = 0;
        });
        self.assert_balance();
        freed
    }

    fn check_hello(&self, hello: &Hello) -> Result<(), Refusal> {
        let config = &self.config;
        if hello.version_min > PROTOCOL_VERSION || hello.version_max < PROTOCOL_VERSION {
            return Err(Refusal::WrongVersion(PROTOCOL_VERSION));
        }
        if hello.shard >= config.shard_count {
            return Err(Refusal::NoSuchShard(config.shard_count));
        }
        if hello.shard != config.shard {
            return Err(Refusal::WrongShard(hello.shard));
        }
        match hello.purpose {
            Purpose::Attach => Err(Refusal::UnexpectedHello),
            Purpose::Monitor => Ok(()),
            Purpose::Data => {
                self.check_size(hello.object_bytes_max)?;
                let ttl_us = config.limits.reservation_ttl_us.min(config.limits.lease_ttl_us);
                let is_long_enough = ttl_us / 2 >= hello.transfer_timeout_us;
                if is_long_enough { Ok(()) } else { Err(Refusal::TtlTooShort(ttl_us)) }
            }
        }
    }

    /// A shard that may grow counts with all pages that it may have.
    fn check_size(&self, object_bytes_max: u64) -> Result<(), Refusal> {
        let shard_pages = match self.growth {
            Growth::Impossible => self.pages.total_count(),
            Growth::Startable | Growth::Running { .. } => self.config.page_count_max,
        };
        let object_pages = self.config.pages_of(object_bytes_max);
        let object_count = object_pages.map_or(0, |object_pages| shard_pages / object_pages);
        if object_count < OBJECTS_MIN {
            return Err(Refusal::ShardTooSmall(object_count));
        }
        Ok(())
    }

    /// Finds or adds the client. Its connection is not counted yet.
    fn admit_client(&mut self, hello: &Hello, peer: Peer) -> Result<Slot, Refusal> {
        match self.clients.find(&self.hashes, &hello.incarnation) {
            Some(client) => {
                self.check_known(client, hello, peer)?;
                self.clients.move_to_peer(&self.hashes, client, peer);
                Ok(client)
            }
            None => self.add_client(hello, peer),
        }
    }

    fn check_known(&self, slot: Slot, hello: &Hello, peer: Peer) -> Result<(), Refusal> {
        let client = self.clients.get(slot);
        if client.connection_count() > 0 && self.clients.peer(slot) != peer {
            return Err(Refusal::IncarnationTaken(hello.incarnation.process_id()));
        }
        if client.namespace_digest != hello.namespace {
            return Err(Refusal::WrongNamespace);
        }
        let is_data = hello.purpose == Purpose::Data;
        if let Some(number) = client.data_number_max
            && is_data
            && hello.connection_number <= number
        {
            return Err(Refusal::ConnectionNumberUsed(number));
        }
        let kept = if is_data { client.monitor_count } else { client.connection_count() };
        let max = self.config.limits.connections_max;
        if kept >= max { Err(Refusal::TooManyConnections(max)) } else { Ok(()) }
    }

    fn add_client(&mut self, hello: &Hello, peer: Peer) -> Result<Slot, Refusal> {
        if self.config.limits.connections_max == 0 {
            return Err(Refusal::TooManyConnections(0));
        }
        let forgotten = self.clients.make_room(&self.hashes);
        let forgotten =
            forgotten.map_err(|()| Refusal::TooManyIncarnations(self.config.incarnations_max))?;
        if let Some(namespace) = forgotten {
            self.namespaces.get_mut(namespace).refs -= 1;
        }
        let namespaces_max = u32::from(self.config.namespaces_max);
        let namespace = self.namespaces.open(&hello.namespace, &hello.namespace_name);
        let namespace = namespace.ok_or(Refusal::TooManyNamespaces(namespaces_max))?;
        self.namespaces.get_mut(namespace).refs += 1;
        self.lru.open_lane(namespace);
        let named = (namespace, hello.namespace);
        Ok(self.clients.add(&self.hashes, hello.incarnation, peer, named))
    }

    /// Gives a client's older connections' leases back, and its reservations that are not listed.
    fn take_over(&mut self, client: Slot, hello: &Hello) {
        self.end_leases_of(client);
        for ticket in &hello.tickets {
            if let Some(reservation) = self.own_reservation(client, ticket) {
                self.reservations.slab[reservation].is_listed = true;
            }
        }
        let first = self.clients.get(client).reservations.first();
        let mut at = first;
        while let Some(reservation) = at {
            at = self.reservations.next_of_owner(reservation);
            if !core::mem::take(&mut self.reservations.slab[reservation].is_listed) {
                self.free_reservation(reservation);
            }
        }
        let object_pages = self.config.pages_of(hello.object_bytes_max);
        let known = self.clients.get_mut(client);
        known.transfer_timeout_us = hello.transfer_timeout_us;
        known.object_pages = object_pages.expect("the hello's size was checked");
    }
}

#[cfg(test)]
mod tests;
