//! Frames of the maru-shard protocol: header, bodies, limits and the proof of the shared secret.
//!
//! Pure: bytes in, values out. It owns the vocabulary that the ledger, the client's session and
//! the simulator share. It does not read sockets, clocks or randomness.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod assembler;
mod decode_error;
mod decode_reply;
mod decode_request;
mod encode;
mod frame;
mod handshake;
mod hello;
mod ids;
mod limits;
mod refusal;
mod reply;
mod request;
mod size;
mod stats;

pub use assembler::Assembler;
pub use decode_error::DecodeError;
pub use decode_reply::{Reply, decode_reply};
pub use decode_request::{Request, decode_request};
pub use encode::{RequestBody, encode_refusal, encode_reply, encode_request};
pub use frame::{FRAME_ALIGN, Flags, Frame, HEADER_BYTES, Header, Op};
pub use handshake::{
    Handshake, HandshakeError, HelloProof, Secret, decode_challenge, decode_hello,
    decode_hello_reply, encode_challenge, encode_hello, encode_hello_reply,
};
pub use hello::ArchivedRegionInfo;
pub use hello::{Challenge, Hello, HelloReply, Mover, MoverKind, Purpose, RegionInfo, RegionKind};
pub use ids::{ConnectionNumber, Generation, Incarnation, Key, LeaseId, Namespace, Ticket};
pub use limits::{
    BODY_BYTES_MAX, BODY_BYTES_MIN, ENDPOINT_BYTES_MAX, HELLO_BODY_BYTES_MAX, KEYS_PER_FRAME_MAX,
    Limits, MOVERS_PER_REPLY_MAX, NAME_BYTES_MAX, NAMESPACES_PER_REPLY_MAX, PAGES_PER_OBJECT_MAX,
    PROTOCOL_VERSION, REASONS_PER_REPLY_MAX, REGIONS_PER_REPLY_MAX, TICKETS_PER_HELLO_MAX,
};
pub use refusal::Refusal;
pub use reply::{
    AbandonReply, ArchivedAbandonReply, ArchivedClearReply, ArchivedEvictedSinceReply,
    ArchivedExistsReply, ArchivedFound, ArchivedGrant, ArchivedLookupOutcome, ArchivedLookupReply,
    ArchivedPageRun, ArchivedPingReply, ArchivedPublishOutcome, ArchivedPublishReply,
    ArchivedRegionsReply, ArchivedReleaseReply, ArchivedRemoveOutcome, ArchivedRemoveReply,
    ArchivedReserveOutcome, ArchivedReserveReply, ClearReply, EvictedSinceReply, ExistsReply,
    Found, Grant, LookupOutcome, LookupReply, PageRun, PingReply, PublishOutcome, PublishReply,
    RegionsReply, ReleaseReply, RemoveOutcome, RemoveReply, ReplyBuffer, ReserveOutcome,
    ReserveReply,
};
pub use request::{
    Abandon, ArchivedAbandon, ArchivedChecksum, ArchivedClear, ArchivedEvictedSince,
    ArchivedExists, ArchivedLookup, ArchivedMatch, ArchivedPublish, ArchivedPublishItem,
    ArchivedRelease, ArchivedReleaseItem, ArchivedRemove, ArchivedRemoveItem, ArchivedReserve,
    ArchivedReserveItem, Checksum, Clear, EvictedSince, Exists, Lookup, Match, Publish,
    PublishItem, Release, ReleaseItem, Remove, RemoveItem, Reserve, ReserveItem,
};
pub use size::{
    evicted_since_reply_bytes, lookup_reply_bytes, request_items_max, reserve_reply_bytes,
};
pub use stats::{
    ArchivedClosedCount, ArchivedNamespaceUsage, ArchivedPageCounts, ArchivedStatsReply,
    ClosedCount, NamespaceUsage, PageCounts, StatsReply,
};
