//! The demo as its user sees it: results, broken traces, and ends that leave nothing behind.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{SHARDD, command, poll, run};

/// Flags of a demo that is still at work whenever a test looks.
const LONG: [&str; 4] = ["--requests", "20000", "--object-bytes", "64K"];

/// Runs a demo that must succeed, and returns its JSON.
fn report(flags: &[&str]) -> Value {
    let all: Vec<&str> = ["demo", "--json"].iter().chain(flags).copied().collect();
    let (code, out, err) = run(&all);
    assert_eq!(code, Some(0), "{flags:?}: {out}{err}");
    assert_eq!(err, "", "{flags:?}: nothing but the object is printed");
    serde_json::from_str(&out).unwrap()
}

/// A demo at work, in a folder of its own for everything temporary.
struct Demo {
    process: Child,
    folder: TempDir,
}

impl Demo {
    /// Starts it.
    fn spawn(folder: TempDir, flags: &[&str]) -> Self {
        let mut command = command(SHARDD);
        command.args(["demo", "--json"]).args(flags).env("TMPDIR", folder.path());
        let process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Self { process, folder }
    }

    /// Starts it and waits until the server holds objects of its workers.
    fn start(flags: &[&str]) -> Self {
        let demo = Self::spawn(TempDir::new().unwrap(), flags);
        poll(|| (demo.workers().len() == 2).then_some(())).expect("the workers start");
        demo
    }

    fn children(&self) -> Vec<(u32, String)> {
        let id = self.process.id();
        let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        let ids = listed.unwrap_or_default();
        let ids = ids.split_whitespace().map(|id| id.parse::<u32>().unwrap());
        let line = |id| fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        ids.map(|id| (id, line(id))).collect()
    }

    fn child(&self, command: &str) -> Vec<u32> {
        // The command is the second word; a process that is about to become it has another.
        let is_it = |line: &str| line.split('\0').nth(1) == Some(command);
        let children = self.children().into_iter();
        children.filter(|(_, line)| is_it(line)).map(|(id, _)| id).collect()
    }

    fn workers(&self) -> Vec<u32> {
        self.child("demo-worker")
    }

    fn server(&self) -> u32 {
        self.child("serve")[0]
    }

    /// Signals the demo or one of its processes.
    fn signal(id: u32, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(id).unwrap()), signal).unwrap();
    }

    /// Waits for its end, and returns its exit code, output and errors.
    fn end(mut self) -> (Option<i32>, String, String) {
        let children = self.children();
        let status = poll(|| self.process.try_wait().unwrap()).expect("the demo ends");
        let (mut out, mut err) = (String::new(), String::new());
        self.process.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let left = fs::read_dir(self.folder.path()).unwrap().count();
        assert_eq!(left, 0, "files are left: {err}");
        for (id, line) in children {
            wait_gone(id, &line);
        }
        (status.code(), out, err)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // Its processes die with it.
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn wait_gone(id: u32, line: &str) {
    let is_gone = || (!Path::new(&format!("/proc/{id}/stat")).exists()).then_some(());
    poll(is_gone).unwrap_or_else(|| panic!("process {id} is left: {line}"));
}

fn number(report: &Value, field: &str) -> f64 {
    report[field].as_f64().unwrap_or_else(|| panic!("no number {field} in {report}"))
}

#[test]
fn one_shard_and_worker_hit_like_an_ideal_lru() {
    let small = ["--requests", "300", "--object-bytes", "4K", "--capacity-blocks", "700"];
    for io in ["uring", "epoll"] {
        let flags = ["--shards", "1", "--workers", "1", "--io", io];
        let report = report(&[&small[..], &flags[..]].concat());
        assert!(number(&report, "hit_ratio") > 0.3, "{report}");
        assert_eq!(report["hit_ratio"], report["ideal_lru_hit_ratio"]);
        assert_eq!(report["hits"], report["server"]["lookup_hits"]);
        assert_eq!(report["hits"], report["server"]["exists_hits"]);
        assert_eq!(report["stored"], report["server"]["created"]);
        assert!(number(&report, "evictions") > 100.0, "{report}");
        assert_eq!(report["server"]["io"], io);
    }
}

#[test]
fn shards_and_workers_work_together() {
    let flags = ["--requests", "200", "--shards", "3", "--workers", "3", "--capacity", "4M"];
    // Objects that fill no page, and more bytes in a prompt than the pool has.
    let report = report(&[&flags[..], &["--object-bytes", "5000"]].concat());
    assert_eq!(
        (report["wrong_bytes"].as_u64(), report["books_balanced"].as_bool()),
        (Some(0), Some(true))
    );
    assert_eq!(report["requests"], 200);
    for call in ["lookup_us", "store_us", "load_us"] {
        assert!(report[call]["p999"].as_f64().unwrap() > 0.0, "{call}: {report}");
    }
}

#[test]
fn the_table_names_what_matters() {
    let (code, out, err) = run(&["demo", "--requests", "20", "--capacity", "4M"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    for word in ["hit ratio", "ideal LRU", "keys/s", "GB/s", "p99.9", "wrong bytes", "books"] {
        assert!(out.contains(word), "{word} in\n{out}");
    }
}

#[test]
fn a_trace_is_replayed_whole() {
    let folder = TempDir::new().unwrap();
    let path = trace(&folder, &[&[1, 2, 3], &[1, 2, 4], &[], &[1, 2, 3]]);
    let flags = ["--trace", path.to_str().unwrap(), "--workers", "1", "--object-bytes", "4K"];
    let report = report(&flags);
    assert_eq!((report["requests"].as_u64(), report["blocks"].as_u64()), (Some(4), Some(9)));
    assert_eq!(report["hits"].as_u64(), Some(5));
}

// Bad input: a trace file with a broken line is named by its number.
#[test]
fn a_broken_trace_starts_nothing() {
    let folder = TempDir::new().unwrap();
    let path = trace(&folder, &[&[1, 2, 3]]);
    let text = fs::read_to_string(&path).unwrap();
    let missing = folder.path().join("none.jsonl");
    let cases = [
        (text.clone() + "{\"timestamp\": 1}\n", "line 2"),
        (text + "hello\n", "line 2"),
        (String::new(), "no blocks"),
    ];
    for (text, reason) in cases {
        fs::write(&path, text).unwrap();
        let (code, out, err) = run(&["demo", "--trace", path.to_str().unwrap()]);
        assert_eq!((code, out.as_str()), (Some(1), ""));
        assert!(err.contains(reason) && err.lines().count() == 1, "{reason}: {err}");
    }
    let (code, _, err) = run(&["demo", "--trace", missing.to_str().unwrap()]);
    assert!(code == Some(1) && err.contains("none.jsonl"), "{err}");
}

#[test]
fn pools_that_cannot_be_are_refused() {
    for (flags, reason) in [
        (&["--capacity", "1M", "--object-bytes", "1M"][..], "each needs at least 16"),
        (&["--object-bytes", "0"], "--object-bytes"),
        (&["--capacity-blocks", "4000000000", "--object-bytes", "16G"], "2^64"),
        (&["--capacity-blocks", "5", "--capacity", "1M"], "cannot be used with"),
        (&["--workers", "0"], "--workers"),
        (&["--capacity", "much"], "--capacity"),
    ] {
        let all: Vec<&str> = ["demo"].iter().chain(flags).copied().collect();
        let (code, _, err) = run(&all);
        assert_ne!(code, Some(0), "{flags:?}");
        assert!(err.contains(reason), "{flags:?}: {err}");
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        let demo = Demo::start(&LONG);
        Demo::signal(demo.process.id(), signal);
        let (code, out, err) = demo.end();
        assert_eq!((code, out.as_str()), (Some(128 + signal as i32), ""));
        assert!(err.contains(signal.as_str()), "{err}");
    }
}

/// A workload may take minutes to read, or be a pipe that says nothing: signals end that, too.
#[test]
fn a_signal_ends_it_before_anything_has_started() {
    let folder = TempDir::new().unwrap();
    let silent = folder.path().join("pipe");
    nix::unistd::mkfifo(&silent, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let endless = ["--requests", "1000000000"];
    let silent = ["--trace", silent.to_str().unwrap()];
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        for flags in [endless, silent] {
            let demo = Demo::spawn(TempDir::new().unwrap(), &flags);
            poll(|| blocks_signals(demo.process.id()).then_some(())).expect("it takes signals");
            Demo::signal(demo.process.id(), signal);
            let (code, out, err) = demo.end();
            assert_eq!((code, out.as_str()), (Some(128 + signal as i32), ""), "{flags:?}");
            assert!(err.contains(signal.as_str()), "{err}");
        }
    }
}

/// Whether the process has signals blocked, which it reads instead.
fn blocks_signals(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
    u64::from_str_radix(blocked.trim(), 16).unwrap() != 0
}

/// A demo killed with no chance to tidy up: its processes die, and the next demo removes its folder.
#[test]
fn a_killed_demo_leaves_nothing_for_long() {
    let mut demo = Demo::start(&LONG);
    let children = demo.children();
    assert_eq!(children.len(), 3, "{children:?}");
    let folder = std::mem::replace(&mut demo.folder, TempDir::new().unwrap());
    drop(demo);
    for (id, line) in children {
        wait_gone(id, &line);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let demo = Demo::spawn(folder, &["--requests", "20", "--capacity", "4M"]);
    let (code, _, err) = demo.end();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_lost_process_is_named_with_its_last_words() {
    let demo = Demo::start(&LONG);
    Demo::signal(demo.server(), Signal::SIGKILL);
    let (code, _, err) = demo.end();
    assert!(code == Some(1) && err.contains("the server ended early"), "{err}");
    assert!(err.contains("last lines"), "the server's log is shown: {err}");

    let demo = Demo::start(&LONG);
    Demo::signal(demo.workers()[0], Signal::SIGKILL);
    let (code, _, err) = demo.end();
    assert!(code == Some(1) && err.contains("worker 0 ended early"), "{err}");
}

/// The verification is worth something: bytes changed behind everybody's back are found.
#[test]
fn changed_bytes_are_wrong_bytes() {
    let demo = Demo::start(&["--requests", "600", "--capacity", "16M", "--object-bytes", "16K"]);
    let region = region_of(demo.server());
    let mut byte = [0];
    let is_written = || {
        region.read_exact_at(&mut byte, 3 << 20).unwrap();
        (byte != [0]).then_some(())
    };
    poll(is_written).expect("the workers store");
    region.write_all_at(&vec![0; 16 << 20], 0).unwrap();
    let (code, out, _) = demo.end();
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert!(number(&report, "wrong_bytes") > 0.0, "{report}");
    assert_eq!(report["books_balanced"], true, "{report}");
}

/// Opens the pool's memory through the server's own descriptor.
fn region_of(server: u32) -> File {
    let files = fs::read_dir(format!("/proc/{server}/fd")).unwrap();
    let is_region = |path: &PathBuf| {
        let link = fs::read_link(path).unwrap_or_default();
        link.to_string_lossy().starts_with("/memfd:")
            && fs::metadata(path).is_ok_and(|file| file.len() == 16 << 20)
    };
    let path = files.map(|file| file.unwrap().path()).find(is_region).expect("a region");
    File::options().read(true).write(true).open(path).unwrap()
}

/// Writes a trace of these requests.
fn trace(folder: &TempDir, requests: &[&[u64]]) -> PathBuf {
    let line = |blocks: &&[u64]| {
        format!(
            "{{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 9, \"hash_ids\": {blocks:?}}}\n"
        )
    };
    let path = folder.path().join("trace.jsonl");
    fs::write(&path, requests.iter().map(line).collect::<String>()).unwrap();
    path
}
