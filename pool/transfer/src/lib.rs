//! Movers of bytes between an engine and a pool.
//!
//! It knows regions, pages and descriptors, neither keys nor tickets: who may touch which page is
//! the caller's knowledge.

pub mod shm;

pub mod slots;
