//! kill -9 of workers: nothing half-written is ever seen, and everything they held comes back.

use maru_client::Client;

use crate::harness::{Server, is_balanced, pattern, poll};
use crate::requests::{is_present, load_one, store_one};
use crate::worker::{ENOUGH, OBJECT_BYTES, Task, Worker, user_key};

/// Kills in each state.
const KILLS: u64 = 20;
/// Workers at one time.
const AT_ONCE: usize = 4;

/// Kills workers in one state, and checks before and after what is seen of them.
fn kill_in(task: Task, io: &str, check: impl Fn(&Client, u64)) {
    let server = Server::start(&["--io", io]);
    let client = server.client();
    assert!(store_one(&client, client.key(b"kept"), &pattern(0, OBJECT_BYTES)).is_stored());
    // Another process sees no error all the while.
    let mut bystander = Worker::start(&server.socket, Task::Busy, 1 << 20);
    bystander.wait_until_there();
    let seeds: Vec<u64> = (1..=KILLS).collect();
    for seeds in seeds.chunks(AT_ONCE) {
        let start = |seed: &u64| Worker::start(&server.socket, task, *seed);
        let mut workers: Vec<Worker> = seeds.iter().map(start).collect();
        workers.iter_mut().for_each(|worker| drop(worker.wait_until_there()));
        seeds.iter().for_each(|seed| check(&client, *seed));
        workers.into_iter().for_each(Worker::kill);
        seeds.iter().for_each(|seed| check(&client, *seed));
    }
    assert!(store_one(&client, client.key(ENOUGH), b"enough").is_stored());
    let ended = poll(|| bystander.process.try_wait().unwrap()).expect("the bystander ends");
    assert!(ended.success(), "the bystander saw an error");
    // Long before any TTL: the reservations' is 60 s, the leases' 120 s.
    let stats = server.wait_for("whole again", |stats| {
        stats.pages.reserved == 0 && stats.lease_count == 0 && stats.pinned_count == 0
    });
    assert!(is_balanced(&stats) && stats.pages.overdue == 0, "{stats:#?}");
    assert_eq!((stats.overdue_total, stats.lease_expired_total), (0, 0), "no clock helped");
    assert_eq!(stats.evicted_total, 0, "nothing went but by its owner");
    // What the dead have left unstored is anybody's to store.
    for seed in 1..=KILLS {
        let (key, bytes) = (client.key(&user_key(seed)), pattern(seed, OBJECT_BYTES));
        assert!(store_one(&client, key, &bytes).is_stored());
        assert_eq!(load_one(&client, key), Some(bytes));
    }
    assert_eq!(load_one(&client, client.key(b"kept")), Some(pattern(0, OBJECT_BYTES)));
    server.stop();
}

fn is_invisible(client: &Client, seed: u64) {
    assert!(!is_present(client, client.key(&user_key(seed))), "chunk {seed} is visible");
}

#[test]
fn killed_with_pages_reserved() {
    kill_in(Task::Reserved, "uring", is_invisible);
}

#[test]
fn killed_in_the_middle_of_a_copy() {
    kill_in(Task::Copying, "uring", is_invisible);
}

#[test]
fn killed_before_the_publish() {
    kill_in(Task::Copied, "epoll", is_invisible);
}

#[test]
fn killed_while_the_publish_is_sent() {
    kill_in(Task::Publishing, "uring", |client, seed| {
        if let Some(loaded) = load_one(client, client.key(&user_key(seed))) {
            assert_eq!(loaded, pattern(seed, OBJECT_BYTES));
        }
    });
}

/// X6: a dead reader's leases end with its last connection.
#[test]
fn killed_with_a_lease() {
    kill_in(Task::Leased, "epoll", |client, _| {
        let kept = load_one(client, client.key(b"kept"));
        assert_eq!(kept, Some(pattern(0, OBJECT_BYTES)));
    });
}
