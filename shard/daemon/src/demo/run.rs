//! The demo from start to end: server, workers, progress, result.

use std::io::Write;
use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};

use super::args::{DemoArgs, OBJECT_BYTES_MAX};
use super::error::DemoError;
use super::ideal_lru::IdealLru;
use super::report::{Report, Setup};
use super::server::Server;
use super::workers::{Event, Workers};
use super::workload::WorkloadSpec;

/// Fewest pages of a shard that a server accepts.
const SHARD_BLOCKS_MIN: u64 = 16;
/// How often it is looked whether the simulation has ended.
const POLL: Duration = Duration::from_millis(2);

/// Runs the demo and prints its result. Fails on any wrong byte and on books that do not balance.
pub(crate) fn run(args: &DemoArgs) -> ExitCode {
    match replay(args) {
        Ok(report) => {
            let text = if args.json { report.to_json() + "\n" } else { report.to_table() };
            let printed = std::io::stdout().lock().write_all(text.as_bytes());
            if printed.is_ok() && report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("demo: {error}");
            match error {
                DemoError::Signal(signal) => {
                    ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1))
                }
                DemoError::Workload(_)
                | DemoError::NoBlocks
                | DemoError::ObjectBytes
                | DemoError::PoolTooSmall { .. }
                | DemoError::PoolTooLarge
                | DemoError::System { .. }
                | DemoError::Child { .. }
                | DemoError::Client(_) => ExitCode::FAILURE,
            }
        }
    }
}

fn replay(args: &DemoArgs) -> Result<Report, DemoError> {
    let (events_tx, events) = mpsc::channel();
    forward_signals(events_tx.clone())?;
    let capacity_blocks = check_capacity(args)?;
    let (request_count, ideal_lru_hit_ratio) =
        simulate_unless_ended(args, capacity_blocks, &events)?;

    let at_end = events_tx.clone();
    let mut server = Server::start(
        args,
        // The demo may have ended already, and then nobody needs to know.
        move || at_end.send(Event::ServerEnded).unwrap_or_default(),
        &|| first_signal(&events),
    )?;
    let mut workers = Workers::start(args, &server, &events_tx)?;
    let bar = progress_bar(args, request_count);
    let (total, elapsed) = workers.run(&events, &mut server, &bar)?;
    bar.finish_and_clear();
    let books = server.books()?;
    server.stop()?;
    let setup = Setup {
        workload: args
            .trace
            .as_ref()
            .map_or_else(|| "conversations".to_owned(), |path| path.display().to_string()),
        shards: args.shards,
        workers: args.workers,
        capacity_blocks,
        object_bytes: args.object_bytes.0,
        seed: args.seed,
    };
    Ok(Report::new(setup, &total, books, elapsed, ideal_lru_hit_ratio))
}

/// Blocks the signals that end a program and sends them as events instead.
fn forward_signals(events: Sender<Event>) -> Result<(), DemoError> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
        signals.add(signal);
    }
    let system = |errno: nix::Error| DemoError::system("take over the signals")(errno.into());
    signals.thread_block().map_err(system)?;
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Returns an error when a signal has come. Nothing else can have happened before the workers.
fn first_signal(events: &Receiver<Event>) -> Result<(), DemoError> {
    signal_within(events, Duration::ZERO)
}

/// Returns an error when a signal has come, or does within `limit`.
fn signal_within(events: &Receiver<Event>, limit: Duration) -> Result<(), DemoError> {
    match events.recv_timeout(limit) {
        Ok(Event::Signal(signal)) => Err(DemoError::Signal(signal)),
        Ok(Event::ServerEnded | Event::Worker(..) | Event::WorkerSilent(_)) | Err(_) => Ok(()),
    }
}

fn check_capacity(args: &DemoArgs) -> Result<u64, DemoError> {
    if !(1..=OBJECT_BYTES_MAX).contains(&args.object_bytes.0) {
        return Err(DemoError::ObjectBytes);
    }
    let capacity_blocks = args.capacity_blocks();
    if capacity_blocks / u64::from(args.shards) < SHARD_BLOCKS_MIN {
        return Err(DemoError::PoolTooSmall {
            capacity_blocks,
            shards: args.shards,
            blocks_min: SHARD_BLOCKS_MIN,
        });
    }
    Ok(capacity_blocks)
}

/// Simulates, and gives up when a signal comes. A trace may be long, or a pipe that says nothing.
fn simulate_unless_ended(
    args: &DemoArgs,
    capacity_blocks: u64,
    events: &Receiver<Event>,
) -> Result<(u64, f64), DemoError> {
    let workload = args.workload();
    let simulation = thread::spawn(move || simulate(&workload, capacity_blocks));
    while !simulation.is_finished() {
        signal_within(events, POLL)?;
    }
    simulation.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Reads the whole workload once: proves that it can be read, counts it, and gives the ideal.
fn simulate(workload: &WorkloadSpec, capacity_blocks: u64) -> Result<(u64, f64), DemoError> {
    let mut ideal = IdealLru::new(usize::try_from(capacity_blocks).unwrap_or(usize::MAX));
    let mut request_count = 0;
    for request in workload.open()? {
        ideal.request(&request?.blocks);
        request_count += 1;
    }
    if ideal.block_count() == 0 {
        return Err(DemoError::NoBlocks);
    }
    Ok((request_count, ideal.hit_ratio()))
}

fn progress_bar(args: &DemoArgs, request_count: u64) -> ProgressBar {
    // The target draws nothing when standard error is no terminal.
    let target =
        if args.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template(
        "{bar:40} {pos}/{len} requests  {per_sec}  {elapsed} of {duration}",
    );
    ProgressBar::with_draw_target(Some(request_count), target)
        .with_style(style.expect("a constant template that is well formed"))
}
