//! Reads the shared secret from a file and judges the file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use maru_wire::Secret;

/// Fewest bytes of a secret.
const SECRET_BYTES_MIN: usize = 16;
/// Most bytes of a secret file.
const SECRET_BYTES_MAX: usize = 4096;

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
    /// It is a directory.
    #[error("{} is a directory; name the secret's file in it", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
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
/// [`SecretError`] names the file and what to do: unreadable, a directory, under 16 bytes, over 4 KiB, or
/// accessible to others than owner and group.
pub fn read_secret_file(path: &Path) -> Result<Secret, SecretError> {
    let failed = |source| SecretError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if found.is_dir() {
        return Err(SecretError::Directory { path: path.to_owned() });
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & 0o007 != 0 {
        return Err(SecretError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(SECRET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(SecretError::TooLong { path: path.to_owned(), max: SECRET_BYTES_MAX });
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let secret = line.strip_suffix(b"\r").unwrap_or(line);
    if secret.len() < SECRET_BYTES_MIN {
        let (path, bytes) = (path.to_owned(), secret.len());
        return Err(SecretError::TooShort { path, bytes, min: SECRET_BYTES_MIN });
    }
    Ok(Secret::new(secret))
}

#[cfg(test)]
mod tests;
