//! The server under test: started here, or somebody else's; and what its statistics say.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use maru_uring::IoMode;
use maru_wire::{Purpose, Reply, RequestBody, Secret};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::dial::{Address, Dialled, NAMESPACE, OBJECT_BYTES};
use crate::echo::Transport;
use crate::machine::{anonymous_bytes, process_cpu_s};

/// How long a server may take to start, beside the time to populate its pool.
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// Which server to measure.
#[derive(Args, Debug, Clone)]
pub(crate) struct ServerArgs {
    /// The server binary to start [default: maru-shardd beside this program]
    #[arg(long, value_name = "PATH")]
    pub(crate) server: Option<PathBuf>,
    /// How server and load talk to the kernel
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) io: IoChoice,
    /// Over what the control messages travel
    #[arg(long, value_name = "KIND", default_value = "tcp")]
    pub(crate) transport: Transport,
}

/// How to talk to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum IoChoice {
    Auto,
    Uring,
    Epoll,
}

impl IoChoice {
    /// Returns the reactor's word for this choice.
    pub(crate) fn io_mode(self) -> IoMode {
        match self {
            Self::Auto => IoMode::Auto,
            Self::Uring => IoMode::Uring,
            Self::Epoll => IoMode::Epoll,
        }
    }

    /// Returns the name used in flags and results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// A server that was started here. Dropping it ends it.
pub(crate) struct Spawned {
    process: Child,
    folder: TempDir,
    address: Address,
}

impl Spawned {
    /// Starts a server with room for `page_count` objects and waits until it answers.
    pub(crate) fn start(args: &ServerArgs, shards: u32, page_count: u64) -> anyhow::Result<Self> {
        let binary = binary(args)?;
        let folder = tempfile::Builder::new().prefix("maru-bench-").tempdir()?;
        let socket = folder.path().join("server.sock");
        let tcp = free_port()?;
        let log = File::create(folder.path().join("log"))?;
        let mut command = Command::new(&binary);
        command.args(["serve", "--tcp", &tcp, "--unix"]).arg(&socket);
        command.args(["--pool-bytes", &(page_count * OBJECT_BYTES).to_string()]);
        command.args(["--page-bytes", &OBJECT_BYTES.to_string()]);
        command.args(["--shards", &shards.to_string(), "--io", args.io.name()]);
        command.args(["--namespace", NAMESPACE]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process =
            command.spawn().with_context(|| format!("cannot start {}", binary.display()))?;
        let address = match args.transport {
            Transport::Tcp => Address::Tcp(tcp),
            Transport::Unix => Address::Unix(socket),
        };
        let mut server = Self { process, folder, address };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Returns where it listens.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the CPU time of the whole process so far, in seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        process_cpu_s(self.process.id())
    }

    /// Returns the memory of the process that is no shared memory, in bytes.
    pub(crate) fn anonymous_bytes(&self) -> u64 {
        anonymous_bytes(self.process.id())
    }

    fn wait_until_it_answers(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!("the server ended ({status}):\n{}", self.log());
            }
            match Dialled::connect(&self.address, &Secret::none(), Purpose::Monitor, 0) {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    return Err(error.context(format!("no server came up:\n{}", self.log())));
                }
                Err(_) => std::thread::sleep(POLL),
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if let Ok(id) = i32::try_from(self.process.id()) {
            // A process that is not there any more needs no signal.
            kill(Pid::from_raw(id), Signal::SIGTERM).unwrap_or_default();
        }
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.process.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                self.process.kill().unwrap_or_default();
                self.process.wait().map(drop).unwrap_or_default();
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

fn binary(args: &ServerArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.server {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let beside = own.with_file_name("maru-shardd");
    if !Path::exists(&beside) {
        bail!("no {}: build maru-shardd, or name it with --server", beside.display());
    }
    Ok(beside)
}

/// Finds a port that nobody uses at this moment.
fn free_port() -> anyhow::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// How many connections were closed for each reason.
pub(crate) type Closed = BTreeMap<String, u64>;

/// What a shard's statistics say, as far as the benchmarks need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardStats {
    pub(crate) core: i32,
    pub(crate) cpu_us: u64,
    pub(crate) frames: u64,
    pub(crate) scratch_frames: u64,
    pub(crate) evicted: u64,
    pub(crate) key_count: u64,
}

/// Connections that only watch, one per shard.
pub(crate) struct Monitor {
    shards: Vec<Dialled>,
}

impl Monitor {
    /// Connects to every shard of the server at `address`.
    pub(crate) fn connect(address: &Address, secret: &Secret) -> anyhow::Result<Self> {
        let first = Dialled::connect(address, secret, Purpose::Monitor, 0)?;
        let count = first.hello().shard_count;
        let mut shards = vec![first];
        for shard in 1..count {
            shards.push(Dialled::connect(address, secret, Purpose::Monitor, shard)?);
        }
        Ok(Self { shards })
    }

    /// Returns how many shards the server has.
    pub(crate) fn shard_count(&self) -> u32 {
        self.shards[0].hello().shard_count
    }

    /// Reads the statistics of every shard.
    pub(crate) fn stats(&mut self) -> anyhow::Result<Vec<ShardStats>> {
        let stats = self.shards.iter_mut().map(|shard| {
            let stats = shard.ask(&RequestBody::Stats, |reply| match reply {
                Reply::Stats(stats) => Some(ShardStats {
                    core: stats.core.to_native(),
                    cpu_us: stats.cpu_us.to_native(),
                    frames: stats.frame_total.to_native(),
                    scratch_frames: stats.scratch_frame_total.to_native(),
                    evicted: stats.evicted_total.to_native(),
                    key_count: stats.key_count.to_native(),
                }),
                _ => None,
            })?;
            stats.context("the server answered a Stats with something else")
        });
        stats.collect()
    }

    /// Reads of the first shard, which speaks for the acceptor, why connections were closed.
    pub(crate) fn closed(&mut self) -> anyhow::Result<Closed> {
        let closed = self.shards[0].ask(&RequestBody::Stats, |reply| match reply {
            Reply::Stats(stats) => Some(
                stats
                    .closed
                    .iter()
                    .map(|closed| (closed.reason.to_string(), closed.count.to_native()))
                    .collect(),
            ),
            _ => None,
        })?;
        closed.context("the server answered a Stats with something else")
    }

    /// Reads the statistics summed over all shards; the core is the first shard's.
    pub(crate) fn total(&mut self) -> anyhow::Result<ShardStats> {
        let stats = self.stats()?;
        let first = *stats.first().context("a server without shards")?;
        Ok(stats[1..].iter().fold(first, |sum, shard| ShardStats {
            core: sum.core,
            cpu_us: sum.cpu_us + shard.cpu_us,
            frames: sum.frames + shard.frames,
            scratch_frames: sum.scratch_frames + shard.scratch_frames,
            evicted: sum.evicted + shard.evicted,
            key_count: sum.key_count + shard.key_count,
        }))
    }
}
