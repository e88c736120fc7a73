//! The acceptor thread: accepts, challenges, reads hellos, hands connections to their shards.
//!
//! It keeps what no single shard can know: the processes of the clients, their attach connections
//! and the proof of their death. It never waits for one peer, and executes no request.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use maru_region::{Region, trim_heap};
use maru_transfer::shm::{PeerError, PeerProcess};
use maru_uring::mailbox::Sender;
use maru_wire::{ClosedCount, Generation, Incarnation, encode_challenge};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{SockaddrStorage, getpeername};

mod clients;
mod incarnations;
mod listeners;
mod pending;
mod processes;
mod terms;
mod throttle;

use incarnations::{Incarnations, Part};
pub(crate) use listeners::{ListenError, Listeners};
use pending::{Origin, Pending, Progress};
use processes::ProcessNumber;
pub(crate) use terms::Terms;
use throttle::Throttle;

use crate::mail::{AcceptorMailbox, ToAcceptor, ToShard};
use crate::reasons::Reasons;

const TOKEN_TCP: u64 = 0;
const TOKEN_UNIX: u64 = 1;
const TOKEN_BELL: u64 = 2;
const TOKEN_FIRST: u64 = 16;
/// Marks the end of a client's process; the other bits are the process's number.
const TOKEN_PROCESS: u64 = 1 << 63;

/// Why a connection was closed whose process could not be watched.
const NO_DESCRIPTOR: &str = "no_descriptor";

/// Limits and waits of the acceptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptorLimits {
    /// How long a connection may take to say hello, and to take its refusal.
    pub(crate) hello_timeout: Duration,
    /// Connections that have not said hello. One more drops the oldest.
    pub(crate) pending_max: usize,
    /// Bytes of unfinished hellos. More drop the oldest.
    pub(crate) pending_bytes_max: usize,
    /// Connections accepted before others are looked after.
    pub(crate) accept_batch: usize,
    /// Client objects that are known at one time.
    pub(crate) incarnations_max: usize,
    /// Connections of one shard.
    pub(crate) connections_max: u32,
    /// How long nothing is accepted when the process has no descriptor left.
    pub(crate) accept_pause: Duration,
    /// Time between two reports of closed connections to shard 0.
    pub(crate) report_pause: Duration,
    /// How long after a connection's end its memory is given back to the system.
    pub(crate) trim_pause: Duration,
}

impl AcceptorLimits {
    /// The limits for `connections_max` connections of a shard.
    pub(crate) fn new(connections_max: u32) -> Self {
        Self {
            hello_timeout: Duration::from_secs(2),
            pending_max: 1024,
            pending_bytes_max: 4 << 20,
            accept_batch: 64,
            incarnations_max: 16_384,
            connections_max,
            accept_pause: Duration::from_millis(100),
            report_pause: Duration::from_millis(20),
            trim_pause: Duration::from_secs(5),
        }
    }
}

/// What an acceptor is made of.
#[derive(Debug)]
pub(crate) struct AcceptorParts {
    pub(crate) generation: Generation,
    pub(crate) terms: Arc<Terms>,
    pub(crate) limits: AcceptorLimits,
    pub(crate) listeners: Listeners,
    pub(crate) regions: Arc<Vec<Region>>,
    pub(crate) shards: Vec<Sender<ToShard>>,
    pub(crate) mailbox: AcceptorMailbox,
}

/// The acceptor. `run` it on a thread of its own.
#[derive(Debug)]
pub(crate) struct Acceptor {
    generation: Generation,
    terms: Arc<Terms>,
    limits: AcceptorLimits,
    listeners: Listeners,
    regions: Arc<Vec<Region>>,
    shards: Vec<ShardLink>,
    mailbox: AcceptorMailbox,
    epoll: Epoll,
    next_token: u64,
    /// Oldest first: tokens rise.
    pending: BTreeMap<u64, Pending>,
    pending_bytes: usize,
    attached: HashMap<u64, Attached>,
    incarnations: Incarnations<PeerProcess>,
    /// Clients without connections that were forgotten for lack of room.
    forgotten: Throttle,
    /// How often no descriptor was left.
    starved: Throttle,
    closed: Reasons,
    report_due: Option<Instant>,
    trim_due: Option<Instant>,
    accept_again: Option<Instant>,
    is_ending: bool,
}

/// One shard as the acceptor sees it.
#[derive(Debug)]
struct ShardLink {
    mailbox: Sender<ToShard>,
    /// Mails that must arrive and found the mailbox full.
    waiting: VecDeque<ToShard>,
    connection_count: u32,
}

/// A connection that holds the regions' descriptors: its process's sign of life.
#[derive(Debug)]
struct Attached {
    socket: OwnedFd,
    incarnation: Incarnation,
}

impl Acceptor {
    /// Prepares to accept. Nobody can connect before the listeners listen.
    pub(crate) fn new(parts: AcceptorParts) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let AcceptorParts { generation, terms, limits, listeners, regions, shards, mailbox } =
            parts;
        epoll.add(&mailbox.bell, EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_BELL))?;
        let shards = shards.into_iter().map(|mailbox| ShardLink {
            mailbox,
            waiting: VecDeque::new(),
            connection_count: 0,
        });
        let acceptor = Self {
            generation,
            terms,
            limits,
            listeners,
            regions,
            shards: shards.collect(),
            mailbox,
            epoll,
            next_token: TOKEN_FIRST,
            pending: BTreeMap::new(),
            pending_bytes: 0,
            attached: HashMap::new(),
            incarnations: Incarnations::new(limits.incarnations_max),
            forgotten: Throttle::default(),
            starved: Throttle::default(),
            closed: Reasons::default(),
            report_due: None,
            trim_due: None,
            accept_again: None,
            is_ending: false,
        };
        acceptor.watch_listeners()?;
        Ok(acceptor)
    }

    /// Accepts until told to end. Returns itself, so that the attach connections stay open until
    /// the shards have ended.
    pub(crate) fn run(mut self) -> nix::Result<Self> {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let count = match self.epoll.wait(&mut events, self.timeout(Instant::now())) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(errno),
            };
            for event in &events[..count] {
                self.on_event(event.data())?;
            }
            self.on_time(Instant::now())?;
            let is_delivered = self.deliver_waiting();
            if self.is_ending && is_delivered {
                return Ok(self);
            }
        }
    }

    fn on_event(&mut self, token: u64) -> nix::Result<()> {
        match token {
            TOKEN_TCP | TOKEN_UNIX => self.accept(token),
            TOKEN_BELL => self.read_mail(),
            _ if token & TOKEN_PROCESS != 0 => {
                self.on_process_end(ProcessNumber(token & !TOKEN_PROCESS))
            }
            _ if self.pending.contains_key(&token) => self.read_hello(token),
            _ => {
                self.read_attached(token);
                Ok(())
            }
        }
    }

    fn accept(&mut self, token: u64) -> nix::Result<()> {
        for _ in 0..self.limits.accept_batch {
            if self.accept_again.is_some() {
                return Ok(());
            }
            let accepted = match (token, &self.listeners) {
                (TOKEN_TCP, Listeners { tcp: Some(tcp), .. }) => tcp.accept(),
                (TOKEN_UNIX, Listeners { unix: Some(unix), .. }) => unix.accept(),
                _ => return Ok(()),
            };
            match accepted {
                Ok(socket) => self.challenge(socket, token)?,
                Err(Errno::EAGAIN) => return Ok(()),
                // Said before it is looked whether anybody waits.
                Err(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                    if self.listeners.is_awaited() {
                        self.find_descriptors()?;
                    }
                    return Ok(());
                }
                // The connection was broken off before it was accepted.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Gives up the oldest handshake for its descriptors, or stops accepting for a while. Returns
    /// whether there are descriptors now.
    fn find_descriptors(&mut self) -> nix::Result<bool> {
        if self.drop_oldest() {
            return Ok(true);
        }
        self.starved.add(1);
        self.unwatch_listeners()?;
        self.accept_again = Some(Instant::now() + self.limits.accept_pause);
        Ok(false)
    }

    fn challenge(&mut self, socket: OwnedFd, token: u64) -> nix::Result<()> {
        let origin = loop {
            match origin(&socket, token) {
                Ok(origin) => break origin,
                // Its process could not be watched. Later it can: its client tries again.
                Err(reason) if reason == NO_DESCRIPTOR && self.find_descriptors()? => {}
                Err(reason) => {
                    self.count(reason);
                    return Ok(());
                }
            }
        };
        while self.pending.len() >= self.limits.pending_max {
            self.drop_oldest();
        }
        let mut server_nonce = [0; 32];
        getrandom::fill(&mut server_nonce).expect("the kernel gives random bytes once it runs");
        let mut frame = Vec::new();
        encode_challenge(&mut frame, self.generation, &self.terms.challenge(server_nonce));
        let deadline = Instant::now() + self.limits.hello_timeout;
        match Pending::challenge(socket, origin, server_nonce, deadline, &frame) {
            Ok(pending) => {
                let token = self.take_token();
                self.epoll.add(&pending.socket, EpollEvent::new(readable(), token))?;
                self.pending.insert(token, pending);
            }
            Err(reason) => self.count(reason),
        }
        Ok(())
    }

    fn read_hello(&mut self, token: u64) -> nix::Result<()> {
        let Some(pending) = self.pending.get_mut(&token) else { return Ok(()) };
        let before = pending.buffered_bytes();
        let progress = pending.read();
        self.pending_bytes += pending.buffered_bytes();
        self.pending_bytes -= before;
        match progress {
            Progress::Waiting => {
                while self.pending_bytes > self.limits.pending_bytes_max {
                    self.drop_oldest();
                }
            }
            Progress::Over(reason) => {
                self.drop_pending(token);
                self.count(reason);
            }
            Progress::Said(said) => {
                if let Some(pending) = self.drop_pending(token) {
                    self.epoll.delete(&pending.socket)?;
                    self.answer(pending, *said)?;
                }
            }
        }
        Ok(())
    }

    fn read_mail(&mut self) -> nix::Result<()> {
        // Fails only when the bell was not rung.
        self.mailbox.bell.read().unwrap_or_default();
        while let Ok(mail) = self.mailbox.queue.try_recv() {
            match mail {
                ToAcceptor::Closed { shard, incarnation } => {
                    self.shards[shard as usize].connection_count -= 1;
                    self.disconnect(incarnation, Part::Open);
                    self.trim_later();
                }
                ToAcceptor::Shutdown => self.end()?,
            }
        }
        Ok(())
    }

    /// Stops listening, gives up handshakes, and tells the shards to end. Once is enough.
    fn end(&mut self) -> nix::Result<()> {
        if self.is_ending {
            return Ok(());
        }
        self.is_ending = true;
        self.unwatch_listeners()?;
        self.listeners = Listeners { tcp: None, unix: None };
        self.pending.clear();
        self.tell_all(|| ToShard::Shutdown);
        Ok(())
    }

    fn timeout(&self, now: Instant) -> EpollTimeout {
        if self.shards.iter().any(|shard| !shard.waiting.is_empty()) {
            return EpollTimeout::from(1u8);
        }
        let oldest = self.pending.first_key_value().map(|(_, pending)| pending.deadline);
        let warning = [self.forgotten.due(now), self.starved.due(now)].into_iter().flatten().min();
        let dues = [oldest, self.report_due, self.trim_due, self.accept_again, warning];
        let due = dues.into_iter().flatten().min();
        due.map_or(EpollTimeout::NONE, |due| {
            // Rounded up, so that it is due when the wait ends.
            let wait_ms = due.saturating_duration_since(now).as_millis() + 1;
            EpollTimeout::try_from(wait_ms).unwrap_or(EpollTimeout::MAX)
        })
    }

    fn on_time(&mut self, now: Instant) -> nix::Result<()> {
        while let Some((token, pending)) = self.pending.first_key_value()
            && pending.deadline <= now
        {
            let token = *token;
            let is_refused = pending.is_refused();
            self.drop_pending(token);
            if !is_refused {
                self.count("hello_timeout");
            }
        }
        if self.accept_again.is_some_and(|again| again <= now) && !self.is_ending {
            self.accept_again = None;
            self.watch_listeners()?;
        }
        self.warn(now);
        if self.trim_due.is_some_and(|due| due <= now) {
            self.trim_due = None;
            trim_heap();
        }
        if self.report_due.is_some_and(|due| due <= now) {
            self.report_due = None;
            let mut closed: Vec<ClosedCount> = Vec::new();
            self.closed.add_to(&mut closed);
            // Waits behind nothing of importance: a newer report follows a lost one.
            if self.shards[0].mailbox.try_send(ToShard::AcceptorClosed(closed)).is_err() {
                self.report_due = Some(now + self.limits.report_pause);
            }
        }
        Ok(())
    }

    /// Says what went wrong, rarely.
    fn warn(&mut self, now: Instant) {
        if let Some(count) = self.forgotten.take(now) {
            tracing::warn!(count, "forgot clients without connections: no room");
        }
        if let Some(count) = self.starved.take(now) {
            let advice = "no descriptor is left for a new connection: raise `ulimit -n`";
            tracing::warn!(count, "{advice}");
        }
    }

    /// Mails what found a full mailbox before. Returns whether nothing waits any more.
    fn deliver_waiting(&mut self) -> bool {
        for shard in &mut self.shards {
            while let Some(mail) = shard.waiting.pop_front() {
                if let Err(mail) = shard.mailbox.try_send(mail) {
                    shard.waiting.push_front(mail);
                    break;
                }
            }
        }
        self.shards.iter().all(|shard| shard.waiting.is_empty())
    }

    /// Mails something to every shard, now or as soon as there is room.
    fn tell_all(&mut self, mail: impl Fn() -> ToShard) {
        for shard in &mut self.shards {
            shard.waiting.push_back(mail());
        }
        self.deliver_waiting();
    }

    /// Counts a connection closed by the acceptor, to be reported soon.
    fn count(&mut self, reason: &'static str) {
        self.closed.count(reason);
        self.trim_later();
        if self.report_due.is_none() {
            self.report_due = Some(Instant::now() + self.limits.report_pause);
        }
    }

    /// What connections held is scattered over the heaps, which do not shrink by themselves.
    fn trim_later(&mut self) {
        let pause = self.limits.trim_pause;
        self.trim_due.get_or_insert_with(|| Instant::now() + pause);
    }

    fn drop_oldest(&mut self) -> bool {
        let Some(token) = self.pending.keys().next().copied() else { return false };
        self.drop_pending(token);
        self.count("hello_dropped");
        true
    }

    fn drop_pending(&mut self, token: u64) -> Option<Pending> {
        let pending = self.pending.remove(&token)?;
        self.pending_bytes -= pending.buffered_bytes();
        Some(pending)
    }

    fn take_token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    fn watch_listeners(&self) -> nix::Result<()> {
        if let Some(tcp) = &self.listeners.tcp {
            self.epoll.add(tcp, EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_TCP))?;
        }
        if let Some(unix) = &self.listeners.unix {
            self.epoll.add(unix, EpollEvent::new(EpollFlags::EPOLLIN, TOKEN_UNIX))?;
        }
        Ok(())
    }

    /// Stops looking for new connections. They wait in the backlog meanwhile.
    fn unwatch_listeners(&mut self) -> nix::Result<()> {
        if self.accept_again.take().is_some() {
            return Ok(());
        }
        if let Some(tcp) = &self.listeners.tcp {
            self.epoll.delete(tcp)?;
        }
        if let Some(unix) = &self.listeners.unix {
            self.epoll.delete(unix)?;
        }
        Ok(())
    }
}

fn readable() -> EpollFlags {
    EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP
}

/// Finds out who connected. Fails with a reason when that is not possible any more.
fn origin(socket: &OwnedFd, token: u64) -> Result<Origin, &'static str> {
    if token == TOKEN_UNIX {
        let process = match PeerProcess::of(socket.as_fd()) {
            Ok(process) => process,
            Err(PeerError::NoDescriptor(_)) => return Err(NO_DESCRIPTOR),
            Err(_) => return Err("peer_unknown"),
        };
        return Ok(Origin::Unix { uid: process.uid(), process: Some(process) });
    }
    let peer: SockaddrStorage = getpeername(socket.as_raw_fd()).map_err(|_| "peer_reset")?;
    let address = listeners::socket_address(&peer).ok_or("peer_unknown")?;
    Ok(Origin::Tcp(address.ip()))
}
