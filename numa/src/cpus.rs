//! The CPUs that this thread may use, and the node each belongs to.

use std::path::Path;
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

/// Lists the CPUs that the calling thread may run on, in rising order, never empty.
///
/// A thread that is pinned sees its own CPU only: ask before pinning. Affinity already leaves out
/// what a cpuset forbids and what is offline. Where the kernel does not answer, the CPUs are
/// numbered from 0 up to the count that the standard library finds.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    let listed = sched_getaffinity(Pid::from_raw(0)).map(|set| cpus_in(&set)).unwrap_or_default();
    if !listed.is_empty() {
        return listed;
    }
    let count = thread::available_parallelism().map_or(1, usize::from);
    (0..u32::try_from(count).unwrap_or(1)).collect()
}

fn cpus_in(set: &CpuSet) -> Vec<u32> {
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

/// Finds the NUMA node of a CPU. None where `/sys` does not say.
#[must_use]
pub fn node_of_cpu(cpu: u32) -> Option<u32> {
    node_of_cpu_below(Path::new("/sys"), cpu)
}

/// Reads the `nodeN` link in the CPU's directory of the given `/sys`. The lowest one counts.
fn node_of_cpu_below(sys: &Path, cpu: u32) -> Option<u32> {
    let entries = sys.join(format!("devices/system/cpu/cpu{cpu}")).read_dir().ok()?;
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn cpus_are_listed_in_order_and_never_none() {
        let cpus = allowed_cpus();
        assert!(!cpus.is_empty());
        assert!(cpus.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn node_comes_from_the_link_in_the_cpus_directory() {
        let sys = tempfile::tempdir().unwrap();
        let cpu = sys.path().join("devices/system/cpu/cpu12");
        fs::create_dir_all(cpu.join("node128")).unwrap();
        fs::create_dir_all(cpu.join("nodes")).unwrap();
        fs::create_dir_all(cpu.join("topology")).unwrap();
        assert_eq!(node_of_cpu_below(sys.path(), 12), Some(128));
        assert_eq!(node_of_cpu_below(sys.path(), 13), None);
    }
}
