//! One worker: an engine that looks up, loads, verifies and stores the blocks of its requests.

use std::io::{self, BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use maru_client::{
    Client, ClientConfig, Failure, Key, LoadItem, LoadOutcome, Match, ServerAddress, StoreItem,
    StoreOutcome,
};

use super::args::WorkerArgs;
use super::pattern;
use super::protocol::{Message, WorkerReport, receive_permit, send};
use super::workload::{NAMESPACE, Request, WorkloadError, key_of};
use crate::config::IoChoice;

/// How long one call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(20);
/// Bytes that one batch moves at most, unless a single object is larger.
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Time between two lines of progress.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// Why a worker gave up.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    #[error("{call} failed: {source}")]
    Call { call: &'static str, source: maru_client::Error },
    #[error("a {call} was not carried out: {failure}")]
    Key { call: &'static str, failure: Failure },
    #[error("an object came back with {loaded} bytes of {stored}")]
    Size { loaded: u64, stored: usize },
    #[error("the pool does not take an object of {0} bytes")]
    Rejected(usize),
    #[error("the demo closed the pipe: {0}")]
    Pipe(#[from] io::Error),
}

/// Runs one worker to its end; its report goes to standard output.
pub(crate) fn run_worker(args: &WorkerArgs) -> ExitCode {
    let mut output = io::stdout().lock();
    let (message, code) = match work(args, &mut output) {
        Ok(report) => (Message::Done(Box::new(report)), ExitCode::SUCCESS),
        Err(error) => (Message::Failed { error: error.to_string() }, ExitCode::FAILURE),
    };
    if send(&mut output, &message).is_err() { ExitCode::FAILURE } else { code }
}

fn work(args: &WorkerArgs, output: &mut impl Write) -> Result<WorkerReport, WorkerError> {
    let mut engine = Engine::new(args)?;
    send(output, &Message::Ready)?;
    let mut permit = Permit::new(io::stdin().lock());
    let (mut said, mut requests_said) = (Instant::now(), 0);
    for request in args.workload().open_share(args.worker, args.workers)? {
        permit.wait_for(engine.report.requests)?;
        engine.serve(&request?)?;
        // Others may wait for this one's progress; a lone worker tells it for the bar only.
        if args.workers > 1 || said.elapsed() >= PROGRESS_PERIOD {
            let requests = engine.report.requests - requests_said;
            send(output, &Message::Progress { requests })?;
            (said, requests_said) = (Instant::now(), engine.report.requests);
        }
    }
    Ok(engine.report)
}

/// How many requests the demo lets this worker begin; raised by lines on a pipe.
struct Permit<R> {
    lines: R,
    count: u64,
}

impl<R: BufRead> Permit<R> {
    fn new(lines: R) -> Self {
        Self { lines, count: 0 }
    }

    /// Waits until request number `number`, counted from 0, may begin.
    fn wait_for(&mut self, number: u64) -> Result<(), WorkerError> {
        while self.count <= number {
            self.count = receive_permit(&mut self.lines)?;
        }
        Ok(())
    }
}

/// The client, its buffers and what was counted so far.
struct Engine {
    client: Client,
    object_bytes: usize,
    batch_keys: usize,
    buffer: Vec<u8>,
    keys: Vec<Key>,
    report: WorkerReport,
}

impl Engine {
    /// Makes the client and waits for the server's first answer.
    fn new(args: &WorkerArgs) -> Result<Self, WorkerError> {
        let address = ServerAddress::Unix(args.socket.clone());
        let mut config = ClientConfig::new(address, NAMESPACE);
        config.io = args.io.io_mode();
        config.object_bytes_max = args.object_bytes;
        config.control_timeout = CALL_DEADLINE;
        let failed = |call| move |source| WorkerError::Call { call, source };
        let client = Client::new(config).map_err(failed("making a client"))?;
        client.attachment(CALL_DEADLINE).map_err(failed("attaching"))?;
        let object_bytes = usize::try_from(args.object_bytes).unwrap_or(usize::MAX);
        let batch_keys = usize::try_from((BATCH_BYTES_MAX / args.object_bytes).max(1));
        Ok(Self {
            client,
            object_bytes,
            batch_keys: batch_keys.expect("at most 64 Mi"),
            buffer: Vec::new(),
            keys: Vec::new(),
            report: WorkerReport::default(),
        })
    }

    /// Does what an engine does with one prompt.
    fn serve(&mut self, request: &Request) -> Result<(), WorkerError> {
        let namespace = self.client.namespace();
        self.keys.clear();
        self.keys.extend(request.blocks.iter().map(|block| key_of(&namespace, *block)));
        let keys = std::mem::take(&mut self.keys);
        let found = self.look_up(&keys)?;
        let loaded = self.load(&keys[..found])?;
        self.store(&keys[loaded..])?;
        self.report.requests += 1;
        self.report.blocks += keys.len() as u64;
        self.report.found += found as u64;
        self.report.loaded += loaded as u64;
        self.report.lost += (found - loaded) as u64;
        self.keys = keys;
        Ok(())
    }

    /// Returns the length of the leading run.
    fn look_up(&mut self, keys: &[Key]) -> Result<usize, WorkerError> {
        if keys.is_empty() {
            return Ok(0);
        }
        let start = Instant::now();
        let presence = self
            .client
            .exists(keys, Match::Leading, CALL_DEADLINE)
            .map_err(|source| WorkerError::Call { call: "exists", source })?;
        self.report.lookup.record(start.elapsed());
        Ok(presence.leading_count)
    }

    /// Loads and verifies. Returns how many leading keys were still there.
    fn load(&mut self, keys: &[Key]) -> Result<usize, WorkerError> {
        let mut loaded = 0;
        let mut elapsed = Duration::ZERO;
        for batch in keys.chunks(self.batch_keys) {
            self.buffer.resize(self.object_bytes * batch.len().max(1), 0);
            let slots = self.buffer.chunks_exact_mut(self.object_bytes);
            let mut items: Vec<LoadItem<'_>> =
                batch.iter().zip(slots).map(|(key, into)| LoadItem { key: *key, into }).collect();
            let start = Instant::now();
            let outcomes = self
                .client
                .load(&mut items, Match::Leading, CALL_DEADLINE)
                .map_err(|source| WorkerError::Call { call: "load", source })?;
            elapsed += start.elapsed();
            let run = leading_loaded(&outcomes, self.object_bytes)?;
            for item in &items[..run] {
                self.report.wrong_bytes += pattern::wrong_bytes(&item.key, item.into);
            }
            loaded += run;
            if run < batch.len() {
                break;
            }
        }
        if !keys.is_empty() {
            self.report.load.record(elapsed);
        }
        Ok(loaded)
    }

    fn store(&mut self, keys: &[Key]) -> Result<(), WorkerError> {
        let mut elapsed = Duration::ZERO;
        for batch in keys.chunks(self.batch_keys) {
            self.buffer.resize(self.object_bytes * batch.len(), 0);
            for (key, slot) in batch.iter().zip(self.buffer.chunks_exact_mut(self.object_bytes)) {
                pattern::fill(key, slot);
            }
            let slots = self.buffer.chunks_exact(self.object_bytes);
            let items: Vec<StoreItem<'_>> = batch
                .iter()
                .zip(slots)
                .map(|(key, bytes)| StoreItem { key: *key, bytes })
                .collect();
            let start = Instant::now();
            let outcomes = self
                .client
                .store(&items, CALL_DEADLINE)
                .map_err(|source| WorkerError::Call { call: "store", source })?;
            elapsed += start.elapsed();
            self.count_stored(&outcomes)?;
        }
        if !keys.is_empty() {
            self.report.store.record(elapsed);
        }
        Ok(())
    }

    fn count_stored(&mut self, outcomes: &[StoreOutcome]) -> Result<(), WorkerError> {
        for outcome in outcomes {
            match outcome {
                StoreOutcome::Stored => self.report.stored += 1,
                StoreOutcome::Present | StoreOutcome::InFlight => self.report.skipped += 1,
                StoreOutcome::Full | StoreOutcome::Growing(_) | StoreOutcome::Cleared => {
                    self.report.full += 1;
                }
                StoreOutcome::Rejected => return Err(WorkerError::Rejected(self.object_bytes)),
                StoreOutcome::Failed(failure) => {
                    return Err(WorkerError::Key { call: "store", failure: *failure });
                }
            }
        }
        Ok(())
    }
}

/// Returns how many leading objects are whole; an object of another size is an error.
fn leading_loaded(outcomes: &[LoadOutcome], object_bytes: usize) -> Result<usize, WorkerError> {
    let size = |loaded| Err(WorkerError::Size { loaded, stored: object_bytes });
    for (index, outcome) in outcomes.iter().enumerate() {
        match outcome {
            LoadOutcome::Loaded(bytes) if *bytes == object_bytes => {}
            LoadOutcome::Loaded(bytes) => return size(*bytes as u64),
            LoadOutcome::TooLarge(bytes) => return size(*bytes),
            LoadOutcome::Missing | LoadOutcome::NotTried | LoadOutcome::NotHeld => {
                return Ok(index);
            }
            LoadOutcome::Failed(failure) => {
                return Err(WorkerError::Key { call: "load", failure: *failure });
            }
        }
    }
    Ok(outcomes.len())
}

impl IoChoice {
    /// Returns the client's word for this choice.
    pub(crate) fn io_mode(self) -> maru_client::IoMode {
        match self {
            Self::Auto => maru_client::IoMode::Auto,
            Self::Uring => maru_client::IoMode::Uring,
            Self::Epoll => maru_client::IoMode::Epoll,
        }
    }
}
