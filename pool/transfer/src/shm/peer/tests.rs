use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, Uid};
use tempfile::TempDir;

use super::super::testing::{child, role};
use super::*;

/// A process that has connected to this one.
struct Connected {
    process: Child,
    socket: UnixStream,
    _directory: TempDir,
}

/// Plays the peer in a child process: connects, and stays until it is killed.
#[test]
fn child_connects_and_stays() {
    let Some(path) = role() else { return };
    let mut socket = UnixStream::connect(Path::new(&path)).unwrap();
    // The parent writes nothing and closes after the kill.
    let _ = socket.read(&mut [0]);
}

impl Connected {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let test = "shm::peer::tests::child_connects_and_stays";
        let process = child(test, path.to_str().unwrap()).spawn().unwrap();
        let (socket, _) = listener.accept().unwrap();
        Self { process, socket, _directory: directory }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        // Both fail after the test has ended the process itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until the process is known to be dead, by the same descriptor that a server watches.
fn wait_dead(peer: &PeerProcess) {
    let mut watched = [PollFd::new(peer.pidfd().unwrap(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut watched, PollTimeout::from(30_000_u16)).unwrap(), 1);
    assert!(peer.is_dead());
}

#[test]
fn this_process_is_its_own_living_peer() {
    let (one, _other) = UnixStream::pair().unwrap();
    let peer = PeerProcess::of(one.as_fd()).unwrap();
    assert_eq!(peer.pid(), std::process::id());
    assert_eq!(peer.uid(), Uid::effective().as_raw());
    assert!(peer.pidfd().is_some());
    assert!(!peer.is_dead());
}

// X5: a killed process is proven dead, before its parent has reaped it and after.
#[test]
fn a_killed_peer_is_dead() {
    let mut connected = Connected::new();
    let peer = PeerProcess::of(connected.socket.as_fd()).unwrap();
    assert_eq!(peer.pid(), connected.process.id());
    assert!(!peer.is_dead());
    connected.process.kill().unwrap();
    wait_dead(&peer);
    connected.process.wait().unwrap();
    assert!(peer.is_dead());
}

// X5: a stopped process copies on when it is continued. A closed connection proves nothing.
#[test]
fn a_stopped_peer_or_a_closed_connection_is_no_death() {
    let connected = Connected::new();
    let peer = PeerProcess::of(connected.socket.as_fd()).unwrap();
    kill(connected.pid(), Signal::SIGSTOP).unwrap();
    let stopped = waitpid(connected.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)));
    assert!(!peer.is_dead());
    connected.socket.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(!peer.is_dead());
    kill(connected.pid(), Signal::SIGKILL).unwrap();
    wait_dead(&peer);
}

#[test]
fn a_peer_that_was_gone_before_is_dead() {
    let mut connected = Connected::new();
    connected.process.kill().unwrap();
    connected.process.wait().unwrap();
    let peer = PeerProcess::of(connected.socket.as_fd()).unwrap();
    assert!(peer.is_dead());
}

// Linux before 6.5 has no pidfd of a socket: the process id is watched instead.
#[test]
fn the_fallback_proves_the_same() {
    let mut connected = Connected::new();
    let pid = connected.process.id();
    let watching = PeerProcess { pid, uid: 0, proof: Proof::of_pid(pid).unwrap() };
    assert!(!watching.is_dead());
    connected.process.kill().unwrap();
    wait_dead(&watching);
    connected.process.wait().unwrap();
    assert!(watching.is_dead());
    let late = PeerProcess { pid, uid: 0, proof: Proof::of_pid(pid).unwrap() };
    assert!(matches!(late.proof, Proof::Gone));
    assert!(late.is_dead());
}

#[test]
fn a_process_that_this_namespace_cannot_see_is_never_proven_dead() {
    let foreign = PeerProcess { pid: 0, uid: 0, proof: Proof::of_pid(0).unwrap() };
    assert!(foreign.pidfd().is_none());
    assert!(!foreign.is_dead());
}

#[test]
fn other_sockets_have_no_peer_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("file")).unwrap();
    assert!(PeerProcess::of(file.as_fd()).is_err());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let error = PeerProcess::of(stream.as_fd()).unwrap_err();
    assert!(error.to_string().starts_with("the peer of the socket cannot be identified: "));
}

/// Plays a server without a descriptor to spare, in a process of its own.
#[test]
fn child_has_no_descriptor_left() {
    if role().is_none() {
        return;
    }
    let (one, _other) = UnixStream::pair().unwrap();
    // Lower than any free number: what is open stays open.
    setrlimit(Resource::RLIMIT_NOFILE, 3, 3).unwrap();
    for _ in 0..2 {
        let error = PeerProcess::of(one.as_fd()).unwrap_err();
        assert!(matches!(error, PeerError::NoDescriptor(_)), "{error}");
    }
    let watched = Proof::of_pid(std::process::id());
    assert_eq!(watched.unwrap_err(), Errno::EMFILE);
    println!("\nrefused");
}

// X5: a peer that nobody watches would never be proven dead, so it must not pass for known.
#[test]
fn without_a_descriptor_nobody_is_known() {
    let test = "shm::peer::tests::child_has_no_descriptor_left";
    let output = child(test, "server").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("refused"), "{output:?}");
}
