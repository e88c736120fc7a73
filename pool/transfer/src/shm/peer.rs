//! The process at the other end of a Unix socket, and the proof that it is dead.
//!
//! The proof is half of what a server needs: it holds pages back until the process is dead AND
//! all its connections have ended, as a forked child may keep them and the memory.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

/// The socket option that gives the peer's pidfd (Linux 6.5; not in libc yet).
const SO_PEERPIDFD: libc::c_int = 77;

/// Why nothing is known of the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It is no connected Unix socket.
    #[error("the peer of the socket cannot be identified: {0}")]
    Unknown(#[source] io::Error),
    /// The peer cannot be watched for want of a descriptor. Close one, then ask again.
    #[error("no descriptor is left to watch the peer of the socket: {0}")]
    NoDescriptor(#[source] io::Error),
}

/// The process that connected a Unix socket (or that made the pair).
///
/// Who holds the socket now may be another: a socket can be inherited and passed on.
#[derive(Debug)]
pub struct PeerProcess {
    pid: u32,
    uid: u32,
    proof: Proof,
}

#[derive(Debug)]
enum Proof {
    /// Becomes readable when all threads of the process have ended.
    Pidfd(OwnedFd),
    /// The process was gone before it could be watched.
    Gone,
    /// The process cannot be watched: it is in a foreign namespace, or the system forbids.
    None,
}

impl PeerProcess {
    /// Finds out who connected the socket. Call it right after accept.
    ///
    /// # Errors
    ///
    /// It is no connected Unix socket, or no descriptor is left to watch its process.
    pub fn of(socket: BorrowedFd<'_>) -> Result<Self, PeerError> {
        let credentials = getsockopt(&socket, sockopt::PeerCredentials)
            .map_err(|errno| PeerError::Unknown(errno.into()))?;
        // The kernel says 0 for a process that this namespace cannot see, and for no process.
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        // Without a peer, or of another family, a socket answers with pid 0 and uid -1.
        if pid == 0 && credentials.uid() == u32::MAX {
            return Err(PeerError::Unknown(io::ErrorKind::NotConnected.into()));
        }
        let proof = match peer_pidfd(socket) {
            Ok(pidfd) => Proof::Pidfd(pidfd),
            Err(Errno::ESRCH) => Proof::Gone,
            Err(errno) if is_lack(errno) => return Err(PeerError::NoDescriptor(errno.into())),
            Err(_) => Proof::of_pid(pid).map_err(|errno| PeerError::NoDescriptor(errno.into()))?,
        };
        Ok(Self { pid, uid: credentials.uid(), proof })
    }

    /// Gives the process id, or 0 when the process is not visible from this namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives the effective user id at the time of the connect.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Lends the descriptor that becomes readable when the process has ended, if there is one.
    ///
    /// None: [`PeerProcess::is_dead`] will not change any more.
    #[must_use]
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        match &self.proof {
            Proof::Pidfd(pidfd) => Some(pidfd.as_fd()),
            Proof::Gone | Proof::None => None,
        }
    }

    /// Says whether the process has ended for certain. Never waits; once true, always true.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        match &self.proof {
            Proof::Pidfd(pidfd) => is_readable(pidfd.as_fd()),
            Proof::Gone => true,
            Proof::None => false,
        }
    }
}

impl Proof {
    /// Watches a process by its id, on kernels without SO_PEERPIDFD.
    ///
    /// The id may have been reused since the connect: then another process is watched, and the
    /// proof comes late or never, never too early. Fails for want of a descriptor only.
    fn of_pid(pid: u32) -> Result<Self, Errno> {
        if pid == 0 {
            return Ok(Proof::None);
        }
        match open_pidfd(pid) {
            Ok(pidfd) => Ok(Proof::Pidfd(pidfd)),
            Err(Errno::ESRCH) => Ok(Proof::Gone),
            Err(errno) if is_lack(errno) => Err(errno),
            Err(_) => Ok(Proof::None),
        }
    }
}

/// Whether a descriptor would have been given if there were one left.
fn is_lack(errno: Errno) -> bool {
    matches!(errno, Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)
}

/// Asks the socket for its peer's pidfd. ESRCH: the peer has ended and been reaped.
fn peer_pidfd(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let mut raw: RawFd = -1;
    let mut length = u32::try_from(mem::size_of::<RawFd>()).expect("an int has 4 bytes");
    // SAFETY: the kernel writes at most `length` bytes to `raw`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut raw).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    if raw < 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the kernel has opened it for this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn open_pidfd(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two integers and touches no memory of this process.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_ulong::from(pid), 0_u64) };
    let raw = Errno::result(result)?;
    let raw = RawFd::try_from(raw).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has opened it for this process, close-on-exec, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn is_readable(pidfd: BorrowedFd<'_>) -> bool {
    loop {
        match poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], PollTimeout::ZERO) {
            Ok(ready) => return ready > 0,
            Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests;
