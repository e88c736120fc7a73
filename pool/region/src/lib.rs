//! Memory regions of a pool: making, checking and populating them, and the owner's lock.
//!
//! A region holds data only. A directory for recovery lives in a file of its own, which is never
//! passed to a client. This crate knows neither keys nor tickets, and moves no bytes.

mod error;
mod heap;
mod huge;
mod memory;
mod owner;
mod populate;
mod region;

pub use error::RegionError;
pub use heap::trim_heap;
pub use memory::{MemoryAvailable, memory_available};
pub use owner::{OwnerLock, OwnerLockError};
pub use region::{Populated, Region, RegionKind, RegionSpec};
