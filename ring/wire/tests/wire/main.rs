//! The protocol as a peer sees it: vectors, round trips, damaged frames, allocations.

mod allocations;
mod corpus;
mod damage;
#[path = "../../fuzz/src/decode.rs"]
mod decode;
mod messages;
mod round_trip;
mod samples;
mod strategies;
mod vectors;
