//! `evict`: what a store that must evict costs the server, from few resident keys to many.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use maru_wire::{
    ArchivedLookupOutcome, Generation, Key, Lookup, Match, Purpose, Reply, RequestBody, Secret,
};

use crate::control::measure;
use crate::dial::{Address, Dialled};
use crate::keys::ShardKeys;
use crate::limits::Cores;
use crate::load::Load;
use crate::pace::progress;
use crate::result::{Measurement, Run};
use crate::server::{Monitor, ServerArgs, Spawned};
use crate::work::{Operation, Work};

/// The worst size may cost so many times what the smallest costs.
const RATIO_MAX: f64 = 2.0;
/// Client objects that hold the pins.
const PINNERS: usize = 4;
/// Keys of one lookup that pins.
const PIN_KEYS: usize = 512;

/// What to measure, and how often.
#[derive(Args, Debug)]
pub(crate) struct EvictArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Resident keys: the pool holds exactly so many
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,100000,1000000")]
    resident_keys: Vec<u64>,
    /// Connections; all requests out at once must stay below half of the smallest pool
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    /// Keys of a frame
    #[arg(long, value_name = "N", default_value_t = 32)]
    keys: usize,
    /// Samples of each figure; the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// Length of one sample
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    window_ms: u64,
    /// Where the result goes [default: target/bench/evict-TIME.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Measures every size in turn, without and with pins, several times over.
pub(crate) fn run(args: &EvictArgs) -> anyhow::Result<()> {
    let mut run = Run::start("evict");
    run.note("io", args.server.io.name());
    run.note("transport", args.server.transport.name());
    run.note("connections", args.connections);
    run.note("keys", args.keys);
    run.note("repeats", args.repeats);
    run.note("window_ms", args.window_ms);
    let name = |resident, pinned| {
        let pins = if pinned { ", coldest quarter pinned" } else { "" };
        Measurement::new(format!("{resident} resident keys{pins}"))
            .with("resident_keys", resident)
            .with("pinned", pinned)
    };
    let plain = args.resident_keys.iter().map(|resident| name(*resident, false));
    let mut plain: Vec<Measurement> = plain.collect();
    let pinned = args.resident_keys.iter().map(|resident| name(*resident, true));
    let mut pinned: Vec<Measurement> = pinned.collect();
    let bar = progress(args.repeats * args.resident_keys.len());
    for _ in 0..args.repeats {
        for (index, resident) in args.resident_keys.iter().enumerate() {
            bar.set_message(format!("{resident} resident keys"));
            let server = Spawned::start(&args.server, 1, *resident)?;
            let into = (&mut plain[index], &mut pinned[index]);
            let core = Monitor::connect(server.address(), &Secret::none())?.total()?.core;
            Cores::choose(u32::try_from(core).ok())
                .on_load(|| sample(args, &server, *resident, into))?;
            run.own_child(server.cpu_s());
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    derive("not pinned", &plain, &mut run);
    derive("coldest quarter pinned", &pinned, &mut run);
    for measurement in plain.into_iter().chain(pinned) {
        run.add(measurement);
    }
    run.finish(args.output.as_deref())
}

/// States the worst size against the first, the smallest.
fn derive(name: &str, measurements: &[Measurement], run: &mut Run) {
    let costs = measurements.iter().filter_map(|one| one.median("cpu_ns_per_key"));
    let costs: Vec<f64> = costs.collect();
    if let Some(first) = costs.first().filter(|first| **first > 0.0) {
        let worst = costs.iter().fold(0.0_f64, |worst, cost| worst.max(*cost));
        run.bar(format!("{name}: worst CPU per key / first size"), &[worst / first], RATIO_MAX);
    }
}

/// Fills the server, then measures stores that evict, first without pins, then with them.
fn sample(
    args: &EvictArgs,
    server: &Spawned,
    resident: u64,
    (plain, pinned): (&mut Measurement, &mut Measurement),
) -> anyhow::Result<()> {
    let address = server.address();
    let mut monitor = Monitor::connect(address, &Secret::none())?;
    let length = Duration::from_millis(args.window_ms);
    let mut load = start(args, address)?;
    // Twice the pool: every page was used, and every store since has evicted.
    while load.next_key() < resident * 2 {
        load.run_for(Duration::from_millis(20))?;
    }
    window(&mut load, &mut monitor, length, plain)?;
    load.drain()?;
    let next = load.next_key();
    let pinners = pin(address, next.saturating_sub(resident), resident / 4, pinned)?;
    load.resume();
    window(&mut load, &mut monitor, length, pinned)?;
    load.drain()?;
    plain.sample("memory_bytes_per_key", server.anonymous_bytes() as f64 / resident as f64);
    drop(pinners);
    Ok(())
}

fn start(args: &EvictArgs, address: &Address) -> anyhow::Result<Load> {
    let mut generation = Generation(0);
    let mut streams = Vec::new();
    for _ in 0..args.connections {
        let dialled = Dialled::connect(address, &Secret::none(), Purpose::Data, 0)?;
        generation = dialled.generation();
        streams.push((dialled.into_stream(), 0));
    }
    let keys = ShardKeys::new(0, 1, 0, u64::MAX);
    let what = (Operation::Reserve, args.keys);
    let work = Work::new(what, generation, &[], keys, args.connections);
    Load::start(args.server.io.io_mode(), streams, vec![work], 1)
}

fn window(
    load: &mut Load,
    monitor: &mut Monitor,
    length: Duration,
    into: &mut Measurement,
) -> anyhow::Result<()> {
    let before = monitor.total()?.evicted;
    let mut cpu_ns = || Ok(monitor.total()?.cpu_us * 1000);
    measure(load, &mut cpu_ns, (length / 5, length), into)?;
    anyhow::ensure!(monitor.total()?.evicted > before, "nothing was evicted: the pool is not full");
    Ok(())
}

/// Pins `count` keys from number `first` on, for as long as the result lives.
fn pin(
    address: &Address,
    first: u64,
    count: u64,
    into: &mut Measurement,
) -> anyhow::Result<Vec<Dialled>> {
    let keys: Vec<Key> = ShardKeys::new(0, 1, first, first + count).collect();
    let (mut pinners, mut found) = (Vec::new(), 0);
    for part in keys.chunks(keys.len().div_ceil(PINNERS).max(1)) {
        let mut pinner = Dialled::connect(address, &Secret::none(), Purpose::Data, 0)?;
        for keys in part.chunks(PIN_KEYS) {
            let lookup = Lookup { keys: keys.to_vec(), matching: Match::All };
            let counted = pinner.ask(&RequestBody::Lookup(&lookup), |reply| match reply {
                Reply::Lookup(reply) => Some(
                    reply
                        .outcomes
                        .iter()
                        .filter(|outcome| matches!(outcome, ArchivedLookupOutcome::Found(_)))
                        .count(),
                ),
                _ => None,
            })?;
            found += counted.context("the server answered a Lookup with something else")?;
        }
        pinners.push(pinner);
    }
    into.sample("pinned_percent", found as f64 / (count as f64 * 4.0) * 100.0);
    Ok(pinners)
}
