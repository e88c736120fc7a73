//! The protocol as a peer sees it: vectors, round trips, damaged frames, allocations.

mod messages;
mod samples;
mod vectors;
