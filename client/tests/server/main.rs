//! The client against a small real server, on io_uring and on epoll.

mod calls;
mod mini;
mod staging;
mod trouble;

use std::time::{Duration, Instant};

use maru_client::{Client, ClientConfig, IoMode, ServerAddress};
use mini::{MiniConfig, MiniServer};
use tempfile::TempDir;

/// Long enough for a loaded machine; no test waits for it.
const LONG: Duration = Duration::from_secs(20);

/// A server and a client of it, in a folder of their own.
struct Pair {
    client: Client,
    server: MiniServer,
    config: MiniConfig,
    _folder: TempDir,
}

impl Pair {
    fn new(io: IoMode) -> Self {
        Self::with(io, |_| {}, |_| {})
    }

    fn with(
        io: IoMode,
        change_server: impl FnOnce(&mut MiniConfig),
        change_client: impl FnOnce(&mut ClientConfig),
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("maru.sock");
        let mut config = MiniConfig::new(&path, io);
        change_server(&mut config);
        let server = MiniServer::start(config.clone());
        let mut client = ClientConfig::new(ServerAddress::Unix(path), "test");
        client.io = io;
        change_client(&mut client);
        let client = Client::new(client).expect("a client");
        Self { client, server, config, _folder: folder }
    }
}

/// Runs a test on both ways of doing I/O.
fn both(test: impl Fn(IoMode)) {
    test(IoMode::Uring);
    test(IoMode::Epoll);
}

/// Waits for what another thread does.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::yield_now();
    }
}
