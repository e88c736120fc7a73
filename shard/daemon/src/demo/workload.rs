//! The stream of requests that the workers replay: a trace file, or generated conversations.

use std::path::PathBuf;

use maru_wire::{Key, Namespace};

use super::conversation::Conversations;
use super::trace::TraceReader;

/// Namespace of every key of the demo.
pub(crate) const NAMESPACE: &str = "demo";

/// One prompt: its blocks, each named by a number that stands for all tokens up to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// The blocks in order.
    pub(crate) blocks: Vec<u64>,
}

/// Why a workload cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkloadError {
    /// The file cannot be opened or read.
    #[error("cannot read the trace {}: {source}", path.display())]
    Read {
        /// The trace.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no request.
    #[error("{}, line {line_number}: no request of a trace: {source}", path.display())]
    Line {
        /// The trace.
        path: PathBuf,
        /// Counts from 1.
        line_number: u64,
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A line is longer than any request.
    #[error("{}, line {line_number}: longer than {bytes_max} bytes", path.display())]
    LineTooLong {
        /// The trace.
        path: PathBuf,
        /// Counts from 1.
        line_number: u64,
        /// The limit.
        bytes_max: u64,
    },
}

/// What to replay. The same value gives the same requests in every process.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadSpec {
    /// A trace file; generated conversations without one.
    pub(crate) trace: Option<PathBuf>,
    /// At most this many requests; all of a trace, or the default load, without one.
    pub(crate) request_count_max: Option<u64>,
    /// Seed of the generated conversations.
    pub(crate) seed: u64,
}

/// Requests of the default load.
const GENERATED_REQUESTS: u64 = 6_000;

type Requests = Box<dyn Iterator<Item = Result<Request, WorkloadError>>>;

impl WorkloadSpec {
    /// Opens the stream of requests.
    pub(crate) fn open(&self) -> Result<Requests, WorkloadError> {
        let count_max = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(match &self.trace {
            Some(path) => {
                let count = self.request_count_max.map_or(usize::MAX, count_max);
                Box::new(TraceReader::open(path)?.take(count))
            }
            None => {
                let count = count_max(self.request_count_max.unwrap_or(GENERATED_REQUESTS));
                Box::new(Conversations::new(self.seed).take(count).map(Ok))
            }
        })
    }

    /// Opens the part of the stream that worker `worker` of `worker_count` replays: each n-th.
    pub(crate) fn open_share(
        &self,
        worker: usize,
        worker_count: usize,
    ) -> Result<Requests, WorkloadError> {
        Ok(Box::new(self.open()?.skip(worker).step_by(worker_count)))
    }
}

/// Returns the key of block `block`.
pub(crate) fn key_of(namespace: &Namespace, block: u64) -> Key {
    Key::new(namespace, &block.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(request_count_max: u64) -> WorkloadSpec {
        WorkloadSpec { trace: None, request_count_max: Some(request_count_max), seed: 7 }
    }

    fn blocks(requests: Requests) -> Vec<Request> {
        requests.map(Result::unwrap).collect()
    }

    #[test]
    fn the_shares_of_the_workers_are_the_stream_dealt_in_order() {
        let all = blocks(spec(10).open().unwrap());
        let mut shares: Vec<_> = (0..3)
            .map(|worker| blocks(spec(10).open_share(worker, 3).unwrap()).into_iter())
            .collect();
        let dealt: Vec<_> = (0..10).map(|n| shares[n % 3].next().unwrap()).collect();
        assert_eq!(dealt, all);
        assert!(shares.iter_mut().all(|share| share.next().is_none()));
    }

    #[test]
    fn keys_of_different_blocks_differ() {
        let namespace = Namespace::new(NAMESPACE);
        assert_ne!(key_of(&namespace, 1), key_of(&namespace, 2));
    }
}
