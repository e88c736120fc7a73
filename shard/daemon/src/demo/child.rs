//! Processes of the demo: started from this same binary, ended with it, their last words kept.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getppid};

use super::args::ChildArgs;
use super::error::DemoError;

/// Lines of a process's log that an error shows.
const LOG_LINES_MAX: usize = 12;
/// Longest line that is kept, in bytes.
const LOG_LINE_BYTES_MAX: u64 = 2048;
/// This binary, even when its file was replaced since.
const SELF: &str = "/proc/self/exe";
const POLL: Duration = Duration::from_millis(2);

/// A process of the demo. Dropping it kills it.
pub(crate) struct Child {
    name: String,
    process: process::Child,
    log: Option<JoinHandle<VecDeque<String>>>,
}

/// Where a process's standard output goes.
pub(crate) enum Output {
    /// To its log, beside its standard error.
    Log,
    /// To a pipe that `Child::take_pipes` hands out, with its standard input.
    Pipe,
}

impl Child {
    /// Starts this binary with `args`. When its output ends, `at_end` is called.
    pub(crate) fn start(
        name: String,
        args: Vec<OsString>,
        output: Output,
        at_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, DemoError> {
        let system = DemoError::system;
        let (log_reader, log_writer) = io::pipe().map_err(system("make a pipe"))?;
        let mut command = Command::new(SELF);
        command.arg0("maru-shardd").arg("demo-child");
        command.arg("--parent").arg(process::id().to_string()).arg("--").args(args);
        // A group of its own: Ctrl-C reaches the demo only, which ends the others in order.
        command.process_group(0);
        match output {
            Output::Log => {
                let writer = log_writer.try_clone().map_err(system("copy a pipe"))?;
                command.stdin(Stdio::null()).stdout(writer);
            }
            Output::Pipe => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
            }
        }
        let process = command.stderr(log_writer).spawn().map_err(system("start a process"))?;
        // The command holds the pipe's writing end, which must close for the reader to see the end.
        drop(command);
        let log = std::thread::spawn(move || {
            let lines = last_lines(log_reader);
            at_end();
            lines
        });
        Ok(Self { name, process, log: Some(log) })
    }

    /// Takes the standard input and output of a process started with `Output::Pipe`.
    pub(crate) fn take_pipes(&mut self) -> (process::ChildStdin, process::ChildStdout) {
        let stdin = self.process.stdin.take().expect("piped, and taken once");
        let stdout = self.process.stdout.take().expect("piped, and taken once");
        (stdin, stdout)
    }

    /// Returns the exit status when the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// Waits up to `limit` for the process to end.
    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks the process to end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends the process and returns what it did, with its last lines, as an error.
    pub(crate) fn failure(&mut self, how: String) -> DemoError {
        self.end();
        let lines = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
        DemoError::Child { name: self.name.clone(), how, log: lines.into() }
    }

    fn signal(&self, signal: Signal) {
        // An ended process that was not waited for keeps its id, so this hits no other. One that
        // cannot be signalled has ended.
        if let Ok(id) = i32::try_from(self.process.id()) {
            kill(Pid::from_raw(id), signal).unwrap_or_default();
        }
    }

    fn end(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::SIGKILL);
            self.process.wait().map(drop).unwrap_or_default();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

fn last_lines(reader: PipeReader) -> VecDeque<String> {
    let mut reader = BufReader::new(reader);
    let mut lines = VecDeque::new();
    let mut line = Vec::new();
    while Read::take(&mut reader, LOG_LINE_BYTES_MAX)
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        if lines.len() == LOG_LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        line.clear();
    }
    lines
}

/// Ties this process's life to the demo's, then becomes the command it was given.
pub(crate) fn run_child(args: &ChildArgs) -> ExitCode {
    if let Err(error) = prctl::set_pdeathsig(Signal::SIGKILL) {
        eprintln!("cannot tie a process of the demo to it: {error}");
        return ExitCode::FAILURE;
    }
    // The demo may have ended before the tie was made.
    if u32::try_from(getppid().as_raw()).ok() != Some(args.parent) {
        return ExitCode::FAILURE;
    }
    if let Err(error) = SigSet::empty().thread_set_mask() {
        eprintln!("cannot unblock the signals: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(SELF).arg0("maru-shardd").args(&args.command).exec();
    eprintln!("cannot start {SELF}: {error}");
    ExitCode::FAILURE
}
