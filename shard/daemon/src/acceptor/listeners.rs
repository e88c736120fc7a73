//! The listening sockets: one TCP port and one Unix path.
//!
//! Binding comes first and listening last, so that an address in use is found before memory is
//! taken, and nobody can connect before the pool is ready.

use std::fs::Permissions;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use maru_region::{OwnerLock, OwnerLockError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrLike, SockaddrStorage, UnixAddr, accept4,
    bind, getsockname, listen, setsockopt, socket, sockopt,
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
    #[error("unix: cannot listen at {}: {source}", path.display())]
    Unix { path: PathBuf, source: io::Error },
}

/// A bound TCP socket.
#[derive(Debug)]
pub(crate) struct TcpListening {
    socket: OwnedFd,
    address: SocketAddr,
}

/// A bound Unix socket. Its path is removed when it is dropped, by the owner of the lock only.
#[derive(Debug)]
pub(crate) struct UnixListening {
    socket: OwnedFd,
    path: PathBuf,
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
        let mut lock_path = path.as_os_str().to_owned();
        lock_path.push(".lock");
        let lock = OwnerLock::take(Path::new(&lock_path))
            .map_err(|source| ListenError::Owned { path: path.to_owned(), source })?;
        remove_stale(path)?;
        let socket = stream(AddressFamily::Unix).map_err(|errno| failed(errno.into()))?;
        let address = UnixAddr::new(path).map_err(|errno| failed(errno.into()))?;
        bind(socket.as_raw_fd(), &address).map_err(|errno| failed(errno.into()))?;
        let bound = Self { socket, path: path.to_owned(), _lock: lock };
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
        if let Err(error) = std::fs::remove_file(&self.path)
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

/// Removes the socket that an earlier run left. The caller holds the lock, so nobody listens there.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Unix { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => std::fs::remove_file(path).map_err(failed),
        Ok(_) => Err(ListenError::NoSocket { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
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
