//! Tests of the whole server: real processes, real sockets, real memory, on loopback only.

mod alive;
mod bad_config;
mod forbidden;
mod full;
mod garbage;
mod harness;
mod kills;
mod raw;
mod requests;
mod restart;
mod start_stop;
mod worker;
