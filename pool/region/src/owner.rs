//! The lock that keeps two servers off one pool.

use std::path::Path;

/// Holds a pool for one process, until it is dropped or the process ends.
#[derive(Debug)]
pub struct OwnerLock {}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerLockError {
    /// Another process holds it.
    #[error("held")]
    Busy {
        /// The holder's process id, where its file says.
        pid: Option<u32>,
    },
}

impl OwnerLock {
    /// Takes the lock, or says who has it. Never waits.
    ///
    /// # Errors
    ///
    /// Another server runs, or the file cannot be made.
    pub fn take(_path: &Path) -> Result<Self, OwnerLockError> {
        unreachable!("to be written")
    }
}
