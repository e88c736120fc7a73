//! Limits that both ends know, and those that a server states in its reply to a hello.

use rkyv::{Archive, Deserialize, Serialize};

/// Version of the protocol that this crate speaks.
pub const PROTOCOL_VERSION: u16 = 1;
/// Largest body that a frame may announce before a smaller one is negotiated, in bytes.
pub const BODY_BYTES_MAX: u32 = 256 * 1024;
/// Most keys, tickets or leases in one frame.
pub const KEYS_PER_FRAME_MAX: u32 = 4096;
/// Most pages of one object.
pub const PAGES_PER_OBJECT_MAX: u32 = 64;
/// Most tickets that one hello may list.
pub const TICKETS_PER_HELLO_MAX: u32 = 4096;

/// Smallest limit of a frame's body that a server may state, in bytes.
pub const BODY_BYTES_MIN: u32 = 4096;
/// Largest body of a hello, in bytes. All that a server takes before the proof.
pub const HELLO_BODY_BYTES_MAX: u32 = 66 * 1024;
/// Longest name of a namespace, a node or a reason, in bytes of UTF-8.
pub const NAME_BYTES_MAX: usize = 64;
/// Most regions in one reply: as many descriptors as one message on a Unix socket carries.
pub const REGIONS_PER_REPLY_MAX: u32 = 253;
/// Most movers in one reply.
pub const MOVERS_PER_REPLY_MAX: u32 = 8;
/// Longest endpoint of a mover, in bytes.
pub const ENDPOINT_BYTES_MAX: usize = 16 * 1024;
/// Most namespaces in one Stats reply; a shard with more tells of those it saw first.
pub const NAMESPACES_PER_REPLY_MAX: u32 = 1024;
/// Most reasons of closed connections in one Stats reply.
pub const REASONS_PER_REPLY_MAX: u32 = 64;

/// What a server allows one incarnation on one shard, and the times it works with.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Limits {
    /// Largest body of a frame, in bytes.
    pub body_bytes_max: u32,
    /// Most keys, tickets or leases in one frame.
    pub keys_per_frame_max: u32,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Largest object, in bytes.
    pub object_bytes_max: u64,
    /// Most pages that live and overdue reservations of one incarnation may hold.
    pub reserved_pages_max: u32,
    /// Most pages that the leases of one incarnation may pin.
    pub pinned_pages_max: u32,
    /// Most leases of one incarnation.
    pub leases_max: u32,
    /// Most connections of one incarnation.
    pub connections_max: u32,
    /// Life of a reservation before it is overdue, in microseconds.
    pub reservation_ttl_us: u64,
    /// Life of a lease, in microseconds.
    pub lease_ttl_us: u64,
    /// How long pages abandoned after an error stay fenced, in microseconds.
    pub fence_us: u64,
}
