//! The connections of one reactor: a slab whose slots carry tags.
//!
//! A slot's tag changes when its connection leaves, so an id, or a completion, of an earlier
//! connection never finds a later one.

use crate::connection::Connection;
use crate::event::ConnectionId;

#[derive(Debug)]
struct Slot {
    tag: u32,
    connection: Option<Connection>,
}

/// A bounded slab of connections.
#[derive(Debug)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    connections_max: u32,
}

impl Table {
    pub(crate) fn new(connections_max: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), connections_max }
    }

    pub(crate) fn connections_max(&self) -> u32 {
        self.connections_max
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.connections_max as usize
    }

    /// Puts a connection in. The table must not be full.
    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionId {
        assert!(!self.is_full(), "callers check for room first");
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { tag: 0, connection: None });
            u32::try_from(self.slots.len() - 1).expect("connections_max is a u32")
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        ConnectionId { index, tag: slot.tag }
    }

    /// Takes a connection out. Its id finds nothing from now on.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Connection> {
        let slot = self.slots.get_mut(index as usize)?;
        let connection = slot.connection.take()?;
        slot.tag = slot.tag.wrapping_add(1);
        self.free.push(index);
        Some(connection)
    }

    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.index as usize)?;
        slot.connection.as_ref().filter(|_| slot.tag == id.tag)
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.connection.as_mut().filter(|_| slot.tag == id.tag)
    }

    /// Returns the id of the connection in a slot.
    pub(crate) fn id_at(&self, index: u32) -> Option<ConnectionId> {
        let slot = self.slots.get(index as usize)?;
        slot.connection.as_ref().map(|_| ConnectionId { index, tag: slot.tag })
    }

    /// Counts the slots in use now or earlier.
    pub(crate) fn slot_count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("connections_max is a u32")
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut())
    }
}
