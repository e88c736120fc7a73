//! Writers that are late but alive: their pages are nobody else's, whatever the clock says.

use std::fs;

use maru_wire::{
    Abandon, Key, Publish, PublishItem, PublishOutcome, Purpose, Reply, RequestBody, Reserve,
    ReserveItem, Secret, Ticket,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Server, is_balanced, pattern};
use crate::raw::{Raw, hello};
use crate::requests::{is_present, load_one, store_one};
use crate::worker::{OBJECT_BYTES, Task, Worker, user_key};

/// A server on which writers are late after half a second.
fn impatient() -> Server {
    Server::start(&["--reservation-ttl", "500ms", "--quarantine-warning", "600s"])
}

/// Pages of a worker's chunk.
const PAGES: u64 = 16;

/// Stores so much that every page which the server would give away is given away twice, and checks
/// all that is left: a page of a late writer among them would show.
fn fill_and_verify(server: &Server, run: u64) {
    let client = server.client();
    let seeds: Vec<u64> = (0..700).map(|i| (run << 32) | i).collect();
    for seed in &seeds {
        let key = client.key(&user_key(*seed));
        assert!(store_one(&client, key, &pattern(*seed, OBJECT_BYTES)).is_stored());
    }
    let mut loaded = 0;
    for seed in &seeds {
        if let Some(bytes) = load_one(&client, client.key(&user_key(*seed))) {
            assert!(bytes == pattern(*seed, OBJECT_BYTES), "wrong bytes in chunk {seed:x}");
            loaded += 1;
        }
    }
    assert!(loaded > 200, "{loaded} chunks are left");
}

fn wait_until_overdue(server: &Server) {
    server.wait_for("overdue", |stats| stats.pages.overdue == PAGES);
}

fn assert_still_overdue(server: &Server) {
    let stats = server.stats().remove(0);
    assert_eq!(stats.pages.overdue, PAGES, "{stats:#?}");
    assert!(is_balanced(&stats) && stats.evicted_total > 0, "{stats:#?}");
}

fn wait_until_whole(server: &Server) {
    let stats = server
        .wait_for("whole again", |stats| stats.pages.overdue == 0 && stats.pages.reserved == 0);
    assert!(is_balanced(&stats), "{stats:#?}");
}

/// S11, X5: a stopped process copies on when it is continued. Its death ends that.
#[test]
fn a_stopped_writers_pages_are_kept_until_its_death() {
    let server = impatient();
    let mut writer = Worker::start(&server.socket, Task::Copying, 1);
    writer.wait_until_there();
    writer.signal(Signal::SIGSTOP);
    wait_until_overdue(&server);
    fill_and_verify(&server, 1);
    writer.signal(Signal::SIGCONT);
    fill_and_verify(&server, 2);
    assert_still_overdue(&server);
    let client = server.client();
    assert!(!is_present(&client, client.key(&user_key(1))));
    writer.kill();
    wait_until_whole(&server);
    server.stop();
}

/// X5: a child made by a raw fork holds what its parent held. Both must be gone.
#[test]
fn a_forked_child_keeps_its_parents_pages() {
    let server = impatient();
    let mut writer = Worker::start(&server.socket, Task::Forked, 1);
    writer.wait_until_there();
    let child = only_child(writer.process.id());
    wait_until_overdue(&server);
    let sockets = open_sockets(child);
    assert!(sockets >= 2, "the child holds its parent's connections: {sockets} sockets");
    writer.kill();
    fill_and_verify(&server, 1);
    assert_still_overdue(&server);
    assert_eq!(open_sockets(child), sockets, "the child has outlived its parent");
    kill(child, Signal::SIGKILL).unwrap();
    wait_until_whole(&server);
    server.stop();
}

/// Counts the sockets that a living process holds.
fn open_sockets(process: Pid) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("the process lives");
    let targets = descriptors.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn only_child(parent: u32) -> Pid {
    let path = format!("/proc/{parent}/task");
    let children: Vec<i32> = fs::read_dir(path)
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(children.len(), 1);
    Pid::from_raw(children[0])
}

/// Reserves one chunk of 16 pages by hand.
pub(crate) fn reserve_by_hand(raw: &mut Raw, key: Key) -> Ticket {
    let items = vec![ReserveItem { key, object_bytes: OBJECT_BYTES as u64 }];
    raw.ask(&RequestBody::Reserve(&Reserve { items }), |reply| match reply {
        Reply::Reserve(reply) => match &reply.outcomes[0] {
            maru_wire::ArchivedReserveOutcome::Granted(grant) => grant.ticket,
            other => panic!("{other:?}"),
        },
        _ => panic!("another reply"),
    })
}

/// Says a hello by the Unix socket, as a process that lives on.
pub(crate) fn greet(server: &Server, number: u64, tickets: Vec<Ticket>) -> Raw {
    let mut raw = Raw::unix(server);
    let challenge = raw.challenge();
    let mut said = hello(1, number, Purpose::Data);
    said.transfer_timeout_us = 100_000;
    said.tickets = tickets;
    raw.greet(&challenge, &said, &Secret::none()).unwrap();
    raw
}

/// A live client whose connection is lost keeps its pages; its next hello says which it needs.
#[test]
fn a_lost_connection_frees_nothing() {
    type Ending = (&'static str, fn(&mut Raw));
    let endings: [Ending; 2] = [
        ("closed", |_| {}),
        ("bad frame", |raw| {
            raw.throw(&[0xFF; 64]);
            raw.wait_until_closed();
        }),
    ];
    for (run, (name, end)) in (1..).zip(endings) {
        let server = impatient();
        let mut raw = greet(&server, 1, Vec::new());
        let kept_key = Key([1; 32]);
        let kept = reserve_by_hand(&mut raw, kept_key);
        end(&mut raw);
        drop(raw);
        wait_until_overdue(&server);
        fill_and_verify(&server, run);
        assert_still_overdue(&server);
        // It comes back, still holds the ticket, and may still publish.
        let mut raw = greet(&server, 2, vec![kept]);
        assert_still_overdue(&server);
        let items = vec![PublishItem { ticket: kept, key: kept_key, checksum: Default::default() }];
        raw.ask(&RequestBody::Publish(&Publish { items }), |reply| match reply {
            Reply::Publish(reply) => assert!(
                matches!(reply.outcomes[0], maru_wire::ArchivedPublishOutcome::Created),
                "{name}: {:?}",
                PublishOutcome::Created
            ),
            _ => panic!("another reply"),
        });
        // What a hello does not list is free at once.
        let lost = reserve_by_hand(&mut raw, Key([2; 32]));
        drop(raw);
        let mut raw = greet(&server, 3, Vec::new());
        wait_until_whole(&server);
        let abandon = Abandon { tickets: vec![lost], after_error: false };
        raw.ask(&RequestBody::Abandon(&abandon), |reply| match reply {
            Reply::Abandon(reply) => assert_eq!(reply.abandoned_count, 0),
            _ => panic!("another reply"),
        });
        server.stop();
    }
}

/// A live client whose sockets are shut down in the middle of a copy.
#[test]
fn shut_down_sockets_free_nothing() {
    let server = impatient();
    let mut writer = Worker::start(&server.socket, Task::Severed, 1);
    writer.wait_until_there();
    wait_until_overdue(&server);
    fill_and_verify(&server, 1);
    assert_still_overdue(&server);
    let client = server.client();
    assert!(!is_present(&client, client.key(&user_key(1))));
    writer.kill();
    wait_until_whole(&server);
    server.stop();
}
