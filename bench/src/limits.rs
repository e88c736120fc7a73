//! `limits`: what this machine can do, whatever the server does.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use hdrhistogram::Histogram;
use maru_uring::{Io, IoMode};
use maru_wire::Generation;

use crate::control::measure;
use crate::dial::Stream;
use crate::echo::{Echo, Transport, pair};
use crate::keys::{ShardKeys, key};
use crate::load::Load;
use crate::pace::progress;
use crate::result::{Measurement, Run, new_histogram};
use crate::work::{Operation, Work};

const SYSTEM_CALLS: u32 = 500_000;
const ROUND_TRIPS_ALONE: u32 = 20_000;
const ROUND_TRIPS_OF_TWO: u32 = 5_000;
/// Bytes of a small request and of its answer: a frame with one key.
const SMALL_BYTES: usize = 96;
/// Bytes copied in one sample.
const COPY_TOTAL_BYTES: usize = 512 << 20;
/// Connections and requests out on each, of the echoes.
const SHAPES: [(usize, usize); 2] = [(1, 1), (8, 16)];
const KEYS: [usize; 2] = [1, 64];
const WARM_UP: Duration = Duration::from_millis(100);

/// What to measure, and how often.
#[derive(Args, Debug)]
pub(crate) struct LimitsArgs {
    /// Samples of each figure; the median counts
    #[arg(long, value_name = "N", default_value_t = 5)]
    repeats: usize,
    /// Length of one echo sample
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500)]
    window_ms: u64,
    /// Where the result goes [default: target/bench/limits-TIME.json]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// One thing to measure.
enum Case {
    SystemCall,
    Alone(Transport),
    Two { transport: Transport, spin: bool },
    Copy { block_bytes: usize },
    Echo { io: IoMode, transport: Transport, shape: (usize, usize), keys: usize },
}

impl Case {
    /// Lists all cases, those with the same metrics together.
    fn all() -> Vec<Self> {
        let transports = [Transport::Tcp, Transport::Unix];
        let mut cases = vec![Self::SystemCall];
        cases.extend(transports.map(Self::Alone));
        for transport in transports {
            cases.extend([false, true].map(|spin| Self::Two { transport, spin }));
        }
        cases.extend([64 << 10, 4 << 20].map(|block_bytes| Self::Copy { block_bytes }));
        for transport in transports {
            for shape in SHAPES {
                for keys in KEYS {
                    let ios = [IoMode::Uring, IoMode::Epoll];
                    cases.extend(ios.map(|io| Self::Echo { io, transport, shape, keys }));
                }
            }
        }
        cases
    }

    fn name(&self) -> String {
        match self {
            Self::SystemCall => "system call (getppid)".to_owned(),
            Self::Alone(transport) => {
                format!("{} round trip, one thread, 4 calls", transport.name())
            }
            Self::Two { transport, spin } => {
                let how = if *spin { "spinning" } else { "blocking" };
                format!("{} round trip, two threads, {how}", transport.name())
            }
            Self::Copy { block_bytes } => format!("memcpy, blocks of {} KiB", block_bytes >> 10),
            Self::Echo { io, transport, shape: (connections, depth), keys } => {
                let io = if *io == IoMode::Uring { Io::Uring } else { Io::Epoll };
                let (io, transport) = (io.name(), transport.name());
                format!("echo, {io}, {transport}, {connections} x {depth}, {keys} keys")
            }
        }
    }

    fn sample(
        &self,
        cores: &Cores,
        args: &LimitsArgs,
        into: &mut Measurement,
    ) -> anyhow::Result<()> {
        match self {
            Self::SystemCall => into.sample("ns", cores.on_load(|| Ok(system_call_ns()))?),
            Self::Alone(transport) => into.sample("ns", cores.on_load(|| alone_ns(*transport))?),
            Self::Two { transport, spin } => {
                let latency = two_threads(*transport, *spin, cores)?;
                into.sample("p50_us", latency.value_at_quantile(0.5) as f64 / 1e3);
                into.sample("p99_us", latency.value_at_quantile(0.99) as f64 / 1e3);
                into.add_latency(&latency);
            }
            Self::Copy { block_bytes } => {
                into.sample("gb_per_s", cores.on_load(|| Ok(copy_gb_per_s(*block_bytes)))?)
            }
            Self::Echo { io, transport, shape, keys } => {
                let spec = EchoSpec { io: *io, transport: *transport, shape: *shape, keys: *keys };
                let window = (WARM_UP, Duration::from_millis(args.window_ms));
                sample_echo(&spec, cores, window, into)?;
            }
        }
        Ok(())
    }
}

/// Runs the whole list, `repeats` times over, so that no figure has a quiet moment to itself.
pub(crate) fn run(args: &LimitsArgs) -> anyhow::Result<()> {
    let mut run = Run::start("limits");
    let cores = Cores::choose(None);
    run.note("repeats", args.repeats);
    run.note("window_ms", args.window_ms);
    let cases = Case::all();
    let mut measurements: Vec<_> = cases.iter().map(|case| Measurement::new(case.name())).collect();
    let bar = progress(args.repeats * cases.len());
    for _ in 0..args.repeats {
        for (case, measurement) in cases.iter().zip(&mut measurements) {
            bar.set_message(case.name());
            let sampled = case.sample(&cores, args, measurement);
            sampled.with_context(|| case.name())?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for measurement in measurements {
        run.add(measurement);
    }
    run.finish(args.output.as_deref())
}

/// Which core serves, and which asks.
pub(crate) struct Cores {
    pub(crate) server: u32,
    load: u32,
}

impl Cores {
    /// Chooses the load's core as far as possible from the server's, which may be known.
    pub(crate) fn choose(server: Option<u32>) -> Self {
        let allowed = maru_numa::allowed_cpus();
        let server = server.or(allowed.first().copied()).unwrap_or(0);
        let load = allowed.iter().rev().copied().find(|core| *core != server).unwrap_or(server);
        Self { server, load }
    }

    /// Runs `work` on a thread that is pinned to the load's core.
    pub(crate) fn on_load<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        pinned_to(self.load, work)
    }
}

/// Runs `work` on a thread that is pinned to `core`. Threads and processes that the caller starts
/// are not pinned with it.
pub(crate) fn pinned_to<T: Send>(
    core: u32,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let pinned = || {
        if let Err(error) = maru_numa::pin_current_thread(core) {
            eprintln!("warning: a load is not pinned: {error}");
        }
        work()
    };
    let joined = std::thread::scope(|scope| scope.spawn(pinned).join());
    joined.unwrap_or_else(|_| Err(anyhow::anyhow!("a load's thread panicked")))
}

/// One echo to measure.
pub(crate) struct EchoSpec {
    pub(crate) io: IoMode,
    pub(crate) transport: Transport,
    /// Connections, and requests out on each.
    pub(crate) shape: (usize, usize),
    pub(crate) keys: usize,
}

/// Measures one echo for one window.
pub(crate) fn sample_echo(
    spec: &EchoSpec,
    cores: &Cores,
    window: (Duration, Duration),
    into: &mut Measurement,
) -> anyhow::Result<()> {
    let (connections, depth) = spec.shape;
    let shape = (connections, u32::try_from(spec.keys)?);
    let (echo, streams) = Echo::start(spec.io, cores.server, spec.transport, shape)?;
    let keys: Vec<_> = (0..64 * spec.keys as u64).map(key).collect();
    let none = ShardKeys::new(0, 1, 0, 0);
    let what = (Operation::Echo, spec.keys);
    let work = Work::new(what, Generation(1), &keys, none, connections * depth);
    let streams = streams.into_iter().map(|stream| (stream, 0)).collect();
    let asked = cores.on_load(|| {
        let mut load = Load::start(spec.io, streams, vec![work], depth)?;
        measure(&mut load, &mut || Ok(echo.cpu_ns()), window, into)?;
        load.drain()
    });
    // Its own error says more than that of the load, which only sees a closed connection.
    echo.join()?;
    asked
}

fn system_call_ns() -> f64 {
    let start = Instant::now();
    for _ in 0..SYSTEM_CALLS {
        black_box(nix::unistd::getppid());
    }
    start.elapsed().as_nanos() as f64 / f64::from(SYSTEM_CALLS)
}

/// One thread plays both ends: four system calls, and no wake-up.
fn alone_ns(transport: Transport) -> anyhow::Result<f64> {
    let (mut near, mut far) = pair(transport)?;
    let mut bytes = [1; SMALL_BYTES];
    let start = Instant::now();
    for _ in 0..ROUND_TRIPS_ALONE {
        near.write_all(&bytes)?;
        far.read_exact(&mut bytes)?;
        far.write_all(&bytes)?;
        near.read_exact(&mut bytes)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(ROUND_TRIPS_ALONE))
}

fn two_threads(transport: Transport, spin: bool, cores: &Cores) -> anyhow::Result<Histogram<u64>> {
    let (mut near, mut far) = pair(transport)?;
    if spin {
        near.set_nonblocking()?;
        far.set_nonblocking()?;
    }
    let core = cores.server;
    let other = std::thread::spawn(move || -> std::io::Result<()> {
        // Unpinned it measures something else, which the spread then shows.
        maru_numa::pin_current_thread(core).unwrap_or_default();
        let mut bytes = [0; SMALL_BYTES];
        for _ in 0..ROUND_TRIPS_OF_TWO {
            read_all(&mut far, &mut bytes)?;
            far.write_all(&bytes)?;
        }
        Ok(())
    });
    let latency = cores.on_load(|| {
        let mut latency = new_histogram();
        let mut bytes = [1; SMALL_BYTES];
        for _ in 0..ROUND_TRIPS_OF_TWO {
            let start = Instant::now();
            near.write_all(&bytes)?;
            read_all(&mut near, &mut bytes)?;
            latency.saturating_record(u64::try_from(start.elapsed().as_nanos())?);
        }
        drop(near);
        Ok(latency)
    });
    other.join().map_err(|_| anyhow::anyhow!("the other thread panicked"))??;
    latency
}

/// Reads exactly `bytes`, over and over when the socket does not wait.
fn read_all(stream: &mut Stream, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies blocks from one large buffer to another, so that large blocks come from memory.
fn copy_gb_per_s(block_bytes: usize) -> f64 {
    let area = (block_bytes * 16).max(1 << 20);
    let from = vec![1_u8; area];
    let mut to = vec![0_u8; area];
    let start = Instant::now();
    let mut copied = 0;
    while copied < COPY_TOTAL_BYTES {
        let at = copied % area;
        to[at..at + block_bytes].copy_from_slice(black_box(&from[at..at + block_bytes]));
        copied += block_bytes;
    }
    black_box(&to);
    copied as f64 / start.elapsed().as_nanos() as f64
}
