//! A server process in a folder of its own, clients of it, and waiting without sleeping blindly.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use maru_client::{Client, ClientConfig, IoMode, ServerAddress, StatsReply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// The server under test.
pub(crate) const SHARDD: &str = env!("CARGO_BIN_EXE_maru-shardd");
/// How long anything may take before a test gives up. No test measures time by it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Deadline of ordinary calls.
pub(crate) const CALL: Duration = Duration::from_secs(10);
/// A transfer timeout that servers with short TTLs accept.
pub(crate) const TRANSFER: Duration = Duration::from_millis(200);
/// Namespace of the tests' keys.
pub(crate) const NAMESPACE: &str = "test";

/// A server process. Dropping it kills it.
pub(crate) struct Server {
    process: Child,
    pub(crate) socket: PathBuf,
    pub(crate) tcp: SocketAddr,
    log: PathBuf,
    // Dropped last.
    pub(crate) folder: TempDir,
}

impl Server {
    /// Starts a server with these flags beside its addresses, and waits until it is ready.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_in(TempDir::new().unwrap(), "127.0.0.1:0", flags)
    }

    /// Starts a server in the folder of an earlier one.
    pub(crate) fn start_in(folder: TempDir, tcp: &str, flags: &[&str]) -> Self {
        Self::start_with(folder, tcp, flags, |_| {})
    }

    /// Starts a server with a command that the test completes.
    pub(crate) fn start_with(
        folder: TempDir,
        tcp: &str,
        flags: &[&str],
        complete: impl FnOnce(&mut Command),
    ) -> Self {
        let started = Self::try_start_with(folder, tcp, flags, complete);
        started.unwrap_or_else(|(_, log)| panic!("no server started:\n{log}"))
    }

    /// Starts a server; gives the folder back, and what the server said, when it ends at once.
    pub(crate) fn try_start_with(
        folder: TempDir,
        tcp: &str,
        flags: &[&str],
        complete: impl FnOnce(&mut Command),
    ) -> Result<Self, (TempDir, String)> {
        let socket = folder.path().join("pool.sock");
        let log = folder.path().join("log");
        let mut command = command(SHARDD);
        command.args(serve_flags(&socket, tcp, flags));
        command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        complete(&mut command);
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some(tcp) = line.split_whitespace().find_map(|word| word.strip_prefix("tcp=")) else {
            process.wait().unwrap();
            return Err((folder, std::fs::read_to_string(&log).unwrap()));
        };
        let tcp = tcp.parse().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        Ok(Self { process, socket, tcp, log, folder })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// A client over the Unix socket.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.client_config()).unwrap()
    }

    /// What `client` is made from.
    pub(crate) fn client_config(&self) -> ClientConfig {
        config(&self.socket)
    }

    /// The books of every shard, and their sum's most used parts.
    pub(crate) fn stats(&self) -> Vec<StatsReply> {
        self.client().stats(CALL).unwrap()
    }

    /// Waits until the books of the only shard satisfy `is_met`.
    pub(crate) fn wait_for(&self, what: &str, is_met: impl Fn(&StatsReply) -> bool) -> StatsReply {
        let watcher = self.client();
        let mut last = None;
        let met = poll(|| {
            let stats = watcher.stats(CALL).unwrap().remove(0);
            let is_met = is_met(&stats);
            last = Some(stats.clone());
            is_met.then_some(stats)
        });
        met.unwrap_or_else(|| panic!("never {what}: {last:#?}\n{}", self.log()))
    }

    /// Waits until this many connections were closed for `reason`.
    pub(crate) fn wait_closed(&self, reason: &str, count: u64) {
        self.wait_for(&format!("{count} closed for {reason}"), |stats| {
            closed(stats, reason) >= count
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Ends the server in order and returns its folder for the next one.
    pub(crate) fn stop(mut self) -> TempDir {
        self.signal(Signal::SIGTERM);
        let status = self.wait();
        assert!(status.success(), "{status}:\n{}", self.log());
        self.take_folder()
    }

    /// Kills the server and returns its folder for the next one.
    pub(crate) fn kill(mut self) -> TempDir {
        self.process.kill().unwrap();
        self.wait();
        self.take_folder()
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        poll(|| self.process.try_wait().unwrap()).expect("the server ends")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn take_folder(mut self) -> TempDir {
        std::mem::replace(&mut self.folder, TempDir::new().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when it has ended already.
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}

/// The flags of a small server: 1 shard, 16 MiB of 4 KiB pages, unless `flags` say otherwise.
pub(crate) fn serve_flags(socket: &Path, tcp: &str, flags: &[&str]) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["serve".into(), "--unix".into(), socket.into()];
    let defaults = [
        ("--tcp", tcp),
        ("--shards", "1"),
        ("--pool-bytes", "16M"),
        ("--page-bytes", "4K"),
        ("--ready-fd", "1"),
    ];
    for (flag, value) in defaults {
        if !flags.contains(&flag) {
            all.extend([flag.into(), value.into()]);
        }
    }
    all.extend(flags.iter().map(OsString::from));
    all
}

/// What a client of the server at `socket` is made from.
pub(crate) fn config(socket: &Path) -> ClientConfig {
    let mut config = ClientConfig::new(ServerAddress::Unix(socket.to_owned()), NAMESPACE);
    config.control_timeout = CALL;
    config.retry_period = Duration::from_millis(5);
    config.object_bytes_max = 64 << 10;
    config.transfer_timeout = TRANSFER;
    config.io = IoMode::Auto;
    config
}

/// A command whose process dies with this one.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).env_remove("RUST_LOG").env_remove("XDG_RUNTIME_DIR");
    // SAFETY: prctl is async-signal-safe and touches no memory of this process.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?));
    }
    command
}

/// Runs the server's binary to its end and returns its exit code and standard error.
pub(crate) fn run(arguments: &[impl AsRef<std::ffi::OsStr>]) -> (Option<i32>, String, String) {
    let mut command = command(SHARDD);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let status = poll(|| child.try_wait().unwrap());
    if status.is_none() {
        child.kill().unwrap();
    }
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (status.expect("the command ends").code(), out, err)
}

/// Asks again and again until there is an answer, at most `LIMIT`.
pub(crate) fn poll<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How many connections were closed for `reason`.
pub(crate) fn closed(stats: &StatsReply, reason: &str) -> u64 {
    stats.closed.iter().filter(|closed| closed.reason == reason).map(|closed| closed.count).sum()
}

/// Whether the parts add up to all pages.
pub(crate) fn is_balanced(stats: &StatsReply) -> bool {
    let pages = &stats.pages;
    let held = pages.reserved + pages.overdue + pages.fenced;
    pages.free + held + pages.published + pages.cleared + pages.unlinked == pages.total
}

/// Bytes that name their key: any mix of two chunks shows.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

/// The resident memory of a process, in bytes.
pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().unwrap();
    kib * 1024
}
