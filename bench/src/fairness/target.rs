//! One server under one load: its rounds, and what they found.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use maru_wire::Secret;

use super::bulk::{self, Bulk, Carried};
use super::crowd::{Crowd, Traffic, store_resident};
use super::ping::{PingPlan, ping};
use super::{FairnessArgs, Others, Pair};
use crate::limits::pinned_to;
use crate::result::{Measurement, Run};
use crate::server::{Monitor, Spawned};
use crate::work::Operation;

/// Objects that the pool holds where nobody fills it.
const PAGES: u64 = 16_384;
/// How long a load runs before the pings begin.
const WARM_UP: Duration = Duration::from_millis(300);

/// A server, and the load that it is for.
pub(super) struct Target {
    pair: Pair,
    load: Others,
    server: Spawned,
    /// Its memory before any load.
    idle_bytes: u64,
    ping_core: u32,
    load_core: u32,
    /// Number from which on no key was used.
    next_key: u64,
}

/// What the others did in a round.
#[derive(Clone, Copy, Default, Debug)]
struct Done {
    sessions: u64,
    sent_bytes: u64,
    keys: u64,
    evicted: u64,
    next_key: u64,
}

impl Target {
    /// Starts the server and stores what its load needs.
    pub(super) fn start(args: &FairnessArgs, pair: Pair, load: Others) -> anyhow::Result<Self> {
        let clients = usize::from(args.clients);
        let page_count = match load {
            Others::Nothing | Others::Behaved | Others::Garbage => PAGES,
            Others::Roomy | Others::Evicting => bulk::page_count(clients),
        };
        let server = Spawned::start(&args.server, 1, page_count)?;
        let core = Monitor::connect(server.address(), &Secret::none())?.total()?.core;
        let (ping_core, load_core) = cores(u32::try_from(core).ok());
        let (idle_bytes, next_key) = (0, 0);
        let mut target = Self { pair, load, server, idle_bytes, ping_core, load_core, next_key };
        match load {
            Others::Behaved | Others::Garbage => store_resident(target.server.address())?,
            Others::Evicting => {
                let bulk = target.bulk(args, Operation::Reserve);
                target.next_key = pinned_to(load_core, || bulk.fill())?;
            }
            Others::Nothing | Others::Roomy => {}
        }
        target.idle_bytes = target.server.anonymous_bytes();
        Ok(target)
    }

    /// What the others do here.
    pub(super) fn load(&self) -> Others {
        self.load
    }

    /// Pings while the others are at work.
    pub(super) fn round(
        &mut self,
        args: &FairnessArgs,
        round: u64,
        into: &mut Measurement,
    ) -> anyhow::Result<()> {
        let plan = PingPlan { count: args.pings, pause: Duration::from_micros(args.pause_us) };
        let (server, ping_core) = (&self.server, self.ping_core);
        let cpu_before = self.cpu_us()?;
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let (pinged, done) = std::thread::scope(|scope| {
            let others = scope.spawn(|| self.others(args, round, &stop));
            std::thread::sleep(WARM_UP);
            let pinged = pinned_to(ping_core, || ping(server, plan, round));
            stop.store(true, Ordering::Relaxed);
            (pinged, others.join())
        });
        let elapsed = start.elapsed();
        // What the others met tells more than that a ping failed.
        let done = done.map_err(|_| anyhow::anyhow!("the others panicked"))??;
        let pinged = pinged.context("a ping failed")?;
        self.next_key = done.next_key;
        let at_us = |quantile| pinged.latency.value_at_quantile(quantile) as f64 / 1e3;
        into.sample("p50_us", at_us(0.5));
        into.sample("p99_us", at_us(0.99));
        into.sample("p999_us", at_us(0.999));
        let cpu_us = (self.cpu_us()? - cpu_before) as f64;
        let seconds = elapsed.as_secs_f64();
        into.sample("shard_cpu_percent", cpu_us / 1e4 / seconds);
        match self.pair {
            Pair::Garbage => {
                into.sample("sessions_per_s", done.sessions as f64 / seconds);
                into.sample("sent_bytes_per_s", done.sent_bytes as f64 / seconds);
                let growth = pinged.memory_bytes.saturating_sub(self.idle_bytes);
                into.sample("memory_growth_bytes", growth as f64);
            }
            Pair::Evicting => {
                into.sample("keys_per_s", done.keys as f64 / seconds);
                let evicted = done.evicted as f64 / done.keys.max(1) as f64;
                into.sample("evicted_percent", evicted * 100.0);
            }
        }
        into.add_latency(&pinged.latency);
        Ok(())
    }

    /// Ends the server, and notes what it counted.
    pub(super) fn close(self, run: &mut Run) -> anyhow::Result<()> {
        if self.load == Others::Garbage {
            let closed = Monitor::connect(self.server.address(), &Secret::none())?.closed()?;
            let counted = closed.iter().map(|(reason, count)| format!("{reason} {count}"));
            run.note("garbage_closed", counted.collect::<Vec<_>>().join(", "));
            run.derive("garbage: reasons counted for closed connections", closed.len() as f64);
        }
        run.own_child(self.server.cpu_s());
        Ok(())
    }

    /// Lets the others work until told to stop.
    fn others(&self, args: &FairnessArgs, round: u64, stop: &AtomicBool) -> anyhow::Result<Done> {
        let crowd = Crowd {
            address: self.server.address(),
            clients: usize::from(args.clients),
            sessions_per_s: args.sessions,
            seed: round << 16,
            core: self.load_core,
        };
        match self.load {
            Others::Nothing => Ok(Done::default()),
            Others::Behaved => visits(crowd.behave(stop)?),
            Others::Garbage => visits(crowd.attack(stop)?),
            Others::Roomy => self.carry(args, Operation::Abandon, stop),
            Others::Evicting => {
                let done = self.carry(args, Operation::Reserve, stop)?;
                ensure!(done.evicted >= done.keys / 10 * 9, "the pool was not full: {done:?}");
                Ok(done)
            }
        }
    }

    fn carry(
        &self,
        args: &FairnessArgs,
        operation: Operation,
        stop: &AtomicBool,
    ) -> anyhow::Result<Done> {
        let bulk = self.bulk(args, operation);
        let carried = pinned_to(self.load_core, || bulk.run(stop))?;
        let Carried { keys, evicted, next_key } = carried;
        Ok(Done { keys, evicted, next_key, ..Done::default() })
    }

    fn bulk(&self, args: &FairnessArgs, operation: Operation) -> Bulk<'_> {
        Bulk {
            address: self.server.address(),
            io: args.server.io.io_mode(),
            clients: usize::from(args.clients),
            operation,
            first_key: self.next_key,
        }
    }

    fn cpu_us(&self) -> anyhow::Result<u64> {
        Ok(Monitor::connect(self.server.address(), &Secret::none())?.total()?.cpu_us)
    }
}

fn visits(traffic: Traffic) -> anyhow::Result<Done> {
    let Traffic { sessions, bytes: sent_bytes } = traffic;
    ensure!(sessions > 0, "no session took place");
    Ok(Done { sessions, sent_bytes, ..Done::default() })
}

/// Chooses the cores of the pings and of the others, away from the server's and, if there are
/// three, from each other.
fn cores(server: Option<u32>) -> (u32, u32) {
    let allowed = maru_numa::allowed_cpus();
    let mut free = allowed.iter().rev().copied().filter(|core| Some(*core) != server);
    let ping = free.next().or(server).unwrap_or(0);
    (ping, free.next().unwrap_or(ping))
}
