//! Blocking client of a maru-shard pool: batches first, every call with a deadline.
//!
//! A [`Client`] talks to one server. It connects lazily, one connection per shard, on a thread of
//! its own; callers encode, wait and decode on theirs. [`Client::store`] and [`Client::load`] move
//! bytes through shared memory on the server's host; the steps below them are exposed for engines
//! that move bytes themselves. Calls work again after a server restart without a new client.

mod admin;
mod attach;
mod attachment;
mod client;
mod config;
mod deadline;
mod error;
mod flight;
mod inner;
mod load;
mod lookup;
#[cfg(doctest)]
mod readme;
mod reserve;
mod resolver;
mod ring;
mod rounds;
mod scatter;
mod secret;
mod shared;
mod slots;
mod staging;
mod store;

pub use admin::{Pong, Presence};
pub use attachment::Attachment;
pub use client::Client;
pub use config::{ClientConfig, ServerAddress};
pub use error::{AttachFault, Effect, Error};
pub use load::{LoadItem, LoadOutcome};
pub use lookup::{Chunk, LookedUp, Pinned};
pub use maru_session::{Failure, LinkFault};
pub use maru_uring::IoMode;
pub use maru_wire::{
    Checksum, EvictedSinceReply, Generation, Incarnation, Key, Limits, Match, Namespace, PingReply,
    PublishOutcome, Refusal, RegionInfo, RemoveItem, RemoveOutcome, ReserveItem, Secret,
    StatsReply, Ticket,
};
pub use reserve::{Reservation, Reserved};
pub use secret::{SecretError, read_secret_file};
pub use staging::{Health, ReadLease, Staged, Staging, StagingConfig, StagingSlot, StagingStats};
pub use store::{StoreItem, StoreOutcome};
