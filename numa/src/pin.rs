//! Pins threads.

use core_affinity::CoreId;

use crate::allowed_cpus;

/// Why a thread could not be pinned. The thread runs on, unpinned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The CPU is offline, or outside this thread's affinity or cpuset.
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

/// Pins the calling thread to one of the CPUs it may use.
///
/// Threads that it starts afterwards are pinned likewise.
///
/// # Errors
///
/// Log it and go on: an unpinned shard is slower, not wrong.
pub fn pin_current_thread(core: u32) -> Result<(), PinError> {
    let allowed = allowed_cpus();
    if !allowed.contains(&core) {
        return Err(PinError::NotAllowed { core, allowed });
    }
    if core_affinity::set_for_current(CoreId { id: core as usize }) {
        Ok(())
    } else {
        Err(PinError::Refused { core })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_pinned_thread_has_one_cpu() {
        let core = *allowed_cpus().last().unwrap();
        let seen = thread::spawn(move || {
            pin_current_thread(core).unwrap();
            allowed_cpus()
        });
        assert_eq!(seen.join().unwrap(), [core]);
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_and_changes_nothing() {
        let before = allowed_cpus();
        for core in [1023, 1024, u32::MAX] {
            let error = pin_current_thread(core).unwrap_err();
            assert!(matches!(error, PinError::NotAllowed { core: named, .. } if named == core));
        }
        assert_eq!(allowed_cpus(), before);
    }
}
