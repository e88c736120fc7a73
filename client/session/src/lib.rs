//! The client's session with one pool node: links, tickets, generations, routing.
//!
//! Pure: inputs are calls, connection events, frames and the time; outputs are connections to make
//! or close, bytes to send and completions. It reads no clock, socket or randomness.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod failure;

pub use failure::{Failure, LinkFault};
