//! What several test modules use: memfds, and this test binary run again as another process.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::MappedSpec;

/// Tells a test which part to play in a child process.
const ROLE: &str = "MARU_TEST_ROLE";

/// Gives the role, in a child made by [`child`].
pub(super) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Prepares a process that runs one test of this binary, by its path in the crate.
pub(super) fn child(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Makes a memfd of `bytes`, not sealed.
pub(super) fn memfd(name: &CStr, bytes: u64) -> File {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
    let file = File::from(fd);
    file.set_len(bytes).unwrap();
    file
}

/// Makes a sealed region as a server would.
pub(super) fn sealed(region: u32, bytes: u64) -> MappedSpec {
    let file = memfd(c"maru-test", bytes);
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
    MappedSpec { region, bytes, fd: OwnedFd::from(file) }
}
