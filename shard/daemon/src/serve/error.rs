//! Why a server could not start.

use maru_plan::PlanError;
use maru_region::RegionError;
use maru_uring::ReactorError;

use super::probe::ProbeError;
use crate::acceptor::ListenError;

/// Why a server could not start. Everything that it had taken is released.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum StartError {
    #[error("{0}")]
    Plan(#[from] PlanError),
    #[error("{0}")]
    Listen(#[from] ListenError),
    #[error("pool_bytes: {0}")]
    Region(#[from] RegionError),
    #[error("pool_bytes: the memory is of no use to clients: {0}")]
    Probe(#[from] ProbeError),
    #[error("io: shard {shard} cannot start: {source}")]
    Reactor { shard: u32, source: ReactorError },
    #[error("cannot start the thread {name}: {source}")]
    Thread { name: String, source: std::io::Error },
    #[error("the thread {name} ended before it was ready")]
    ThreadEnded { name: String },
    #[error("{call} failed: {source}")]
    System { call: &'static str, source: nix::Error },
    #[error("ready_fd: cannot write to descriptor {fd}: {source}")]
    Ready { fd: u32, source: std::io::Error },
}

impl StartError {
    /// Names the system call that failed.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(nix::Error) -> Self {
        move |source| Self::System { call, source }
    }
}
