//! S17: what one process costs the server in descriptors, and what happens when none is left.

use std::fs;
use std::os::unix::process::CommandExt as _;

use maru_wire::{Hello, Incarnation, Purpose, Secret};
use nix::sys::resource::{Resource, setrlimit};
use tempfile::TempDir;

use crate::harness::{CALL, Server, poll};
use crate::raw::{Raw, hello};

/// The hello of client object number `name`.
fn hello_of(name: u16, purpose: Purpose) -> Hello {
    let mut incarnation = [7; 16];
    incarnation[..2].copy_from_slice(&name.to_le_bytes());
    Hello { incarnation: Incarnation(incarnation), ..hello(7, 1, purpose) }
}

/// Connects by the Unix socket as a client object; `None` when the server closes the connection.
fn connect(server: &Server, name: u16, purpose: Purpose) -> Option<Raw> {
    let mut raw = Raw::unix(server);
    let challenge = raw.challenge_or_end()?;
    raw.greet(&challenge, &hello_of(name, purpose), &Secret::none()).unwrap();
    Some(raw)
}

/// How many processes the server watches.
fn watched_count(server: &Server) -> usize {
    let files = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let links = files.map(|file| fs::read_link(file.unwrap().path()).unwrap_or_default());
    links.filter(|link| link.to_string_lossy().contains("pidfd")).count()
}

/// A process is watched by one descriptor, however many client objects it has, and by none once
/// those that are left can hold nothing.
#[test]
fn a_process_costs_one_descriptor() {
    let server = Server::start(&[]);
    let attached: Vec<_> =
        (0..100).map(|name| connect(&server, name, Purpose::Attach).unwrap()).collect();
    assert_eq!(watched_count(&server), 1);
    drop(attached);
    poll(|| (watched_count(&server) == 0).then_some(())).expect("nobody is watched");
    let open: Vec<_> =
        (0..100).map(|name| connect(&server, name, Purpose::Data).unwrap()).collect();
    assert_eq!(watched_count(&server), 1);
    drop(open);
    server.wait_for("alone", |stats| stats.connection_count == 1);
    assert_eq!(watched_count(&server), 1, "they may have held something");
}

/// Out of descriptors, the server says so once, lets nobody in whom it cannot watch, and serves
/// again when there are some.
#[test]
fn without_descriptors_it_waits_and_says_so_once() {
    let server = Server::start_with(TempDir::new().unwrap(), "127.0.0.1:0", &[], |command| {
        // SAFETY: setrlimit is async-signal-safe and touches no memory of this process.
        unsafe {
            command.pre_exec(move || Ok(setrlimit(Resource::RLIMIT_NOFILE, 48, 48)?));
        }
    });
    let mut open = Vec::new();
    while let Some(raw) = connect(&server, u16::try_from(open.len()).unwrap(), Purpose::Data) {
        open.push(raw);
    }
    assert!(open.len() > 8, "{}", open.len());
    for name in 100..110 {
        assert!(connect(&server, name, Purpose::Data).is_none());
    }
    drop(open);
    poll(|| server.client().ping(0, CALL).ok()).expect("it serves again");
    server.wait_closed("no_descriptor", 11);
    let log = server.log();
    assert_eq!(log.matches("no descriptor is left").count(), 1, "{log}");
}
