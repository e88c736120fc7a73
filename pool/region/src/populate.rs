//! Takes a slice of a region's memory, through a map that lives no longer than that.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU8, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};

/// The largest node number that a mask names.
const NODES_MAX: u32 = 1024;
/// From the kernel's `mempolicy.h`: take another node rather than fail.
const MPOL_PREFERRED: libc::c_int = 1;
/// The smallest page there is: touching one byte in each touches every page.
const TOUCH_STEP: usize = 4096;

/// Part of a region.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    /// Its first byte in the region.
    pub(crate) offset: u64,
    /// Its size.
    pub(crate) bytes: u64,
    /// The NUMA node preferred for it.
    pub(crate) node: Option<u32>,
}

/// Takes the slice's memory. Gives the error number with which a wanted node was refused.
pub(crate) fn map_slice(fd: BorrowedFd<'_>, slice: Slice) -> io::Result<Option<i32>> {
    let length = usize::try_from(slice.bytes).map_err(io::Error::other)?;
    let map = MmapOptions::new().offset(slice.offset).len(length).map_raw(fd.as_raw_fd())?;
    let refused = slice.node.and_then(|node| prefer_node(&map, node).err()?.raw_os_error());
    loop {
        match map.advise(Advice::PopulateWrite) {
            Ok(()) => return Ok(refused),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Linux before 5.14 does not know the advice.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
            Err(error) => return Err(error),
        }
    }
    touch(&map);
    Ok(refused)
}

/// Asks for the node for memory that the file takes in this range. The file keeps the wish.
fn prefer_node(map: &MmapRaw, node: u32) -> io::Result<()> {
    if node >= NODES_MAX {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = [0_u64; NODES_MAX as usize / 64];
    mask[node as usize / 64] = 1 << (node % 64);
    // SAFETY: `mbind` changes where future pages of the map come from and touches no byte of it;
    // `mask` outlives the call and has the bits that the count says (the kernel drops one).
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            map.as_mut_ptr(),
            map.len(),
            MPOL_PREFERRED,
            mask.as_ptr(),
            libc::c_ulong::from(NODES_MAX) + 1,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Touches every page without changing a byte.
fn touch(map: &MmapRaw) {
    for offset in (0..map.len()).step_by(TOUCH_STEP) {
        // SAFETY: the offset is inside the map.
        let byte = unsafe { map.as_mut_ptr().add(offset) };
        // SAFETY: the byte is mapped writable and lives as long as the map; all processes reach it
        // by raw copies or atomics only, never by a Rust reference.
        let byte = unsafe { AtomicU8::from_ptr(byte) };
        byte.fetch_or(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    fn file(text: &[u8]) -> std::fs::File {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(text, 5).unwrap();
        file
    }

    #[test]
    fn touching_takes_the_memory_and_keeps_the_bytes() {
        let file = file(b"kept");
        let map = MmapOptions::new().len(1 << 20).map_raw(&file).unwrap();
        touch(&map);
        assert_eq!(file.metadata().unwrap().blocks() * 512, 1 << 20);
        let mut text = [0; 4];
        file.read_exact_at(&mut text, 5).unwrap();
        assert_eq!(&text, b"kept");
    }

    #[test]
    fn a_node_that_is_not_there_is_told_and_changes_nothing_else() {
        let file = file(b"");
        for node in [1023, 1024, u32::MAX] {
            let slice = Slice { offset: 0, bytes: 1 << 20, node: Some(node) };
            assert!(map_slice(file.as_fd(), slice).unwrap().is_some());
        }
        assert_eq!(file.metadata().unwrap().blocks() * 512, 1 << 20);
    }

    // Node 0 is there on every machine of one node, also where /sys names none.
    #[test]
    fn the_first_node_is_granted_or_refused_by_value() {
        let slice = Slice { offset: 0, bytes: 1 << 20, node: Some(0) };
        assert!(matches!(
            map_slice(file(b"").as_fd(), slice).unwrap(),
            None | Some(libc::EPERM | libc::ENOSYS | libc::EINVAL)
        ));
    }
}
