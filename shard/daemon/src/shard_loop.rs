//! One shard's thread: turns of the reactor, one match on its events, one on its mails.
//!
//! Work per turn has a budget. What does not fit waits in a queue and goes on in the next turn, so
//! that no connection waits for another's bulk work. It decides nothing about keys.

use std::collections::VecDeque;
use std::time::Duration;

use maru_ledger::Time;
use maru_uring::mailbox::Receiver;
use maru_uring::{ConnectionId, Event, Outbox, Reactor, ReactorError, now_ns};
use maru_wire::DecodeError;

mod admission;

use crate::connection::{Connection, Standing, Turn};
use crate::executor::{Executor, Slice};
use crate::mail::{AcceptorPost, ToShard};

/// Budgets, caps and waits of a shard's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopLimits {
    /// Steps of all connections in one turn. A step is a key, or a chunk evicted.
    pub(crate) turn_steps: u32,
    /// Steps of one connection in one turn.
    pub(crate) connection_steps: u32,
    /// Mails read in one turn: hellos and deaths, whose cost rises with what the client holds.
    pub(crate) turn_mails: u32,
    /// Unsent bytes of a connection above which none of its frames is executed.
    pub(crate) out_bytes_pause: usize,
    /// Bytes that a connection may hold behind a frame in progress before it is not read any more.
    pub(crate) held_bytes_pause: usize,
    /// Bytes that arrived on all connections and are not answered. Above half of it no connection
    /// that holds any is read; above all of it the oldest unfinished frame is given up.
    pub(crate) buffered_bytes_max: usize,
    /// Bytes of unfinished frames of all connections; above it the oldest is given up. A frame of
    /// a lively client is young, so it is those who send halves that pay for them. The shards
    /// share 8 MiB, but each has 2 to 4: room for a dozen of the largest frames on their way.
    pub(crate) partial_bytes_max: usize,
    /// How long a frame may take to arrive whole.
    pub(crate) frame_timeout: Duration,
    /// How often the books are checked.
    pub(crate) check_period: Duration,
    /// Age of an overdue reservation that is warned about.
    pub(crate) quarantine_warning: Duration,
    /// How often such reservations are looked for, and warned about again.
    pub(crate) overdue_period: Duration,
    /// Pages of a shard above which its books are not checked while it serves.
    pub(crate) check_pages_max: u64,
    /// How long what is in flight may take at the end.
    pub(crate) drain_timeout: Duration,
    /// How long connections may take to close at the end.
    pub(crate) close_timeout: Duration,
}

impl LoopLimits {
    /// The limits, with the times that the configuration names.
    pub(crate) fn new(
        shard_count: usize,
        frame_timeout: Duration,
        quarantine_warning: Duration,
    ) -> Self {
        Self {
            turn_steps: 2048,
            connection_steps: 512,
            turn_mails: 16,
            out_bytes_pause: 256 * 1024,
            held_bytes_pause: 128 * 1024,
            buffered_bytes_max: 32 << 20,
            partial_bytes_max: ((8 << 20) / shard_count).clamp(2 << 20, 4 << 20),
            frame_timeout,
            check_period: Duration::from_secs(60),
            quarantine_warning,
            overdue_period: quarantine_warning.min(Duration::from_secs(60)),
            check_pages_max: 1 << 16,
            drain_timeout: Duration::from_millis(650),
            close_timeout: Duration::from_millis(300),
        }
    }
}

/// One shard. Lives on its thread.
pub(crate) struct ShardLoop {
    executor: Executor,
    limits: LoopLimits,
    mailbox: Receiver<ToShard>,
    acceptor: AcceptorPost,
    /// When the server started, on the reactor's clock.
    start_ns: u64,
    shard: u32,
    connections: Vec<Option<Connection>>,
    /// Connections that go on in the next turn, in order.
    queue: VecDeque<ConnectionId>,
    /// Connections that go on once their peer has read.
    blocked: Vec<ConnectionId>,
    /// Steps left to this turn.
    turn_budget: u32,
    /// Bytes of all unfinished frames.
    partial_bytes: usize,
    /// When the oldest unfinished frame may be due.
    frame_check: Option<Time>,
    next_check: Time,
    next_overdue_check: Time,
    ledger_has_more: bool,
    mailbox_has_more: bool,
    phase: Phase,
}

/// Where the shard is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Serving,
    /// Answers what is in flight, until nothing comes any more or the time is up.
    Draining {
        until: Time,
        active_at: Time,
    },
    /// Sends what is left and closes.
    Closing {
        until: Time,
    },
}

/// What a shard's loop is made of.
pub(crate) struct ShardParts {
    pub(crate) executor: Executor,
    pub(crate) limits: LoopLimits,
    pub(crate) mailbox: Receiver<ToShard>,
    pub(crate) acceptor: AcceptorPost,
    pub(crate) start_ns: u64,
    pub(crate) shard: u32,
}

/// How long a blocked connection waits at most before it is looked at again.
const BLOCKED_POLL_US: u64 = 10_000;
/// How long nothing may come at the end until nothing is in flight any more.
const DRAIN_QUIET_US: u64 = 10_000;
/// How often that is looked at.
const DRAIN_POLL_US: u64 = 2_000;

impl ShardLoop {
    /// Makes a shard that has no connection yet.
    pub(crate) fn new(parts: ShardParts) -> Self {
        let ShardParts { executor, limits, mailbox, acceptor, start_ns, shard } = parts;
        Self {
            executor,
            limits,
            mailbox,
            acceptor,
            start_ns,
            shard,
            connections: Vec::new(),
            queue: VecDeque::new(),
            blocked: Vec::new(),
            turn_budget: 0,
            partial_bytes: 0,
            frame_check: None,
            next_check: Time(0).after(micros(limits.check_period)),
            next_overdue_check: Time(0).after(micros(limits.overdue_period)),
            ledger_has_more: false,
            mailbox_has_more: false,
            phase: Phase::Serving,
        }
    }

    /// Serves until told to end.
    ///
    /// # Panics
    ///
    /// When the books do not balance: wrong books are worse than a restart.
    pub(crate) fn run(mut self, reactor: &mut Reactor) -> Result<(), ReactorError> {
        while !self.has_ended(reactor.outbox()) {
            self.turn_budget = self.limits.turn_steps;
            let deadline_ns = self.deadline_ns();
            reactor.turn(deadline_ns, &mut |outbox, event| self.on_event(outbox, event))?;
        }
        if let Err(error) = self.executor.ledger.check_books() {
            panic!("the books of shard {} do not balance: {error}", self.shard);
        }
        Ok(())
    }

    fn on_event(&mut self, outbox: &mut Outbox, event: Event<'_>) {
        match event {
            Event::Received { connection, bytes } => self.on_received(outbox, connection, bytes),
            Event::Drained { connection } => self.unblock(connection),
            Event::Closed { connection, cause } => self.on_closed(connection, cause),
            Event::Woken => self.on_mail(outbox),
            Event::TimedOut => self.on_time(outbox),
            Event::Connected { .. } => unreachable!("a shard connects to nobody"),
        }
    }

    fn on_mail(&mut self, outbox: &mut Outbox) {
        self.mailbox_has_more = true;
        for _ in 0..self.limits.turn_mails {
            let Some(mail) = self.mailbox.pop() else {
                self.mailbox_has_more = false;
                return;
            };
            let now = self.now();
            match mail {
                ToShard::Connected(greeted) => self.greet(outbox, *greeted),
                ToShard::IncarnationDead(incarnation) => {
                    let freed = self.executor.ledger.incarnation_dead(now, incarnation);
                    if freed > 0 {
                        tracing::info!(shard = self.shard, %incarnation, freed, "pages of a dead client are free");
                    }
                }
                ToShard::AcceptorClosed(closed) => self.executor.acceptor_closed = closed,
                ToShard::Shutdown if self.phase == Phase::Serving => {
                    let until = now.after(micros(self.limits.drain_timeout));
                    self.phase = Phase::Draining { until, active_at: now };
                }
                ToShard::Shutdown => {}
            }
        }
    }

    fn on_received(&mut self, outbox: &mut Outbox, id: ConnectionId, bytes: &[u8]) {
        // Even in a spent turn one step is left, so that a ping is always answered at once.
        let budget = self.turn_budget.clamp(1, self.limits.connection_steps);
        self.serve(outbox, id, budget, |connection, turn| connection.receive(turn, bytes));
    }

    /// Lets a connection execute, and sees to how it goes on.
    fn serve(
        &mut self,
        outbox: &mut Outbox,
        id: ConnectionId,
        budget: u32,
        step: impl FnOnce(&mut Connection, &mut Turn<'_>) -> Result<Standing, DecodeError>,
    ) {
        let now = self.now();
        let Some(connection) = find(&mut self.connections, id) else { return };
        if connection.is_closing {
            return;
        }
        let unsent_bytes = outbox.unsent_bytes(id);
        let Some(out) = outbox.send(id) else { return };
        let sending_bytes = unsent_bytes.saturating_sub(out.len());
        let out_bytes_max = self.limits.out_bytes_pause.saturating_sub(sending_bytes);
        self.executor.load.waiting_count = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let executor = &mut self.executor;
        let mut turn = Turn { executor, slice: Slice { out, now, budget }, out_bytes_max };
        let before = (connection.buffered_bytes(), connection.partial_bytes());
        let outcome = step(connection, &mut turn);
        let is_blocked = turn.slice.out.len() > turn.out_bytes_max;
        let used = budget - turn.slice.budget;
        self.turn_budget = self.turn_budget.saturating_sub(used);
        self.executor.load.buffered_bytes += connection.buffered_bytes();
        self.executor.load.buffered_bytes -= before.0;
        self.partial_bytes += connection.partial_bytes();
        self.partial_bytes -= before.1;
        let now = self.now();
        if let Phase::Draining { active_at, .. } = &mut self.phase {
            *active_at = now;
        }
        match outcome {
            Ok(standing) => self.schedule(outbox, id, standing, is_blocked),
            Err(error) => self.close(outbox, id, error.reason()),
        }
    }

    fn schedule(
        &mut self,
        outbox: &mut Outbox,
        id: ConnectionId,
        standing: Standing,
        is_blocked: bool,
    ) {
        let now = self.now();
        let buffered_bytes = self.executor.load.buffered_bytes;
        let Some(connection) = find(&mut self.connections, id) else { return };
        if connection.mid_frame_since().is_some() && self.frame_check.is_none() {
            self.frame_check = Some(now.after(micros(self.limits.frame_timeout)));
        }
        let is_crowded = buffered_bytes > self.limits.buffered_bytes_max / 2;
        let held_max = if is_crowded { 0 } else { self.limits.held_bytes_pause };
        if !connection.is_paused && connection.held_bytes() > held_max {
            connection.is_paused = true;
            outbox.pause(id);
        }
        match standing {
            Standing::Busy if connection.is_queued => {}
            Standing::Busy => {
                connection.is_queued = true;
                if is_blocked {
                    self.blocked.push(id);
                } else {
                    self.queue.push_back(id);
                }
            }
            Standing::Idle if connection.is_paused => {
                connection.is_paused = false;
                outbox.resume(id);
            }
            Standing::Idle => {}
        }
        self.give_up_unfinished(outbox);
    }

    /// Lets waiting connections go on, each once, as far as the turn's budget reaches.
    fn run_queue(&mut self, outbox: &mut Outbox) {
        self.turn_budget = self.turn_budget.max(self.limits.connection_steps);
        for _ in 0..self.queue.len() {
            let budget = self.turn_budget.min(self.limits.connection_steps);
            if budget == 0 {
                break;
            }
            let Some(id) = self.queue.pop_front() else { break };
            if let Some(connection) = find(&mut self.connections, id) {
                connection.is_queued = false;
                self.serve(outbox, id, budget, Connection::resume);
            }
        }
    }

    fn unblock(&mut self, id: ConnectionId) {
        if let Some(at) = self.blocked.iter().position(|blocked| *blocked == id) {
            self.blocked.swap_remove(at);
            self.queue.push_back(id);
        }
    }

    fn on_time(&mut self, outbox: &mut Outbox) {
        if self.mailbox_has_more {
            self.on_mail(outbox);
        }
        let now = self.now();
        let ledger = &mut self.executor.ledger;
        if self.ledger_has_more || ledger.next_deadline().is_some_and(|due| due <= now) {
            let mut budget = self.limits.connection_steps;
            self.ledger_has_more = ledger.tick(now, &mut budget);
        }
        if self.frame_check.is_some_and(|due| due <= now) {
            self.close_half_frames(outbox, now);
        }
        if self.next_check <= now {
            self.next_check = now.after(micros(self.limits.check_period));
            self.check_books();
        }
        if self.next_overdue_check <= now {
            self.next_overdue_check = now.after(micros(self.limits.overdue_period));
            self.warn_of_overdue(now);
        }
        let pause = self.limits.out_bytes_pause;
        let queue = &mut self.queue;
        self.blocked.retain(|id| {
            let is_blocked = outbox.unsent_bytes(*id) > pause / 2;
            if !is_blocked {
                queue.push_back(*id);
            }
            is_blocked
        });
        self.run_queue(outbox);
        self.end_step(outbox, now);
    }

    /// Takes the next step towards the end, if it is time for one.
    fn end_step(&mut self, outbox: &mut Outbox, now: Time) {
        let Phase::Draining { until, active_at } = self.phase else { return };
        let is_idle = self.queue.is_empty() && self.blocked.is_empty();
        let is_quiet = is_idle && now.since(active_at) >= DRAIN_QUIET_US;
        if is_quiet || until <= now {
            let until = now.after(micros(self.limits.close_timeout));
            self.phase = Phase::Closing { until };
            let open = self.connections.iter().flatten().map(|connection| connection.id);
            for id in open.collect::<Vec<_>>() {
                self.close(outbox, id, "shutdown");
            }
        }
    }

    fn has_ended(&self, outbox: &Outbox) -> bool {
        match self.phase {
            Phase::Serving | Phase::Draining { .. } => false,
            Phase::Closing { until } => outbox.connection_count() == 0 || until <= self.now(),
        }
    }

    /// When the next turn must end at the latest.
    fn deadline_ns(&self) -> Option<u64> {
        let now = self.now();
        if !self.queue.is_empty() || self.ledger_has_more || self.mailbox_has_more {
            return Some(self.start_ns);
        }
        let blocked = (!self.blocked.is_empty()).then(|| now.after(BLOCKED_POLL_US));
        let phase = match self.phase {
            Phase::Serving => None,
            Phase::Draining { .. } => Some(now.after(DRAIN_POLL_US)),
            Phase::Closing { until } => Some(until),
        };
        let ledger = self.executor.ledger.next_deadline();
        let check = Some(self.next_check.min(self.next_overdue_check));
        let due = [check, ledger, self.frame_check, blocked, phase];
        due.into_iter().flatten().min().map(|due| self.start_ns + due.0.saturating_mul(1000))
    }

    fn check_books(&self) {
        let ledger = &self.executor.ledger;
        if ledger.page_counts().total <= self.limits.check_pages_max
            && let Err(error) = ledger.check_books()
        {
            panic!("the books of shard {} do not balance: {error}", self.shard);
        }
    }

    /// S11: tells of writers that are late for too long. Their pages stay theirs.
    fn warn_of_overdue(&self, now: Time) {
        let mut stats = maru_wire::StatsReply::default();
        self.executor.ledger.fill_stats(now, &mut stats);
        if stats.overdue_count > 0
            && stats.oldest_reservation_us > micros(self.limits.quarantine_warning)
        {
            tracing::warn!(
                shard = self.shard,
                overdue_count = stats.overdue_count,
                overdue_pages = stats.pages.overdue,
                oldest_s = stats.oldest_reservation_us / 1_000_000,
                "writers have not come back for their reservations",
            );
        }
    }

    fn now(&self) -> Time {
        Time(now_ns().saturating_sub(self.start_ns) / 1000)
    }
}

fn find(connections: &mut [Option<Connection>], id: ConnectionId) -> Option<&mut Connection> {
    connections.get_mut(id.index())?.as_mut().filter(|connection| connection.id == id)
}

/// A duration in whole microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
