//! The CPUs that this process may use, and the node each belongs to.

/// Lists the CPUs that the calling thread may run on, in rising order, never empty.
#[must_use]
pub fn allowed_cpus() -> Vec<u32> {
    unreachable!("to be written")
}

/// Finds the NUMA node of a CPU. None where `/sys` does not say.
#[must_use]
pub fn node_of_cpu(_cpu: u32) -> Option<u32> {
    unreachable!("to be written")
}
