//! Passes descriptors over a Unix stream socket.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// The most descriptors in one message: the kernel's own limit.
pub const DESCRIPTORS_MAX: usize = 253;

/// Why descriptors did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The deadline passed first.
    #[error("timed out")]
    Timeout,
    /// The socket failed.
    #[error("the socket failed")]
    Socket(#[source] io::Error),
}

/// What came in by one message.
#[derive(Debug)]
pub struct Received {
    /// Bytes written to the front of the buffer. 0: the peer has closed.
    pub bytes: usize,
    /// The descriptors that came along, all close-on-exec.
    pub fds: Vec<OwnedFd>,
}

/// Sends once, without waiting: the descriptors go along with the first byte.
///
/// Gives how many of the bytes were sent. When that is at least 1, the descriptors are gone too,
/// and the rest goes out as ordinary bytes.
///
/// # Errors
///
/// `WouldBlock`: nothing was sent, try when the socket is writable.
pub fn try_send_descriptors(
    _socket: BorrowedFd<'_>,
    _bytes: &[u8],
    _fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    unreachable!("to be written")
}

/// Sends all bytes, the descriptors along with the first one; waits until `deadline` at most.
///
/// # Errors
///
/// Close the connection: part of the bytes may be sent.
pub fn send_descriptors(
    _socket: BorrowedFd<'_>,
    _bytes: &[u8],
    _fds: &[BorrowedFd<'_>],
    _deadline: Instant,
) -> Result<(), DescriptorError> {
    unreachable!("to be written")
}

/// Receives what is there, at least one byte, with at most `fds_max` descriptors.
///
/// Waits until `deadline` at most, whether or not the socket blocks.
///
/// # Errors
///
/// Close the connection. No descriptor stays open.
pub fn receive_descriptors(
    _socket: BorrowedFd<'_>,
    _buffer: &mut [u8],
    _fds_max: usize,
    _deadline: Instant,
) -> Result<Received, DescriptorError> {
    unreachable!("to be written")
}
