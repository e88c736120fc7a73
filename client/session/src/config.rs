//! What a session is told at its start: identity, secret, times, bounds.

use alloc::string::String;

use maru_wire::{Incarnation, Namespace, Secret};

/// Identity and expectations of one client object towards one pool node.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The client object.
    pub incarnation: Incarnation,
    /// Digest of the namespace's name.
    pub namespace: Namespace,
    /// The namespace's name, at most 64 bytes.
    pub namespace_name: String,
    /// Node name expected; empty accepts any.
    pub node_name: String,
    /// Digest of the client's list of pool nodes.
    pub pool_list_digest: [u8; 32],
    /// The secret that both ends prove.
    pub secret: Secret,
    /// The client's limit for one transfer, in microseconds.
    pub transfer_timeout_us: u64,
    /// The largest object announced, in bytes.
    pub object_bytes_max: u64,
    /// Source of nonces and jitter. Must differ between client objects and be hard to guess.
    pub seed: [u8; 32],
    /// Times and bounds.
    pub limits: SessionLimits,
}

/// Times and bounds of a session. Nothing in it grows past these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// Most requests that wait or are in flight on one link.
    pub requests_per_link_max: usize,
    /// Most tickets held on one shard; a hello can list no more than 4,096.
    pub tickets_per_shard_max: usize,
    /// Most shards that a server may have.
    pub shards_max: u32,
    /// Longest connection and handshake, in microseconds.
    pub handshake_timeout_us: u64,
    /// How long a link may owe an answer and send nothing, in microseconds.
    pub silence_timeout_us: u64,
    /// First wait after a failed dial, in microseconds; doubles with each failure.
    pub backoff_min_us: u64,
    /// Longest such wait while a call waits for the link, in microseconds.
    pub backoff_call_max_us: u64,
    /// Longest such wait when none does, in microseconds.
    pub backoff_idle_max_us: u64,
    /// How long a lasting fault is told to callers before it is tried again, in microseconds.
    pub retry_period_us: u64,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            requests_per_link_max: 1024,
            tickets_per_shard_max: maru_wire::TICKETS_PER_HELLO_MAX as usize,
            shards_max: 1024,
            handshake_timeout_us: 500_000,
            silence_timeout_us: 5_000_000,
            backoff_min_us: 5_000,
            backoff_call_max_us: 100_000,
            backoff_idle_max_us: 2_000_000,
            retry_period_us: 30_000_000,
        }
    }
}
