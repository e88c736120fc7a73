//! One region: a memfd, sealed against resizing before anyone else can see it.
//!
//! The server never reads or writes its bytes and keeps no map of it: memory is in the memfd.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use memmap2::MmapOptions;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::huge::{HUGE_PAGES_DIRECTORY, check_huge_pages};
use crate::populate::{Slice, map_slice};
use crate::{RegionError, memory_available};

/// The most bytes of a memfd's name (memfd_create(2)).
const NAME_BYTES_MAX: usize = 249;
/// Ordinary regions are a multiple of this many bytes.
const MEMFD_BYTES_GRANULE: u64 = 4096;
/// Memory left to everything else, besides the page tables.
const KEPT_BYTES: u64 = 16 << 20;
/// A page table entry takes 8 bytes for 4,096, in each of a server's and a client's map.
const PAGE_TABLE_SHARE: u64 = 512;
/// Memory is taken in slices of this many bytes, or of one huge page.
const SLICE_BYTES: u64 = 64 << 20;

/// What a region's memory is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// A memfd of ordinary pages.
    Memfd,
    /// A memfd of huge pages of this many bytes: 2 MiB or 1 GiB on x86.
    HugePages {
        /// Size of one huge page.
        page_bytes: u64,
    },
}

impl RegionKind {
    /// Gives the unit of its memory, in bytes.
    fn unit_bytes(self) -> u64 {
        match self {
            RegionKind::Memfd => MEMFD_BYTES_GRANULE,
            RegionKind::HugePages { page_bytes } => page_bytes,
        }
    }
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
pub struct Region {
    spec: RegionSpec,
    fd: OwnedFd,
}

/// What came of populating a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Bytes now in memory.
    pub bytes: u64,
    /// The error number with which the system refused the wanted NUMA node, if it did.
    pub placement_refused: Option<i32>,
}

impl Region {
    /// Makes a sealed region. Ordinary memory is not taken before [`Region::populate`].
    ///
    /// Huge pages are reserved at once: nobody else can get them from here on.
    ///
    /// # Errors
    ///
    /// [`RegionError::Memory`] and [`RegionError::HugePages`] name what there is and what is
    /// needed; the others are errors of the configuration or refusals of the system.
    pub fn create(spec: &RegionSpec) -> Result<Self, RegionError> {
        let unit = spec.kind.unit_bytes();
        if spec.bytes == 0 || unit == 0 || !spec.bytes.is_multiple_of(unit) {
            return Err(RegionError::Size { bytes: spec.bytes, unit });
        }
        match spec.kind {
            RegionKind::Memfd => check_memory(spec.bytes)?,
            RegionKind::HugePages { page_bytes } => {
                check_huge(page_bytes, spec.bytes)?;
            }
        }
        let failed = |call| {
            move |errno: Errno| RegionError::System {
                call,
                region: spec.region,
                source: errno.into(),
            }
        };
        let fd = create_memfd(spec)?;
        let length =
            i64::try_from(spec.bytes).map_err(|_| RegionError::Size { bytes: spec.bytes, unit })?;
        ftruncate(&fd, length).map_err(failed("ftruncate"))?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).map_err(failed("F_ADD_SEALS"))?;
        let region = Self { spec: spec.clone(), fd };
        region.reserve_huge_pages()?;
        Ok(region)
    }

    /// Takes all memory of the region, in slices; tells `progress` the bytes done so far.
    ///
    /// Blocks for seconds per GiB: call it on a helper thread. A second call takes no more.
    ///
    /// # Errors
    ///
    /// The memory is not there (any more).
    pub fn populate(&self, progress: &dyn Fn(u64)) -> Result<Populated, RegionError> {
        if self.spec.kind == RegionKind::Memfd {
            check_memory(self.spec.bytes.saturating_sub(self.resident_bytes()))?;
        }
        let slice_bytes = SLICE_BYTES.max(self.spec.kind.unit_bytes());
        let mut populated = Populated { bytes: 0, placement_refused: None };
        while populated.bytes < self.spec.bytes {
            let offset = populated.bytes;
            let bytes = slice_bytes.min(self.spec.bytes - offset);
            let slice = Slice { offset, bytes, node: self.spec.node };
            let refused = map_slice(self.descriptor(), slice).map_err(|source| {
                RegionError::Populate { region: self.spec.region, offset, source }
            })?;
            populated.placement_refused = populated.placement_refused.or(refused);
            populated.bytes += bytes;
            progress(populated.bytes);
        }
        Ok(populated)
    }

    /// Lends the descriptor that clients map.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Gives the size, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.spec.bytes
    }

    /// Gives what it was made from.
    #[must_use]
    pub fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    /// Counts the bytes that are in memory, as far as the system says.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        // stat(2): blocks are of 512 bytes whatever the block size is.
        fstat(&self.fd).map_or(0, |stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
    }

    /// Has the kernel set the region's huge pages aside. They stay so without a map.
    fn reserve_huge_pages(&self) -> Result<(), RegionError> {
        let RegionKind::HugePages { page_bytes } = self.spec.kind else { return Ok(()) };
        let source = match usize::try_from(self.spec.bytes)
            .map_err(io::Error::other)
            .and_then(|bytes| MmapOptions::new().len(bytes).map_raw(self.fd.as_raw_fd()))
        {
            Ok(_map) => return Ok(()),
            Err(source) => source,
        };
        if source.raw_os_error() == Some(libc::ENOMEM) {
            check_huge(page_bytes, self.spec.bytes)?;
        }
        Err(RegionError::System { call: "mmap", region: self.spec.region, source })
    }
}

/// Checks that ordinary memory is there, and leaves some to everything else.
fn check_memory(need_bytes: u64) -> Result<(), RegionError> {
    let available = memory_available()?;
    let kept_bytes = KEPT_BYTES + need_bytes / PAGE_TABLE_SHARE;
    if need_bytes == 0 || need_bytes.saturating_add(kept_bytes) <= available.bytes() {
        return Ok(());
    }
    Err(RegionError::Memory { need_bytes, available, kept_bytes })
}

fn check_huge(page_bytes: u64, bytes: u64) -> Result<(), RegionError> {
    check_huge_pages(Path::new(HUGE_PAGES_DIRECTORY), page_bytes, bytes / page_bytes)
}

/// Makes the empty memfd: close-on-exec, never executable where the kernel knows that.
fn create_memfd(spec: &RegionSpec) -> Result<OwnedFd, RegionError> {
    let bad_name = || RegionError::Name { name: spec.name.clone(), max: NAME_BYTES_MAX };
    let name = CString::new(spec.name.as_str()).map_err(|_| bad_name())?;
    if spec.name.len() > NAME_BYTES_MAX {
        return Err(bad_name());
    }
    let mut flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    if let RegionKind::HugePages { page_bytes } = spec.kind {
        // memfd_create(2): the base-2 logarithm of the size lies above MFD_HUGE_SHIFT.
        let log = page_bytes.ilog2() << libc::MFD_HUGE_SHIFT;
        flags |= MFdFlags::MFD_HUGETLB | MFdFlags::from_bits_retain(log);
    }
    let sealed_exec = flags | MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
    memfd_create(name.as_c_str(), sealed_exec)
        .or_else(|errno| match errno {
            // Linux before 6.3 does not know the flag.
            Errno::EINVAL => memfd_create(name.as_c_str(), flags),
            other => Err(other),
        })
        .map_err(|errno| RegionError::System {
            call: "memfd_create",
            region: spec.region,
            source: errno.into(),
        })
}

#[cfg(test)]
mod tests;
