//! S17: bulk work of some never keeps others waiting. Judged by order, not by the clock.

use std::sync::atomic::{AtomicU64, Ordering};

use maru_wire::{
    Abandon, ArchivedReserveOutcome, Key, Purpose, Reply, RequestBody, Reserve, ReserveItem, Secret,
};
use nix::sys::signal::Signal;

use crate::harness::{CALL, Server, is_balanced};
use crate::raw::{Raw, hello};

/// Clients that send as large frames as there are.
const BULK_CLIENTS: u8 = 16;
/// Frames of each, of 4,096 keys.
const BULK_FRAMES: u64 = 6;
/// Pings of another client meanwhile.
const PINGS: u64 = 30;

fn key(client: u8, frame: u64, item: u64) -> Key {
    let mut key = [0; 32];
    key[0] = client;
    key[8..16].copy_from_slice(&(frame << 32 | item).to_le_bytes());
    Key(key)
}

/// Reserves 4,096 keys and gives them back: most are refused or granted, all are looked at.
fn reserve_many(raw: &mut Raw, client: u8, frame: u64) {
    let item = |item| ReserveItem { key: key(client, frame, item), object_bytes: 4096 };
    let reserve = Reserve { items: (0..4096).map(item).collect() };
    let tickets = raw.ask(&RequestBody::Reserve(&reserve), |reply| match reply {
        Reply::Reserve(reply) => reply
            .outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                ArchivedReserveOutcome::Granted(grant) => Some(grant.ticket),
                ArchivedReserveOutcome::Present
                | ArchivedReserveOutcome::InFlight
                | ArchivedReserveOutcome::Full
                | ArchivedReserveOutcome::Growing(_)
                | ArchivedReserveOutcome::Rejected
                | ArchivedReserveOutcome::ClientLimit
                | ArchivedReserveOutcome::Duplicate
                | ArchivedReserveOutcome::NotTried => None,
            })
            .collect::<Vec<_>>(),
        _ => panic!("another reply"),
    });
    let abandon = Abandon { tickets, after_error: false };
    raw.ask(&RequestBody::Abandon(&abandon), |reply| assert!(matches!(reply, Reply::Abandon(_))));
}

/// While 16 clients send 4,096-key reserves, another's pings are answered between them: had each
/// to wait for one frame of every client, the bulk work would end before the pings do.
#[test]
fn pings_pass_bulk_work() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io]);
        let watcher = server.client();
        watcher.ping(0, CALL).unwrap();
        let done = AtomicU64::new(0);
        let seen = std::thread::scope(|scope| {
            for client in 1..=BULK_CLIENTS {
                let (server, done) = (&server, &done);
                scope.spawn(move || {
                    let mut raw = Raw::admitted(server, &hello(client, 1, Purpose::Data));
                    for frame in 0..BULK_FRAMES {
                        reserve_many(&mut raw, client, frame);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            // From the first bulk reply on the work is under way.
            while done.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..PINGS {
                watcher.ping(0, CALL).unwrap();
            }
            done.load(Ordering::Relaxed)
        });
        let all = u64::from(BULK_CLIENTS) * BULK_FRAMES;
        assert!(seen < all, "{PINGS} pings took as long as {all} frames ({io})");
        let stats = server.wait_for("idle", |stats| stats.pages.reserved == 0);
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
