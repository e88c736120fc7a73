//! The folder of the demo's server, and the end of those that killed demos left behind.
//!
//! A demo holds a lock in its folder as long as it lives. A folder whose lock is free is nobody's.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use maru_region::OwnerLock;
use nix::unistd::geteuid;
use tempfile::TempDir;

use super::error::DemoError;

/// How the names of all folders begin.
const PREFIX: &str = "maru-demo-";
/// The lock's file. It gets this name when it is locked, so that it is never seen free too early.
const LOCK: &str = "demo.lock";
const LOCK_NEW: &str = "demo.lock.new";

/// A folder of the demo. Dropping it removes it with all that is in it.
pub(crate) struct Folder {
    directory: TempDir,
    // Dropped last, so that nobody else removes it meanwhile.
    _lock: OwnerLock,
}

impl Folder {
    /// Makes a folder for temporary files, after removing those that nobody owns any more.
    pub(crate) fn make() -> Result<Self, DemoError> {
        let parent = std::env::temp_dir();
        remove_stale(&parent);
        let made = Self::make_in(&parent);
        made.map_err(DemoError::system("make a folder for the server's socket"))
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let new = directory.path().join(LOCK_NEW);
        let lock = OwnerLock::take(&new).map_err(io::Error::other)?;
        fs::rename(new, directory.path().join(LOCK))?;
        Ok(Self { directory, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Removes this user's folders of demos that have ended without doing so.
fn remove_stale(parent: &Path) {
    // Where nothing can be listed or removed, nothing is: the demo can do without.
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && let Some(_lock) = take_over(&entry.path())
        {
            fs::remove_dir_all(entry.path()).unwrap_or_default();
        }
    }
}

/// Takes the lock of a folder that another demo made and holds no more.
fn take_over(folder: &Path) -> Option<OwnerLock> {
    let found = folder.symlink_metadata().ok()?;
    let lock = folder.join(LOCK);
    let is_ours = found.is_dir()
        && found.uid() == geteuid().as_raw()
        && lock.symlink_metadata().is_ok_and(|lock| lock.is_file());
    if is_ours { OwnerLock::take(&lock).ok() } else { None }
}

#[cfg(test)]
mod tests;
