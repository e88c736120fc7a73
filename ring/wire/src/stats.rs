//! The body that answers a Stats: one shard's books and counters.

use alloc::string::String;
use alloc::vec::Vec;

use rkyv::{Archive, Deserialize, Serialize};

/// Where a shard's pages are. The parts add up to `total`.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct PageCounts {
    /// In the allocator.
    pub free: u64,
    /// Reserved, within the TTL.
    pub reserved: u64,
    /// Reserved, past the TTL.
    pub overdue: u64,
    /// Abandoned after an error, not free yet.
    pub fenced: u64,
    /// Of published chunks.
    pub published: u64,
    /// Of published chunks whose namespace was cleared since.
    pub cleared: u64,
    /// Of unlinked chunks that a lease still pins.
    pub unlinked: u64,
    /// All pages of the shard.
    pub total: u64,
}

/// What one namespace uses of one shard.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct NamespaceUsage {
    /// The namespace's name.
    pub name: String,
    /// Published chunks.
    pub key_count: u64,
    /// Pages of published chunks.
    pub used_pages: u64,
    /// Pages of reservations.
    pub reserved_pages: u64,
}

/// How often connections were closed for one reason.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct ClosedCount {
    /// The reason, in snake case.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// Answers a Stats. Counters count from the start of the generation.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct StatsReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// The shard.
    pub shard: u32,
    /// The core that the shard is pinned to, or -1.
    pub core: i32,
    /// The I/O backend in use: `uring` or `epoll`.
    pub io: String,
    /// Time since the start, in microseconds.
    pub uptime_us: u64,
    /// CPU time of the shard's thread, in microseconds.
    pub cpu_us: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// Where the pages are.
    pub pages: PageCounts,
    /// Published chunks.
    pub key_count: u64,
    /// Reservations within the TTL.
    pub reservation_count: u64,
    /// Reservations past the TTL.
    pub overdue_count: u64,
    /// Leases.
    pub lease_count: u64,
    /// Chunks that a lease pins.
    pub pinned_count: u64,
    /// Client objects that the shard knows.
    pub incarnation_count: u64,
    /// Age of the oldest reservation, in microseconds; 0 when there is none.
    pub oldest_reservation_us: u64,
    /// Age of the oldest lease, in microseconds; 0 when there is none.
    pub oldest_lease_us: u64,
    /// Chunks evicted for room.
    pub evicted_total: u64,
    /// Chunks removed by name.
    pub removed_total: u64,
    /// Grants of Reserve.
    pub granted_total: u64,
    /// Chunks created by Publish.
    pub created_total: u64,
    /// Keys that Exists found.
    pub exists_hit_total: u64,
    /// Keys that Exists looked at and did not find.
    pub exists_miss_total: u64,
    /// Keys that Lookup found.
    pub lookup_hit_total: u64,
    /// Keys that Lookup looked at and did not find.
    pub lookup_miss_total: u64,
    /// Keys of Reserve answered Full.
    pub full_total: u64,
    /// Reservations that became overdue.
    pub overdue_total: u64,
    /// Leases that ended by their deadline.
    pub lease_expired_total: u64,
    /// Connections open.
    pub connection_count: u64,
    /// Frames handled.
    pub frame_total: u64,
    /// Frames that were split or misaligned, and so copied to scratch.
    pub scratch_frame_total: u64,
    /// Whole frames refused.
    pub refused_total: u64,
    /// Bytes that wait in the connections' buffers.
    pub buffered_bytes: u64,
    /// Hellos whose list of pool nodes differed from the first one's.
    pub pool_list_differs_total: u64,
    /// Connections closed, by reason.
    pub closed: Vec<ClosedCount>,
    /// Per namespace.
    pub namespaces: Vec<NamespaceUsage>,
}
