use std::io::{PipeReader, Read, Write, pipe};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::{fs::File, thread};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::pthread::{pthread_kill, pthread_self};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::socket::{setsockopt, sockopt};

use super::super::testing::{child, memfd, role};
use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(5)
}

fn late() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Makes a pipe whose reader sees the end once every copy of the writer is closed.
fn witness() -> (PipeReader, OwnedFd) {
    let (reader, writer) = pipe().unwrap();
    (reader, writer.into())
}

#[test]
fn descriptors_arrive_with_the_bytes_and_close_on_exec() {
    let (one, other) = UnixStream::pair().unwrap();
    let files = [memfd(c"a", 1), memfd(c"b", 2), memfd(c"c", 3)];
    let lent: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    send_descriptors(one.as_fd(), b"hello", &lent, late()).unwrap();
    let mut buffer = [0; 64];
    let received = receive_descriptors(other.as_fd(), &mut buffer, 3, late()).unwrap();
    assert_eq!(buffer[..received.bytes], *b"hello");
    let came: Vec<File> = received.fds.into_iter().map(File::from).collect();
    for (sent, came) in files.iter().zip(&came) {
        assert_eq!(sent.metadata().unwrap().ino(), came.metadata().unwrap().ino());
        assert_eq!(fcntl(came, FcntlArg::F_GETFD).unwrap(), libc::FD_CLOEXEC);
    }
    assert_eq!(came.len(), 3);
}

#[test]
fn bytes_without_descriptors_and_the_end_of_the_stream() {
    let (one, other) = UnixStream::pair().unwrap();
    send_descriptors(one.as_fd(), b"x", &[], late()).unwrap();
    drop(one);
    let mut buffer = [0; 8];
    let first = receive_descriptors(other.as_fd(), &mut buffer, 4, late()).unwrap();
    assert_eq!((first.bytes, first.fds.len()), (1, 0));
    let end = receive_descriptors(other.as_fd(), &mut buffer, 4, late()).unwrap();
    assert_eq!((end.bytes, end.fds.len()), (0, 0));
}

#[test]
fn as_many_descriptors_as_the_kernel_takes_and_no_more() {
    let (one, other) = UnixStream::pair().unwrap();
    let file = memfd(c"many", 1);
    let many = vec![file.as_fd(); DESCRIPTORS_MAX + 1];
    let error = try_send_descriptors(one.as_fd(), b"x", &many).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let error = try_send_descriptors(one.as_fd(), b"", &many[..1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(try_send_descriptors(one.as_fd(), b"x", &many[1..]).unwrap(), 1);
    let received = receive_descriptors(other.as_fd(), &mut [0; 8], usize::MAX, late()).unwrap();
    assert_eq!(received.fds.len(), DESCRIPTORS_MAX);
}

// A message far larger than the socket's buffer goes out in parts, its descriptors once.
#[test]
fn partial_sends_pass_each_descriptor_once() {
    let (one, other) = UnixStream::pair().unwrap();
    one.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|byte| byte.to_le_bytes()[1]).collect();
    let (mut witness, writer) = witness();
    thread::scope(|scope| {
        scope.spawn(|| {
            let lent = [writer.as_fd(), writer.as_fd()];
            send_descriptors(one.as_fd(), &bytes, &lent, late()).unwrap();
        });
        let (mut came, mut fds) = (Vec::new(), Vec::new());
        let mut buffer = vec![0; 100_000];
        while came.len() < bytes.len() {
            let received = receive_descriptors(other.as_fd(), &mut buffer, 2, late()).unwrap();
            came.extend_from_slice(&buffer[..received.bytes]);
            fds.extend(received.fds);
        }
        assert!(came == bytes);
        assert_eq!(fds.len(), 2);
    });
    drop(writer);
    assert_eq!(witness.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_peer_that_does_nothing_is_timed_out() {
    let (one, other) = UnixStream::pair().unwrap();
    let error = receive_descriptors(other.as_fd(), &mut [0; 8], 1, soon()).unwrap_err();
    assert!(matches!(error, DescriptorError::Timeout), "{error}");
    let bytes = vec![0; 8 << 20];
    let error = send_descriptors(one.as_fd(), &bytes, &[one.as_fd()], soon()).unwrap_err();
    assert!(matches!(error, DescriptorError::Timeout), "{error}");
    let error = try_send_descriptors(one.as_fd(), &bytes, &[]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_closed_peer_is_an_error_and_no_signal() {
    let (one, other) = UnixStream::pair().unwrap();
    drop(other);
    let error = send_descriptors(one.as_fd(), b"x", &[one.as_fd()], late()).unwrap_err();
    assert!(matches!(error, DescriptorError::Socket(_)), "{error}");
}

// More than expected, by one or by many, is refused, and nothing stays open.
#[test]
fn unexpected_descriptors_are_refused_and_closed() {
    for (sent, expected) in [(1, 0), (2, 1), (3, 1), (4, 3), (200, 7)] {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut witness, writer) = witness();
        let lent = vec![writer.as_fd(); sent];
        send_descriptors(one.as_fd(), b"x", &lent, late()).unwrap();
        let error = receive_descriptors(other.as_fd(), &mut [0; 8], expected, late()).unwrap_err();
        assert!(matches!(error, DescriptorError::Truncated { fds_max } if fds_max == expected));
        drop(writer);
        assert_eq!(witness.read(&mut [0]).unwrap(), 0, "{sent} sent, {expected} expected");
    }
}

// Control data of another kind is never taken for descriptors.
#[test]
fn foreign_control_data_is_no_descriptor() {
    let (one, other) = UnixStream::pair().unwrap();
    setsockopt(&other, sockopt::PassCred, &true).unwrap();
    let (mut witness, writer) = witness();
    // The sender's credentials and the descriptors need more room than there is.
    send_descriptors(one.as_fd(), b"x", &[writer.as_fd(); 4], late()).unwrap();
    let error = receive_descriptors(other.as_fd(), &mut [0; 8], 4, late()).unwrap_err();
    assert!(matches!(error, DescriptorError::Truncated { .. }));
    // Here both fit, and only the descriptor counts.
    send_descriptors(one.as_fd(), b"x", &[writer.as_fd()], late()).unwrap();
    let received = receive_descriptors(other.as_fd(), &mut [0; 8], 64, late()).unwrap();
    assert_eq!(received.fds.len(), 1);
    drop((writer, received));
    assert_eq!(witness.read(&mut [0]).unwrap(), 0);
}

// The kernel cuts a message at the limit of open files; what came of it must not stay open.
#[test]
fn at_the_limit_of_open_files_nothing_stays_open() {
    if role().is_none() {
        let test = "shm::descriptors::tests::at_the_limit_of_open_files_nothing_stays_open";
        let output = child(test, "limited").output().unwrap();
        return assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let (one, other) = UnixStream::pair().unwrap();
    let (mut witness, writer) = witness();
    send_descriptors(one.as_fd(), b"x", &[writer.as_fd(); 8], late()).unwrap();
    let highest = u64::try_from(writer.as_raw_fd()).unwrap();
    let limit = libc::rlimit { rlim_cur: highest + 4, rlim_max: highest + 4 };
    // SAFETY: passes a whole structure; the process is this test's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    let error = receive_descriptors(other.as_fd(), &mut [0; 8], 8, late()).unwrap_err();
    assert!(matches!(error, DescriptorError::Truncated { .. }), "{error}");
    drop(writer);
    assert_eq!(witness.read(&mut [0]).unwrap(), 0);
}

#[test]
fn sockets_that_are_none_give_errors() {
    let file = tempfile::tempfile().unwrap();
    assert!(receive_descriptors(file.as_fd(), &mut [0], 1, late()).is_err());
    assert!(send_descriptors(file.as_fd(), b"x", &[], late()).is_err());
    let unconnected = UnixDatagram::unbound().unwrap();
    assert!(send_descriptors(unconnected.as_fd(), b"x", &[], late()).is_err());
}

// Signals interrupt the waiting and change nothing.
#[test]
fn interrupted_waits_go_on() {
    static INTERRUPTIONS: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        INTERRUPTIONS.fetch_add(1, Ordering::SeqCst);
    }
    let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler adds to an atomic; no other test uses the signal.
    unsafe { sigaction(Signal::SIGUSR1, &action) }.unwrap();
    let (mut one, other) = UnixStream::pair().unwrap();
    let done = AtomicBool::new(false);
    let receiver = pthread_self();
    thread::scope(|scope| {
        scope.spawn(|| {
            while INTERRUPTIONS.load(Ordering::SeqCst) < 50 {
                pthread_kill(receiver, Signal::SIGUSR1).unwrap();
                thread::yield_now();
            }
            assert!(!done.load(Ordering::SeqCst));
            one.write_all(b"x").unwrap();
        });
        let received = receive_descriptors(other.as_fd(), &mut [0; 8], 1, late()).unwrap();
        done.store(true, Ordering::SeqCst);
        assert_eq!(received.bytes, 1);
    });
}
