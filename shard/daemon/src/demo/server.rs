//! The demo's server: the same binary, serving on a Unix socket in a folder of its own.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use maru_client::{Client, ClientConfig, ServerAddress};

use super::args::DemoArgs;
use super::child::{Child, Output};
use super::error::DemoError;
use super::folder::Folder;
use super::report::ServerSide;
use super::workload::NAMESPACE;

/// Least time to start in; a pool of many GiB takes longer to populate.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Rate at which a pool is populated at the very least, in bytes a second.
const POPULATE_BYTES_PER_S: u64 = 256 << 20;
/// How long one attempt to reach the server may take.
const CALL_DEADLINE: Duration = Duration::from_secs(2);
/// The same while it starts: a signal must not wait longer.
const START_CALL_DEADLINE: Duration = Duration::from_millis(200);
/// How long the books may take to settle after the last worker closed its connections.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// How long the server may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// The server's process, its folder, and a client that only watches.
pub(crate) struct Server {
    child: Child,
    client: Client,
    // Dropped last, so that the folder goes after the process.
    folder: Folder,
}

impl Server {
    /// Starts the server and waits until it answers; `at_end` is called when it ends.
    pub(crate) fn start(
        args: &DemoArgs,
        at_end: impl FnOnce() + Send + 'static,
        interrupted: &dyn Fn() -> Result<(), DemoError>,
    ) -> Result<Self, DemoError> {
        let folder = Folder::make()?;
        let page_bytes = args.page_bytes();
        let pool_bytes =
            args.capacity_blocks().checked_mul(page_bytes).ok_or(DemoError::PoolTooLarge)?;
        let socket = socket_path(folder.path());
        let child = Child::start(
            "the server".to_owned(),
            serve_flags(args, &socket, pool_bytes),
            Output::Log,
            at_end,
        )?;
        let mut config = ClientConfig::new(ServerAddress::Unix(socket), NAMESPACE);
        config.io = args.io.io_mode();
        config.retry_period = POLL;
        let client = Client::new(config)?;
        let mut server = Self { child, client, folder };
        let populate = Duration::from_secs(pool_bytes / POPULATE_BYTES_PER_S);
        server.wait_until_it_answers(START_LIMIT + populate, interrupted)?;
        Ok(server)
    }

    /// Returns the path of the server's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_path(self.folder.path())
    }

    /// Returns an error with the server's last lines when it has ended, or does within `limit`.
    pub(crate) fn check(&mut self, limit: Duration) -> Result<(), DemoError> {
        match self.child.wait(limit) {
            Some(status) => Err(self.child.failure(format!("ended early ({status})"))),
            None => Ok(()),
        }
    }

    /// Reads the statistics of a server without workers; imbalances get time to settle.
    pub(crate) fn books(&mut self) -> Result<ServerSide, DemoError> {
        let deadline = Instant::now() + SETTLE_LIMIT;
        loop {
            let books = ServerSide::of(&self.client.stats(CALL_DEADLINE)?);
            if books.imbalances.is_empty() || Instant::now() >= deadline {
                return Ok(books);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Ends the server in order.
    pub(crate) fn stop(mut self) -> Result<(), DemoError> {
        self.child.terminate();
        match self.child.wait(STOP_LIMIT) {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.child.failure(format!("ended badly ({status})"))),
            None => Err(self.child.failure(format!("did not end within {STOP_LIMIT:?}"))),
        }
    }

    fn wait_until_it_answers(
        &mut self,
        limit: Duration,
        interrupted: &dyn Fn() -> Result<(), DemoError>,
    ) -> Result<(), DemoError> {
        let deadline = Instant::now() + limit;
        loop {
            interrupted()?;
            self.check(Duration::ZERO)?;
            // Without the socket's file there is nobody to ask yet.
            if self.socket().exists() {
                match self.client.stats(START_CALL_DEADLINE) {
                    Ok(_) => return Ok(()),
                    Err(error) if Instant::now() >= deadline => return Err(error.into()),
                    Err(_) => {}
                }
            } else if Instant::now() >= deadline {
                return Err(self.child.failure(format!("opened no socket within {limit:?}")));
            }
            std::thread::sleep(POLL);
        }
    }
}

fn socket_path(folder: &Path) -> PathBuf {
    folder.join("server.sock")
}

fn serve_flags(args: &DemoArgs, socket: &Path, pool_bytes: u64) -> Vec<OsString> {
    let io = args.io.to_possible_value().expect("no choice is skipped");
    let mut flags: Vec<OsString> = ["serve", "--tcp", "none", "--unix"].map(Into::into).into();
    flags.push(socket.into());
    let values = [
        ("--pool-bytes", pool_bytes.to_string()),
        ("--page-bytes", args.page_bytes().to_string()),
        ("--shards", args.shards.to_string()),
        ("--io", io.get_name().to_owned()),
        ("--namespace", NAMESPACE.to_owned()),
    ];
    for (flag, value) in values {
        flags.extend([flag.into(), value.into()]);
    }
    flags
}
