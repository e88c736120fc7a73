//! A client's maps of a pool's regions, and the copies to and from their pages.

use std::io;
use std::os::fd::OwnedFd;

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

/// A region to map.
#[derive(Debug)]
pub struct MappedSpec {
    /// The region's number.
    pub region: u32,
    /// Size of its data, in bytes, from offset 0.
    pub bytes: u64,
    /// The descriptor received for it.
    pub fd: OwnedFd,
}

/// Why the regions could not be mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The system refused.
    #[error("region {region} cannot be mapped")]
    System {
        /// The region.
        region: u32,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Why bytes were not copied. Part of them may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The map has no such region.
    #[error("region {region} is not mapped")]
    UnknownRegion {
        /// The region named.
        region: u32,
    },
}

/// All regions of one attachment, mapped twice: writable for stores, read-only for loads.
#[derive(Debug)]
pub struct Map {}

impl Map {
    /// Maps the regions. Closes the descriptors.
    ///
    /// # Errors
    ///
    /// The server is not one to trust with a map, or the system refuses.
    pub fn new(_specs: Vec<MappedSpec>, _page_bytes: u64) -> Result<Self, MapError> {
        unreachable!("to be written")
    }

    /// Gives the size of a page, in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        unreachable!("to be written")
    }

    /// Writes `bytes` to the pages, from the first page's start.
    ///
    /// # Errors
    ///
    /// Abandon the reservation after an error.
    pub fn write(&self, _runs: &[Run], _bytes: &[u8]) -> Result<(), CopyError> {
        unreachable!("to be written")
    }

    /// Writes `bytes` to the pages, from `offset` within them.
    ///
    /// # Errors
    ///
    /// As for [`Map::write`].
    pub fn write_at(&self, _runs: &[Run], _offset: u64, _bytes: &[u8]) -> Result<(), CopyError> {
        unreachable!("to be written")
    }

    /// Reads an object of `object_bytes` into the front of `out`.
    ///
    /// # Errors
    ///
    /// Treat the chunk as missing.
    pub fn read(
        &self,
        _runs: &[Run],
        _object_bytes: u64,
        _out: &mut [u8],
    ) -> Result<(), CopyError> {
        unreachable!("to be written")
    }

    /// Fills `out` from the pages, from `offset` within them.
    ///
    /// # Errors
    ///
    /// As for [`Map::read`].
    pub fn read_at(&self, _runs: &[Run], _offset: u64, _out: &mut [u8]) -> Result<(), CopyError> {
        unreachable!("to be written")
    }
}
