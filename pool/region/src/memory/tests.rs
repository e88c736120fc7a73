use tempfile::TempDir;

use super::*;

const MIB: u64 = 1 << 20;

/// A file tree with `/proc` and cgroups of its own.
struct Machine {
    root: TempDir,
}

impl Machine {
    fn new(cgroup: &str, mountinfo: &str) -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        let meminfo = format!("MemTotal: {} kB\nMemAvailable:    {} kB\n", 8 << 20, 4 << 20);
        machine.file("proc/meminfo", &meminfo);
        machine.file("proc/self/cgroup", cgroup);
        machine.file("proc/self/mountinfo", mountinfo);
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn available(&self) -> MemoryAvailable {
        memory_available_below(self.root.path()).unwrap()
    }
}

const V2_MOUNT: &str = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MOUNT: &str =
    "33 24 0:29 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n";

#[test]
fn without_cgroups_the_machine_counts() {
    let available = Machine::new("", "").available();
    assert_eq!((available.bytes(), available.most_bytes), (4 << 30, 8 << 30));
    assert_eq!(available.cgroup, None);
    assert_eq!(available.to_string(), "the machine has 4294967296 available");
}

#[test]
fn the_tightest_ancestor_counts_and_file_pages_are_free() {
    let machine = Machine::new("0::/a/b\n", V2_MOUNT);
    machine.file("sys/fs/cgroup/a/b/memory.max", "max\n");
    machine.file("sys/fs/cgroup/a/memory.max", &format!("{}\n", 512 * MIB));
    machine.file("sys/fs/cgroup/a/memory.current", &format!("{}\n", 300 * MIB));
    let stat = format!("anon {}\ninactive_file {}\nactive_file {}\n", MIB, 60 * MIB, 40 * MIB);
    machine.file("sys/fs/cgroup/a/memory.stat", &stat);
    let available = machine.available();
    assert_eq!((available.bytes(), available.most_bytes), (312 * MIB, 512 * MIB));
    assert!(available.cgroup.as_ref().unwrap().ends_with("sys/fs/cgroup/a"));
    assert!(available.to_string().contains("leaves 327155712"));
}

#[test]
fn version_1_in_a_container_without_a_cgroup_namespace() {
    let machine = Machine::new("5:cpu:/docker/abc\n4:memory:/docker/abc\n0::/\n", V1_MOUNT);
    machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", &format!("{}\n", 256 * MIB));
    machine.file("sys/fs/cgroup/memory/memory.usage_in_bytes", &format!("{}\n", 100 * MIB));
    machine.file("sys/fs/cgroup/memory/memory.stat", &format!("total_active_file {}\n", MIB));
    assert_eq!(machine.available().bytes(), 157 * MIB);
}

#[test]
fn version_1_without_a_limit_and_use_above_a_limit() {
    let machine = Machine::new("4:memory:/docker/abc/x\n", V1_MOUNT);
    machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(machine.available().cgroup_bytes, None);
    machine.file("sys/fs/cgroup/memory/x/memory.limit_in_bytes", &format!("{}\n", 10 * MIB));
    machine.file("sys/fs/cgroup/memory/x/memory.usage_in_bytes", &format!("{}\n", 11 * MIB));
    assert_eq!(machine.available().cgroup_bytes, Some(0));
}

/// A pool that never fits is refused at once; one that others keep out for now may be waited for.
#[test]
fn waiting_helps_while_the_limit_is_not_the_reason() {
    let machine = Machine::new("0::/a\n", V2_MOUNT);
    machine.file("sys/fs/cgroup/a/memory.max", &format!("{}\n", 512 * MIB));
    machine.file("sys/fs/cgroup/a/memory.current", &format!("{}\n", 500 * MIB));
    let lacking = |need_bytes| {
        let (available, kept_bytes) = (machine.available(), 12 * MIB);
        RegionError::Memory { need_bytes, available, kept_bytes }
    };
    assert!(lacking(500 * MIB).may_pass());
    assert!(!lacking(501 * MIB).may_pass());
    assert!(!RegionError::Size { bytes: 1, unit: 4096 }.may_pass());
}

#[test]
fn no_meminfo_is_an_error_that_names_the_file() {
    let root = tempfile::tempdir().unwrap();
    let error = memory_available_below(root.path()).unwrap_err();
    assert!(error.to_string().contains("proc/meminfo"));
}

#[test]
fn this_machine_answers() {
    assert!(memory_available().unwrap().bytes() > 0);
}
