//! The first planner: one region, its pages divided evenly over the shards.
//!
//! It places no memory and looks at no distances: shards take the allowed CPUs in their order.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::{ExtentPlan, Plan, RegionKind, RegionPlan, ShardPlan};

/// Page sizes are multiples of this, so that no two pages share a cache line.
pub const PAGE_BYTES_GRANULE: u64 = 64;
/// The largest page. Any page's offset fits 64 bits then.
pub const PAGE_BYTES_MAX: u64 = 1 << 30;
/// The most shards of one server.
pub const SHARDS_MAX: u32 = 1024;
/// An automatic shard count leaves each shard at least this many pages.
pub const AUTO_PAGES_PER_SHARD_MIN: u32 = 256;
/// Fewer pages in a shard than this are allowed and warned about.
pub const PAGES_PER_SHARD_ADVISED: u32 = 64;
/// Ordinary regions are a multiple of this many bytes.
const MEMFD_BYTES_GRANULE: u64 = 4096;

/// What the operator wants and what the machine allows.
#[derive(Clone, Copy, Debug)]
pub struct PlanRequest<'a> {
    /// How many shards. None: one per allowed CPU, as far as the pages suffice.
    pub shards: Option<u32>,
    /// The CPUs that the server may run on, in the order of use. Repeats count once.
    pub allowed_cpus: &'a [u32],
    /// Size of the pool, in bytes. What is less than a page is left out, with a warning.
    pub pool_bytes: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// What the memory is made of.
    pub kind: RegionKind,
}

/// Why there is no plan. Each names the numbers and says what to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The page size is none.
    #[error(
        "a page of {page_bytes} bytes: the page size must be a multiple of {PAGE_BYTES_GRANULE}, \
         at least {PAGE_BYTES_GRANULE} and at most {PAGE_BYTES_MAX}"
    )]
    PageBytes {
        /// The page size asked for.
        page_bytes: u64,
    },
    /// The huge page size is none.
    #[error(
        "huge pages of {page_bytes} bytes: the size must be a power of two from {MEMFD_BYTES_GRANULE}"
    )]
    HugePageBytes {
        /// The huge page size asked for.
        page_bytes: u64,
    },
    /// The pool holds no whole page.
    #[error(
        "a pool of {pool_bytes} bytes holds no page of {page_bytes} bytes: \
         make the pool larger or the pages smaller"
    )]
    PoolTooSmall {
        /// The pool size asked for.
        pool_bytes: u64,
        /// The page size asked for.
        page_bytes: u64,
    },
    /// Page numbers would not fit.
    #[error(
        "a pool of {pool_bytes} bytes has {page_count} pages of {page_bytes} bytes, more than \
         {max}: make the pages larger",
        max = u32::MAX
    )]
    TooManyPages {
        /// The pool size asked for.
        pool_bytes: u64,
        /// The page size asked for.
        page_bytes: u64,
        /// How many pages that makes.
        page_count: u64,
    },
    /// Zero shards, or more than there may be.
    #[error("{shards} shards: there must be at least 1 and at most {SHARDS_MAX}")]
    ShardCount {
        /// The shard count asked for.
        shards: u32,
    },
    /// Some shard would have no page.
    #[error(
        "{shards} shards need at least a page each, and the pool has {page_count}: \
         ask for fewer shards, a larger pool or smaller pages"
    )]
    TooFewPages {
        /// The shard count asked for.
        shards: u32,
        /// The pages of the pool.
        page_count: u32,
    },
}

/// Makes a plan of one region, whose pages the shards share evenly.
///
/// Each shard gets one extent; the first shards get one page more when the division leaves a
/// rest. With at most one shard per CPU each is given its CPU, else none is pinned.
///
/// # Errors
///
/// Every error is one of the configuration.
pub fn plan_simple(request: &PlanRequest<'_>) -> Result<Plan, PlanError> {
    let mut warnings = Vec::new();
    let page_count = count_pages(request, &mut warnings)?;
    let region = plan_region(request, page_count, &mut warnings)?;
    let cpus = distinct(request.allowed_cpus);
    let shard_count = count_shards(request, page_count, cpus.len(), &mut warnings)?;
    let cores = assign_cores(shard_count, &cpus, &mut warnings);

    let pages_each = page_count / shard_count;
    let pages_left = page_count % shard_count;
    let mut page_index = 0;
    let shards = (0..shard_count)
        .zip(cores)
        .map(|(shard, core)| {
            let page_count = pages_each + u32::from(shard < pages_left);
            let extent = ExtentPlan { region: region.region, page_index, page_count };
            page_index += page_count;
            ShardPlan { shard, core, node: None, nic: None, extents: vec![extent] }
        })
        .collect();
    Ok(Plan { shards, regions: vec![region], page_bytes: request.page_bytes, warnings })
}

/// Counts the whole pages of the pool.
fn count_pages(request: &PlanRequest<'_>, warnings: &mut Vec<String>) -> Result<u32, PlanError> {
    let PlanRequest { pool_bytes, page_bytes, .. } = *request;
    if page_bytes == 0 || page_bytes > PAGE_BYTES_MAX || page_bytes % PAGE_BYTES_GRANULE != 0 {
        return Err(PlanError::PageBytes { page_bytes });
    }
    let page_count = pool_bytes / page_bytes;
    if page_count == 0 {
        return Err(PlanError::PoolTooSmall { pool_bytes, page_bytes });
    }
    let rest = pool_bytes % page_bytes;
    if rest != 0 {
        warnings.push(format!(
            "{rest} of the pool's {pool_bytes} bytes are left out: they fill no page of \
             {page_bytes} bytes."
        ));
    }
    u32::try_from(page_count).map_err(|_| PlanError::TooManyPages {
        pool_bytes,
        page_bytes,
        page_count,
    })
}

/// Makes the one region, rounded up to whole pages of its kind.
fn plan_region(
    request: &PlanRequest<'_>,
    page_count: u32,
    warnings: &mut Vec<String>,
) -> Result<RegionPlan, PlanError> {
    let unit = match request.kind {
        RegionKind::Memfd => MEMFD_BYTES_GRANULE,
        RegionKind::HugePages { page_bytes }
            if page_bytes.is_power_of_two() && page_bytes >= MEMFD_BYTES_GRANULE =>
        {
            page_bytes
        }
        RegionKind::HugePages { page_bytes } => {
            return Err(PlanError::HugePageBytes { page_bytes });
        }
    };
    let used = u64::from(page_count) * request.page_bytes;
    let bytes = used.checked_next_multiple_of(unit).ok_or(PlanError::TooManyPages {
        pool_bytes: request.pool_bytes,
        page_bytes: request.page_bytes,
        page_count: page_count.into(),
    })?;
    if matches!(request.kind, RegionKind::HugePages { .. }) && bytes != used {
        warnings.push(format!(
            "{} bytes of the last huge page stay unused: the pool is no multiple of {unit} bytes.",
            bytes - used
        ));
    }
    Ok(RegionPlan { region: 0, kind: request.kind, bytes, node: None })
}

/// Settles the number of shards.
fn count_shards(
    request: &PlanRequest<'_>,
    page_count: u32,
    cpu_count: usize,
    warnings: &mut Vec<String>,
) -> Result<u32, PlanError> {
    let Some(shards) = request.shards else {
        let wanted = u32::try_from(cpu_count).unwrap_or(SHARDS_MAX).clamp(1, SHARDS_MAX);
        let shards = wanted.min(page_count / AUTO_PAGES_PER_SHARD_MIN).max(1);
        if shards < wanted {
            warnings.push(format!(
                "{shards} shards for {cpu_count} CPUs: {page_count} pages give no more shards \
                 their {AUTO_PAGES_PER_SHARD_MIN} pages."
            ));
        }
        return Ok(shards);
    };
    if shards == 0 || shards > SHARDS_MAX {
        return Err(PlanError::ShardCount { shards });
    }
    if shards > page_count {
        return Err(PlanError::TooFewPages { shards, page_count });
    }
    if page_count / shards < PAGES_PER_SHARD_ADVISED {
        warnings.push(format!(
            "{shards} shards have {} pages each: below {PAGES_PER_SHARD_ADVISED} a few large \
             objects fill a shard.",
            page_count / shards
        ));
    }
    Ok(shards)
}

/// Gives each shard a CPU of its own, or none any.
fn assign_cores(
    shard_count: u32,
    cpus: &[u32],
    warnings: &mut Vec<String>,
) -> impl Iterator<Item = Option<u32>> {
    let crowded = shard_count as usize > cpus.len();
    if crowded {
        warnings.push(format!(
            "{shard_count} shards share {} CPUs: none is pinned to one.",
            cpus.len()
        ));
    }
    let cpus = if crowded { Vec::new() } else { cpus.to_vec() };
    (0..shard_count as usize).map(move |shard| cpus.get(shard).copied())
}

/// Drops repeats and keeps the order.
fn distinct(cpus: &[u32]) -> Vec<u32> {
    let mut seen = BTreeSet::new();
    cpus.iter().copied().filter(|cpu| seen.insert(*cpu)).collect()
}

#[cfg(test)]
mod tests;
