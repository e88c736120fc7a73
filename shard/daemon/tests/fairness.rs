//! S17: bulk work of some never keeps others waiting. Judged by order, not by the clock.

use std::sync::atomic::{AtomicU64, Ordering};

use maru_wire::{
    Abandon, ArchivedReserveOutcome, Key, Publish, PublishItem, Purpose, Reply, RequestBody,
    Reserve, ReserveItem, Secret, Ticket,
};
use nix::sys::signal::Signal;

use crate::harness::{CALL, Server, is_balanced};
use crate::raw::{Raw, hello};

/// Clients that send as large frames as there are.
const BULK_CLIENTS: u8 = 16;
/// Frames of each, of 4,096 keys.
const BULK_FRAMES: u64 = 4;
/// Pings of another client meanwhile.
const PINGS: u64 = 30;

fn key(client: u8, frame: u64, item: u64) -> Key {
    let mut key = [0; 32];
    key[0] = client;
    key[8..16].copy_from_slice(&(frame << 32 | item).to_le_bytes());
    Key(key)
}

/// Reserves 4,096 keys, and returns the keys and tickets of those that were granted.
fn reserve_many(raw: &mut Raw, client: u8, frame: u64) -> Vec<(Key, Ticket)> {
    let item = |item| ReserveItem { key: key(client, frame, item), object_bytes: 4096 };
    let reserve = Reserve { items: (0..4096).map(item).collect() };
    raw.ask(&RequestBody::Reserve(&reserve), |reply| {
        let Reply::Reserve(reply) = reply else { panic!("another reply") };
        let granted = reply.outcomes.iter().zip(&reserve.items);
        let granted = granted.filter_map(|(outcome, item)| match outcome {
            ArchivedReserveOutcome::Granted(grant) => Some((item.key, grant.ticket)),
            ArchivedReserveOutcome::Full => panic!("an unpinned pool says that it is full"),
            ArchivedReserveOutcome::Present
            | ArchivedReserveOutcome::InFlight
            | ArchivedReserveOutcome::Growing(_)
            | ArchivedReserveOutcome::Rejected
            | ArchivedReserveOutcome::ClientLimit
            | ArchivedReserveOutcome::Duplicate
            | ArchivedReserveOutcome::NotTried => None,
        });
        granted.collect()
    })
}

/// Reserves 4,096 keys and gives them back. Evicts nothing.
fn reserve_and_abandon(raw: &mut Raw, client: u8, frame: u64) -> u64 {
    let granted = reserve_many(raw, client, frame);
    let tickets: Vec<Ticket> = granted.iter().map(|(_, ticket)| *ticket).collect();
    let abandon = Abandon { tickets, after_error: false };
    raw.ask(&RequestBody::Abandon(&abandon), |reply| assert!(matches!(reply, Reply::Abandon(_))));
    granted.len() as u64
}

/// Reserves 4,096 keys and publishes what is granted, which evicts as many from a full pool.
fn reserve_and_publish(raw: &mut Raw, client: u8, frame: u64) -> u64 {
    let granted = reserve_many(raw, client, frame);
    let item = |(key, ticket): &(Key, Ticket)| PublishItem {
        ticket: *ticket,
        key: *key,
        checksum: Default::default(),
    };
    let publish = Publish { items: granted.iter().map(item).collect() };
    raw.ask(&RequestBody::Publish(&publish), |reply| assert!(matches!(reply, Reply::Publish(_))));
    granted.len() as u64
}

/// What was seen while bulk work was under way.
struct Seen {
    /// Bulk frames that were answered before the last ping was.
    frames: u64,
    /// Most connections that waited for their next turn while a ping was answered.
    waiting: u32,
    /// Keys that were granted to all bulk clients.
    granted: u64,
}

/// Pings `server` while 16 clients do `bulk`, from the first bulk answer on.
fn ping_beside(server: &Server, bulk: fn(&mut Raw, u8, u64) -> u64) -> Seen {
    let watcher = server.client();
    watcher.ping(0, CALL).unwrap();
    let (done, granted) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut waiting = 0;
    let frames = std::thread::scope(|scope| {
        for client in 1..=BULK_CLIENTS {
            let (done, granted) = (&done, &granted);
            scope.spawn(move || {
                let mut raw = Raw::admitted(server, &hello(client, 1, Purpose::Data));
                for frame in 0..BULK_FRAMES {
                    granted.fetch_add(bulk(&mut raw, client, frame), Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..PINGS {
            waiting = waiting.max(watcher.ping(0, CALL).unwrap().reply.waiting_count);
        }
        done.load(Ordering::Relaxed)
    });
    Seen { frames, waiting, granted: granted.into_inner() }
}

/// Had each ping to wait for one frame of every client, the bulk work would end before the pings.
fn assert_passed(seen: &Seen, io: &str) {
    let all = u64::from(BULK_CLIENTS) * BULK_FRAMES;
    assert!(seen.frames < all, "{PINGS} pings took as long as {all} frames ({io})");
    assert!(seen.waiting > 1, "no ping was answered while others waited ({io})");
}

/// While 16 clients send 4,096-key reserves, another's pings are answered between them.
#[test]
fn pings_pass_bulk_work() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io]);
        assert_passed(&ping_beside(&server, reserve_and_abandon), io);
        let stats = server.wait_for("idle", |stats| stats.pages.reserved == 0);
        assert!(is_balanced(&stats) && stats.evicted_total == 0, "{stats:#?}");
    }
}

/// S17, S9: the same while each of those reserves evicts as many chunks as it is granted, from a
/// pool that is full of unpinned ones all the while. None of them is told that it is full.
#[test]
fn pings_pass_evicting_reserves() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io, "--pool-bytes", "64M"]);
        let mut filler = Raw::admitted(&server, &hello(100, 1, Purpose::Data));
        for frame in 0.. {
            reserve_and_publish(&mut filler, 100, frame);
            if server.stats()[0].evicted_total > 0 {
                break;
            }
        }
        let before = server.stats().remove(0);
        assert_eq!((before.pages.free, before.pinned_count), (0, 0));
        let seen = ping_beside(&server, reserve_and_publish);
        assert_passed(&seen, io);
        let stats = server.stats().remove(0);
        assert_eq!(stats.evicted_total - before.evicted_total, seen.granted, "as many as granted");
        let frames = u64::from(BULK_CLIENTS) * BULK_FRAMES;
        assert!(seen.granted > frames * 256, "{} keys of {frames} frames", seen.granted);
        assert_eq!((stats.full_total, stats.pages.free, stats.pages.reserved), (0, 0, 0));
        assert!(is_balanced(&stats));
    }
}

/// S12: what is in flight when the server is asked to end is answered, in order, to the last.
#[test]
fn frames_in_flight_are_answered_at_the_end() {
    for io in ["uring", "epoll"] {
        let mut server = Server::start(&["--io", io]);
        let mut raw = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
        let keys = (0..4096).map(|i| key(1, 0, i)).collect();
        let exists = maru_wire::Exists { keys, matching: maru_wire::Match::All };
        let mut ids = Vec::new();
        for _ in 0..10 {
            ids.push(raw.send(&RequestBody::Exists(&exists)));
        }
        server.signal(Signal::SIGTERM);
        for id in ids {
            raw.reply(id, |reply| assert!(matches!(reply, Reply::Exists(_))));
        }
        raw.wait_until_closed();
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    }
}

/// A client that stops in the middle of its hello keeps nobody from saying theirs.
#[test]
fn half_hellos_keep_nobody_waiting() {
    let server = Server::start(&[]);
    let mut halves = Vec::new();
    for name in 0..100 {
        let mut raw = Raw::unix(&server);
        let challenge = raw.challenge();
        let (bytes, _) =
            raw.hello_bytes(&challenge, &hello(name, 1, Purpose::Data), &Secret::none());
        raw.throw(&bytes[..bytes.len() / 2]);
        halves.push(raw);
    }
    server.client().ping(0, CALL).unwrap();
    halves.iter_mut().for_each(Raw::wait_until_closed);
    server.wait_closed("hello_timeout", 100);
}
