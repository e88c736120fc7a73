//! The first planner: one region, its pages divided evenly over the shards.

use crate::{Plan, RegionKind};

/// Page sizes are multiples of this, so that no two pages share a cache line.
pub const PAGE_BYTES_GRANULE: u64 = 64;
/// An automatic shard count leaves each shard at least this many pages.
pub const AUTO_PAGES_PER_SHARD_MIN: u32 = 256;
/// Fewer pages in a shard than this are allowed and warned about.
pub const PAGES_PER_SHARD_ADVISED: u32 = 64;

/// What the operator wants and what the machine allows.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// How many shards. None: one per allowed CPU, as far as the pages suffice.
    pub shards: Option<u32>,
    /// The CPUs that the server may run on, in the order of use.
    pub allowed_cpus: &'a [u32],
    /// Size of the pool, in bytes. What is less than a page is left out.
    pub pool_bytes: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// What the memory is made of.
    pub kind: RegionKind,
}

/// Why there is no plan. Each names the numbers and the option to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The page size is none.
    #[error("page size of {page_bytes} bytes: it must be a multiple of {PAGE_BYTES_GRANULE}")]
    PageBytes {
        /// The page size asked for.
        page_bytes: u64,
    },
}

/// Makes a plan of one region, whose pages the shards share evenly.
///
/// # Errors
///
/// Every error is one of the configuration.
pub fn plan_simple(_request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    unreachable!("to be written")
}
