//! What a result was measured on, and whether that machine can be trusted to measure.

use std::fs;
use std::process::Command;

use serde::Serialize;

/// Load of the machine before a run, in busy cores, above which its figures are not trusted.
const LOAD_MAX: f64 = 0.5;
/// Share of time taken by the hypervisor above which the figures are not trusted.
const STEAL_MAX: f64 = 0.01;
/// Share of time that other programs may take of the machine.
const OTHERS_MAX: f64 = 0.05;

/// The machine and the code of one result.
#[derive(Serialize, Clone, Debug)]
pub(crate) struct Machine {
    cpu: String,
    cores_allowed: Vec<u32>,
    memory_bytes: u64,
    kernel: String,
    hypervisor: bool,
    smt: Option<bool>,
    governor: Option<String>,
    commit: String,
    profile: &'static str,
}

impl Machine {
    /// Looks at this machine and at the repository in the working folder.
    pub(crate) fn look() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        Self {
            cpu: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores_allowed: maru_numa::allowed_cpus(),
            memory_bytes: memory_bytes(),
            kernel: first_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            hypervisor: field("flags").is_some_and(|flags| flags.contains(" hypervisor")),
            smt: first_line("/sys/devices/system/cpu/smt/active").map(|active| active == "1"),
            governor: first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            commit: commit(),
            profile: if cfg!(debug_assertions) { "debug" } else { "optimised" },
        }
    }

    /// Says what about the machine itself makes figures doubtful.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.profile == "debug" {
            warnings.push("this is a debug build: build with --release".to_owned());
        }
        if let Some(governor) = &self.governor
            && governor != "performance"
        {
            warnings.push(format!("the CPU governor is {governor}, not performance"));
        }
        if self.smt == Some(true) {
            warnings.push("SMT is on: two pinned threads may share one core".to_owned());
        }
        if self.hypervisor {
            warnings.push("a virtual machine: neighbours are not seen from here".to_owned());
        }
        if self.cores_allowed.len() < 2 {
            warnings.push("only one core: load and server take turns on it".to_owned());
        }
        warnings
    }
}

fn first_line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

fn memory_bytes() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    kib.unwrap_or(0_u64) * 1024
}

fn commit() -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_owned() };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    if changed.is_some_and(|files| !files.is_empty()) { commit + ", changed" } else { commit }
}

/// Watches, over a run, how much of the machine went to others.
pub(crate) struct Noise {
    load_before: f64,
    start: CpuTimes,
}

impl Noise {
    /// Starts to watch.
    pub(crate) fn start() -> Self {
        let load = first_line("/proc/loadavg")
            .and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0.0);
        Self { load_before: load, start: CpuTimes::read() }
    }

    /// Says what happened since that makes figures doubtful. `own_s` is the CPU time of the run.
    pub(crate) fn warnings(&self, own_s: f64) -> Vec<String> {
        let now = CpuTimes::read();
        let mut warnings = Vec::new();
        if self.load_before > LOAD_MAX {
            let load = self.load_before;
            warnings.push(format!("the machine was busy before the run (load {load:.2})"));
        }
        let total = (now.total_s - self.start.total_s).max(1e-9);
        let steal = (now.steal_s - self.start.steal_s) / total;
        if steal > STEAL_MAX {
            warnings.push(format!("the hypervisor took {:.1} % of the time", steal * 100.0));
        }
        let others = (now.busy_s - self.start.busy_s - own_s) / total;
        if others > OTHERS_MAX {
            warnings.push(format!("other programs took {:.0} % of the machine", others * 100.0));
        }
        warnings
    }
}

/// CPU time of all cores since boot, in seconds.
struct CpuTimes {
    busy_s: f64,
    steal_s: f64,
    total_s: f64,
}

impl CpuTimes {
    fn read() -> Self {
        let stat = first_line("/proc/stat").unwrap_or_default();
        let ticks: Vec<f64> =
            stat.split_whitespace().skip(1).take(8).filter_map(|tick| tick.parse().ok()).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0) / TICKS_PER_S;
        let (idle, wait, steal) = (at(3), at(4), at(7));
        let total_s = (0..8).map(at).sum();
        Self { busy_s: total_s - idle - wait - steal, steal_s: steal, total_s }
    }
}

/// Linux reports CPU times to programs in hundredths of a second, whatever its own tick is.
const TICKS_PER_S: f64 = 100.0;

/// Returns the CPU time that process `process_id` used so far, in seconds; 0 when it is gone.
pub(crate) fn process_cpu_s(process_id: u32) -> f64 {
    let stat = first_line(&format!("/proc/{process_id}/stat")).unwrap_or_default();
    // The name may hold spaces, and ends with the last bracket.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS_PER_S
}

/// Returns the memory of process `process_id` that is no shared memory, in bytes.
pub(crate) fn anonymous_bytes(process_id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process_id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the CPU time of thread `thread_id` of this process, in nanoseconds.
pub(crate) fn thread_cpu_ns(thread_id: i32) -> u64 {
    let path = format!("/proc/self/task/{thread_id}/schedstat");
    let first = first_line(&path).and_then(|line| line.split_whitespace().next()?.parse().ok());
    first.unwrap_or(0)
}
