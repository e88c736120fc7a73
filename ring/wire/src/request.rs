//! Bodies of requests. Each is a batch; one key is a batch of one.

use alloc::vec::Vec;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{Key, LeaseId, Ticket};

/// Which keys of a batch a read looks at.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum Match {
    /// The leading run: stop at the first key that is missing.
    Leading,
    /// Every key.
    All,
}

/// The bytes' checksum as their writer stated it.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Checksum {
    /// 0 is none, 1 is xxh3-64.
    pub kind: u8,
    /// The value; 0 when there is none.
    pub value: u64,
}

/// One key to reserve pages for.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct ReserveItem {
    /// The chunk's key.
    pub key: Key,
    /// The chunk's exact size, in bytes; at least 1.
    pub object_bytes: u64,
}

/// Asks for pages to write new chunks to.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Reserve {
    /// The chunks, granted in this order.
    pub items: Vec<ReserveItem>,
}

/// One chunk to make visible.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct PublishItem {
    /// The reservation's ticket.
    pub ticket: Ticket,
    /// The reservation's key.
    pub key: Key,
    /// The bytes' checksum.
    pub checksum: Checksum,
}

/// Makes written chunks visible.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Publish {
    /// The chunks.
    pub items: Vec<PublishItem>,
}

/// Says that no write under these tickets is in flight any more.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Abandon {
    /// The tickets.
    pub tickets: Vec<Ticket>,
    /// Whether a transfer ended in an error: the pages are then fenced before they are free.
    pub after_error: bool,
}

/// Asks which keys are present. Touches and pins nothing.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Exists {
    /// The keys.
    pub keys: Vec<Key>,
    /// Which of them to look at.
    pub matching: Match,
}

/// Finds chunks and pins them under one lease.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Lookup {
    /// The keys.
    pub keys: Vec<Key>,
    /// Which of them to look at.
    pub matching: Match,
}

/// One lease to release.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct ReleaseItem {
    /// The lease.
    pub lease: LeaseId,
    /// How many of its leading pins to keep; 0 releases the whole lease.
    pub keep: u32,
}

/// Releases leases, whole or past an index.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Release {
    /// The leases.
    pub items: Vec<ReleaseItem>,
}

/// Asks for the keys that vanished after an eviction number.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct EvictedSince {
    /// The eviction number up to which the client knows.
    pub number: u64,
    /// The most keys to answer with.
    pub keys_max: u32,
}

/// One key to remove.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct RemoveItem {
    /// The key.
    pub key: Key,
    /// The ticket that created the chunk; zero removes whatever is there.
    pub ticket: Ticket,
}

/// Unlinks keys. Bytes that a lease pins stay until it ends.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct Remove {
    /// The keys.
    pub items: Vec<RemoveItem>,
}

/// Unlinks every chunk of the connection's namespace on this shard.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Clear {
    /// Must be 1: an empty body is no message.
    pub confirm: u8,
}
