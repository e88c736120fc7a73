//! `idle`: the CPU that a server takes when nobody asks it anything.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use maru_wire::{Purpose, Secret};

use crate::dial::Dialled;
use crate::pace::progress;
use crate::result::{Measurement, Run};
use crate::server::{Monitor, ServerArgs, Spawned};

/// Most CPU of the shards' threads together, in percent of one core.
const CPU_PERCENT_MAX: f64 = 1.0;
/// Objects that the pool of the idle server holds.
const PAGE_COUNT: u64 = 16_384;

/// What to measure, and how often.
#[derive(Args, Debug)]
pub(crate) struct IdleArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Shards of the server
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: u32,
    /// Connections that say nothing, for each sample
    #[arg(long, value_delimiter = ',', default_value = "0,100,1000")]
    connections: Vec<usize>,
    /// Samples of each figure; the median counts
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeats: usize,
    /// Length of one sample
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    window_s: u64,
    /// Where the result goes [default: target/bench/idle-TIME.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Measures one server with ever more idle connections.
pub(crate) fn run(args: &IdleArgs) -> anyhow::Result<()> {
    let mut run = Run::start("idle");
    run.note("io", args.server.io.name());
    run.note("transport", args.server.transport.name());
    run.note("shards", args.shards);
    run.note("window_s", args.window_s);
    run.note("repeats", args.repeats);
    let server = Spawned::start(&args.server, args.shards, PAGE_COUNT)?;
    let mut monitor = Monitor::connect(server.address(), &Secret::none())?;
    let mut measurements: Vec<Measurement> = args
        .connections
        .iter()
        .map(|count| Measurement::new(format!("{count} connections")).with("connections", count))
        .collect();
    let bar = progress(args.repeats * args.connections.len());
    for _ in 0..args.repeats {
        for (count, measurement) in args.connections.iter().zip(&mut measurements) {
            bar.set_message(format!("{count} connections"));
            let held = connect(&server, *count, args.shards)?;
            sample(&server, &mut monitor, Duration::from_secs(args.window_s), measurement)?;
            drop(held);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for measurement in measurements {
        let name = format!("{}: CPU of the shards, percent", measurement.name());
        run.bar(name, measurement.values("shards_cpu_percent"), CPU_PERCENT_MAX);
        run.add(measurement);
    }
    run.own_child(server.cpu_s());
    run.finish(args.output.as_deref())
}

fn connect(server: &Spawned, count: usize, shards: u32) -> anyhow::Result<Vec<Dialled>> {
    let shards = (0..shards).cycle().take(count);
    let connect =
        |shard| Dialled::connect(server.address(), &Secret::none(), Purpose::Monitor, shard);
    shards.map(connect).collect()
}

fn sample(
    server: &Spawned,
    monitor: &mut Monitor,
    length: Duration,
    into: &mut Measurement,
) -> anyhow::Result<()> {
    // The handshakes' last wake-ups do not count.
    std::thread::sleep(length / 10);
    let start = Instant::now();
    let (shards, process) = (monitor.total()?.cpu_us, server.cpu_s());
    std::thread::sleep(length);
    let (shards_now, process_now) = (monitor.total()?.cpu_us, server.cpu_s());
    let seconds = start.elapsed().as_secs_f64();
    into.sample("shards_cpu_percent", (shards_now - shards) as f64 / 1e4 / seconds);
    into.sample("process_cpu_percent", (process_now - process) * 100.0 / seconds);
    Ok(())
}
