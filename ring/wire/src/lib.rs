//! Frames of the maru-shard protocol: header, bodies, limits and the proof of the shared secret.
//!
//! Pure: bytes in, values out. It owns the vocabulary that the ledger, the client's session and
//! the simulator share. It does not read sockets, clocks or randomness.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod hello;
mod ids;
mod limits;
mod refusal;
mod reply;
mod request;
mod stats;

pub use hello::{Challenge, Hello, HelloReply, Mover, MoverKind, Purpose, RegionInfo, RegionKind};
pub use ids::{ConnectionNumber, Generation, Incarnation, Key, LeaseId, Namespace, Ticket};
pub use limits::{
    BODY_BYTES_MAX, KEYS_PER_FRAME_MAX, Limits, PAGES_PER_OBJECT_MAX, PROTOCOL_VERSION,
    TICKETS_PER_HELLO_MAX,
};
pub use refusal::Refusal;
pub use reply::{
    AbandonReply, ClearReply, EvictedSinceReply, ExistsReply, Found, Grant, LookupOutcome,
    LookupReply, PageRun, PingReply, PublishOutcome, PublishReply, RegionsReply, ReleaseReply,
    RemoveOutcome, RemoveReply, ReplyBuffer, ReserveOutcome, ReserveReply,
};
pub use request::{
    Abandon, Checksum, Clear, EvictedSince, Exists, Lookup, Match, Publish, PublishItem, Release,
    ReleaseItem, Remove, RemoveItem, Reserve, ReserveItem,
};
pub use stats::{ClosedCount, NamespaceUsage, PageCounts, StatsReply};
