//! The handshake's bodies: the server's challenge, the client's hello, the server's answer.

use alloc::string::String;
use alloc::vec::Vec;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{Incarnation, Limits, Namespace, Ticket};

/// What the server sends first on every connection.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Challenge {
    /// Random, new for each connection.
    pub server_nonce: [u8; 32],
    /// Lowest protocol version that the server speaks.
    pub version_min: u16,
    /// Highest protocol version that the server speaks.
    pub version_max: u16,
    /// Whether the server has a secret. Without one the proofs are made with an empty secret.
    pub secret_required: bool,
}

/// What a connection is for.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum Purpose {
    /// Requests to one shard. Supersedes older data connections of the incarnation to it.
    Data,
    /// Ping and stats of one shard. Lists no tickets and supersedes nothing.
    Monitor,
    /// The descriptors of the regions. Stays open as the process's sign of life.
    Attach,
}

/// What the client answers to the challenge, behind a proof of the secret.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Hello {
    /// Random, new for each connection.
    pub client_nonce: [u8; 32],
    /// Lowest protocol version that the client speaks.
    pub version_min: u16,
    /// Highest protocol version that the client speaks.
    pub version_max: u16,
    /// What the connection is for.
    pub purpose: Purpose,
    /// The client object.
    pub incarnation: Incarnation,
    /// Rises with each data connection of the incarnation to the shard.
    pub connection_number: u64,
    /// The shard wanted. Ignored for `Purpose::Attach`.
    pub shard: u32,
    /// The namespace of every key on this connection.
    pub namespace: Namespace,
    /// The namespace's name, for statistics: at most 64 bytes.
    pub namespace_name: String,
    /// The node name expected, at most 64 bytes; empty accepts any.
    pub node_name: String,
    /// Digest of the client's list of pool nodes. Differences are counted, not refused.
    pub pool_list_digest: [u8; 32],
    /// The client's limit for one transfer, in microseconds.
    pub transfer_timeout_us: u64,
    /// The largest object the client will store, in bytes.
    pub object_bytes_max: u64,
    /// Tickets of this shard that the client still holds; the server frees its others.
    pub tickets: Vec<Ticket>,
}

/// What kind of memory a region is.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum RegionKind {
    /// A memfd of ordinary pages.
    Memfd,
    /// A memfd of huge pages.
    HugePages,
    /// A device DAX file.
    DeviceDax,
    /// A file on a DAX file system.
    FileDax,
}

/// One region, as its clients see it. They map exactly `bytes` from offset 0.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct RegionInfo {
    /// The region's number; never recurs in a generation.
    pub region: u32,
    /// What the region is made of.
    pub kind: RegionKind,
    /// NUMA node of the memory, or -1 when it is not known.
    pub node: i32,
    /// Size of the data extent, in bytes.
    pub bytes: u64,
}

/// How bytes can move between a client and the pool.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum MoverKind {
    /// Shared memory on one host.
    Shm,
    /// One-sided transfers through NIXL.
    Nixl,
    /// Bulk TCP connections.
    Tcp,
}

/// One mover that the server offers.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Mover {
    /// What moves the bytes.
    pub kind: MoverKind,
    /// The mover's endpoint, opaque here; empty for shared memory.
    pub endpoint: Vec<u8>,
}

/// The server's answer to a hello that it accepts, behind its own proof of the secret.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct HelloReply {
    /// The version of the protocol that the connection uses from here on.
    pub version: u16,
    /// How many shards the server has; constant in a generation.
    pub shard_count: u32,
    /// The shard that answers.
    pub shard: u32,
    /// The node's name.
    pub node_name: String,
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// What the server allows.
    pub limits: Limits,
    /// The regions, in order of their numbers.
    pub regions: Vec<RegionInfo>,
    /// The movers offered.
    pub movers: Vec<Mover>,
}
