//! The queues of io_uring: made, filled, waited on, and emptied before they go.

use std::io;
use std::time::Duration;

use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::Buffers;
use crate::config::ReactorConfig;
use crate::error::ReactorError;

/// The completion of an operation: user data, result, flags.
pub(super) type Completion = (u64, i32, u32);

/// How often, and how long each time, the end waits for cancelled operations.
const DRAIN_WAITS: u32 = 20;
const DRAIN_WAIT: Duration = Duration::from_millis(100);
const ENTER_GETEVENTS: u32 = 1;

/// A ring for the thread that made it.
pub(super) struct Ring {
    io: IoUring,
    /// Completions that are still to come, the last one of each operation.
    in_flight: usize,
    /// The process that made it.
    pid: u32,
}

/// A step of the set-up that the system refused.
pub(super) type Refused = (&'static str, io::Error);

impl Ring {
    /// Makes a ring and its buffers, and sees that both work.
    ///
    /// Locked memory is charged per user and released late, so a lack of it is waited out.
    pub(super) fn new(config: &ReactorConfig) -> Result<(Self, Buffers), ReactorError> {
        let mut pause = Duration::from_millis(1);
        let mut attempt = 1;
        loop {
            match Self::try_new(config) {
                Ok(made) => return Ok(made),
                Err((_, error)) if is_shortage(&error) && attempt < config.ring_attempts => {
                    std::thread::sleep(pause);
                    pause *= 2;
                    attempt += 1;
                }
                Err((step, source)) => {
                    return Err(ReactorError::UringRefused { step, hint: hint(&source), source });
                }
            }
        }
    }

    fn try_new(config: &ReactorConfig) -> Result<(Self, Buffers), Refused> {
        let io = IoUring::builder()
            .setup_cqsize(config.completion_entries)
            .setup_submit_all()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(config.entries)
            .map_err(|error| ("io_uring_setup", error))?;
        let mut ring = Self { io, in_flight: 0, pid: std::process::id() };
        ring.try_nop().map_err(|error| ("io_uring_enter", error))?;
        let buffers = Buffers::new(&ring.io, config.buffer_count, config.buffer_bytes)
            .map_err(|error| ("io_uring_register", error))?;
        Ok((ring, buffers))
    }

    fn try_nop(&mut self) -> io::Result<()> {
        self.push(&opcode::Nop::new().build())?;
        self.io.submit_and_wait(1)?;
        self.take(&mut Vec::with_capacity(1));
        Ok(())
    }

    /// Queues an operation. False: both queues are full, try again after taking completions.
    ///
    /// What the entry points to must stay until its completion: bytes to send are lent by
    /// `Output::lend`, the bell's value is a box of the backend, and both are leaked rather than
    /// freed while in flight; descriptors are closed after the last completion.
    pub(super) fn push(&mut self, entry: &squeue::Entry) -> io::Result<bool> {
        if self.io.submission().is_full() && !is_served(self.io.submit())? {
            return Ok(false);
        }
        // SAFETY: the entry's memory and descriptor stay valid as said above.
        let pushed = unsafe { self.io.submission().push(entry) };
        self.in_flight += usize::from(pushed.is_ok());
        Ok(pushed.is_ok())
    }

    /// Hands queued operations over and runs due work, without waiting. True: completions wait.
    pub(super) fn poll(&mut self) -> io::Result<bool> {
        let queue = self.io.submission();
        let (count, is_due) = (queue.len(), queue.taskrun() || queue.cq_overflow());
        drop(queue);
        if count > 0 || is_due {
            let count = u32::try_from(count).expect("the queue's size is a u32");
            let submitter = self.io.submitter();
            // SAFETY: no signal mask is passed, and `count` entries were queued by `push`.
            let entered = unsafe { submitter.enter::<()>(count, 0, ENTER_GETEVENTS, None) };
            is_served(entered)?;
        }
        Ok(!self.io.completion().is_empty())
    }

    /// Hands queued operations over and waits for a completion, at most `wait`.
    pub(super) fn block(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let waited = match wait {
            None => self.io.submitter().submit_and_wait(1),
            Some(wait) => {
                let time = Timespec::from(wait);
                self.io.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        is_served(waited).map(|_| ())
    }

    /// Takes all completions into `batch`.
    pub(super) fn take(&mut self, batch: &mut Vec<Completion>) {
        batch.clear();
        batch.extend(self.io.completion().map(|c| (c.user_data(), c.result(), c.flags())));
        let ended = batch.iter().filter(|(_, _, flags)| !cqueue::more(*flags)).count();
        self.in_flight -= ended;
    }

    /// Cancels everything and waits for it, a bounded time. True: the kernel owns nothing of ours.
    pub(super) fn drain(&mut self) -> bool {
        // The queues of a forked child are the parent's: not to be touched.
        if self.pid != std::process::id() {
            return false;
        }
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::any()).build();
        let mut batch = Vec::new();
        for _ in 0..DRAIN_WAITS {
            if self.in_flight == 0 {
                return true;
            }
            let is_over = self.push(&cancel).is_err() || self.block(Some(DRAIN_WAIT)).is_err();
            if is_over {
                return false;
            }
            self.take(&mut batch);
        }
        self.in_flight == 0
    }
}

/// Sorts out the answers of `io_uring_enter` that only mean "nothing yet".
fn is_served(entered: io::Result<usize>) -> io::Result<bool> {
    match entered {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        },
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EAGAIN))
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            "a seccomp filter or the sysctl kernel.io_uring_disabled forbids it"
        }
        Some(libc::ENOMEM) => "raise the limit of locked memory (ulimit -l)",
        Some(libc::EINVAL) => "Linux 6.1 or later is needed",
        _ => "epoll needs none of it",
    }
}
