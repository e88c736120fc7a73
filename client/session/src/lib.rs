//! The client's session with one pool node: links, tickets, generations, routing.
//!
//! Pure: inputs are calls, connection events, frames and the time; outputs are connections to make
//! or close, bytes to send and completions. It reads no clock, socket or randomness.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(test)]
mod bench;
mod config;
mod failure;
mod generation;
mod handshake;
mod layout;
mod link;
mod random;
mod replies;
mod requests;
mod session;
mod split;
mod tickets;
mod timers;

pub use config::{SessionConfig, SessionLimits};
pub use failure::{Failure, LinkFault};
pub use handshake::AttachHandshake;
pub use layout::Layout;
pub use link::{Channel, LinkId};
pub use session::{Call, CallId, CloseCause, Counters, Dial, Output, Session, Time};
pub use split::{Part, split};
