//! The one place that drives a reactor and its peers.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use maru_uring::{Cause, ConnectionId, Event, IoMode, Outbox, Reactor, ReactorConfig, now_ns};

/// No condition takes this long; a test that waits longer has failed.
const PATIENCE_NS: u64 = 60_000_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Connected(ConnectionId),
    Drained(ConnectionId),
    Closed(ConnectionId, Cause),
    Woken,
    TimedOut,
}

/// A reactor, what it told, and whether what it receives is sent back.
pub(crate) struct Bench {
    pub(crate) reactor: Reactor,
    pub(crate) seen: Vec<Seen>,
    pub(crate) received: Vec<(ConnectionId, Vec<u8>)>,
    pub(crate) is_echo: bool,
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = &self.seen[self.seen.len().saturating_sub(20)..];
        f.debug_struct("Bench").field("last seen", &last).field("reactor", &self.reactor).finish()
    }
}

pub(crate) fn config(io: IoMode) -> ReactorConfig {
    ReactorConfig { io, ..ReactorConfig::default() }
}

impl Bench {
    pub(crate) fn new(io: IoMode) -> Self {
        Self::with(config(io))
    }

    pub(crate) fn with(config: ReactorConfig) -> Self {
        let reactor = Reactor::new(config).unwrap();
        Self { reactor, seen: Vec::new(), received: Vec::new(), is_echo: false }
    }

    pub(crate) fn echo(mut self) -> Self {
        self.is_echo = true;
        self
    }

    /// One turn that waits a millisecond at most.
    pub(crate) fn turn(&mut self) {
        self.turn_until(Some(now_ns() + 1_000_000));
        self.seen.retain(|seen| *seen != Seen::TimedOut);
    }

    pub(crate) fn turn_until(&mut self, deadline_ns: Option<u64>) {
        let Self { reactor, seen, received, is_echo } = self;
        let mut on_event = |outbox: &mut Outbox, event: Event<'_>| match event {
            Event::Connected { connection } => seen.push(Seen::Connected(connection)),
            Event::Drained { connection } => seen.push(Seen::Drained(connection)),
            Event::Closed { connection, cause } => seen.push(Seen::Closed(connection, cause)),
            Event::Woken => seen.push(Seen::Woken),
            Event::TimedOut => seen.push(Seen::TimedOut),
            Event::Received { connection, bytes } if *is_echo => {
                // A peer that is gone takes no answer to what it had sent.
                if let Some(output) = outbox.send(connection) {
                    output.extend_from_slice(bytes);
                }
            }
            Event::Received { connection, bytes } => {
                match received.iter_mut().find(|(id, _)| *id == connection) {
                    Some((_, earlier)) => earlier.extend_from_slice(bytes),
                    None => received.push((connection, bytes.to_vec())),
                }
            }
        };
        reactor.turn(deadline_ns, &mut on_event).unwrap();
    }

    /// Turns until `is_true` says so.
    pub(crate) fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let end = now_ns() + PATIENCE_NS;
        while !is_true(self) {
            assert!(now_ns() < end, "waited in vain for: {what}; {self:?}");
            self.turn();
        }
    }

    pub(crate) fn until_closed(&mut self, id: ConnectionId) -> Cause {
        self.until("closed", |bench| bench.cause(id).is_some());
        let count = self.seen.iter().filter(|s| matches!(s, Seen::Closed(i, _) if *i == id));
        assert_eq!(count.count(), 1, "one Closed for a connection");
        self.cause(id).unwrap()
    }

    pub(crate) fn cause(&self, id: ConnectionId) -> Option<Cause> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Closed(closed, cause) if *closed == id => Some(*cause),
            _ => None,
        })
    }

    pub(crate) fn has(&self, seen: &Seen) -> bool {
        self.seen.contains(seen)
    }

    pub(crate) fn bytes_of(&self, id: ConnectionId) -> &[u8] {
        self.received.iter().find(|(found, _)| *found == id).map_or(&[], |(_, bytes)| bytes)
    }

    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        self.reactor.outbox()
    }

    /// Adds one end of a connection; the other is the peer.
    pub(crate) fn add(&mut self, kind: Kind) -> (ConnectionId, Peer) {
        let (ours, peer) = kind.pair();
        (self.outbox().add(ours).unwrap(), peer)
    }

    pub(crate) fn append(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.outbox().send(id).unwrap().extend_from_slice(bytes);
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tcp,
    Unix,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Tcp, Kind::Unix];

impl Kind {
    pub(crate) fn pair(self) -> (OwnedFd, Peer) {
        match self {
            Self::Tcp => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (ours, _) = listener.accept().unwrap();
                peer.set_nodelay(true).unwrap();
                (ours.into(), Peer::of(peer.into()))
            }
            Self::Unix => {
                let (ours, peer) = UnixStream::pair().unwrap();
                (ours.into(), Peer::of(peer.into()))
            }
        }
    }
}

/// The other end, never blocking, so that one thread drives both.
pub(crate) struct Peer {
    /// The calls used here are the same for every stream socket.
    pub(crate) stream: UnixStream,
}

/// What a try to read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Bytes(usize),
    Nothing,
    End,
    Reset,
}

impl Peer {
    pub(crate) fn of(fd: OwnedFd) -> Self {
        let stream = UnixStream::from(fd);
        stream.set_nonblocking(true).unwrap();
        Self { stream }
    }

    /// Writes what the socket takes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        match self.stream.write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("peer: {error}"),
        }
    }

    /// Appends what there is, at most `max` bytes.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>, max: usize) -> Got {
        let mut buffer = vec![0; max];
        match self.stream.read(&mut buffer) {
            Ok(0) => Got::End,
            Ok(count) => {
                into.extend_from_slice(&buffer[..count]);
                Got::Bytes(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Got::Nothing,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Got::Reset,
            Err(error) => panic!("peer: {error}"),
        }
    }

    /// Makes the drop to come a reset (TCP).
    pub(crate) fn reset(self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&self.stream, nix::sys::socket::sockopt::Linger, &linger)
            .unwrap();
    }
}

/// Seeded bytes and sizes (xorshift64*).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[7]).collect()
    }
}
