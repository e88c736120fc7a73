//! Every way a connection ends, and what the peer gets.

use std::net::Shutdown;

use maru_uring::{Cause, IoMode, ReactorConfig};

use crate::bench::{Bench, Got, KINDS, Kind, config};

on_both_backends!(
    a_half_closed_peer_gets_its_answer,
    a_reset_is_told,
    close_flushes_first,
    close_does_not_wait_for_ever,
    close_of_an_idle_connection,
    abort_drops_the_output,
    what_a_broken_peer_had_sent_is_delivered,
);

fn a_half_closed_peer_gets_its_answer(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::new(io).echo();
        let (id, mut peer) = bench.add(kind);
        let question = vec![5; 150_000];
        let mut written = 0;
        let mut back = Vec::new();
        bench.until("all written", |_| {
            written += peer.write(&question[written..]);
            peer.read(&mut back, 1 << 20);
            written == question.len()
        });
        peer.stream.shutdown(Shutdown::Write).unwrap();
        bench.until("the end", |_| peer.read(&mut back, 1 << 20) == Got::End);
        assert!(back == question);
        assert_eq!(bench.until_closed(id), Cause::PeerClosed);
    }
}

fn a_reset_is_told(io: IoMode) {
    let mut bench = Bench::new(io);
    let (id, peer) = bench.add(Kind::Tcp);
    bench.turn();
    peer.reset();
    assert_eq!(bench.until_closed(id), Cause::PeerReset);
}

/// Input that nobody read would turn a plain close into a reset and destroy the output.
fn close_flushes_first(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::with(ReactorConfig { linger_us: 60_000_000, ..config(io) });
        let (id, mut peer) = bench.add(kind);
        let output: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[1]).collect();
        bench.append(id, &output);
        bench.outbox().close(id, "bye");
        assert!(bench.outbox().send(id).is_none());
        let mut back = Vec::new();
        bench.until("the output and the end", |_| {
            let is_over = peer.read(&mut back, 100_000) == Got::End;
            if !is_over {
                peer.write(b"unread");
            }
            is_over
        });
        assert!(back == output);
        assert_eq!(bench.cause(id), None, "it waits for the peer's end");
        drop(peer);
        assert_eq!(bench.until_closed(id), Cause::Requested("bye"));
        assert!(bench.received.is_empty(), "a closed connection tells of no more bytes");
    }
}

fn close_does_not_wait_for_ever(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::with(ReactorConfig { linger_us: 5_000, ..config(io) });
        let (id, _peer) = bench.add(kind);
        bench.append(id, b"last");
        bench.outbox().close(id, "bye");
        assert_eq!(bench.until_closed(id), Cause::Requested("bye"));
    }
}

fn close_of_an_idle_connection(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::new(io);
        let (id, mut peer) = bench.add(kind);
        bench.turn();
        bench.outbox().pause(id);
        bench.outbox().close(id, "bye");
        bench.outbox().close(id, "again");
        bench.until("the end", |_| peer.read(&mut Vec::new(), 10) == Got::End);
        drop(peer);
        assert_eq!(bench.until_closed(id), Cause::Requested("bye"));
    }
}

fn abort_drops_the_output(io: IoMode) {
    for kind in KINDS {
        let mut bench = Bench::new(io);
        let (id, mut peer) = bench.add(kind);
        bench.turn();
        bench.append(id, b"never sent");
        bench.outbox().abort(id, "enough");
        bench.outbox().close(id, "late");
        assert_eq!(bench.until_closed(id), Cause::Requested("enough"));
        let got = peer.read(&mut Vec::new(), 10);
        assert!(matches!(got, Got::End | Got::Reset), "{got:?}");
    }
}

/// A server says why before it closes; a client that is just sending must still read it.
fn what_a_broken_peer_had_sent_is_delivered(io: IoMode) {
    let mut bench = Bench::new(io);
    let (id, mut peer) = bench.add(Kind::Unix);
    bench.turn();
    peer.write(b"the reason");
    drop(peer);
    bench.append(id, b"a request");
    let cause = bench.until_closed(id);
    assert!(matches!(cause, Cause::PeerReset | Cause::PeerClosed), "{cause:?}");
    assert_eq!(bench.bytes_of(id), b"the reason");
}
