//! Processes that use a pool: this test binary, started again with a task in its environment.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use maru_client::{Client, Match, RemoveItem, Reservation};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{CALL, command, config, pattern};
use crate::requests::{is_present, load_one, reserve, store_one};

const TASK: &str = "MARU_TEST_TASK";
const SOCKET: &str = "MARU_TEST_SOCKET";
const SEED: &str = "MARU_TEST_SEED";

/// Size of the workers' chunks: 16 pages of 4 KiB, the last one not full.
pub(crate) const OBJECT_BYTES: usize = 64 * 1024 - 5;

/// The chunk that ends a busy worker.
pub(crate) const ENOUGH: &[u8] = b"enough";

/// Where a worker stops and waits for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Pages are granted, nothing is written.
    Reserved,
    /// Writes the first half again and again.
    Copying,
    /// All is written, nothing is published.
    Copied,
    /// The publish leaves in this moment.
    Publishing,
    /// The chunk `kept` is pinned.
    Leased,
    /// As `Copying`, with a child made by a raw fork, which does nothing.
    Forked,
    /// As `Copying`, with every socket shut down in the middle of it.
    Severed,
    /// Stores, loads and removes chunks until `ENOUGH` is there, and panics on an error.
    Busy,
    /// Stores a chunk, loads it, and ends.
    Once,
}

const TASKS: [Task; 9] = [
    Task::Reserved,
    Task::Copying,
    Task::Copied,
    Task::Publishing,
    Task::Leased,
    Task::Forked,
    Task::Severed,
    Task::Busy,
    Task::Once,
];

/// A worker process. Dropping it kills it.
pub(crate) struct Worker {
    pub(crate) process: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker whose chunk is named and filled by `seed`.
    pub(crate) fn start(socket: &Path, task: Task, seed: u64) -> Self {
        Self::start_with(socket, task, seed, |_| {})
    }

    /// Starts a worker with a command that the test completes.
    pub(crate) fn start_with(
        socket: &Path,
        task: Task,
        seed: u64,
        complete: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = command(std::env::current_exe().unwrap());
        command.args(["--exact", "worker::entry", "--nocapture", "--test-threads=1"]);
        command.env(TASK, format!("{task:?}")).env(SOCKET, socket).env(SEED, seed.to_string());
        command.stdout(Stdio::piped());
        complete(&mut command);
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Waits until the worker says that it is there.
    pub(crate) fn wait_until_there(&mut self) -> String {
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the worker ended before it was there");
            // The test runner may have begun the line.
            if let Some((_, word)) = line.split_once("@there") {
                return word.trim().to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    /// Kills the worker and waits for its end.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails when it has ended already.
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

/// The name of a worker's chunk.
pub(crate) fn user_key(seed: u64) -> [u8; 8] {
    seed.to_le_bytes()
}

/// What a worker does. As an ordinary test it does nothing.
#[test]
fn entry() {
    let Ok(task) = std::env::var(TASK) else { return };
    let task = TASKS.into_iter().find(|known| format!("{known:?}") == task).unwrap();
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    let seed: u64 = std::env::var(SEED).unwrap().parse().unwrap();
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let client = Client::new(config(&socket)).unwrap();
    work(&client, task, seed);
}

fn work(client: &Client, task: Task, seed: u64) {
    let key = client.key(&user_key(seed));
    let bytes = pattern(seed, OBJECT_BYTES);
    match task {
        Task::Reserved => {
            let _attachment = client.attachment(CALL).unwrap();
            let _reservation = reserve(client, key, OBJECT_BYTES as u64);
            there("");
            rest();
        }
        Task::Copying => {
            let reservation = reserve(client, key, OBJECT_BYTES as u64);
            copy_for_ever(client, &reservation, &bytes);
        }
        Task::Copied | Task::Publishing => {
            let reservation = reserve(client, key, OBJECT_BYTES as u64);
            client.attachment(CALL).unwrap().write(&reservation, 0, &bytes).unwrap();
            there("");
            if task == Task::Publishing {
                let mut reservations = [reservation];
                client.publish(&mut reservations, CALL).unwrap();
                rest();
            }
            rest();
        }
        Task::Leased => {
            let _attachment = client.attachment(CALL).unwrap();
            let kept = client.key(b"kept");
            let pinned = client.lookup(&[kept], Match::All, CALL).unwrap();
            assert_eq!(pinned.leading_count(), 1);
            there("");
            rest();
        }
        Task::Forked => {
            let reservation = reserve(client, key, OBJECT_BYTES as u64);
            let _attachment = client.attachment(CALL).unwrap();
            fork_idle_child();
            copy_for_ever(client, &reservation, &bytes);
        }
        Task::Severed => {
            let reservation = reserve(client, key, OBJECT_BYTES as u64);
            let attachment = client.attachment(CALL).unwrap();
            attachment.write(&reservation, 0, &bytes[..100]).unwrap();
            shut_down_sockets();
            there("");
            // Until the client has seen that its server seems lost, and dropped the map.
            while attachment.write(&reservation, 0, &bytes).is_ok() {}
            rest();
        }
        Task::Busy => {
            there("");
            let enough = client.key(ENOUGH);
            for round in 0.. {
                if round > 0 && is_present(client, enough) {
                    break;
                }
                let key = client.key(&user_key((seed << 32) | (round % 32)));
                assert!(store_one(client, key, &pattern(seed, OBJECT_BYTES)).is_stored());
                assert_eq!(load_one(client, key), Some(pattern(seed, OBJECT_BYTES)));
                if round % 3 == 0 {
                    client.remove(&[RemoveItem { key, ticket: Default::default() }], CALL).unwrap();
                }
            }
        }
        Task::Once => {
            assert!(store_one(client, key, &bytes).is_stored());
            assert_eq!(load_one(client, key), Some(bytes));
            there("");
        }
    }
}

fn copy_for_ever(client: &Client, reservation: &Reservation, bytes: &[u8]) -> ! {
    let attachment = client.attachment(CALL).unwrap();
    let half = &bytes[..bytes.len() / 2];
    attachment.write(reservation, 0, half).unwrap();
    there("");
    loop {
        attachment.write(reservation, 0, half).unwrap();
    }
}

/// Makes a child that holds this process's descriptors.
fn fork_idle_child() {
    // SAFETY: the child calls nothing but async-signal-safe functions.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork works");
    if child == 0 {
        // Nobody waits for it when its test fails: it ends by itself.
        // SAFETY: alarm is async-signal-safe.
        unsafe { libc::alarm(60) };
        for descriptor in 0..3 {
            // SAFETY: close is async-signal-safe; nothing here writes to these any more.
            unsafe { libc::close(descriptor) };
        }
        loop {
            // SAFETY: pause is async-signal-safe.
            unsafe { libc::pause() };
        }
    }
}

/// Shuts every socket of this process down, under the feet of whoever uses it.
fn shut_down_sockets() {
    for descriptor in 3..256 {
        // SAFETY: shutdown closes no descriptor; on what is no socket it does nothing.
        unsafe { libc::shutdown(descriptor, libc::SHUT_RDWR) };
    }
}

fn there(word: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@there{word}").unwrap();
    out.flush().unwrap();
    assert!(out.as_raw_fd() == 1, "the parent listens there");
}

fn rest() -> ! {
    loop {
        std::thread::park();
    }
}
