//! Tests of the whole server: real processes, real sockets, real memory, on loopback only.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail their test by it")]

mod alive;
mod bad_config;
mod demo;
mod descriptors;
mod fairness;
mod forbidden;
mod full;
mod garbage;
mod harness;
mod kills;
mod limits;
mod memory;
mod raw;
mod requests;
mod restart;
mod start_stop;
mod told;
mod watch;
mod worker;
