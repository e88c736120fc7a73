//! How much memory this process may still take.
//!
//! Reads `/proc/meminfo` and the memory cgroups (v1 and v2) above this process. Guards nothing by
//! itself: others may take the memory in between.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use crate::RegionError;

/// A limit at or above this is none: cgroup v1 writes "no limit" as a number near 2^63.
const LIMIT_BYTES_MAX: u64 = 1 << 60;

/// Memory that can still be taken, by the machine's count and by the memory cgroup's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAvailable {
    /// What the machine has, in bytes: `MemAvailable`.
    pub machine_bytes: u64,
    /// What the tightest memory cgroup above this process leaves, in bytes, where one limits.
    pub cgroup_bytes: Option<u64>,
    /// The directory of that cgroup.
    pub cgroup: Option<PathBuf>,
    /// What there would be if nobody took any, in bytes: the machine's memory or the lowest limit.
    pub most_bytes: u64,
}

impl MemoryAvailable {
    /// Gives the smaller of the two, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.machine_bytes.min(self.cgroup_bytes.unwrap_or(u64::MAX))
    }
}

impl fmt::Display for MemoryAvailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the machine has {} available", self.machine_bytes)?;
        if let (Some(bytes), Some(cgroup)) = (self.cgroup_bytes, &self.cgroup) {
            write!(f, ", the memory cgroup {} leaves {bytes}", cgroup.display())?;
        }
        Ok(())
    }
}

/// Reads how much memory this process may still take.
///
/// File pages count as free, as they can be dropped; pages of memfds and tmpfs do not.
///
/// # Errors
///
/// `/proc/meminfo` cannot be read. Cgroups that cannot be read count as none.
pub fn memory_available() -> Result<MemoryAvailable, RegionError> {
    memory_available_below(Path::new("/"))
}

/// As [`memory_available`], with all paths taken below `root`.
fn memory_available_below(root: &Path) -> Result<MemoryAvailable, RegionError> {
    let path = root.join("proc/meminfo");
    let (machine_bytes, total_bytes) = fs::read_to_string(&path)
        .and_then(|text| Ok((meminfo(&text, "MemAvailable:")?, meminfo(&text, "MemTotal:")?)))
        .map_err(|source| RegionError::Proc { path, source })?;
    let cgroups = cgroups(root);
    let limits = cgroups.iter().filter_map(Cgroup::limit_bytes);
    let most_bytes = limits.fold(total_bytes, u64::min);
    let tightest = cgroups
        .into_iter()
        .filter_map(|cgroup| cgroup.room_bytes().map(|bytes| (bytes, cgroup.directory)))
        .min();
    let (cgroup_bytes, cgroup) = tightest.unzip();
    Ok(MemoryAvailable { machine_bytes, cgroup_bytes, cgroup, most_bytes })
}

/// The names of one version's files.
struct Files {
    version: u8,
    limit: &'static str,
    usage: &'static str,
    file_pages: [&'static str; 2],
}

const V1: Files = Files {
    version: 1,
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    file_pages: ["total_inactive_file", "total_active_file"],
};
const V2: Files = Files {
    version: 2,
    limit: "memory.max",
    usage: "memory.current",
    file_pages: ["inactive_file", "active_file"],
};

/// One directory of a memory cgroup hierarchy.
struct Cgroup {
    directory: PathBuf,
    files: &'static Files,
}

impl Cgroup {
    /// Gives its limit. None where it has none.
    fn limit_bytes(&self) -> Option<u64> {
        self.number(self.files.limit).filter(|bytes| *bytes < LIMIT_BYTES_MAX)
    }

    /// Gives what its limit leaves. None where it has no limit.
    fn room_bytes(&self) -> Option<u64> {
        let limit = self.limit_bytes()?;
        let usage = self.number(self.files.usage).unwrap_or(0);
        let stat = self.read("memory.stat").unwrap_or_default();
        let file_bytes: u64 =
            self.files.file_pages.iter().filter_map(|name| field(&stat, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(file_bytes)))
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.directory.join(name)).ok()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.read(name)?.trim().parse().ok()
    }
}

/// Lists this process's memory cgroups and all their visible ancestors.
fn cgroups(root: &Path) -> Vec<Cgroup> {
    let read = |name| fs::read_to_string(root.join(name)).unwrap_or_default();
    let (memberships, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(path) = memberships.lines().find_map(|line| mount.membership(line)) else {
            continue;
        };
        let top = root.join(mount.point.trim_start_matches('/'));
        // Without a cgroup namespace a container sees the host's path, below the mount's root.
        let below = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(path));
        let own = top.join(below.strip_prefix("/").unwrap_or(below));
        let own = if own.is_dir() { own } else { top.clone() };
        let directories = own.ancestors().take_while(|directory| directory.starts_with(&top));
        found.extend(
            directories.map(|directory| Cgroup { directory: directory.into(), files: mount.files }),
        );
    }
    found
}

/// A mounted cgroup hierarchy that may have the memory controller.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    files: &'static Files,
}

impl<'a> Mount<'a> {
    /// Reads a line of `/proc/self/mountinfo` (proc(5)).
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1).unwrap_or(""));
        let files = match kind {
            "cgroup2" => &V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => &V1,
            _ => return None,
        };
        Some(Mount { root, point, files })
    }

    /// Gives the path in a line of `/proc/self/cgroup`, if the line is of this hierarchy.
    fn membership(&self, line: &'a str) -> Option<&'a str> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let ours = match self.files.version {
            1 => controllers.split(',').any(|controller| controller == "memory"),
            _ => controllers.is_empty(),
        };
        ours.then_some(path)
    }
}

/// Finds a size in the text of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, name: &'static str) -> io::Result<u64> {
    let bytes = field(text, name).and_then(|kib| kib.checked_mul(1024));
    bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no {name}")))
}

/// Finds the number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests;
