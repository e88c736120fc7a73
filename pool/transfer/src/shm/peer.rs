//! The process at the other end of a Unix socket, and the proof that it is dead.

use std::io;
use std::os::fd::BorrowedFd;

/// Why nothing is known of the peer.
#[derive(Debug, thiserror::Error)]
#[error("the peer of the Unix socket cannot be identified")]
pub struct PeerError(#[source] io::Error);

/// The process that connected a Unix socket.
#[derive(Debug)]
pub struct PeerProcess {}

impl PeerProcess {
    /// Finds out who connected the socket. Call it right after accept.
    ///
    /// # Errors
    ///
    /// It is no connected Unix socket.
    pub fn of(_socket: BorrowedFd<'_>) -> Result<Self, PeerError> {
        unreachable!("to be written")
    }

    /// Gives the process id, or 0 when the process is not visible from this namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        unreachable!("to be written")
    }

    /// Gives the effective user id at the time of the connect.
    #[must_use]
    pub fn uid(&self) -> u32 {
        unreachable!("to be written")
    }

    /// Lends the descriptor that becomes readable when the process has ended. None: no proof.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        unreachable!("to be written")
    }

    /// Says whether the process has ended for certain. Never true without a pidfd.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        unreachable!("to be written")
    }
}
