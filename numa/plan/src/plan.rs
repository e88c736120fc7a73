//! The plan's types: plain values that a server starts from and an operator can read.

use alloc::string::String;
use alloc::vec::Vec;

/// Says where each shard runs, which memory the pool has, and who owns which pages of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One entry a shard; entry `i` has the number `i`.
    pub shards: Vec<ShardPlan>,
    /// The regions to make, by rising number.
    pub regions: Vec<RegionPlan>,
    /// Size of a page, in bytes, in every region.
    pub page_bytes: u64,
    /// What the planner did that an operator may not expect, as sentences.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Counts the pages of all shards.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.shards.iter().map(ShardPlan::page_count).sum()
    }
}

/// One shard: a thread, its place and its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardPlan {
    /// The shard's number.
    pub shard: u32,
    /// The CPU to pin the shard's thread to. None: the scheduler's choice.
    pub core: Option<u32>,
    /// The NUMA node of that CPU, where it is known.
    pub node: Option<u32>,
    /// The network device nearest to that CPU, where one was chosen.
    pub nic: Option<String>,
    /// The shard's pages. No other shard has any of them.
    pub extents: Vec<ExtentPlan>,
}

impl ShardPlan {
    /// Counts the shard's pages.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.page_count)).sum()
    }
}

/// Consecutive pages of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentPlan {
    /// The region.
    pub region: u32,
    /// The first page's index in the region.
    pub page_index: u32,
    /// How many pages, at least 1.
    pub page_count: u32,
}

/// Memory of one kind on one node, mapped as one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionPlan {
    /// The region's number.
    pub region: u32,
    /// What the memory is made of.
    pub kind: RegionKind,
    /// Size of the region, in bytes: a multiple of the kind's own page size, and at least
    /// its pages' bytes.
    pub bytes: u64,
    /// The NUMA node wanted for the memory. None: where the kernel puts it.
    pub node: Option<u32>,
}

/// What a region's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// A memfd of ordinary pages.
    Memfd,
    /// A memfd of huge pages of this many bytes.
    HugePages {
        /// Size of one huge page.
        page_bytes: u64,
    },
}
