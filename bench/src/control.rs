//! `control`: what the server does with control messages, beside the bare echo of the same frames.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use maru_wire::{Key, Purpose, Secret};

use crate::dial::{Address, Dialled};
use crate::keys::{ShardKeys, shuffle};
use crate::limits::{Cores, EchoSpec, sample_echo};
use crate::load::{Load, Window};
use crate::pace::progress;
use crate::result::{Measurement, Run};
use crate::server::{Monitor, ServerArgs, Spawned};
use crate::work::{Operation, Work};

/// Keys of a frame while the pool is filled.
const FILL_KEYS: usize = 256;
/// Connections of each shard, and requests out on each, while the pool is filled.
const FILL_SHAPE: (usize, usize) = (2, 2);
/// Rest that is kept free in each shard when there are several, in parts of a hundred.
const UNEVEN_PERCENT: u64 = 5;

/// What to measure, and how often.
#[derive(Args, Debug)]
pub(crate) struct ControlArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// A running server to measure instead of starting one: tcp:HOST:PORT or unix:PATH. Its pool
    /// is filled with this benchmark's keys
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Address>,
    /// File with that server's secret
    #[arg(long, value_name = "PATH", requires = "address")]
    secret_file: Option<PathBuf>,
    /// Shards of the server that is started
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: u32,
    /// What to ask
    #[arg(long, value_delimiter = ',', default_value = "echo,exists,lookup,reserve")]
    operations: Vec<Operation>,
    /// Keys of a frame
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    keys: Vec<u16>,
    /// Connections, dealt to the shards in turn
    #[arg(long, value_name = "N", default_value_t = 8)]
    connections: usize,
    /// Requests out on each connection
    #[arg(long, value_name = "N", default_value_t = 16)]
    depth: usize,
    /// Keys in the pool: as many as it holds
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    resident_keys: u64,
    /// Samples of each figure; the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// Length of one sample
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1000)]
    window_ms: u64,
    /// Where the result goes [default: target/bench/control-TIME.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Measures every operation with every number of keys, in turn, several times over.
pub(crate) fn run(args: &ControlArgs) -> anyhow::Result<()> {
    let mut run = Run::start("control");
    note(args, &mut run);
    let secret = match &args.secret_file {
        Some(path) => Secret::new(
            std::fs::read(path)
                .with_context(|| format!("cannot read {}", path.display()))?
                .trim_ascii(),
        ),
        None => Secret::none(),
    };
    let (server, address) = match &args.address {
        Some(address) => (None, address.clone()),
        None => {
            let server = Spawned::start(&args.server, args.shards, page_count(args))?;
            let address = server.address().clone();
            (Some(server), address)
        }
    };
    let mut target = Target::connect(args, address, secret)?;
    let cases = cases(args);
    let mut measurements: Vec<Measurement> =
        cases.iter().map(|case| measurement(args, *case)).collect();
    let bar = progress(args.repeats * cases.len());
    for _ in 0..args.repeats {
        // Reserves of the round before evicted some of the keys.
        target.fill()?;
        for (case, measurement) in cases.iter().zip(&mut measurements) {
            bar.set_message(format!("{}, {} keys", case.0.name(), case.1));
            target.sample(*case, measurement)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    derive(&cases, &measurements, &mut run);
    for measurement in sorted(measurements, &cases) {
        run.add(measurement);
    }
    if let Some(server) = server {
        run.own_child(server.cpu_s());
        let per_key = server.anonymous_bytes() as f64 / args.resident_keys as f64;
        run.derive("server memory without the pool, bytes per resident key", per_key);
    }
    run.finish(args.output.as_deref())
}

fn note(args: &ControlArgs, run: &mut Run) {
    run.note("io", args.server.io.name());
    run.note("transport", args.server.transport.name());
    run.note("shards", args.shards);
    run.note("connections", args.connections);
    run.note("depth", args.depth);
    run.note("resident_keys", args.resident_keys);
    run.note("repeats", args.repeats);
    run.note("window_ms", args.window_ms);
}

/// Lists the reads first: the stores evict what they ask for.
fn cases(args: &ControlArgs) -> Vec<(Operation, usize)> {
    let mut cases: Vec<_> = args
        .keys
        .iter()
        .flat_map(|keys| args.operations.iter().map(|operation| (*operation, usize::from(*keys))))
        .collect();
    cases.sort_by_key(|(operation, _)| *operation == Operation::Reserve);
    cases
}

fn page_count(args: &ControlArgs) -> u64 {
    let spare = if args.shards > 1 { args.resident_keys * UNEVEN_PERCENT / 100 } else { 0 };
    args.resident_keys + spare
}

fn measurement(args: &ControlArgs, (operation, keys): (Operation, usize)) -> Measurement {
    Measurement::new(format!("{}, {keys} keys", operation.name()))
        .with("operation", operation.name())
        .with("keys", keys)
        .with("connections", args.connections)
        .with("depth", args.depth)
}

/// Orders the measurements by operation, so that each table shows one.
fn sorted(measurements: Vec<Measurement>, cases: &[(Operation, usize)]) -> Vec<Measurement> {
    let mut pairs: Vec<_> = cases.iter().zip(measurements).collect();
    pairs.sort_by_key(|((operation, keys), _)| (operation.name(), *keys));
    pairs.into_iter().map(|(_, measurement)| measurement).collect()
}

/// Sets the server's CPU per frame against the bare echo's.
fn derive(cases: &[(Operation, usize)], measurements: &[Measurement], run: &mut Run) {
    let find = |operation, keys| {
        let place = cases.iter().position(|case| *case == (operation, keys))?;
        measurements[place].median("cpu_ns_per_frame")
    };
    for (operation, keys) in cases.iter().filter(|(operation, _)| *operation != Operation::Echo) {
        let ours = find(*operation, *keys);
        if let (Some(ours), Some(echo)) = (ours, find(Operation::Echo, *keys)) {
            let name = format!("{}, {keys} keys: CPU per frame / bare echo", operation.name());
            run.derive(name, ours / echo);
        }
    }
}

/// The server as the benchmark uses it.
struct Target<'a> {
    args: &'a ControlArgs,
    address: Address,
    secret: Secret,
    monitor: Monitor,
    cores: Cores,
    /// Shuffled keys that fill the pool, per shard.
    resident: Vec<Vec<Key>>,
    /// Number of the next key that was never used.
    next_key: u64,
}

impl<'a> Target<'a> {
    fn connect(args: &'a ControlArgs, address: Address, secret: Secret) -> anyhow::Result<Self> {
        let mut monitor = Monitor::connect(&address, &secret)?;
        let shard_count = monitor.shard_count();
        let cores = Cores::choose(u32::try_from(monitor.total()?.core).ok());
        let resident = (0..shard_count)
            .map(|shard| {
                let mut keys: Vec<Key> =
                    ShardKeys::new(shard, shard_count, 0, args.resident_keys).collect();
                shuffle(&mut keys);
                keys
            })
            .collect();
        let next_key = args.resident_keys;
        Ok(Self { args, address, secret, monitor, cores, resident, next_key })
    }

    /// Stores every resident key that is not there.
    fn fill(&mut self) -> anyhow::Result<()> {
        let shard_count = self.monitor.shard_count();
        let spec = LoadSpec {
            what: (Operation::Reserve, FILL_KEYS),
            shape: (FILL_SHAPE.0 * shard_count as usize, FILL_SHAPE.1),
            new_keys: (0, self.args.resident_keys),
        };
        let window = self.cores.on_load(|| self.load(&spec)?.run_to_end())?;
        if window.counts.client_limit + window.counts.full > 0 {
            bail!(
                "the pool cannot be filled: {} keys met the client's limit and {} a full pool; \
                 raise --resident-keys",
                window.counts.client_limit,
                window.counts.full
            );
        }
        Ok(())
    }

    fn sample(
        &mut self,
        (operation, keys): (Operation, usize),
        into: &mut Measurement,
    ) -> anyhow::Result<()> {
        let length = Duration::from_millis(self.args.window_ms);
        let window = (length / 5, length);
        let shape = (self.args.connections, self.args.depth);
        if operation == Operation::Echo {
            let (io, transport) = (self.args.server.io.io_mode(), self.args.server.transport);
            let spec = EchoSpec { io, transport, shape, keys };
            return sample_echo(&spec, &self.cores, window, into);
        }
        let spec = LoadSpec { what: (operation, keys), shape, new_keys: (self.next_key, u64::MAX) };
        let mut monitor = Monitor::connect(&self.address, &self.secret)?;
        let before = self.monitor.total()?;
        self.next_key = self.cores.on_load(|| {
            let mut load = self.load(&spec)?;
            let mut cpu_ns = || Ok(monitor.total()?.cpu_us * 1000);
            measure(&mut load, &mut cpu_ns, window, into)?;
            load.drain()?;
            Ok(load.next_key().max(self.next_key))
        })?;
        let after = self.monitor.total()?;
        let frames = (after.frames - before.frames).max(1) as f64;
        let scratch = (after.scratch_frames - before.scratch_frames) as f64;
        into.sample("scratch_percent", scratch / frames * 100.0);
        Ok(())
    }

    fn load(&self, spec: &LoadSpec) -> anyhow::Result<Load> {
        let shard_count = self.monitor.shard_count();
        let (connections, depth) = spec.shape;
        let (mut streams, mut works) = (Vec::new(), Vec::new());
        for (index, shard) in (0..shard_count).cycle().take(connections).enumerate() {
            let dialled = Dialled::connect(&self.address, &self.secret, Purpose::Data, shard)?;
            if index < shard_count as usize {
                let (next, end) = spec.new_keys;
                let new_keys = ShardKeys::new(shard, shard_count, next, end);
                let resident = &self.resident[shard as usize];
                works.push(Work::new(
                    spec.what,
                    dialled.generation(),
                    resident,
                    new_keys,
                    connections * depth,
                ));
            }
            streams.push((dialled.into_stream(), shard as usize));
        }
        Load::start(self.args.server.io.io_mode(), streams, works, depth)
    }
}

struct LoadSpec {
    what: (Operation, usize),
    shape: (usize, usize),
    /// Numbers of the keys to store: from, and before.
    new_keys: (u64, u64),
}

/// Measures one window of a load: `cpu_ns` reads the server's CPU time so far.
pub(crate) fn measure(
    load: &mut Load,
    cpu_ns: &mut dyn FnMut() -> anyhow::Result<u64>,
    (warm_up, length): (Duration, Duration),
    into: &mut Measurement,
) -> anyhow::Result<()> {
    load.run_for(warm_up)?;
    let before = cpu_ns()?;
    let Window { counts, elapsed, latency } = load.run_for(length)?;
    let cpu = (cpu_ns()? - before) as f64;
    let (frames, keys) = (counts.frames.max(1) as f64, counts.keys.max(1) as f64);
    let seconds = elapsed.as_secs_f64();
    into.sample("frames_per_s", frames / seconds);
    into.sample("keys_per_s", counts.keys as f64 / seconds);
    into.sample("cpu_ns_per_frame", cpu / frames);
    into.sample("cpu_ns_per_key", cpu / keys);
    into.sample("cpu_percent", cpu / 1e7 / seconds);
    into.sample("p50_us", latency.value_at_quantile(0.5) as f64 / 1e3);
    into.sample("p99_us", latency.value_at_quantile(0.99) as f64 / 1e3);
    into.sample("p999_us", latency.value_at_quantile(0.999) as f64 / 1e3);
    let tried = (counts.keys + counts.others).max(1) as f64;
    into.sample("missed_percent", counts.others as f64 / tried * 100.0);
    into.add_latency(&latency);
    Ok(())
}
