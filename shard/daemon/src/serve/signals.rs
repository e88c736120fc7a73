//! SIGTERM and SIGINT, read from a descriptor. They ask the server to end; twice is once.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::error::StartError;

/// The signals that end a server, blocked in every thread.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: SignalFd,
}

impl Signals {
    /// Blocks the signals for this thread and those that it will start.
    pub(crate) fn block() -> Result<Self, StartError> {
        let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        signals.thread_block().map_err(StartError::system("sigprocmask"))?;
        let descriptor = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC);
        Ok(Self { descriptor: descriptor.map_err(StartError::system("signalfd"))? })
    }

    /// Waits for a signal and names it.
    pub(crate) fn wait(&self) -> Result<Signal, StartError> {
        loop {
            let read = self.descriptor.read_signal().map_err(StartError::system("signalfd"))?;
            let number = read.and_then(|read| i32::try_from(read.ssi_signo).ok());
            if let Some(signal) = number.and_then(|number| Signal::try_from(number).ok()) {
                return Ok(signal);
            }
        }
    }

    /// Waits for a signal, at most so long. Returns whether one came.
    pub(crate) fn come_within(&self, wait: Duration) -> Result<bool, StartError> {
        let mut waited = [PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        let wait = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut waited, wait) {
            Ok(count) => Ok(count > 0),
            Err(nix::Error::EINTR) => Ok(false),
            Err(source) => Err(StartError::System { call: "poll", source }),
        }
    }

    /// Waits for a signal or until `other` is readable. Returns whether a signal came.
    pub(crate) fn come_before(&self, other: BorrowedFd<'_>) -> Result<bool, StartError> {
        let mut waited = [
            PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN),
            PollFd::new(other, PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut waited, PollTimeout::NONE) {
                Ok(_) => return Ok(waited[0].any().unwrap_or(false)),
                Err(nix::Error::EINTR) => {}
                Err(source) => return Err(StartError::System { call: "poll", source }),
            }
        }
    }
}
