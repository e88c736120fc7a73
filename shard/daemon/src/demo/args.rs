//! The flags of `demo`, and of the hidden commands that it starts itself with.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::workload::WorkloadSpec;
use crate::config::{IoChoice, Size};

/// Most shards, and most workers, that the demo starts.
const PROCESSES_MAX: u64 = 256;
/// Largest object of the demo, in bytes.
pub(super) const OBJECT_BYTES_MAX: u64 = 16 << 30;
/// Memory of the pool when none is named.
const CAPACITY_DEFAULT: u64 = 256 << 20;
/// The server's pages are multiples of this.
const PAGE_STEP_BYTES: u64 = 4096;

/// Runs a pool and engines that use it, and checks every byte.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Mooncake-format trace (JSONL) to replay, instead of generated conversations
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Shards of the server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count())]
    pub(crate) shards: u32,
    /// Worker processes, each an engine
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count())]
    pub(crate) workers: u32,
    /// Objects that the pool holds
    #[arg(long, value_name = "N", conflicts_with = "capacity",
          value_parser = RangedU64ValueParser::<u64>::new().range(1..=u64::from(u32::MAX)))]
    pub(crate) capacity_blocks: Option<u64>,
    /// Memory of the pool, in whole objects [default: 256M]
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<Size>,
    /// Size of an object, the key-value cache of one block; also the server's page
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(crate) object_bytes: Size,
    /// Replay only so many requests [default: 6000 generated ones, or the whole trace]
    #[arg(long, value_name = "N")]
    pub(crate) requests: Option<u64>,
    /// Seed of the generated conversations
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// How server and workers talk to the kernel
    #[arg(long, value_name = "KIND", default_value = "auto")]
    pub(crate) io: IoChoice,
}

/// Replays one worker's share of a demo.
#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    pub(crate) socket: PathBuf,
    #[arg(long)]
    pub(crate) worker: usize,
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) object_bytes: u64,
    #[arg(long)]
    pub(crate) trace: Option<PathBuf>,
    #[arg(long)]
    pub(crate) requests: Option<u64>,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) io: IoChoice,
}

/// Ties this process to the life of the demo, then becomes another command.
#[derive(Args, Debug)]
pub(crate) struct ChildArgs {
    /// Process id of the demo
    #[arg(long)]
    pub(crate) parent: u32,
    /// The command and its flags
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

fn count() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..=PROCESSES_MAX)
}

impl DemoArgs {
    /// What to replay.
    pub(crate) fn workload(&self) -> WorkloadSpec {
        WorkloadSpec {
            trace: self.trace.clone(),
            request_count_max: self.requests,
            seed: self.seed,
        }
    }

    /// Size of the server's page: the object's, rounded up to what a server takes.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.object_bytes.0.clamp(1, OBJECT_BYTES_MAX).next_multiple_of(PAGE_STEP_BYTES)
    }

    /// Objects that the pool holds; 0 when not even one fits.
    pub(crate) fn capacity_blocks(&self) -> u64 {
        let bytes = self.capacity.map_or(CAPACITY_DEFAULT, |capacity| capacity.0);
        self.capacity_blocks.unwrap_or(bytes / self.page_bytes())
    }
}

impl WorkerArgs {
    /// What the whole demo replays.
    pub(crate) fn workload(&self) -> WorkloadSpec {
        WorkloadSpec {
            trace: self.trace.clone(),
            request_count_max: self.requests,
            seed: self.seed,
        }
    }
}
