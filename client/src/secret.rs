//! Reads the shared secret from a file and judges the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::pending::Secret;

/// Why a secret file is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file could not be read.
    #[error("cannot read the secret file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file holds fewer bytes than a secret must have.
    #[error("the secret file {} holds {bytes} bytes without its line end, at least {min} are needed; write one with `head -c 32 /dev/urandom | base64`", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its bytes, line end not counted.
        bytes: usize,
        /// The least.
        min: usize,
    },
    /// The file holds more bytes than a secret may have.
    #[error("the secret file {} holds more than {max} bytes; is it the right file?", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most.
        max: usize,
    },
    /// Others than the owner and its group may read or write the file.
    #[error("the secret file {} is open to everybody (mode {mode:04o}); run `chmod 600` on it", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// Reads the secret in `path`: its bytes without one trailing line end.
///
/// # Errors
///
/// [`SecretError`] names the file and what to do: unreadable, under 16 bytes, over 4 KiB, or
/// accessible to others than owner and group.
pub fn read_secret_file(path: &Path) -> Result<Secret, SecretError> {
    let _ = path;
    unreachable!("being written")
}
