//! The demo from start to end: server, workers, progress, result.

use std::ffi::OsString;
use std::io::{BufReader, Write};
use std::process::{ChildStdin, ChildStdout, ExitCode};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};

use super::args::{DemoArgs, OBJECT_BYTES_MAX};
use super::child::{Child, Output};
use super::error::DemoError;
use super::ideal_lru::IdealLru;
use super::protocol::{Message, WorkerReport, receive};
use super::report::{Report, Setup};
use super::server::Server;

/// Fewest pages of a shard that a server accepts.
const SHARD_BLOCKS_MIN: u64 = 16;
/// How long a worker may take to end after its last line.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How long a server may take to end after a worker failed, to be the reason for that.
const BLAME_LIMIT: Duration = Duration::from_millis(300);
/// How often the server is looked at while nothing else happens.
const CHECK_PERIOD: Duration = Duration::from_millis(200);

/// All that the demo waits for.
enum Event {
    Worker(usize, Message),
    /// The worker's output ended, or was no message.
    WorkerSilent(usize),
    ServerEnded,
    Signal(Signal),
}

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
    let (request_count, ideal_lru_hit_ratio) = simulate(args, capacity_blocks)?;

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
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    let system = |errno: nix::Error| DemoError::system("take over the signals")(errno.into());
    signals.thread_block().map_err(system)?;
    std::thread::spawn(move || {
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
    match events.try_recv() {
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

/// Reads the whole workload once: proves that it can be read, counts it, and gives the ideal.
fn simulate(args: &DemoArgs, capacity_blocks: u64) -> Result<(u64, f64), DemoError> {
    let mut ideal = IdealLru::new(usize::try_from(capacity_blocks).unwrap_or(usize::MAX));
    let mut request_count = 0;
    for request in args.workload().open()? {
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

/// The workers' processes.
struct Workers {
    children: Vec<Child>,
    inputs: Vec<ChildStdin>,
}

impl Workers {
    fn start(args: &DemoArgs, server: &Server, events: &Sender<Event>) -> Result<Self, DemoError> {
        let mut workers = Self { children: Vec::new(), inputs: Vec::new() };
        for (index, number) in (0..args.workers).enumerate() {
            let name = format!("worker {number}");
            let flags = worker_flags(args, server, number);
            let mut child = Child::start(name, flags, Output::Pipe, || ())?;
            let (input, output) = child.take_pipes();
            workers.children.push(child);
            workers.inputs.push(input);
            let events = events.clone();
            std::thread::spawn(move || forward_messages(index, output, &events));
        }
        Ok(workers)
    }

    /// Lets all workers go at once and gathers what they did, and how long it took.
    fn run(
        &mut self,
        events: &Receiver<Event>,
        server: &mut Server,
        bar: &ProgressBar,
    ) -> Result<(WorkerReport, Duration), DemoError> {
        let count = self.children.len();
        let mut ready = 0;
        let mut done = vec![false; count];
        let mut total = WorkerReport::default();
        let mut start = Instant::now();
        while done.contains(&false) {
            match next_event(events, server)? {
                Event::Worker(_, Message::Ready) => {
                    ready += 1;
                    if ready == count {
                        start = Instant::now();
                        self.go()?;
                    }
                }
                Event::Worker(_, Message::Progress { requests }) => bar.inc(requests),
                Event::Worker(index, Message::Done(report)) => {
                    total.add(&report);
                    done[index] = true;
                }
                Event::Worker(index, Message::Failed { error }) => {
                    server.check(BLAME_LIMIT)?;
                    return Err(self.children[index].failure(format!("failed: {error}")));
                }
                Event::WorkerSilent(index) if !done[index] => {
                    server.check(BLAME_LIMIT)?;
                    let status = self.children[index].wait(END_LIMIT);
                    let how = status.map_or("said what is no message".to_owned(), |status| {
                        format!("ended early ({status})")
                    });
                    return Err(self.children[index].failure(how));
                }
                Event::WorkerSilent(_) => {}
                Event::ServerEnded => server.check(Duration::ZERO)?,
                Event::Signal(signal) => return Err(DemoError::Signal(signal)),
            }
        }
        let elapsed = start.elapsed();
        self.join()?;
        Ok((total, elapsed))
    }

    fn go(&mut self) -> Result<(), DemoError> {
        for input in &mut self.inputs {
            input.write_all(b"go\n").map_err(DemoError::system("start a worker's work"))?;
        }
        Ok(())
    }

    /// Waits for the processes to end, so that nothing of theirs is left at the server.
    fn join(&mut self) -> Result<(), DemoError> {
        for child in &mut self.children {
            match child.wait(END_LIMIT) {
                Some(status) if status.success() => {}
                Some(status) => return Err(child.failure(format!("ended badly ({status})"))),
                None => return Err(child.failure(format!("did not end within {END_LIMIT:?}"))),
            }
        }
        Ok(())
    }
}

/// Waits for the next event; a server that ended in the meantime is an error.
fn next_event(events: &Receiver<Event>, server: &mut Server) -> Result<Event, DemoError> {
    loop {
        match events.recv_timeout(CHECK_PERIOD) {
            Ok(event) => return Ok(event),
            Err(RecvTimeoutError::Timeout) => server.check(Duration::ZERO)?,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the signals' thread holds one"),
        }
    }
}

fn forward_messages(index: usize, output: ChildStdout, events: &Sender<Event>) {
    let mut output = BufReader::new(output);
    let last = loop {
        match receive(&mut output) {
            Ok(Some(message)) => {
                if events.send(Event::Worker(index, message)).is_err() {
                    return;
                }
            }
            Ok(None) | Err(_) => break Event::WorkerSilent(index),
        }
    };
    // Nobody listens once the demo has ended.
    events.send(last).unwrap_or_default();
}

fn worker_flags(args: &DemoArgs, server: &Server, number: u32) -> Vec<OsString> {
    let io = args.io.to_possible_value().expect("no choice is skipped");
    let mut flags: Vec<OsString> = ["demo-worker", "--socket"].map(Into::into).into();
    flags.push(server.socket().into());
    let values = [
        ("--worker", number.to_string()),
        ("--workers", args.workers.to_string()),
        ("--object-bytes", args.object_bytes.0.to_string()),
        ("--seed", args.seed.to_string()),
        ("--io", io.get_name().to_owned()),
    ];
    for (flag, value) in values {
        flags.extend([flag.into(), value.into()]);
    }
    if let Some(trace) = &args.trace {
        flags.extend(["--trace".into(), trace.into()]);
    }
    if let Some(requests) = args.requests {
        flags.extend(["--requests".into(), requests.to_string().into()]);
    }
    flags
}
