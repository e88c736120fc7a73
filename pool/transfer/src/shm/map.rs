//! A client's maps of a pool's regions, and the copies to and from their pages.
//!
//! Owns the rule that no copy leaves its region. Whether a page may be written is the caller's
//! knowledge. No Rust reference to pool memory ever exists: other processes change it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;

use super::{CopyError, MapError, Run, guard};

/// The most regions of one map.
pub const REGIONS_MAX: usize = 1024;

/// Seals without which a map can lose its pages under a copy.
const SEALS: SealFlag =
    SealFlag::F_SEAL_SHRINK.union(SealFlag::F_SEAL_GROW).union(SealFlag::F_SEAL_SEAL);

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

/// All regions of one attachment, mapped twice: writable for stores, read-only for loads.
///
/// Forked children do not inherit the maps. They end when this is dropped: whoever copies holds a
/// reference. Any number of threads may copy at once.
#[derive(Debug)]
pub struct Map {
    /// By rising number.
    regions: Vec<MappedRegion>,
    page_bytes: u64,
}

#[derive(Debug)]
struct MappedRegion {
    region: u32,
    bytes: u64,
    /// How many whole pages it has.
    page_count: u64,
    writable: MmapRaw,
    readable: MmapRaw,
}

/// The caller's side of a copy, and its direction.
enum Side<'a> {
    /// Bytes to write to the pool.
    From(&'a [u8]),
    /// Bytes to fill from the pool.
    To(&'a mut [u8]),
}

impl Map {
    /// Maps the regions, of pages of `page_bytes`. Closes the descriptors; takes no memory.
    ///
    /// The first call in a process installs a handler of SIGBUS, which passes on what is not its
    /// own. A thread that copies must not block SIGBUS.
    ///
    /// # Errors
    ///
    /// The server is not one to trust with a map, or the system refuses.
    pub fn new(specs: Vec<MappedSpec>, page_bytes: u64) -> Result<Self, MapError> {
        if page_bytes == 0 {
            return Err(MapError::PageBytes);
        }
        if specs.len() > REGIONS_MAX {
            return Err(MapError::TooManyRegions { count: specs.len() });
        }
        guard::install().map_err(MapError::Guard)?;
        let mut regions = Vec::with_capacity(specs.len());
        for spec in specs {
            check_seals(&spec)?;
            regions.push(MappedRegion::new(&spec, page_bytes)?);
        }
        regions.sort_unstable_by_key(|region| region.region);
        if let Some(pair) = regions.windows(2).find(|pair| pair[0].region == pair[1].region) {
            return Err(MapError::Twice { region: pair[0].region });
        }
        Ok(Self { regions, page_bytes })
    }

    /// Gives the size of a page, in bytes.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Writes `bytes` to the pages, from the first page's start.
    ///
    /// # Errors
    ///
    /// Abandon the reservation.
    pub fn write(&self, runs: &[Run], bytes: &[u8]) -> Result<(), CopyError> {
        self.write_at(runs, 0, bytes)
    }

    /// Writes `bytes` to the pages, from `offset` within them.
    ///
    /// # Errors
    ///
    /// Abandon the reservation.
    pub fn write_at(&self, runs: &[Run], offset: u64, bytes: &[u8]) -> Result<(), CopyError> {
        self.copy(runs, offset, Side::From(bytes))
    }

    /// Reads an object of `object_bytes` into the front of `out`.
    ///
    /// # Errors
    ///
    /// Treat the chunk as missing.
    pub fn read(&self, runs: &[Run], object_bytes: u64, out: &mut [u8]) -> Result<(), CopyError> {
        let buffer_bytes = out.len() as u64;
        let front = usize::try_from(object_bytes).ok().and_then(|bytes| out.get_mut(..bytes));
        let front = front.ok_or(CopyError::BufferTooSmall { object_bytes, buffer_bytes })?;
        self.read_at(runs, 0, front)
    }

    /// Fills `out` from the pages, from `offset` within them.
    ///
    /// # Errors
    ///
    /// Treat the chunk as missing.
    pub fn read_at(&self, runs: &[Run], offset: u64, out: &mut [u8]) -> Result<(), CopyError> {
        self.copy(runs, offset, Side::To(out))
    }

    /// Copies between the caller's bytes and the pages, after all checks.
    fn copy(&self, runs: &[Run], offset: u64, mut side: Side<'_>) -> Result<(), CopyError> {
        self.check(runs, offset, side.len())?;
        let mut skipped = offset;
        let mut done = 0;
        for run in runs {
            let run_bytes = u64::from(run.page_count) * self.page_bytes;
            if skipped >= run_bytes {
                skipped -= run_bytes;
                continue;
            }
            let room = usize::try_from(run_bytes - skipped).unwrap_or(usize::MAX);
            let length = room.min(side.len() - done);
            if length == 0 {
                break;
            }
            let start = u64::from(run.page_index) * self.page_bytes + skipped;
            let region = self.region(run.region)?;
            region
                .copy(start, side.piece(done, length))
                .map_err(|fault| region.error(fault, self.page_bytes))?;
            done += length;
            skipped = 0;
        }
        debug_assert_eq!(done, side.len(), "the pages hold what the check has counted");
        Ok(())
    }

    /// Checks every run, also those that the copy does not reach, and their bytes together.
    fn check(&self, runs: &[Run], offset: u64, length: usize) -> Result<(), CopyError> {
        let mut capacity_bytes = 0_u64;
        for run in runs {
            let page_count = self.region(run.region)?.page_count;
            let end = u64::from(run.page_index) + u64::from(run.page_count);
            if end > page_count {
                return Err(CopyError::OutsideRegion { run: *run, page_count });
            }
            let run_bytes = u64::from(run.page_count) * self.page_bytes;
            capacity_bytes = capacity_bytes.saturating_add(run_bytes);
        }
        let bytes = length as u64;
        match offset.checked_add(bytes) {
            Some(end) if end <= capacity_bytes => Ok(()),
            _ => Err(CopyError::TooLong { offset, bytes, capacity_bytes }),
        }
    }

    fn region(&self, number: u32) -> Result<&MappedRegion, CopyError> {
        self.regions
            .binary_search_by_key(&number, |region| region.region)
            .map(|index| &self.regions[index])
            .map_err(|_| CopyError::UnknownRegion { region: number })
    }
}

impl Side<'_> {
    fn len(&self) -> usize {
        match self {
            Side::From(bytes) => bytes.len(),
            Side::To(bytes) => bytes.len(),
        }
    }

    fn piece(&mut self, start: usize, length: usize) -> Side<'_> {
        match self {
            Side::From(bytes) => Side::From(&bytes[start..start + length]),
            Side::To(bytes) => Side::To(&mut bytes[start..start + length]),
        }
    }
}

impl MappedRegion {
    /// Maps a region twice, and keeps both maps out of forked children.
    fn new(spec: &MappedSpec, page_bytes: u64) -> Result<Self, MapError> {
        let failed = |source| MapError::System { region: spec.region, source };
        let length = map_bytes(spec)?;
        let mut options = MmapOptions::new();
        options.len(length);
        let writable = options.map_raw(spec.fd.as_raw_fd()).map_err(failed)?;
        writable.advise(Advice::DontFork).map_err(failed)?;
        let readable = options.map_raw_read_only(spec.fd.as_raw_fd()).map_err(failed)?;
        readable.advise(Advice::DontFork).map_err(failed)?;
        let page_count = spec.bytes / page_bytes;
        Ok(Self { region: spec.region, bytes: spec.bytes, page_count, writable, readable })
    }

    /// Copies one piece that lies in the region from `start`.
    fn copy(&self, start: u64, side: Side<'_>) -> Result<(), guard::Fault> {
        let end = start + side.len() as u64;
        assert!(end <= self.bytes, "the runs were checked against the region");
        let start = usize::try_from(start).expect("the map's length fits a usize");
        match side {
            Side::From(bytes) => {
                // SAFETY: inside the map, by the assertion.
                let to = unsafe { self.writable.as_mut_ptr().add(start) };
                // SAFETY: the map is writable, lives as long as `self`, and overlaps no slice, as
                // none is ever made of it.
                unsafe { guard::copy(to, bytes.as_ptr(), bytes.len()) }
            }
            Side::To(bytes) => {
                // SAFETY: inside the map, by the assertion.
                let from = unsafe { self.readable.as_ptr().add(start) };
                // SAFETY: the map is readable and lives as long as `self`; `bytes` is exclusive
                // and lies elsewhere.
                unsafe { guard::copy(bytes.as_mut_ptr(), from, bytes.len()) }
            }
        }
    }

    /// Says which page a fault took, or that it was the caller's buffer.
    fn error(&self, fault: guard::Fault, page_bytes: u64) -> CopyError {
        let maps = [&self.writable, &self.readable];
        let offset = maps.into_iter().find_map(|map| {
            let offset = fault.address.checked_sub(map.as_ptr() as usize)?;
            (offset < map.len()).then_some(offset as u64)
        });
        match offset {
            Some(offset) => {
                CopyError::Fault { region: self.region, page_index: offset / page_bytes }
            }
            None => CopyError::BufferFault { address: fault.address },
        }
    }
}

/// Checks that nobody can shrink the file under a copy.
fn check_seals(spec: &MappedSpec) -> Result<(), MapError> {
    // Other files than memfds have no seals: the call fails with EINVAL.
    let seals = fcntl(&spec.fd, FcntlArg::F_GET_SEALS).unwrap_or(0);
    if SealFlag::from_bits_retain(seals).contains(SEALS) {
        Ok(())
    } else {
        Err(MapError::NotSealed { region: spec.region })
    }
}

/// Gives the bytes to map: the region's, rounded up to whole huge pages, which unmapping wants.
fn map_bytes(spec: &MappedSpec) -> Result<usize, MapError> {
    let system = |source| MapError::System { region: spec.region, source };
    let stat = fstat(&spec.fd).map_err(|errno| system(errno.into()))?;
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(0);
    if spec.bytes == 0 || spec.bytes > file_bytes {
        let (region, bytes) = (spec.region, spec.bytes);
        return Err(MapError::Size { region, bytes, file_bytes });
    }
    let block_bytes = u64::try_from(stat.st_blksize).unwrap_or(1).max(1);
    let rounded = spec.bytes.checked_next_multiple_of(block_bytes).unwrap_or(spec.bytes);
    let length = if rounded <= file_bytes { rounded } else { spec.bytes };
    usize::try_from(length).map_err(|error| system(io::Error::other(error)))
}

#[cfg(test)]
mod tests;
