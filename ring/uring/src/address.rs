//! Addresses, and the sockets made for them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, Shutdown, SockFlag, SockProtocol, SockType, SockaddrLike,
    SockaddrStorage, UnixAddr, setsockopt, sockopt,
};

use crate::config::ReactorConfig;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// How far a new connection came at once.
pub(crate) enum Started {
    /// It is made.
    Made(Socket),
    /// It is made, or refused, once the socket is writable.
    Pending(Socket),
    /// It was refused; the socket serves to report it.
    Refused(Socket, Errno),
}

/// A connected, or connecting, stream socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    is_tcp: bool,
}

impl Socket {
    /// Takes over a connected socket.
    ///
    /// Blocking or not is a property of the open socket, shared by all descriptors of it: io_uring
    /// wants a blocking one (it answers EAGAIN otherwise instead of waiting), epoll the contrary.
    pub(crate) fn adopt(
        fd: OwnedFd,
        is_blocking: bool,
        config: &ReactorConfig,
    ) -> Result<Self, OwnedFd> {
        let Ok(address) = socket::getsockname::<SockaddrStorage>(fd.as_raw_fd()) else {
            return Err(fd);
        };
        let family = address.family();
        let is_tcp = matches!(family, Some(AddressFamily::Inet | AddressFamily::Inet6));
        let socket = Self { fd, is_tcp };
        match socket.set_options(config).and_then(|()| socket.set_blocking(is_blocking)) {
            Ok(()) => Ok(socket),
            Err(_) => Err(socket.fd),
        }
    }

    /// Starts to connect, without waiting for anything.
    pub(crate) fn connect(address: &Address, config: &ReactorConfig) -> io::Result<Started> {
        let (socket, target) = match address {
            Address::Tcp(address) => {
                let family =
                    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
                (Self::open(family, true)?, Target::Tcp((*address).into()))
            }
            Address::Unix(path) => {
                let target = UnixAddr::new(path.as_path())?;
                (Self::open(AddressFamily::Unix, false)?, Target::Unix(target))
            }
        };
        socket.set_options(config)?;
        Ok(match socket::connect(socket.as_raw_fd(), target.as_sockaddr()) {
            Ok(()) => Started::Made(socket),
            Err(Errno::EINPROGRESS | Errno::EINTR) => Started::Pending(socket),
            Err(errno) => Started::Refused(socket, errno),
        })
    }

    fn open(family: AddressFamily, is_tcp: bool) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = is_tcp.then_some(SockProtocol::Tcp);
        let fd = socket::socket(family, SockType::Stream, flags, protocol)?;
        Ok(Self { fd, is_tcp })
    }

    fn set_options(&self, config: &ReactorConfig) -> Result<(), Errno> {
        if !self.is_tcp {
            return Ok(());
        }
        let keepalive = config.keepalive;
        setsockopt(&self.fd, sockopt::TcpNoDelay, &true)?;
        setsockopt(&self.fd, sockopt::KeepAlive, &true)?;
        setsockopt(&self.fd, sockopt::TcpKeepIdle, &keepalive.idle_s)?;
        setsockopt(&self.fd, sockopt::TcpKeepInterval, &keepalive.interval_s)?;
        setsockopt(&self.fd, sockopt::TcpKeepCount, &keepalive.probes)?;
        setsockopt(&self.fd, sockopt::TcpUserTimeout, &config.user_timeout_ms)
    }

    pub(crate) fn set_blocking(&self, is_blocking: bool) -> Result<(), Errno> {
        let bits = fcntl(&self.fd, FcntlArg::F_GETFL)?;
        let mut flags = OFlag::from_bits_retain(bits);
        flags.set(OFlag::O_NONBLOCK, !is_blocking);
        fcntl(&self.fd, FcntlArg::F_SETFL(flags)).map(|_| ())
    }

    /// Says how a pending connection ended, once the socket is writable.
    pub(crate) fn connect_result(&self) -> Result<(), Errno> {
        let errno = socket::getsockopt(&self.fd, sockopt::SocketError)?;
        if errno != 0 {
            return Err(Errno::from_raw(errno));
        }
        // With no listener on a local port of the ephemeral range, TCP may connect to itself.
        let fd = self.as_raw_fd();
        let own = socket::getsockname::<SockaddrStorage>(fd)?;
        let peer = socket::getpeername::<SockaddrStorage>(fd)?;
        if self.is_tcp && own == peer { Err(Errno::ECONNREFUSED) } else { Ok(()) }
    }

    /// Sends without waiting (only on a non-blocking socket).
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        socket::send(self.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL)
    }

    /// Receives without waiting (only on a non-blocking socket). 0: the peer ended its stream.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        socket::recv(self.as_raw_fd(), buffer, MsgFlags::empty())
    }

    /// Tells the peer that no more bytes follow.
    pub(crate) fn end_output(&self) {
        // It fails only when the connection is gone already.
        let _ended = socket::shutdown(self.as_raw_fd(), Shutdown::Write);
    }

    /// Makes the close to come a reset, which frees what the kernel still holds for the peer.
    pub(crate) fn reset_on_close(&self) {
        if self.is_tcp {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            // It fails only when the connection is gone already.
            let _set = setsockopt(&self.fd, sockopt::Linger, &linger);
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

enum Target {
    Tcp(SockaddrStorage),
    Unix(UnixAddr),
}

impl Target {
    fn as_sockaddr(&self) -> &dyn SockaddrLike {
        match self {
            Self::Tcp(address) => address,
            Self::Unix(address) => address,
        }
    }
}
