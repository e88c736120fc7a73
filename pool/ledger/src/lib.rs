//! The state machine of one shard: index, LRU, pages, reservations, leases, eviction log.
//!
//! Pure: requests and times in, replies out. It executes requests straight from wire's checked
//! archives and never reads a clock, a socket or randomness. Its tables have limits that are
//! fixed at start; full is an answer. Entry points: [`Shard::hello`], [`Shard::handle`],
//! [`Shard::tick`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate self as maru_ledger;
#[cfg(test)]
extern crate std;

mod abandon;
#[cfg(test)]
mod bench;
mod books;
mod clear;
mod clients;
mod config;
mod evicted_since;
mod eviction_log;
mod exists;
mod frame_keys;
mod hashes;
mod hello;
mod index;
mod issuer;
mod leases;
mod list;
mod lookup;
mod lru;
mod namespaces;
mod objects;
mod pages;
mod publish;
mod release;
mod remove;
mod reservations;
mod reserve;
mod resident;
mod room;
mod shard;
mod slab;
mod stats;
mod tick;
mod warm;
mod work;

pub use books::BooksError;
pub use clients::ClientId;
pub use config::{Caps, Config, Eviction, Extent, Growth, Peer, Time};
pub use hello::Admission;
pub use shard::Shard;
pub use work::{Call, Progress, Work};
