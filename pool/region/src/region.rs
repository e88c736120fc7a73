//! One region: a sealed memfd.

use std::os::fd::BorrowedFd;

use crate::RegionError;

/// What a region's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// A memfd of ordinary pages.
    Memfd,
    /// A memfd of huge pages of this many bytes: 2 MiB or 1 GiB.
    HugePages {
        /// Size of one huge page.
        page_bytes: u64,
    },
}

/// What region to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSpec {
    /// The region's number. Never used twice in one generation.
    pub region: u32,
    /// What it is made of.
    pub kind: RegionKind,
    /// Its size, in bytes: a multiple of the kind's page size.
    pub bytes: u64,
    /// The NUMA node preferred for its memory.
    pub node: Option<u32>,
    /// A name that shows in `/proc/PID/maps`.
    pub name: String,
}

/// One region of memory, sealed against resizing, so that nobody's map can lose its pages.
#[derive(Debug)]
pub struct Region {}

/// What came of populating a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Bytes now in memory.
    pub bytes: u64,
    /// The error number with which the system refused the wanted NUMA node, if it did.
    pub placement_refused: Option<i32>,
}

impl Region {
    /// Makes a sealed region. No memory is taken before [`Region::populate`].
    ///
    /// # Errors
    ///
    /// The memory is not there, or the system refuses.
    pub fn create(_spec: &RegionSpec) -> Result<Self, RegionError> {
        unreachable!("to be written")
    }

    /// Takes all memory of the region, in slices; tells `progress` the bytes done so far.
    ///
    /// Blocks for seconds per GiB: call it on a helper thread.
    ///
    /// # Errors
    ///
    /// The memory is not there (any more).
    pub fn populate(&self, _progress: &dyn Fn(u64)) -> Result<Populated, RegionError> {
        unreachable!("to be written")
    }

    /// Lends the descriptor that clients map.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        unreachable!("to be written")
    }

    /// Gives the size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        unreachable!("to be written")
    }

    /// Gives what it was made from.
    #[must_use]
    pub fn spec(&self) -> &RegionSpec {
        unreachable!("to be written")
    }
}
