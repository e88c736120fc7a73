//! Pings of one client, one at a time, at moments that keep no step with the server's turns.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use maru_wire::{Purpose, Reply, RequestBody, Secret};

use super::random::Random;
use crate::dial::{Address, Dialled};
use crate::result::new_histogram;
use crate::server::Spawned;

/// Pings between two looks at the server's memory.
const MEMORY_PERIOD: u32 = 50;

/// How to ping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PingPlan {
    pub(crate) count: u32,
    /// Mean pause between an answer and the next ping.
    pub(crate) pause: Duration,
}

/// What a round of pings saw.
pub(crate) struct Pinged {
    /// Time from before the send until the answer was read, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// Most memory of the server that is no shared memory.
    pub(crate) memory_bytes: u64,
}

/// Pings shard 0 on a connection of its own. Blocks until the last answer.
pub(crate) fn ping(server: &Spawned, plan: PingPlan, seed: u64) -> anyhow::Result<Pinged> {
    let mut client = connect(server.address())?;
    let mut random = Random::new(seed);
    let mut pinged = Pinged { latency: new_histogram(), memory_bytes: 0 };
    let pause_ns = 2 * u64::try_from(plan.pause.as_nanos())?;
    for number in 0..plan.count {
        std::thread::sleep(Duration::from_nanos(random.below(pause_ns + 1)));
        let start = Instant::now();
        let is_ping = client.ask(&RequestBody::Ping, |reply| matches!(reply, Reply::Ping(_)))?;
        let elapsed = start.elapsed();
        anyhow::ensure!(is_ping, "the server answered a Ping with something else");
        pinged.latency.saturating_record(u64::try_from(elapsed.as_nanos())?);
        if number.is_multiple_of(MEMORY_PERIOD) {
            pinged.memory_bytes = pinged.memory_bytes.max(server.anonymous_bytes());
        }
    }
    Ok(pinged)
}

fn connect(address: &Address) -> anyhow::Result<Dialled> {
    Dialled::connect(address, &Secret::none(), Purpose::Data, 0)
}
