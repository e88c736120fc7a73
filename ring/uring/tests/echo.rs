//! Bytes come back whole, in order, on the right connection.

use maru_uring::{Cause, ConnectionId, IoMode, ReactorConfig};

use crate::bench::{Bench, Got, KINDS, Kind, Peer, Random, Seen, config};

on_both_backends!(
    bytes_survive_every_split,
    sixty_four_connections,
    few_buffers_starve_nobody,
    a_late_completion_never_reaches_a_new_connection,
    a_dropped_reactor_leaves_nothing_behind,
);

struct Stream {
    peer: Peer,
    sent: Vec<u8>,
    written: usize,
    back: Vec<u8>,
}

impl Stream {
    fn new(peer: Peer, sent: Vec<u8>) -> Self {
        Self { peer, sent, written: 0, back: Vec::new() }
    }

    /// Writes a piece of any size and reads what came back. True at the end.
    fn step(&mut self, random: &mut Random) -> bool {
        let end = self.sent.len().min(self.written + 1 + random.below(9000));
        self.written += self.peer.write(&self.sent[self.written..end]);
        while let Got::Bytes(_) = self.peer.read(&mut self.back, 1 + random.below(20_000)) {}
        self.back.len() == self.sent.len()
    }
}

fn bytes_survive_every_split(io: IoMode) {
    for kind in KINDS {
        let mut random = Random(11);
        let mut bench = Bench::new(io).echo();
        let (_, peer) = bench.add(kind);
        let mut stream = Stream::new(peer, random.bytes(3_000_000));
        bench.until("the echo", |_| stream.step(&mut random));
        assert!(stream.back == stream.sent);
    }
}

fn sixty_four_connections(io: IoMode) {
    for kind in KINDS {
        let mut random = Random(12);
        let mut bench = Bench::new(io).echo();
        let (ids, mut streams) = many(&mut bench, kind, 64, 40_000, &mut random);
        bench.until("the echoes", |_| all_step(&mut streams, &mut random));
        assert!(streams.iter().all(|stream| stream.back == stream.sent));
        assert_eq!(bench.outbox().connection_count(), 64);
        drop(streams);
        for id in ids {
            assert_eq!(bench.until_closed(id), Cause::PeerClosed);
        }
        assert_eq!(bench.outbox().connection_count(), 0);
    }
}

fn few_buffers_starve_nobody(io: IoMode) {
    let mut random = Random(13);
    let few = ReactorConfig { buffer_count: 2, buffer_bytes: 4096, ..config(io) };
    let mut bench = Bench::with(few).echo();
    let (_, mut streams) = many(&mut bench, Kind::Unix, 16, 200_000, &mut random);
    bench.until("the echoes", |_| all_step(&mut streams, &mut random));
    assert!(streams.iter().all(|stream| stream.back == stream.sent));
    let starved = bench.reactor.counters().buffers_exhausted;
    assert_eq!(starved > 0, io == IoMode::Uring);
}

fn many(
    bench: &mut Bench,
    kind: Kind,
    count: usize,
    bytes: usize,
    random: &mut Random,
) -> (Vec<ConnectionId>, Vec<Stream>) {
    (0..count)
        .map(|_| {
            let (id, peer) = bench.add(kind);
            (id, Stream::new(peer, random.bytes(bytes)))
        })
        .unzip()
}

fn all_step(streams: &mut [Stream], random: &mut Random) -> bool {
    // Not `all`: every stream moves in every step.
    streams.iter_mut().filter_map(|stream| (!stream.step(random)).then_some(())).count() == 0
}

fn a_late_completion_never_reaches_a_new_connection(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::new(io);
        let mut last: Option<(ConnectionId, Peer)> = None;
        for round in 0..300 {
            let (id, mut peer) = bench.add(kind);
            if let Some((old, _peer)) = last.take() {
                assert_ne!(old, id);
                assert!(bench.outbox().send(old).is_none(), "a stale id finds nothing");
                bench.outbox().pause(old);
                bench.outbox().close(old, "stale");
            }
            bench.turn_until(Some(0));
            let own = [u8::try_from(round % 251).unwrap(); 64];
            assert_eq!(peer.write(&own), 64);
            bench.append(id, &own);
            // Half of them are aborted while a receive, and perhaps a send, is in flight.
            if round % 2 == 0 {
                bench.turn_until(Some(0));
            } else {
                bench.until("own bytes", |bench| bench.bytes_of(id).len() == 64);
            }
            bench.outbox().abort(id, "over");
            let length = bench.bytes_of(id).len();
            last = Some((id, peer));
            bench.turn_until(Some(0));
            assert!(bench.bytes_of(id).iter().all(|byte| *byte == own[0]));
            assert_eq!(bench.bytes_of(id).len(), length, "nothing is told of an aborted one");
        }
        bench.until("all closed", |bench| bench.outbox().connection_count() == 0);
        bench.turn();
        let closed = bench.seen.iter().filter(|seen| matches!(seen, Seen::Closed(..))).count();
        assert_eq!((closed, bench.seen.len()), (300, 300));
    }
}

fn a_dropped_reactor_leaves_nothing_behind(io: IoMode) {
    for _ in 0..20 {
        let mut bench = Bench::new(io);
        let mut peers = Vec::new();
        for kind in [Kind::Tcp, Kind::Unix].repeat(8) {
            let (id, peer) = bench.add(kind);
            bench.append(id, &vec![1; 4_000_000]);
            peers.push(peer);
        }
        bench.turn_until(Some(0));
        drop(bench);
        for mut peer in peers {
            let mut sink = Vec::new();
            while let Got::Bytes(_) = peer.read(&mut sink, 1 << 20) {}
            assert!(matches!(peer.read(&mut sink, 1), Got::End | Got::Reset));
            assert!(sink.iter().all(|byte| *byte == 1));
        }
    }
}
