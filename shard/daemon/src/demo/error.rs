//! Why a demo could not be run to its end.

use super::args::OBJECT_BYTES_MAX;
use super::workload::WorkloadError;

/// Why a demo ended without a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The workload cannot be read.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The workload has no request with a block.
    #[error("the workload has no blocks: nothing to replay")]
    NoBlocks,
    /// An object has no bytes, or more than any object.
    #[error("--object-bytes must be 1 to {}", crate::config::Size(OBJECT_BYTES_MAX))]
    ObjectBytes,
    /// The pool would be smaller than a shard may be.
    #[error(
        "{capacity_blocks} objects for {shards} shards: each needs at least {blocks_min}; raise \
         --capacity or --capacity-blocks, or lower --object-bytes or --shards"
    )]
    PoolTooSmall {
        /// Objects of the pool.
        capacity_blocks: u64,
        /// Shards asked for.
        shards: u32,
        /// What one shard needs.
        blocks_min: u64,
    },
    /// The pool is larger than can be counted in bytes.
    #[error("--capacity-blocks and --object-bytes make a pool beyond 2^64 bytes")]
    PoolTooLarge,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A process of the demo ended or failed.
    #[error("{name} {how}{log}", log = log_text(log))]
    Child {
        /// Which one.
        name: String,
        /// What happened.
        how: String,
        /// Its last lines.
        log: Vec<String>,
    },
    /// The server does not answer the demo itself.
    #[error("the server does not answer: {0}")]
    Client(#[from] maru_client::Error),
    /// The user, or the system, ended the demo.
    #[error("ended by {0}")]
    Signal(nix::sys::signal::Signal),
}

fn log_text(log: &[String]) -> String {
    if log.is_empty() {
        return String::new();
    }
    format!("; its last lines:\n  {}", log.join("\n  "))
}

impl DemoError {
    /// Returns a function that wraps a system's error.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
