//! Pins threads.

/// Why a thread could not be pinned. The thread runs on, unpinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The CPU is offline, or outside this process's affinity or cpuset.
    #[error("CPU {core} is not one of the CPUs allowed here ({allowed:?})")]
    NotAllowed {
        /// The CPU asked for.
        core: u32,
        /// The CPUs that are allowed.
        allowed: Vec<u32>,
    },
    /// The kernel refused, as some containers do.
    #[error("the system refused to pin a thread to CPU {core}")]
    Refused {
        /// The CPU asked for.
        core: u32,
    },
}

/// Pins the calling thread to one CPU.
///
/// # Errors
///
/// Log it and go on: an unpinned shard is slower, not wrong.
pub fn pin_current_thread(_core: u32) -> Result<(), PinError> {
    unreachable!("to be written")
}
