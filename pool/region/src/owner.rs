//! The lock that keeps two servers off one pool.
//!
//! It lies on a file of its own, which no client ever gets: whoever has a descriptor of a locked
//! file shares the lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// The most bytes of a lock file's text: a process id and an end of line.
const TEXT_BYTES_MAX: u64 = 16;
/// How often a lock file may be replaced by another while it is being taken.
const ATTEMPTS_MAX: usize = 16;

/// Holds a pool for one process, until it is dropped or the process ends.
///
/// The file stays behind; the next owner takes it over. A forked child shares the lock until it
/// executes another program.
#[derive(Debug)]
pub struct OwnerLock {
    /// Open and locked as long as this lives.
    _file: Flock<File>,
}

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerLockError {
    /// Another process holds it.
    #[error("{} is held by {}: another server owns this pool", path.display(), holder(*pid))]
    Busy {
        /// The lock's file.
        path: PathBuf,
        /// The holder's process id, where its file says.
        pid: Option<u32>,
    },
    /// The file holds something else, which taking the lock would destroy.
    #[error("{} is no lock file: name another path, or remove it", path.display())]
    NotALock {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be made, locked or written.
    #[error("the owner's lock {} cannot be taken: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl OwnerLock {
    /// Takes the lock, or says who has it. Never waits.
    ///
    /// Makes the file when it is missing, and writes this process's id into it.
    ///
    /// # Errors
    ///
    /// Another server runs, or the file cannot be made.
    pub fn take(path: &Path) -> Result<Self, OwnerLockError> {
        let failed = |source| OwnerLockError::System { path: path.into(), source };
        for _ in 0..ATTEMPTS_MAX {
            let mut file = Self::open(path).map_err(failed)?;
            let text = read_text(&mut file).map_err(failed)?;
            let Some(last_pid) = parse_text(&text) else {
                return Err(OwnerLockError::NotALock { path: path.into() });
            };
            let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    return Err(OwnerLockError::Busy { path: path.into(), pid: last_pid });
                }
                Err((_, Errno::EINTR)) => continue,
                Err((_, errno)) => return Err(failed(errno.into())),
            };
            if !is_at(&file, path) {
                continue;
            }
            write_text(&mut file).map_err(failed)?;
            return Ok(Self { _file: file });
        }
        Err(failed(io::Error::other("the file is being replaced all the time")))
    }

    fn open(path: &Path) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    }
}

/// Says whether the file still lies at the path: someone may have removed it before the lock.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(own), Ok(there)) => own.dev() == there.dev() && own.ino() == there.ino(),
        _ => false,
    }
}

fn read_text(file: &mut File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(TEXT_BYTES_MAX + 1).read_to_end(&mut text)?;
    Ok(text)
}

/// Gives the process id of the text, if it has one. None: no lock file wrote this.
fn parse_text(text: &[u8]) -> Option<Option<u32>> {
    let text = str::from_utf8(text).ok()?;
    match text.strip_suffix('\n').unwrap_or(text) {
        "" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

fn write_text(file: &mut File) -> io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

#[cfg(test)]
mod tests;
