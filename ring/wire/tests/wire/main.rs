//! The protocol as a peer sees it: vectors, round trips, damaged frames, allocations.

mod allocations;
mod damage;
mod messages;
mod round_trip;
mod samples;
mod strategies;
mod vectors;
