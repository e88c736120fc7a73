//! Page runs, and why regions could not be mapped or bytes not copied.

use std::io;

use super::map::REGIONS_MAX;

/// Consecutive pages of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The region.
    pub region: u32,
    /// The first page's index in the region.
    pub page_index: u32,
    /// How many pages.
    pub page_count: u32,
}

/// Why the regions could not be mapped. Give up this attachment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The page size is zero.
    #[error("pages of 0 bytes")]
    PageBytes,
    /// There are more regions than one map takes.
    #[error("{count} regions: a map takes {REGIONS_MAX}")]
    TooManyRegions {
        /// How many there are.
        count: usize,
    },
    /// Two regions have one number.
    #[error("region {region} comes twice")]
    Twice {
        /// The region.
        region: u32,
    },
    /// The file is smaller than the region is said to be, or the region is empty.
    #[error("region {region} is said to be of {bytes} bytes, its file is of {file_bytes}")]
    Size {
        /// The region.
        region: u32,
        /// Its size, as the server says.
        bytes: u64,
        /// Its file's size.
        file_bytes: u64,
    },
    /// The server could shrink the file under our copies.
    #[error("the file of region {region} is no memfd sealed against resizing")]
    NotSealed {
        /// The region.
        region: u32,
    },
    /// The handler of bus errors cannot be installed.
    #[error("the handler of bus errors cannot be installed: {0}")]
    Guard(#[source] io::Error),
    /// The system refused the map.
    #[error("region {region} cannot be mapped: {source}")]
    System {
        /// The region.
        region: u32,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why bytes were not copied. After [`CopyError::Fault`] part of them may be, else none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The map has no such region.
    #[error("region {region} is not mapped")]
    UnknownRegion {
        /// The region named.
        region: u32,
    },
    /// Some page lies behind the region's end.
    #[error(
        "{} pages from page {} of region {}, which has {page_count} pages",
        run.page_count, run.page_index, run.region
    )]
    OutsideRegion {
        /// The run.
        run: Run,
        /// The whole pages of the region.
        page_count: u64,
    },
    /// The pages hold fewer bytes.
    #[error("{bytes} bytes from offset {offset} of pages that hold {capacity_bytes}")]
    TooLong {
        /// The first byte's offset in the pages.
        offset: u64,
        /// The bytes to copy.
        bytes: u64,
        /// The pages' bytes.
        capacity_bytes: u64,
    },
    /// The object does not fit the caller's buffer.
    #[error("an object of {object_bytes} bytes for a buffer of {buffer_bytes}")]
    BufferTooSmall {
        /// The object's size.
        object_bytes: u64,
        /// The buffer's size.
        buffer_bytes: u64,
    },
    /// The memory of this page is lost: treat its chunk as missing.
    #[error("the memory of page {page_index} of region {region} is lost")]
    Fault {
        /// The region.
        region: u32,
        /// The page.
        page_index: u64,
    },
    /// The memory of the caller's own buffer is lost.
    #[error("the memory of the buffer is lost, at address {address:#x}")]
    BufferFault {
        /// The address.
        address: usize,
    },
}
