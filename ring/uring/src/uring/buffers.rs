//! The receive buffers that the kernel fills: one ring of buffers, shared by all connections.
//!
//! A buffer belongs to the kernel until a completion names it, to [`Buffers::with`] for one call,
//! and then to the kernel again. Nothing else may touch it.

use std::io;

use io_uring::{IoUring, types::BufRingEntry};
use memmap2::{MmapMut, MmapOptions};

use crate::sync::{AtomicU16, Ordering};

/// The number of the one buffer group of a ring.
pub(super) const GROUP: u16 = 0;

/// A registered buffer ring and its memory.
pub(super) struct Buffers {
    /// Both maps are reached through these pointers only, never as slices.
    entries: *mut BufRingEntry,
    bytes: *mut u8,
    count: u16,
    size: u32,
    tail: u16,
    maps: Option<[MmapMut; 2]>,
}

impl Buffers {
    /// Registers `count` buffers, a power of two, of `size` bytes each.
    pub(super) fn new(ring: &IoUring, count: u16, size: u32) -> io::Result<Self> {
        let mut entry_map = MmapMut::map_anon(usize::from(count) * size_of::<BufRingEntry>())?;
        // Populated now, so that no receive meets a page fault and traffic costs no more memory.
        let byte_count = usize::from(count) * size as usize;
        let mut byte_map = MmapOptions::new().len(byte_count).populate().map_anon()?;
        let entries = entry_map.as_mut_ptr().cast::<BufRingEntry>();
        let bytes = byte_map.as_mut_ptr();
        // SAFETY: the map is page-aligned, `count` entries long, and `Drop` keeps it until the
        // ring that uses it is gone, or for ever.
        unsafe { ring.submitter().register_buf_ring_with_flags(entries as u64, count, GROUP, 0) }?;
        let maps = Some([entry_map, byte_map]);
        let mut buffers = Self { entries, bytes, count, size, tail: 0, maps };
        (0..count).for_each(|index| buffers.give(index));
        buffers.publish();
        Ok(buffers)
    }

    /// Lends the first `length` bytes of a buffer to `read`, then gives it to the kernel.
    ///
    /// Must be called once for each completion that names a buffer.
    pub(super) fn with(&mut self, index: u16, length: usize, read: impl FnOnce(&[u8])) {
        assert!(index < self.count, "the kernel names a buffer that it was given");
        assert!(length <= self.size as usize, "the kernel fills no more than the buffer");
        let start = self.start(index).cast_const();
        // SAFETY: the range lies inside the map (both asserted above), the map is initialized, and
        // the kernel does not write to it between its completion and `give`.
        let bytes = unsafe { std::slice::from_raw_parts(start, length) };
        read(bytes);
        self.give(index);
        self.publish();
    }

    fn start(&self, index: u16) -> *mut u8 {
        self.bytes.wrapping_add(usize::from(index) * self.size as usize)
    }

    fn give(&mut self, index: u16) {
        let address = self.start(index) as u64;
        let slot = self.entries.wrapping_add(usize::from(self.tail & (self.count - 1)));
        // SAFETY: the slot is below `count`, so inside the map. The kernel reads it only after
        // `publish` has moved the tail past it, and this thread is the only writer.
        let entry = unsafe { &mut *slot };
        entry.set_addr(address);
        entry.set_len(self.size);
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: `entries` is the first entry of the registered ring.
        let tail = unsafe { BufRingEntry::tail(self.entries) }.cast_mut();
        // SAFETY: the tail is an aligned u16 inside the map that lives as long as `self`, and is
        // shared with the kernel, which reads it atomically.
        let tail = unsafe { AtomicU16::from_ptr(tail) };
        tail.store(self.tail, Ordering::Release);
    }

    /// Allows the memory to be freed: no receive is in flight any more.
    pub(super) fn kernel_is_done(&mut self) {
        self.maps = None;
    }
}

impl Drop for Buffers {
    /// Leaks the memory unless the kernel is known to be done with it.
    fn drop(&mut self) {
        if let Some(maps) = self.maps.take() {
            Box::leak(Box::new(maps));
        }
    }
}
