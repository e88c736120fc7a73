//! Bodies of replies. Each states the shard's eviction number; lists follow the request's order.

use alloc::vec::Vec;

use rkyv::{Archive, Deserialize, Serialize};

use crate::{Checksum, Key, LeaseId, RegionInfo, StatsReply, Ticket};

/// Consecutive pages of one region.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct PageRun {
    /// The region.
    pub region: u32,
    /// The first page's index in the region.
    pub page_index: u32,
    /// How many pages, at least 1.
    pub page_count: u32,
}

/// Pages promised to a writer.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Grant {
    /// Names the reservation.
    pub ticket: Ticket,
    /// How many of the reply's next runs are this grant's.
    pub run_count: u32,
}

/// What came of one key of a Reserve.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum ReserveOutcome {
    /// Write the bytes, then publish.
    Granted(Grant),
    /// The key is published already. Skip the store.
    Present,
    /// Another writer holds the key at present. Nothing is stored yet.
    InFlight,
    /// No page is free and none can be evicted.
    Full,
    /// The pool is growing; try again after this many microseconds.
    Growing(u32),
    /// The object is larger than the shard takes.
    Rejected,
    /// The incarnation holds as many pages as it may. Wait for its own.
    ClientLimit,
    /// The same key stands earlier in the frame.
    Duplicate,
    /// The reply had no room left. Ask again for these.
    NotTried,
}

/// Answers a Reserve.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct ReserveReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// One outcome per item of the request.
    pub outcomes: Vec<ReserveOutcome>,
    /// The grants' runs, in the order of the outcomes.
    pub runs: Vec<PageRun>,
}

/// What came of one ticket of a Publish.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum PublishOutcome {
    /// The chunk is visible now.
    Created,
    /// The key is there, with its first value. The chunk counts as stored.
    AlreadyPresent,
    /// The namespace was cleared since the grant. The chunk is not stored.
    Cleared,
    /// The ticket names no reservation of this incarnation, and the key is not there.
    Unknown,
    /// The ticket is of another key than the one named.
    WrongKey,
}

/// Answers a Publish.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct PublishReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// One outcome per item of the request.
    pub outcomes: Vec<PublishOutcome>,
}

/// Answers an Abandon.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct AbandonReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// How many reservations ended by this; published and unknown tickets are skipped.
    pub abandoned_count: u32,
}

/// Answers an Exists.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct ExistsReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// How many leading keys are present.
    pub leading_count: u32,
    /// Bit `i % 64` of word `i / 64` is key `i`; empty for `Match::Leading`.
    pub bitmap: Vec<u64>,
}

/// A chunk that a lookup found and pinned.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub struct Found {
    /// The chunk's exact size, in bytes.
    pub object_bytes: u64,
    /// The bytes' checksum as published.
    pub checksum: Checksum,
    /// The ticket that created the chunk.
    pub ticket: Ticket,
    /// How many of the reply's next runs are this chunk's.
    pub run_count: u32,
}

/// What came of one key of a Lookup.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum LookupOutcome {
    /// Pinned until the lease ends.
    Found(Found),
    /// Not there. Hides none after it.
    Missing,
    /// There, but the incarnation pins as much as it may. Release first.
    ClientLimit,
    /// Not looked at: past the first miss, or the reply had no room left.
    NotTried,
}

/// Answers a Lookup.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct LookupReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// Names the pins; zero when nothing was found.
    pub lease: LeaseId,
    /// Time left to the lease, in microseconds.
    pub lease_left_us: u64,
    /// One outcome per key of the request.
    pub outcomes: Vec<LookupOutcome>,
    /// The found chunks' runs, in the order of the outcomes.
    pub runs: Vec<PageRun>,
}

/// Answers a Release.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct ReleaseReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// Per lease: whether it was held to this moment. Bytes read under one that was not are void.
    pub held: Vec<bool>,
}

/// Answers an EvictedSince.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct EvictedSinceReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// The number up to which `keys` tells; ask again from it.
    pub number: u64,
    /// The keys that vanished, oldest first.
    pub keys: Vec<Key>,
    /// Whether there are more.
    pub more: bool,
    /// Whether the log no longer reaches back that far, or a namespace was cleared: forget all.
    pub lost: bool,
}

/// What came of one key of a Remove.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[rkyv(derive(Debug))]
pub enum RemoveOutcome {
    /// The name is gone.
    Removed,
    /// There was none.
    Missing,
    /// The chunk there was created by another ticket, and stays.
    OtherTicket,
}

/// Answers a Remove.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct RemoveReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// One outcome per item of the request.
    pub outcomes: Vec<RemoveOutcome>,
}

/// Answers a Clear.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct ClearReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// How many chunks the namespace had.
    pub cleared_count: u64,
}

/// Answers a Ping.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct PingReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// Connections of the shard.
    pub connection_count: u32,
    /// Frames that wait for their next turn.
    pub waiting_count: u32,
}

/// Answers a Regions.
#[derive(Archive, Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[rkyv(derive(Debug))]
pub struct RegionsReply {
    /// The shard's latest eviction number.
    pub eviction_number: u64,
    /// The regions, in order of their numbers.
    pub regions: Vec<RegionInfo>,
}

/// Replies under construction. Their vectors are reused, so that a warm shard allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct ReplyBuffer {
    /// For a Reserve.
    pub reserve: ReserveReply,
    /// For a Publish.
    pub publish: PublishReply,
    /// For an Abandon.
    pub abandon: AbandonReply,
    /// For an Exists.
    pub exists: ExistsReply,
    /// For a Lookup.
    pub lookup: LookupReply,
    /// For a Release.
    pub release: ReleaseReply,
    /// For an EvictedSince.
    pub evicted_since: EvictedSinceReply,
    /// For a Remove.
    pub remove: RemoveReply,
    /// For a Clear.
    pub clear: ClearReply,
    /// For a Ping.
    pub ping: PingReply,
    /// For a Stats.
    pub stats: StatsReply,
    /// For a Regions.
    pub regions: RegionsReply,
}
