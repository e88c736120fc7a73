//! Peers that do not read, and reactors that must not: memory stays bounded.

use maru_uring::{Cause, ConnectionId, IoMode, ReactorConfig};
use nix::sys::socket::{setsockopt, sockopt};

use crate::bench::{Bench, Got, KINDS, Kind, Peer, Seen, config};

on_both_backends!(
    a_slow_reader_is_held_and_drained,
    a_peer_that_never_reads_is_closed,
    a_stalled_peer_cannot_hold_a_close,
    pause_stops_reads,
    one_connection_has_a_limit,
    all_connections_have_a_limit,
);

/// More than two sockets of [`narrow`] hold.
const BIG: usize = 2_000_000;

fn patient(io: IoMode) -> ReactorConfig {
    ReactorConfig {
        send_bytes_pause: 64 * 1024,
        send_bytes_max: 2 * BIG,
        buffered_bytes_max: 4 * BIG,
        ..config(io)
    }
}

fn pattern() -> Vec<u8> {
    (0..u32::try_from(BIG).unwrap())
        .map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect()
}

/// Adds a connection whose sockets hold little.
fn narrow(bench: &mut Bench, kind: Kind) -> (ConnectionId, Peer) {
    let (ours, peer) = kind.pair();
    setsockopt(&ours, sockopt::SndBuf, &100_000).unwrap();
    setsockopt(&peer.stream, sockopt::RcvBuf, &100_000).unwrap();
    (bench.outbox().add(ours).unwrap(), peer)
}

/// Sends until the kernel takes no more: some of the output stays.
fn clog(bench: &mut Bench, id: ConnectionId, output: &[u8]) {
    bench.append(id, output);
    bench.turn();
    bench.turn();
    assert!(bench.outbox().unsent_bytes(id) > 0, "the socket cannot hold all of it");
}

/// Writes until the socket takes no more in many turns. Returns the count.
fn fill(bench: &mut Bench, peer: &mut Peer) -> usize {
    let (mut total, mut quiet) = (0, 0);
    while quiet < 20 {
        let count = peer.write(&[9; 50_000]);
        total += count;
        quiet = if count == 0 { quiet + 1 } else { 0 };
        assert!(total < 1 << 28, "reads have not stopped");
        bench.turn_until(Some(0));
    }
    total
}

fn a_slow_reader_is_held_and_drained(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::with(patient(io));
        let (id, mut peer) = narrow(&mut bench, kind);
        let output = pattern();
        clog(&mut bench, id, &output);
        // A second piece while the first is stuck: from now on its input waits.
        bench.append(id, b"end");
        let written = fill(&mut bench, &mut peer);
        assert!(bench.bytes_of(id).len() < written, "its input is not read");
        assert!(!bench.has(&Seen::Drained(id)));

        let mut back = Vec::new();
        bench.until("all output", |_| {
            peer.read(&mut back, 300_000);
            back.len() == BIG + 3
        });
        assert!(back[..BIG] == output && &back[BIG..] == b"end");
        bench.until("drained", |bench| bench.has(&Seen::Drained(id)));
        bench.until("all input", |bench| bench.bytes_of(id).len() == written);
        assert_eq!(bench.seen, [Seen::Drained(id)]);
        assert_eq!(bench.outbox().unsent_bytes(id), 0);
    }
}

fn a_peer_that_never_reads_is_closed(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::with(ReactorConfig { stall_timeout_us: 20_000, ..patient(io) });
        let (id, mut peer) = narrow(&mut bench, kind);
        let (other, mut reader) = bench.add(kind);
        bench.append(id, &pattern());
        assert_eq!(bench.until_closed(id), Cause::SendStalled);
        assert_eq!(bench.outbox().unsent_bytes(id), 0);
        assert!(bench.outbox().send(id).is_none());
        let mut sink = Vec::new();
        while let Got::Bytes(_) = peer.read(&mut sink, 1 << 20) {}
        assert!(sink.len() < BIG);
        bench.append(other, b"fine");
        bench.until("the other", |_| reader.read(&mut sink, 10) == Got::Bytes(4));
    }
}

fn a_stalled_peer_cannot_hold_a_close(io: IoMode) {
    let mut bench = Bench::with(ReactorConfig { stall_timeout_us: 20_000, ..patient(io) });
    let (id, _peer) = narrow(&mut bench, Kind::Tcp);
    bench.append(id, &pattern());
    bench.outbox().close(id, "bye");
    assert_eq!(bench.until_closed(id), Cause::Requested("bye"));
}

fn pause_stops_reads(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::new(io);
        let (id, mut peer) = bench.add(kind);
        bench.turn();
        bench.outbox().pause(id);
        bench.turn();
        bench.turn();
        let written = fill(&mut bench, &mut peer);
        assert!(bench.received.is_empty());
        // Resuming and pausing at once must leave it paused, the contrary resumed.
        bench.outbox().resume(id);
        bench.outbox().pause(id);
        bench.turn();
        assert!(bench.received.is_empty());
        bench.outbox().resume(id);
        bench.turn();
        bench.outbox().pause(id);
        bench.outbox().resume(id);
        bench.until("all input", |bench| bench.bytes_of(id).len() == written);
        assert!(bench.bytes_of(id).iter().all(|byte| *byte == 9));
    }
}

fn one_connection_has_a_limit(io: IoMode) {
    let limited = ReactorConfig { send_bytes_max: 1_000_000, ..config(io) };
    let mut bench = Bench::with(limited);
    let (id, _peer) = bench.add(Kind::Unix);
    bench.append(id, &vec![0; 1_000_001]);
    assert!(bench.outbox().send(id).is_none());
    assert_eq!(bench.outbox().unsent_bytes(id), 0);
    assert_eq!(bench.until_closed(id), Cause::BufferLimit);
    assert_eq!(bench.outbox().buffered_bytes(), 0);
}

fn all_connections_have_a_limit(io: IoMode) {
    let limit = 3_000_000;
    let limited = ReactorConfig { send_bytes_max: limit, buffered_bytes_max: limit, ..config(io) };
    let mut bench = Bench::with(limited);
    let sizes = [900_000, 1_700_000, 1_200_000];
    let connections = sizes.map(|size| {
        let (id, peer) = bench.add(Kind::Unix);
        (id, peer, size)
    });
    for (id, _, size) in &connections {
        clog(&mut bench, *id, &vec![0; *size]);
        assert!(bench.outbox().buffered_bytes() <= limit);
    }
    let [(small, ..), (largest, ..), (middle, ..)] = connections;
    assert_eq!(bench.until_closed(largest), Cause::BufferLimit);
    assert_eq!((bench.cause(small), bench.cause(middle)), (None, None));
    assert_eq!(bench.outbox().connection_count(), 2);
}
