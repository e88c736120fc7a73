//! The eventfd that ends a reactor's sleep.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// A counter in the kernel that a sleeping thread waits for.
#[derive(Debug)]
pub(crate) struct Bell {
    eventfd: EventFd,
}

impl Bell {
    /// Makes a blocking eventfd: io_uring answers EAGAIN on a non-blocking one instead of waiting.
    pub(crate) fn new() -> io::Result<Self> {
        let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { eventfd })
    }

    /// Adds one. Blocks only at 2^64 - 2 rings without a sleep in between, which cannot be.
    pub(crate) fn ring(&self) {
        self.eventfd.write(1).expect("an eventfd that this process holds open takes a one");
    }

    /// Takes the count, waiting for it to be above 0.
    pub(crate) fn take(&self) -> io::Result<u64> {
        Ok(self.eventfd.read()?)
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.eventfd.as_fd().as_raw_fd()
    }
}
