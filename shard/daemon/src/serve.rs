//! `serve`: from a configuration to a serving process, and back to nothing.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use maru_plan::Plan;
use maru_region::Region;
use maru_uring::now_ns;
use maru_wire::Generation;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

mod error;
mod memory;
mod probe;
mod ready;
mod shards;
mod signals;

use crate::acceptor::{Acceptor, AcceptorLimits, AcceptorParts, Listeners, Terms};
use crate::cli::ServeArgs;
use crate::config::Config;
use crate::log;
use crate::mail::{AcceptorPost, ToAcceptor};
use error::StartError;
use ready::Addresses;
use shards::{Common, Serving};
use signals::Signals;

/// Exit code of a panic, as the runtime's own.
const EXIT_PANIC: i32 = 101;
/// Exit code of a thread that cannot go on.
const EXIT_THREAD: i32 = 1;
/// Exit code of a configuration that was refused.
const EXIT_CONFIG: u8 = 2;

/// Serves a pool until SIGTERM or SIGINT.
pub(crate) fn run(args: &ServeArgs) -> ExitCode {
    let config = match Config::load(args.options.clone(), args.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("maru-shardd: {error}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    log::start(config.log_format);
    end_on_panic();
    match serve(&config, args.ready_fd) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("cannot serve: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(config: &Config, ready_fd: Option<u32>) -> Result<(), StartError> {
    // Before any thread starts, so that no other takes the signals.
    let signals = Signals::block()?;
    raise_descriptor_limit();
    let start_ns = now_ns();
    let plan = memory::plan(config)?;
    // Before memory is taken, so that an address in use is found at once.
    let listeners = Listeners::bind(config.tcp, config.unix.as_deref())?;
    let Some(regions) = memory::take(config, &plan, &signals)? else { return Ok(()) };
    let run = Run { config, plan: &plan, generation: random_generation(), start_ns };
    let running = run.start(listeners, regions)?;
    let announced = ready::announce(&run, &running.addresses, ready_fd);
    let served = announced.and_then(|()| {
        let signal = signals.wait()?;
        tracing::info!(%signal, "shutting down");
        Ok(())
    });
    // Also after an error, so that the socket goes.
    running.end();
    served?;
    tracing::info!("ended");
    Ok(())
}

/// A shard that panics may have wrong books: no other thread may go on.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        tracing::error!("a thread panicked, so the process ends");
        std::process::exit(EXIT_PANIC);
    }));
}

/// Every connection needs a descriptor, every process of clients one more.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open descriptors");
    }
}

fn random_generation() -> Generation {
    let mut bytes = [0; 8];
    random(&mut bytes);
    // Zero means "any" on the wire.
    Generation(u64::from_le_bytes(bytes).max(1))
}

/// Fills `bytes` from the kernel.
fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel gives random bytes once it runs");
}

/// One run of the server.
struct Run<'a> {
    config: &'a Config,
    plan: &'a Plan,
    generation: Generation,
    /// On the reactors' clock.
    start_ns: u64,
}

/// The threads of a serving process.
struct Running {
    post: AcceptorPost,
    acceptor: JoinHandle<Acceptor>,
    shards: Vec<JoinHandle<()>>,
    addresses: Addresses,
}

impl Run<'_> {
    /// Starts the shards, then the acceptor, then lets clients connect.
    fn start(&self, listeners: Listeners, regions: Vec<Region>) -> Result<Running, StartError> {
        let Self { config, plan, generation, start_ns } = *self;
        // One mail for each connection, and a few of the main thread.
        let mails_max = config.connections_max as usize * plan.shards.len() + 16;
        let (post, mailbox) =
            AcceptorPost::new(mails_max).map_err(StartError::system("eventfd"))?;
        let terms = Arc::new(Terms {
            secret: config.secret.clone(),
            node_name: config.node_name.clone(),
            namespaces: config.namespaces.clone(),
            shard_count: shards::count(plan),
            limits: shards::attach_limits(self),
            regions: memory::infos(plan),
        });
        let common = Common { run: self, terms: &terms, post: &post, start_ns };
        let Serving { mailboxes, threads } = common.start_all()?;
        let addresses = Addresses::of(&listeners);
        listeners.listen()?;
        let parts = AcceptorParts {
            generation,
            terms,
            limits: AcceptorLimits::new(config.connections_max),
            listeners,
            regions: Arc::new(regions),
            shards: mailboxes,
            mailbox,
        };
        let acceptor = Acceptor::new(parts).map_err(StartError::system("epoll"))?;
        let acceptor = shards::spawn("acceptor".to_owned(), move || run_acceptor(acceptor))?;
        Ok(Running { post, acceptor, shards: threads, addresses })
    }
}

impl Running {
    /// Stops accepting, lets the shards answer what is in flight, and waits for them.
    fn end(self) {
        self.post.send(ToAcceptor::Shutdown);
        // A panic ends the process before it could be joined.
        let acceptor = self.acceptor.join();
        for shard in self.shards {
            drop(shard.join());
        }
        // The clients' attach connections, their sign that the server lives, close last.
        drop(acceptor);
    }
}

fn run_acceptor(acceptor: Acceptor) -> Acceptor {
    match acceptor.run() {
        Ok(acceptor) => acceptor,
        Err(error) => {
            tracing::error!(%error, "the acceptor cannot go on, so the process ends");
            std::process::exit(EXIT_THREAD);
        }
    }
}

#[cfg(test)]
mod tests;
