//! The listening sockets: one TCP port and one Unix path.
//!
//! Binding comes first and listening last, so that an address in use is found before memory is
//! taken, and nobody can connect before the pool is ready.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use maru_region::{OwnerLock, OwnerLockError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, accept4,
    bind, connect, getsockname, listen, setsockopt, socket, sockopt,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// Owner and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// Why an address cannot be served. Nothing stays bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ListenError {
    #[error("tcp: {address} is in use by another process; stop it or choose another port")]
    TcpInUse { address: SocketAddr },
    #[error("tcp: cannot listen at {address}: {source}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("unix: cannot take {}: {source}", path.display())]
    Owned { path: PathBuf, source: OwnerLockError },
    #[error("unix: {} exists and is no socket; remove it or choose another path", path.display())]
    NoSocket { path: PathBuf },
    #[error(
        "unix: a server answers at {}, though it holds no lock on {}; stop it or choose another \
         path",
        path.display(), lock_path(path).display()
    )]
    Answers { path: PathBuf },
    #[error("unix: cannot listen at {}: {source}", path.display())]
    Unix { path: PathBuf, source: io::Error },
}

/// A bound TCP socket.
#[derive(Debug)]
pub(crate) struct TcpListening {
    socket: OwnedFd,
    address: SocketAddr,
}

/// A bound Unix socket. Its path is removed when it is dropped, if it is still this one's.
#[derive(Debug)]
pub(crate) struct UnixListening {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the path. The socket holds them, so that no other gets them meanwhile.
    place: Option<(u64, u64)>,
    _lock: OwnerLock,
}

/// The addresses of the server.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListening>,
    pub(crate) unix: Option<UnixListening>,
}

impl Listeners {
    /// Takes both addresses without listening yet.
    pub(crate) fn bind(tcp: Option<SocketAddr>, unix: Option<&Path>) -> Result<Self, ListenError> {
        let unix = unix.map(UnixListening::bind).transpose()?;
        let tcp = tcp.map(TcpListening::bind).transpose()?;
        Ok(Self { tcp, unix })
    }

    /// Lets clients connect.
    pub(crate) fn listen(&self) -> Result<(), ListenError> {
        if let Some(tcp) = &self.tcp {
            tcp.listen()?;
        }
        if let Some(unix) = &self.unix {
            unix.listen()?;
        }
        Ok(())
    }

    /// Whether a connection waits to be accepted.
    pub(crate) fn is_awaited(&self) -> bool {
        let tcp = self.tcp.as_ref().map(AsFd::as_fd);
        let unix = self.unix.as_ref().map(AsFd::as_fd);
        tcp.into_iter().chain(unix).any(|listener| {
            let mut waited = [PollFd::new(listener, PollFlags::POLLIN)];
            poll(&mut waited, PollTimeout::ZERO).is_ok_and(|count| count > 0)
        })
    }
}

impl TcpListening {
    fn bind(wanted: SocketAddr) -> Result<Self, ListenError> {
        let failed = |errno| tcp_error(wanted, errno);
        let family = if wanted.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let socket = stream(family).map_err(failed)?;
        // A restart must not wait for the closed connections of the run before.
        setsockopt(&socket, sockopt::ReuseAddr, &true).map_err(failed)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(wanted)).map_err(failed)?;
        let bound: SockaddrStorage = getsockname(socket.as_raw_fd()).map_err(failed)?;
        let address = socket_address(&bound).unwrap_or(wanted);
        Ok(Self { socket, address })
    }

    fn listen(&self) -> Result<(), ListenError> {
        let backlog = Backlog::new(BACKLOG).map_err(|errno| tcp_error(self.address, errno))?;
        listen(&self.socket, backlog).map_err(|errno| tcp_error(self.address, errno))
    }

    /// Where clients connect, with the port that the system chose if none was named.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts one connection, non-blocking.
    pub(crate) fn accept(&self) -> nix::Result<OwnedFd> {
        accept4(&self.socket, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)
    }
}

impl UnixListening {
    fn bind(path: &Path) -> Result<Self, ListenError> {
        let failed = |source: io::Error| ListenError::Unix { path: path.to_owned(), source };
        // Before the lock, whose file stays: what is refused leaves nothing behind.
        find_stale(path)?;
        let lock = OwnerLock::take(&lock_path(path))
            .map_err(|source| ListenError::Owned { path: path.to_owned(), source })?;
        remove_stale(path)?;
        let socket = stream(AddressFamily::Unix).map_err(|errno| failed(errno.into()))?;
        let address = UnixAddr::new(path).map_err(|errno| failed(errno.into()))?;
        bind(socket.as_raw_fd(), &address).map_err(|errno| failed(errno.into()))?;
        let bound = Self { socket, path: path.to_owned(), place: place(path), _lock: lock };
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        Ok(bound)
    }

    fn listen(&self) -> Result<(), ListenError> {
        let listening = Backlog::new(BACKLOG).and_then(|backlog| listen(&self.socket, backlog));
        listening
            .map_err(|errno| ListenError::Unix { path: self.path.clone(), source: errno.into() })
    }

    /// Where clients connect.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts one connection, non-blocking.
    pub(crate) fn accept(&self) -> nix::Result<OwnedFd> {
        accept4(&self.socket, SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC)
    }
}

impl Drop for UnixListening {
    fn drop(&mut self) {
        let is_own = self.place.is_some() && place(&self.path) == self.place;
        if is_own
            && let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

impl AsFd for TcpListening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for UnixListening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn stream(family: AddressFamily) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    socket(family, SockType::Stream, flags, None)
}

fn tcp_error(address: SocketAddr, errno: nix::Error) -> ListenError {
    match errno {
        nix::Error::EADDRINUSE => ListenError::TcpInUse { address },
        other => ListenError::Tcp { address, source: other.into() },
    }
}

/// The file whose lock says that a server owns the socket at `path`.
fn lock_path(path: &Path) -> PathBuf {
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    lock_path.into()
}

/// What file is at `path`, a link not followed: its device and inode.
fn place(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Whether there is a socket at `path`. Refuses anything else that is there.
fn find_stale(path: &Path) -> Result<bool, ListenError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(ListenError::NoSocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ListenError::Unix { path: path.to_owned(), source }),
    }
}

/// Removes the socket that an earlier run left. The caller holds the lock; a server whose lock
/// was removed by hand is found by its answer.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |source: io::Error| ListenError::Unix { path: path.to_owned(), source };
    if !find_stale(path)? {
        return Ok(());
    }
    let socket = stream(AddressFamily::Unix).map_err(|errno| failed(errno.into()))?;
    let address = UnixAddr::new(path).map_err(|errno| failed(errno.into()))?;
    match connect(socket.as_raw_fd(), &address) {
        Err(nix::Error::ECONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(nix::Error::ENOENT) => Ok(()),
        // Its backlog is full, or it is of another kind.
        Ok(()) | Err(nix::Error::EAGAIN | nix::Error::EPROTOTYPE) => {
            Err(ListenError::Answers { path: path.to_owned() })
        }
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Reads an internet address out of the system's form of it.
pub(crate) fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    match address.family()? {
        AddressFamily::Inet => address.as_sockaddr_in().map(|a| SocketAddr::V4((*a).into())),
        AddressFamily::Inet6 => address.as_sockaddr_in6().map(|a| SocketAddr::V6((*a).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
