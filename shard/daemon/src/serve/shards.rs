//! The shards' threads: each makes its reactor and its ledger, says that it is ready, and serves.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use maru_ledger::{Config as LedgerConfig, Eviction, Extent, Shard};
use maru_plan::{Plan, ShardPlan};
use maru_uring::mailbox::{Sender, channel};
use maru_uring::{IoMode, Reactor, ReactorConfig, ReactorError};
use maru_wire::Limits;

use super::error::StartError;
use super::{EXIT_THREAD, Run, random};
use crate::acceptor::Terms;
use crate::config::{Config, EvictionChoice, IoChoice};
use crate::executor::{Executor, Facts};
use crate::mail::{AcceptorPost, ToShard};
use crate::shard_loop::{LoopLimits, ShardLoop, ShardParts, micros};

/// Mails that may wait for a shard. More connections than this at once are tried again.
const MAILS_MAX: usize = 1024;

/// What all shards of a run have in common.
pub(crate) struct Common<'a> {
    pub(crate) run: &'a Run<'a>,
    pub(crate) terms: &'a Arc<Terms>,
    pub(crate) post: &'a AcceptorPost,
    pub(crate) start_ns: u64,
}

/// What a shard's thread is started with.
struct Seedling {
    shard: u32,
    core: Option<u32>,
    ledger: LedgerConfig,
    extents: Vec<Extent>,
    reactor: ReactorConfig,
    limits: LoopLimits,
    terms: Arc<Terms>,
    post: AcceptorPost,
    start_ns: u64,
}

type Started = Result<Sender<ToShard>, ReactorError>;

/// Shards that serve, in order of their numbers.
pub(crate) struct Serving {
    pub(crate) mailboxes: Vec<Sender<ToShard>>,
    pub(crate) threads: Vec<JoinHandle<()>>,
}

/// Counts the plan's shards.
pub(crate) fn count(plan: &Plan) -> u32 {
    u32::try_from(plan.shards.len()).expect("a plan has at most 1024 shards")
}

/// The limits told to attach connections, which belong to no shard.
pub(crate) fn attach_limits(run: &Run<'_>) -> Limits {
    let config = ledger_config(run, 0);
    let page_count = run.plan.shards.first().map_or(0, ShardPlan::page_count);
    let caps = config.caps_for(u32::try_from(page_count).unwrap_or(u32::MAX), 1);
    Limits {
        reserved_pages_max: caps.reserved_pages_max,
        pinned_pages_max: caps.pinned_pages_max,
        ..config.limits
    }
}

/// Starts a thread with a name.
pub(crate) fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    let thread = std::thread::Builder::new().name(name.clone()).spawn(body);
    thread.map_err(|source| StartError::Thread { name, source })
}

impl Common<'_> {
    /// Starts every shard and waits until all are ready.
    pub(crate) fn start_all(&self) -> Result<Serving, StartError> {
        let mut starting = Vec::new();
        for plan in &self.run.plan.shards {
            let seedling = self.seedling(plan);
            let (tell, told) = sync_channel(1);
            let thread = spawn(format!("shard-{}", plan.shard), move || seedling.grow(&tell))?;
            starting.push((plan.shard, told, thread));
        }
        let mut mailboxes = Vec::new();
        let mut threads = Vec::new();
        for (shard, told, thread) in starting {
            let name = || format!("shard-{shard}");
            let started = told.recv().map_err(|_| StartError::ThreadEnded { name: name() })?;
            mailboxes.push(started.map_err(|source| StartError::Reactor { shard, source })?);
            threads.push(thread);
        }
        Ok(Serving { mailboxes, threads })
    }

    fn seedling(&self, plan: &ShardPlan) -> Seedling {
        let config = self.run.config;
        let extents = plan.extents.iter().map(|extent| Extent {
            region: extent.region,
            page_index: extent.page_index,
            page_count: extent.page_count,
        });
        Seedling {
            shard: plan.shard,
            core: plan.core,
            ledger: ledger_config(self.run, plan.shard),
            extents: extents.collect(),
            reactor: reactor_config(config),
            limits: LoopLimits::new(
                self.run.plan.shards.len(),
                config.frame_timeout,
                config.quarantine_warning,
            ),
            terms: Arc::clone(self.terms),
            post: self.post.clone(),
            start_ns: self.start_ns,
        }
    }
}

impl Seedling {
    /// The body of the thread. Everything is made on it, so that its memory is near its core.
    fn grow(self, tell: &SyncSender<Started>) {
        let shard = self.shard;
        let core = self.core.filter(|core| match maru_numa::pin_current_thread(*core) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(shard, %error, "the shard is not pinned");
                false
            }
        });
        let mut reactor = match Reactor::new(self.reactor) {
            Ok(reactor) => reactor,
            Err(error) => return drop(tell.send(Err(error))),
        };
        if shard == 0
            && let Some(reason) = reactor.fallback_reason()
        {
            tracing::warn!(reason, "io_uring is not usable, so the shards use epoll");
        }
        let (sender, mailbox) = channel(MAILS_MAX, reactor.waker());
        let facts = Facts {
            generation: self.ledger.generation,
            terms: self.terms,
            core,
            io: reactor.io().name(),
        };
        let parts = ShardParts {
            executor: Executor::new(Shard::new(self.ledger, &self.extents), facts),
            limits: self.limits,
            mailbox,
            acceptor: self.post,
            start_ns: self.start_ns,
            shard,
        };
        // Fails when another shard could not start, and the process is about to end.
        if tell.send(Ok(sender)).is_err() {
            return;
        }
        if let Err(error) = ShardLoop::new(parts).run(&mut reactor) {
            tracing::error!(shard, %error, "the shard cannot go on, so the process ends");
            std::process::exit(EXIT_THREAD);
        }
    }
}

fn ledger_config(run: &Run<'_>, shard: u32) -> LedgerConfig {
    let config = run.config;
    let shard_count = count(run.plan);
    let mut ledger = LedgerConfig::new(shard, shard_count, run.generation, run.plan.page_bytes);
    ledger.limits.reservation_ttl_us = micros(config.reservation_ttl);
    ledger.limits.lease_ttl_us = micros(config.lease_ttl);
    ledger.limits.fence_us = micros(config.fence);
    ledger.eviction = match config.eviction {
        EvictionChoice::Lru => Eviction::Lru,
        EvictionChoice::None => Eviction::None,
    };
    random(&mut ledger.seed);
    ledger
}

fn reactor_config(config: &Config) -> ReactorConfig {
    ReactorConfig {
        io: match config.io {
            IoChoice::Auto => IoMode::Auto,
            IoChoice::Uring => IoMode::Uring,
            IoChoice::Epoll => IoMode::Epoll,
        },
        connections_max: config.connections_max,
        ..ReactorConfig::default()
    }
}
