//! Random use of many connections at once; what comes back is always what was sent, in order.

use maru_uring::{Cause, ConnectionId, IoMode, ReactorConfig};

use crate::bench::{Bench, Got, KINDS, Peer, Random, config};

on_both_backends!(a_storm_mixes_nothing_up);

struct Client {
    id: ConnectionId,
    peer: Peer,
    sent: u64,
    back: u64,
    is_ended: bool,
}

/// The byte at a place of a client's stream; every client has another stream.
fn byte(id: ConnectionId, place: u64) -> u8 {
    let mixed = (place + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (id.index() as u64) << 32;
    mixed.to_be_bytes()[0] ^ mixed.to_be_bytes()[3]
}

impl Client {
    fn write(&mut self, count: usize) {
        let bytes: Vec<u8> = (self.sent..).take(count).map(|place| byte(self.id, place)).collect();
        self.sent += self.peer.write(&bytes) as u64;
    }

    fn read(&mut self, count: usize) {
        let mut bytes = Vec::new();
        let got = self.peer.read(&mut bytes, count);
        self.is_ended |= matches!(got, Got::End | Got::Reset);
        for received in bytes {
            assert_eq!(received, byte(self.id, self.back), "at {} of {:?}", self.back, self.id);
            self.back += 1;
        }
    }
}

fn a_storm_mixes_nothing_up(io: IoMode) {
    for seed in 1..=2 {
        let mut random = Random(seed);
        let tight = ReactorConfig {
            entries: 8,
            completion_entries: 16,
            buffer_count: 4,
            buffer_bytes: 4096,
            send_bytes_pause: 10_000,
            linger_us: 2_000,
            ..config(io)
        };
        let mut bench = Bench::with(tight).echo();
        let mut clients: Vec<Client> = Vec::new();
        let mut paused = Vec::new();
        for _ in 0..3_000 {
            step(&mut bench, &mut clients, &mut paused, &mut random);
        }
        // Those too that are paused and whose peer is gone: their end is not seen before.
        for id in std::mem::take(&mut paused) {
            bench.outbox().resume(id);
        }
        bench.until("all echoes", |_| {
            clients.iter_mut().for_each(|client| client.read(1 << 16));
            clients.iter().all(|client| client.back == client.sent)
        });
        clients.clear();
        bench.until("all closed", |bench| bench.outbox().connection_count() == 0);
    }
}

fn step(
    bench: &mut Bench,
    clients: &mut Vec<Client>,
    paused: &mut Vec<ConnectionId>,
    random: &mut Random,
) {
    if clients.len() < 24 && random.below(10) == 0 {
        let (id, peer) = bench.add(KINDS[random.below(2)]);
        clients.push(Client { id, peer, sent: 0, back: 0, is_ended: false });
    }
    if clients.is_empty() {
        return;
    }
    let chosen = random.below(clients.len());
    let client = &mut clients[chosen];
    match random.below(100) {
        0..40 => client.write(1 + random.below(30_000)),
        40..75 => client.read(1 + random.below(60_000)),
        75..83 => {
            bench.outbox().pause(client.id);
            paused.push(client.id);
        }
        83..94 => bench.outbox().resume(client.id),
        94 => drop(clients.swap_remove(chosen)),
        95 => end(bench, clients, chosen, true),
        96 => end(bench, clients, chosen, false),
        _ => {}
    }
    bench.turn_until(Some(0));
}

/// Ends one from the reactor's side: what is still read is the beginning of what was sent.
fn end(bench: &mut Bench, clients: &mut Vec<Client>, chosen: usize, is_abort: bool) {
    let mut client = clients.swap_remove(chosen);
    if is_abort {
        bench.outbox().abort(client.id, "over");
    } else {
        bench.outbox().close(client.id, "over");
    }
    bench.until("the end", |_| {
        client.read(1 << 16);
        client.is_ended
    });
    drop(client.peer);
    let cause = bench.until_closed(client.id);
    assert!(matches!(cause, Cause::Requested("over")), "{cause:?}");
}
