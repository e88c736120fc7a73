//! Connections that the reactor makes itself.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use maru_uring::{Address, Cause, ConnectionId, IoMode, ReactorConfig};

use crate::bench::{Bench, Got, Peer, Seen, config};

on_both_backends!(
    tcp_connects,
    unix_connects,
    refusals_are_told,
    an_abort_while_connecting,
    a_connect_takes_a_bounded_time,
);

fn tcp_connects(io: IoMode) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bench = Bench::new(io).echo();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let id = bench.outbox().connect(&address).unwrap();
    bench.append(id, b"queued before");
    let (peer, _) = listener.accept().unwrap();
    talk(&mut bench, id, Peer::of(peer.into()));
}

fn unix_connects(io: IoMode) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let mut bench = Bench::new(io).echo();
    let id = bench.outbox().connect(&Address::Unix(path)).unwrap();
    bench.append(id, b"queued before");
    let (peer, _) = listener.accept().unwrap();
    talk(&mut bench, id, Peer::of(peer.into()));
}

fn talk(bench: &mut Bench, id: ConnectionId, mut peer: Peer) {
    let mut back = Vec::new();
    bench.until("what was queued", |_| {
        peer.read(&mut back, 100);
        back == b"queued before"
    });
    assert_eq!(bench.seen, [Seen::Connected(id)]);
    peer.write(b" and after");
    bench.until("the echo", |_| {
        peer.read(&mut back, 100);
        back == b"queued before and after"
    });
    bench.outbox().close(id, "done");
    bench.until("the end", |_| peer.read(&mut back, 100) == Got::End);
    drop(peer);
    assert_eq!(bench.until_closed(id), Cause::Requested("done"));
}

fn refusals_are_told(io: IoMode) {
    let mut bench = Bench::new(io);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let tcp = bench.outbox().connect(&Address::Tcp(address)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let unix = bench.outbox().connect(&Address::Unix(folder.path().join("none"))).unwrap();
    assert_eq!(bench.until_closed(tcp), Cause::Error(libc::ECONNREFUSED));
    assert_eq!(bench.until_closed(unix), Cause::Error(libc::ENOENT));
    assert!(bench.seen.iter().all(|seen| matches!(seen, Seen::Closed(..))));
    let long = Address::Unix("x".repeat(200).into());
    assert!(bench.outbox().connect(&long).is_err());
    assert_eq!(bench.outbox().connection_count(), 0);
}

/// A listener whose queue is full leaves a connecting peer without an answer.
fn unanswered() -> (Vec<Peer>, TcpListener, Address) {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(fd.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&fd, Backlog::new(0).unwrap()).unwrap();
    let listener = TcpListener::from(fd);
    let address = listener.local_addr().unwrap();
    let peers = (0..1).map(|_| Peer::of(std::net::TcpStream::connect(address).unwrap().into()));
    (peers.collect(), listener, Address::Tcp(address))
}

fn an_abort_while_connecting(io: IoMode) {
    let (_peers, _listener, address) = unanswered();
    let mut bench = Bench::new(io);
    let id = bench.outbox().connect(&address).unwrap();
    bench.turn();
    bench.outbox().close(id, "gave up");
    assert_eq!(bench.until_closed(id), Cause::Requested("gave up"));
    assert_eq!(bench.seen.len(), 1);
}

fn a_connect_takes_a_bounded_time(io: IoMode) {
    let (_peers, _listener, address) = unanswered();
    let mut bench = Bench::with(ReactorConfig { connect_timeout_us: 10_000, ..config(io) });
    let id = bench.outbox().connect(&address).unwrap();
    assert_eq!(bench.until_closed(id), Cause::Error(libc::ETIMEDOUT));
    assert_eq!(bench.seen.len(), 1);
}
