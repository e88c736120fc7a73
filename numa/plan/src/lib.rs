//! The placement plan of a server: which shard runs where, and which pages are its own.
//!
//! Pure: the machine's facts come as arguments, the same facts give the same plan. It reads no
//! `/sys`, pins no thread and maps no memory.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod plan;
mod simple;

pub use plan::{ExtentPlan, Plan, RegionKind, RegionPlan, ShardPlan};
pub use simple::{
    AUTO_PAGES_PER_SHARD_MIN, PAGE_BYTES_GRANULE, PAGE_BYTES_MAX, PAGES_PER_SHARD_ADVISED,
    PlanError, PlanRequest, SHARDS_MAX, plan_simple,
};
