//! What an operator sees: panics end the process, warnings come, an idle server is quiet.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use maru_client::{Client, Match};
use maru_wire::{Key, Purpose};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::alive::{greet, reserve_by_hand};
use crate::harness::{CALL, Server, poll};
use crate::raw::{Raw, hello};

/// S4: a panic on one shard that serves ends the process, and with it every other shard's service.
/// The next server takes the addresses over.
#[test]
fn a_panic_of_a_serving_shard_ends_the_process() {
    if !cfg!(debug_assertions) {
        return eprintln!("skipped: release builds have no way to ask a shard for a panic");
    }
    let folder = TempDir::new().unwrap();
    let mut server = Server::start_with(folder, "127.0.0.1:0", &["--shards", "2"], |command| {
        command.env("MARU_TEST_PANIC_NAMESPACE", "doomed");
    });
    let bystander = server.client();
    bystander.ping(0, CALL).unwrap();
    let mut settings = server.client_config();
    settings.namespace = "doomed".to_owned();
    Client::new(settings).unwrap().ping(0, CALL).unwrap_err();
    let status = server.wait();
    assert_eq!((status.code(), status.signal()), (Some(101), None), "{}", server.log());
    assert!(server.log().contains("a thread panicked, so the process ends"), "{}", server.log());
    bystander.exists(&[bystander.key(b"any")], Match::All, CALL).unwrap_err();
    let server = Server::start_in(server.kill(), "127.0.0.1:0", &["--shards", "2"]);
    poll(|| bystander.ping(0, CALL).ok()).expect("the bystander works with the next server");
    server.stop();
}

/// S11: a writer that does not come back is warned about, once it is late for so long; its pages
/// stay. In JSON every line is one object.
#[test]
fn late_writers_are_warned_about_and_json_lines_are_json() {
    let server = Server::start(&[
        "--log-format",
        "json",
        "--reservation-ttl",
        "500ms",
        "--quarantine-warning",
        "500ms",
    ]);
    let mut late = greet(&server, 1, Vec::new());
    let _ticket = reserve_by_hand(&mut late, Key([1; 32]));
    let warning = poll(|| {
        let log = server.log();
        let whole = log.lines().take(log.matches('\n').count());
        let mut lines = whole.map(|line| serde_json::from_str(line).expect(line));
        lines.find(|line: &serde_json::Value| {
            line["fields"]["message"] == "writers have not come back for their reservations"
        })
    });
    let warning = warning.expect("a warning");
    assert_eq!(warning["level"], "WARN");
    let fields = &warning["fields"];
    assert_eq!((&fields["shard"], &fields["overdue_count"]), (&0.into(), &1.into()), "{warning}");
    assert_eq!(fields["overdue_pages"], 16, "{warning}");
    assert_eq!(server.stats()[0].pages.overdue, 16);
    server.signal(Signal::SIGTERM);
    let ended = poll(|| server.log().contains("\"ended\"").then_some(()));
    ended.expect("the last line");
    for line in server.log().lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
}

/// S14: one line at start says what whoever connects can do, with a secret and without.
#[test]
fn trust_is_said_in_one_line() {
    let server = Server::start(&[]);
    let log = server.log();
    assert_eq!(log.matches("trust:").count(), 1, "{log}");
    assert!(log.contains("whoever can connect can read and overwrite all pool memory"), "{log}");
}

/// How often the threads of a process have been put on a core so far.
fn switches(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let count = |status: String| -> u64 {
        let lines = status.lines().filter_map(|line| line.split_once("ctxt_switches:"));
        lines.map(|(_, count)| count.trim().parse::<u64>().unwrap()).sum()
    };
    threads.map(|t| count(fs::read_to_string(t.unwrap().path().join("status")).unwrap())).sum()
}

/// A server with an attached client that asks nothing sleeps: while another server starts, works
/// and stops, it is hardly woken. Were it to poll, it would be, hundreds of times.
#[test]
fn an_idle_server_sleeps() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io, "--shards", "2"]);
        let client = server.client();
        client.attachment(CALL).unwrap();
        let mut silent = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
        silent.ask(&maru_wire::RequestBody::Ping, |_| ());
        let before = switches(server.pid());
        for _ in 0..3 {
            Server::start(&["--io", io]).stop();
        }
        let woken = switches(server.pid()) - before;
        assert!(woken < 20, "woken {woken} times ({io})");
    }
}

/// Everything but the C library is in the binary: it runs on any machine as it is.
#[test]
fn the_server_needs_no_library_beyond_libc() {
    let server = Server::start(&[]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", server.pid())).unwrap();
    let files = maps.lines().filter_map(|line| line.rsplit_once('/').map(|(_, name)| name));
    let libraries: Vec<_> = files.filter(|name| name.contains(".so")).collect();
    let known = ["libc.", "libc-", "libm.", "libm-", "libgcc_s.", "libpthread", "ld-", "libdl"];
    let is_known = |name: &str| known.iter().any(|prefix| name.starts_with(prefix));
    assert!(libraries.iter().any(|name| name.starts_with("libc")), "{maps}");
    assert!(libraries.iter().all(|name| is_known(name)), "{libraries:?}");
}
