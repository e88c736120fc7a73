//! Clients that each keep one Reserve of as many keys as a frame takes in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::ensure;
use maru_uring::IoMode;
use maru_wire::{KEYS_PER_FRAME_MAX, Purpose, Secret};

use crate::dial::{Address, Dialled};
use crate::keys::ShardKeys;
use crate::load::Load;
use crate::server::Monitor;
use crate::work::{Counts, Operation, Work};

/// Keys of a frame.
const KEYS: usize = KEYS_PER_FRAME_MAX as usize;
/// Smallest pool in which a client may reserve a whole frame: its share is an eighth.
const PAGES_MIN: u64 = KEYS as u64 * 8;
/// How often it is looked whether the pool is full.
const SLICE: Duration = Duration::from_millis(10);

/// Returns the size of the pool: all clients of one host may reserve half of it.
pub(crate) fn page_count(clients: usize) -> u64 {
    (2 * (clients * KEYS) as u64).max(PAGES_MIN)
}

/// Who sends what to where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk<'a> {
    pub(crate) address: &'a Address,
    pub(crate) io: IoMode,
    pub(crate) clients: usize,
    /// What becomes of the grants: Reserve publishes them, Abandon gives them back.
    pub(crate) operation: Operation,
    /// Number of the first key to use.
    pub(crate) first_key: u64,
}

/// What was carried through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carried {
    pub(crate) keys: u64,
    pub(crate) evicted: u64,
    /// Number from which on no key was used.
    pub(crate) next_key: u64,
}

impl Bulk<'_> {
    /// Stores until every page was used, so that every store since has evicted. Returns the number
    /// from which on no key was used.
    pub(crate) fn fill(&self) -> anyhow::Result<u64> {
        let mut load = self.start()?;
        while load.next_key() < self.first_key + page_count(self.clients) * 3 / 2 {
            load.run_for(SLICE)?;
        }
        load.drain()?;
        Ok(load.next_key())
    }

    /// Loads the server until told to stop, then waits for the last answers.
    pub(crate) fn run(&self, stop: &AtomicBool) -> anyhow::Result<Carried> {
        let mut monitor = Monitor::connect(self.address, &Secret::none())?;
        let evicted_before = monitor.total()?.evicted;
        let mut load = self.start()?;
        let Counts { keys, others, .. } = load.run_until(|| stop.load(Ordering::Relaxed))?;
        ensure!(others == 0, "{others} of {keys} keys were not granted: the load is not the same");
        let evicted = monitor.total()?.evicted - evicted_before;
        Ok(Carried { keys, evicted, next_key: load.next_key() })
    }

    fn start(&self) -> anyhow::Result<Load> {
        let (mut streams, mut generation) = (Vec::new(), None);
        for _ in 0..self.clients {
            let dialled = Dialled::connect(self.address, &Secret::none(), Purpose::Data, 0)?;
            generation = Some(dialled.generation());
            streams.push((dialled.into_stream(), 0));
        }
        let generation = generation.unwrap_or_default();
        let keys = ShardKeys::new(0, 1, self.first_key, u64::MAX);
        let work = Work::new((self.operation, KEYS), generation, &[], keys, self.clients);
        // It leaves its core to the pings whenever it can.
        Load::start_spinning(0, self.io, streams, vec![work], 1)
    }
}
