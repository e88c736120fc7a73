//! The thread loop of maru-shard: bytes, connections, time and wake-ups, and nothing else.
//!
//! One [`Reactor`] belongs to one thread. It runs on io_uring or, where that is refused, on epoll,
//! with the same behaviour. It serves a server's shard and a client's ring thread alike, and knows
//! neither frames nor keys. [`mailbox`] hands messages to a reactor's thread, [`Waker`] wakes it.

#[cfg(not(loom))]
mod address;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod connection;
#[cfg(not(loom))]
mod epoll;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod event;
pub mod mailbox;
#[cfg(not(loom))]
mod outbox;
#[cfg(not(loom))]
mod output;
#[cfg(not(loom))]
mod reactor;
mod sync;
#[cfg(not(loom))]
mod table;
#[cfg(not(loom))]
mod uring;
mod waker;

#[cfg(not(loom))]
pub use address::Address;
#[cfg(not(loom))]
pub use clock::now_ns;
#[cfg(not(loom))]
pub use config::{Io, IoMode, Keepalive, ReactorConfig};
#[cfg(not(loom))]
pub use error::{ConnectError, ReactorError};
#[cfg(not(loom))]
pub use event::{Cause, ConnectionId, Event};
#[cfg(not(loom))]
pub use outbox::Outbox;
#[cfg(not(loom))]
pub use reactor::{Counters, Reactor};
pub use waker::Waker;
