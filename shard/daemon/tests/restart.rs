//! kill -9 of the server: calls fail within their deadlines and work again after a restart.

use std::time::{Duration, Instant};

use maru_client::{
    Client, LoadItem, Match, Pinned, RemoveItem, Reservation, ReserveItem, StoreItem,
};

use crate::harness::{CALL, Server, pattern, poll};
use crate::requests::{load_one, reserve, store_one};

/// Deadline of the calls that must fail.
const SHORT: Duration = Duration::from_millis(100);
/// Beyond any deadline: it finds calls that hang, and measures nothing.
const HANGS: Duration = Duration::from_secs(10);

/// Makes every call of a client, with what it got from the server that is gone.
fn every_call_fails(client: &Client, mut held: Reservation, pinned: Pinned) {
    let (key, bytes) = (client.key(b"chunk"), [1; 100]);
    let mut into = [0; 100_000];
    let mut load = [LoadItem { key, into: &mut into }];
    let remove = RemoveItem { key, ticket: Default::default() };
    let calls: [(&str, &mut dyn FnMut() -> bool); 12] = [
        ("exists", &mut || client.exists(&[key], Match::All, SHORT).is_err()),
        ("store", &mut || client.store(&[StoreItem { key, bytes: &bytes }], SHORT).is_err()),
        ("load", &mut || client.load(&mut load, Match::All, SHORT).is_err()),
        ("lookup", &mut || client.lookup(&[key], Match::All, SHORT).is_err()),
        ("reserve", &mut || {
            client.reserve(&[ReserveItem { key, object_bytes: 9 }], SHORT).is_err()
        }),
        ("publish", &mut || client.publish(std::slice::from_mut(&mut held), SHORT).is_err()),
        ("remove", &mut || client.remove(&[remove], SHORT).is_err()),
        ("clear", &mut || client.clear(SHORT).is_err()),
        ("evicted_since", &mut || client.evicted_since(0, 0, SHORT).is_err()),
        ("stats", &mut || client.stats(SHORT).is_err()),
        ("ping", &mut || client.ping(0, SHORT).is_err()),
        ("attachment", &mut || client.attachment(SHORT).is_err()),
    ];
    for (name, call) in calls {
        let asked = Instant::now();
        assert!(call(), "{name} succeeds without a server");
        assert!(asked.elapsed() < HANGS, "{name} hangs");
    }
    let asked = Instant::now();
    assert_eq!(client.release(pinned, SHORT), [false], "nothing is held");
    drop(client.abandon(vec![held], false, SHORT));
    assert!(asked.elapsed() < HANGS);
}

/// The same client object works on after the server was killed and started again.
#[test]
fn the_same_client_works_after_a_restart() {
    for io in ["uring", "epoll"] {
        let mut server = Server::start(&["--io", io]);
        let mut settings = server.client_config();
        settings.control_timeout = Duration::from_millis(200);
        let client = maru_client::Client::new(settings).unwrap();
        let key = client.key(b"chunk");
        let bytes = pattern(1, 100_000);
        for _ in 0..3 {
            assert!(store_one(&client, key, &bytes).is_stored());
            let attachment = client.attachment(CALL).unwrap();
            let held = reserve(&client, client.key(b"held"), 100);
            let pinned = client.lookup(&[key], Match::All, CALL).unwrap();
            let folder = server.kill();
            every_call_fails(&client, held, pinned);
            poll(|| attachment.is_lost().then_some(())).expect("the map is dropped");
            server = Server::start_in(folder, "127.0.0.1:0", &["--io", io]);
            let found = poll(|| client.exists(&[key], Match::All, CALL).ok());
            assert_eq!(found.expect("the client works again").leading_count, 0, "all is new");
            assert_eq!(load_one(&client, key), None);
        }
        assert!(store_one(&client, key, &bytes).is_stored());
        assert_eq!(load_one(&client, key), Some(bytes));
        server.stop();
    }
}
