//! How much memory this process may still take.

use crate::RegionError;

/// Memory that can still be taken, by the machine's count and by the memory cgroup's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAvailable {
    /// What the machine has, in bytes: `MemAvailable`.
    pub machine_bytes: u64,
    /// What the tightest memory cgroup above this process leaves, in bytes, where one limits.
    pub cgroup_bytes: Option<u64>,
}

impl MemoryAvailable {
    /// Gives the smaller of the two, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.machine_bytes.min(self.cgroup_bytes.unwrap_or(u64::MAX))
    }
}

/// Reads how much memory this process may still take.
///
/// # Errors
///
/// `/proc/meminfo` cannot be read.
pub fn memory_available() -> Result<MemoryAvailable, RegionError> {
    unreachable!("to be written")
}
