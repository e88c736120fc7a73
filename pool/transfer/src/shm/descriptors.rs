//! Passes descriptors over a Unix stream socket (unix(7), SCM_RIGHTS).
//!
//! Never waits inside a call of the system, whether or not the socket blocks. Knows no messages.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The most descriptors in one message: the kernel's own limit.
pub const DESCRIPTORS_MAX: usize = 253;

/// Why bytes or descriptors did not pass. Close the connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The deadline passed first.
    #[error("the peer of the Unix socket was not ready in time")]
    Timeout,
    /// The peer sent more descriptors than it may, or this process may open no more.
    #[error(
        "more descriptors came than the {fds_max} expected, or the limit of open files is reached"
    )]
    Truncated {
        /// How many were expected at most.
        fds_max: usize,
    },
    /// The socket failed.
    #[error("the Unix socket failed: {0}")]
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
/// and the rest goes out as ordinary bytes. The socket must be a Unix stream socket: others drop
/// the descriptors silently.
///
/// # Errors
///
/// `WouldBlock`: nothing was sent, try again when the socket is writable. `InvalidInput`: no byte
/// to send, or too many descriptors. Others: close the connection.
pub fn try_send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if bytes.is_empty() || fds.len() > DESCRIPTORS_MAX {
        let text = "descriptors go along with at least one byte, at most 253 at once";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut control = Control::for_descriptors(fds.len());
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = control.message(&mut part);
    if !fds.is_empty() {
        let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        put_descriptors(&mut message, &raw);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    retry_interrupted(|| {
        // SAFETY: the message points to `part` and `control`, which outlive the call, and `part`
        // to `bytes`, which the kernel only reads.
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) }
    })
}

/// Sends all bytes, the descriptors along with the first one; waits until `deadline` at most.
///
/// A server with other connections on the same thread uses [`try_send_descriptors`].
///
/// # Errors
///
/// Close the connection: part of the bytes may be sent.
pub fn send_descriptors(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
    deadline: Instant,
) -> Result<(), DescriptorError> {
    let mut rest = bytes;
    let mut fds = fds;
    loop {
        match try_send_descriptors(socket, rest, fds) {
            Ok(sent) if sent == rest.len() => return Ok(()),
            Ok(sent) => {
                rest = &rest[sent..];
                if sent > 0 {
                    fds = &[];
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(socket, PollFlags::POLLOUT, deadline)?;
            }
            Err(error) => return Err(DescriptorError::Socket(error)),
        }
    }
}

/// Receives what is there, at least one byte, with at most `fds_max` descriptors.
///
/// Waits until `deadline` at most, whether or not the socket blocks; tries at least once.
///
/// # Errors
///
/// Close the connection. No descriptor stays open.
///
/// # Panics
///
/// When the buffer is empty: the end of the stream could not be told from it.
pub fn receive_descriptors(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds_max: usize,
    deadline: Instant,
) -> Result<Received, DescriptorError> {
    assert!(!buffer.is_empty(), "a receive needs room for at least one byte");
    loop {
        match receive_once(socket, buffer, fds_max.min(DESCRIPTORS_MAX)) {
            Err(DescriptorError::Socket(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                wait(socket, PollFlags::POLLIN, deadline)?;
            }
            outcome => return outcome,
        }
    }
}

fn receive_once(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    fds_max: usize,
) -> Result<Received, DescriptorError> {
    let mut control = Control::for_descriptors(fds_max);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = control.message(&mut part);
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let bytes = retry_interrupted(|| {
        // SAFETY: the message points to `part` and `control`, which outlive the call, and `part`
        // to `buffer`, which is exclusive.
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) }
    })
    .map_err(DescriptorError::Socket)?;
    // Whatever is wrong, all that came is owned first, so that it is closed.
    let fds = take_descriptors(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 || fds.len() > fds_max {
        return Err(DescriptorError::Truncated { fds_max });
    }
    Ok(Received { bytes, fds })
}

/// Room for a control message, aligned as its header wants.
struct Control(Vec<u64>);

impl Control {
    fn for_descriptors(count: usize) -> Self {
        if count == 0 {
            return Self(Vec::new());
        }
        // SAFETY: it only calculates.
        let bytes = unsafe { libc::CMSG_SPACE(descriptors_bytes(count)) } as usize;
        Self(vec![0; bytes.div_ceil(size_of::<u64>())])
    }

    /// Makes a message of one part and this control room. Both must outlive its use.
    fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all of its fields are integers and pointers: zero is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        if !self.0.is_empty() {
            message.msg_control = self.0.as_mut_ptr().cast();
            message.msg_controllen = (self.0.len() * size_of::<u64>()) as _;
        }
        message
    }
}

fn descriptors_bytes(count: usize) -> u32 {
    u32::try_from(count * size_of::<RawFd>()).expect("at most DESCRIPTORS_MAX descriptors")
}

/// Writes the one header and its descriptors into the message's control room.
fn put_descriptors(message: &mut libc::msghdr, fds: &[RawFd]) {
    // SAFETY: it only calculates.
    let length = unsafe { libc::CMSG_LEN(descriptors_bytes(fds.len())) };
    // SAFETY: the message's control room is set, by `Control::message`.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const *message) };
    assert!(!header.is_null(), "the control room holds a header");
    let filled = libc::cmsghdr {
        cmsg_len: length as _,
        cmsg_level: libc::SOL_SOCKET,
        cmsg_type: libc::SCM_RIGHTS,
    };
    // SAFETY: the room is aligned and large enough for the header.
    unsafe { header.write(filled) };
    // SAFETY: the header lies in the room, and its data follows.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the room was sized for this many descriptors.
    unsafe { data.copy_from_nonoverlapping(fds.as_ptr().cast(), size_of_val(fds)) };
}

/// Takes over every descriptor that the kernel put into the control room.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the message, and tells how much of the room it has used.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header inside the room, aligned by `Control`.
    while let Some(header) = unsafe { next.as_ref() } {
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: the header lies in the room, and its data follows.
            let data = unsafe { libc::CMSG_DATA(next) }.cast::<RawFd>();
            // SAFETY: it only calculates.
            let empty = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = header.cmsg_len.saturating_sub(empty) / size_of::<RawFd>();
            fds.extend((0..count).map(|index| {
                // SAFETY: the kernel wrote `count` descriptors there.
                let place = unsafe { data.add(index) };
                // SAFETY: as above; the data need not be aligned.
                let raw = unsafe { place.read_unaligned() };
                // SAFETY: the kernel has opened it for this process, and nobody else knows it.
                unsafe { OwnedFd::from_raw_fd(raw) }
            }));
        }
        // SAFETY: both are as above.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    fds
}

/// Calls again after EINTR; gives the byte count or the error.
fn retry_interrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(bytes) => return Ok(bytes),
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Waits until the socket is ready (or broken), or until the deadline.
fn wait(
    socket: BorrowedFd<'_>,
    events: PollFlags,
    deadline: Instant,
) -> Result<(), DescriptorError> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(DescriptorError::Timeout);
        }
        // Rounded up, so that the last part of a millisecond is not spent spinning.
        let whole = left.saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(whole).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(socket, events)], timeout) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(DescriptorError::Socket(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests;
