//! The workers' processes: started together, kept in step, their reports gathered.

use std::ffi::OsString;
use std::io::BufReader;
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::ProgressBar;
use nix::sys::signal::Signal;

use super::args::DemoArgs;
use super::child::{Child, Output};
use super::error::DemoError;
use super::protocol::{Message, WorkerReport, receive, send_permit};
use super::server::Server;

/// How many requests a worker may be ahead of the slowest one. The stream is dealt in order, and
/// a conversation's next turn makes sense only after the last one.
const REQUESTS_AHEAD: u64 = 4;
/// How long a worker may take to end after its last line.
const END_LIMIT: Duration = Duration::from_secs(5);
/// How long a server may take to end after a worker failed, to be the reason for that.
const BLAME_LIMIT: Duration = Duration::from_millis(300);
/// How often the server is looked at while nothing else happens.
const CHECK_PERIOD: Duration = Duration::from_millis(200);

/// All that the demo waits for.
pub(crate) enum Event {
    /// A worker said something.
    Worker(usize, Message),
    /// A worker's output ended, or was no message.
    WorkerSilent(usize),
    /// The server's output ended.
    ServerEnded,
    /// The demo is to end.
    Signal(Signal),
}

/// The workers' processes.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    permitted: u64,
}

struct Worker {
    child: Child,
    input: ChildStdin,
    is_ready: bool,
    /// Requests that it has ended; without limit once it has reported.
    ended: u64,
}

impl Workers {
    /// Starts them; what they say comes as events.
    pub(crate) fn start(
        args: &DemoArgs,
        server: &Server,
        events: &Sender<Event>,
    ) -> Result<Self, DemoError> {
        let mut workers = Vec::new();
        for (index, number) in (0..args.workers).enumerate() {
            let flags = worker_flags(args, server, number);
            let mut child = Child::start(format!("worker {number}"), flags, Output::Pipe, || ())?;
            let (input, output) = child.take_pipes();
            workers.push(Worker { child, input, is_ready: false, ended: 0 });
            let events = events.clone();
            std::thread::spawn(move || forward_messages(index, output, &events));
        }
        Ok(Self { workers, permitted: 0 })
    }

    /// Lets all workers go at once and gathers what they did, and how long it took.
    pub(crate) fn run(
        &mut self,
        events: &Receiver<Event>,
        server: &mut Server,
        bar: &ProgressBar,
    ) -> Result<(WorkerReport, Duration), DemoError> {
        let mut total = WorkerReport::default();
        let mut start = Instant::now();
        while self.slowest() < u64::MAX {
            match next_event(events, server)? {
                Event::Worker(index, Message::Ready) => {
                    self.workers[index].is_ready = true;
                    if self.workers.iter().all(|worker| worker.is_ready) {
                        start = Instant::now();
                        self.permit();
                    }
                }
                Event::Worker(index, Message::Progress { requests }) => {
                    bar.inc(requests);
                    self.workers[index].ended += requests;
                    self.permit();
                }
                Event::Worker(index, Message::Done(report)) => {
                    total.add(&report);
                    self.workers[index].ended = u64::MAX;
                    self.permit();
                }
                Event::Worker(index, Message::Failed { error }) => {
                    server.check(BLAME_LIMIT)?;
                    return Err(self.workers[index].child.failure(format!("failed: {error}")));
                }
                Event::WorkerSilent(index) => self.silent(index, server)?,
                Event::ServerEnded => server.check(Duration::ZERO)?,
                Event::Signal(signal) => return Err(DemoError::Signal(signal)),
            }
        }
        let elapsed = start.elapsed();
        self.join()?;
        Ok((total, elapsed))
    }

    /// Returns how many requests the slowest worker has ended.
    fn slowest(&self) -> u64 {
        self.workers.iter().map(|worker| worker.ended).min().unwrap_or(u64::MAX)
    }

    /// Tells everybody how far they may go, when that has changed.
    fn permit(&mut self) {
        let is_alone = self.workers.len() == 1;
        let count = if is_alone { u64::MAX } else { self.slowest().saturating_add(REQUESTS_AHEAD) };
        if count == self.permitted {
            return;
        }
        self.permitted = count;
        for worker in &mut self.workers {
            // One that has ended needs none, and one that died is told by its own event.
            send_permit(&mut worker.input, count).unwrap_or_default();
        }
    }

    /// A worker says no more: in order after its report, else an error.
    fn silent(&mut self, index: usize, server: &mut Server) -> Result<(), DemoError> {
        let worker = &mut self.workers[index];
        if worker.ended == u64::MAX {
            return Ok(());
        }
        server.check(BLAME_LIMIT)?;
        let status = worker.child.wait(END_LIMIT);
        let how = status.map_or("said what is no message".to_owned(), |status| {
            format!("ended early ({status})")
        });
        Err(worker.child.failure(how))
    }

    /// Waits for the processes to end, so that nothing of theirs is left at the server.
    fn join(&mut self) -> Result<(), DemoError> {
        for Worker { child, .. } in &mut self.workers {
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
