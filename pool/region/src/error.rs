//! Why a region could not be made or populated.

use std::io;
use std::path::PathBuf;

use crate::MemoryAvailable;

/// Why a region could not be made or populated. Each names the numbers and what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The size is none.
    #[error("a region of {bytes} bytes: the size must be a positive multiple of {unit} bytes")]
    Size {
        /// The size asked for.
        bytes: u64,
        /// The size of one page of the region's kind.
        unit: u64,
    },
    /// The name holds a zero byte or is too long.
    #[error("region name {name:?}: at most {max} bytes and none of them zero")]
    Name {
        /// The name asked for.
        name: String,
        /// The most bytes of a name.
        max: usize,
    },
    /// The memory is not there. Ask again when other processes have freed some.
    #[error(
        "a region of {need_bytes} bytes is larger than the {} bytes of memory that are free for \
         it ({available}; {kept_bytes} bytes are kept for everything else): \
         make the pool smaller, or give the server more memory",
        available.bytes().saturating_sub(*kept_bytes)
    )]
    Memory {
        /// What the region still takes.
        need_bytes: u64,
        /// What there is.
        available: MemoryAvailable,
        /// What is left to others.
        kept_bytes: u64,
    },
    /// Too few huge pages are free.
    #[error(
        "a region of {need_pages} huge pages of {page_kib} KiB, and {free_pages} are free: set \
         nr_hugepages to at least {nr_wanted}, by \
         `echo {nr_wanted} > /sys/kernel/mm/hugepages/hugepages-{page_kib}kB/nr_hugepages`, or \
         use ordinary pages"
    )]
    HugePages {
        /// Huge pages that the region takes.
        need_pages: u64,
        /// Size of one, in KiB.
        page_kib: u64,
        /// Huge pages that are neither used nor promised.
        free_pages: u64,
        /// The `nr_hugepages` with which it would fit.
        nr_wanted: u64,
    },
    /// The machine has no huge pages of this size.
    #[error("the machine has no huge pages of {page_bytes} bytes; its sizes in KiB: {sizes_kib:?}")]
    HugePageSize {
        /// The size asked for.
        page_bytes: u64,
        /// The sizes that there are, in KiB.
        sizes_kib: Vec<u64>,
    },
    /// Part of the region could not be had, though there seemed to be enough.
    #[error("the memory at byte {offset} of region {region} cannot be populated: {source}")]
    Populate {
        /// The region.
        region: u32,
        /// Where the failing slice starts.
        offset: u64,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A file that says how much memory there is cannot be read.
    #[error("{} says nothing of the memory: {source}", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// The system's error, or what is wrong with the text.
        #[source]
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{call} failed for region {region}: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The region.
        region: u32,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl RegionError {
    /// Says whether waiting may help: memory that others hold now would be enough.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Memory { need_bytes, available, kept_bytes } => {
                need_bytes.saturating_add(*kept_bytes) <= available.most_bytes
            }
            Self::Size { .. }
            | Self::Name { .. }
            | Self::HugePages { .. }
            | Self::HugePageSize { .. }
            | Self::Populate { .. }
            | Self::Proc { .. }
            | Self::System { .. } => false,
        }
    }
}
