//! What the system allows a process: locked memory, and a memory cgroup. These need root.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use maru_client::Match;
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::harness::{CALL, SHARDD, Server, command, config, pattern, poll, serve_flags};
use crate::requests::{load_one, store_one};

/// Says why a test is skipped; in CI nothing may be missing.
fn skip(why: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{why}");
    eprintln!("skipped: {why}");
}

/// Without locked memory, as an ordinary user, the server serves; if it must do without io_uring,
/// it says so once.
#[test]
fn no_locked_memory_is_no_obstacle() {
    if !geteuid().is_root() {
        return skip("becoming another user needs root");
    }
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let socket = folder.path().join("pool.sock");
    let log = folder.path().join("log");
    let mut server = command(SHARDD);
    server.args(serve_flags(&socket, "none", &[])).stdout(Stdio::null());
    server.stderr(File::create(&log).unwrap()).uid(65_534).gid(65_534);
    // SAFETY: setrlimit is async-signal-safe and touches no memory of this process.
    unsafe {
        server.pre_exec(|| Ok(setrlimit(Resource::RLIMIT_MEMLOCK, 0, 0)?));
    }
    let mut server = server.spawn().unwrap();
    let client = maru_client::Client::new(config(&socket)).unwrap();
    let stats = poll(|| client.stats(CALL).ok()).expect("it serves").remove(0);
    let said = fs::read_to_string(&log).unwrap();
    let fell_back = said.contains("so the shards use epoll");
    assert_eq!(stats.io == "epoll", fell_back, "{said}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A memory cgroup, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one of at most `bytes`; `None` where that is not possible.
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("maru-test-{}", std::process::id());
        for (root, limit) in
            [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
        {
            let path = PathBuf::from(root).join(&name);
            if !PathBuf::from(root).join("cgroup.procs").exists() || fs::create_dir(&path).is_err()
            {
                continue;
            }
            let cgroup = Self(path);
            if fs::write(cgroup.0.join(limit), bytes.to_string()).is_ok() {
                return Some(cgroup);
            }
        }
        None
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Empty once its processes are gone.
        poll(|| fs::remove_dir(&self.0).ok()).unwrap_or_default();
    }
}

/// A pool of 80 % of a memory cgroup is started again in it after a kill, at the first attempt: the
/// server waits until the client, which lives on, has dropped its map of the old one.
#[test]
fn a_large_pool_starts_again_beside_its_client() {
    let Some(cgroup) = Cgroup::new(256 << 20) else {
        return skip("making a memory cgroup needs root and a writable /sys/fs/cgroup");
    };
    let procs = cgroup.0.join("cgroup.procs");
    let start = |folder| {
        let flags = ["--pool-bytes", "204M", "--page-bytes", "64K"];
        let procs = procs.clone();
        Server::start_with(folder, "none", &flags, |command| {
            // SAFETY: it opens and writes a file; the child of one thread needs no lock that
            // another thread of the test holds.
            unsafe {
                command.pre_exec(move || fs::write(&procs, "0"));
            }
        })
    };
    let mut server = start(TempDir::new().unwrap());
    let mut settings = server.client_config();
    settings.control_timeout = Duration::from_millis(200);
    let client = maru_client::Client::new(settings).unwrap();
    let bytes = pattern(1, 60_000);
    for round in 0..3u8 {
        let key = client.key(&[round]);
        assert!(store_one(&client, key, &bytes).is_stored());
        assert_eq!(load_one(&client, key).as_ref(), Some(&bytes));
        server = start(server.kill());
        poll(|| client.exists(&[key], Match::All, CALL).ok()).expect("the client works again");
    }
}
