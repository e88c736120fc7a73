//! The ring thread: moves bytes between the session and the sockets. It decides nothing.

use std::collections::BTreeMap;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use maru_session::{Call, CallId, CloseCause, Dial, Output, Session, Time};
use maru_uring::{
    Address, Cause, ConnectionId, Event, Outbox, Reactor, ReactorConfig, ReactorError, now_ns,
};
use maru_wire::{Assembler, BODY_BYTES_MAX};

use crate::inner::micros;
use crate::shared::{Dropped, Phase, Shared, lock};
use crate::{ClientConfig, ServerAddress};

/// Sizes of a client's reactor: few connections, few buffers.
const ENTRIES: u32 = 64;
const COMPLETION_ENTRIES: u32 = 256;
const BUFFER_COUNT: u16 = 16;
/// Calls taken over in one turn, so that frames are not starved.
const SUBMITS_PER_TURN_MAX: usize = 1024;

/// Starts the thread. It reports through the shared phase.
pub(crate) fn spawn(
    config: &ClientConfig,
    shared: &Arc<Shared>,
    session: Box<Session>,
) -> io::Result<()> {
    let (config, shared) = (config.clone(), Arc::clone(shared));
    let builder = thread::Builder::new().name("maru-client".to_owned());
    builder.spawn(move || run(&config, &shared, session)).map(drop)
}

fn run(config: &ClientConfig, shared: &Arc<Shared>, session: Box<Session>) {
    // A panic leaves the session in doubt: the client is closed for good, its callers told.
    let guard = CloseOnPanic(shared);
    let reactor = match Reactor::new(reactor_config(config)) {
        Ok(reactor) => reactor,
        Err(error) => {
            shared.end_service(Phase::Failed(error.to_string(), Some(session)));
            return;
        }
    };
    if let Some(reason) = reactor.fallback_reason()
        && !shared.told_fallback.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(reason, "maru client uses epoll: io_uring is not usable here");
    }
    *lock(&shared.phase) = Phase::Running(reactor.waker());
    shared.phase_changed.notify_all();
    let mut ring = Ring {
        address: config.address.clone(),
        resolved: None,
        shared: Arc::clone(shared),
        session,
        connections: BTreeMap::new(),
        by_dial: BTreeMap::new(),
        dropped: Dropped::default(),
        stop_by: None,
        linger_us: micros(config.control_timeout),
    };
    let ended = ring.serve(reactor);
    let phase = match ended {
        Ok(()) => Phase::Closed,
        Err(error) => {
            ring.close_all();
            Phase::Failed(error.to_string(), Some(ring.session))
        }
    };
    shared.set_layout(None);
    shared.end_service(phase);
    drop(guard);
}

struct CloseOnPanic<'a>(&'a Shared);

impl Drop for CloseOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end_service(Phase::Closed);
        }
    }
}

fn reactor_config(config: &ClientConfig) -> ReactorConfig {
    ReactorConfig {
        io: config.io,
        entries: ENTRIES,
        completion_entries: COMPLETION_ENTRIES,
        buffer_count: BUFFER_COUNT,
        spin_us: u32::try_from(config.spin.as_micros()).unwrap_or(u32::MAX),
        ..ReactorConfig::default()
    }
}

struct Connection {
    dial: Dial,
    assembler: Assembler,
}

struct Ring {
    address: ServerAddress,
    /// The address of a named host, kept until a connection to it fails.
    resolved: Option<Address>,
    shared: Arc<Shared>,
    session: Box<Session>,
    connections: BTreeMap<ConnectionId, Connection>,
    by_dial: BTreeMap<Dial, ConnectionId>,
    dropped: Dropped,
    /// When to stop at the latest, once asked to.
    stop_by: Option<Time>,
    linger_us: u64,
}

fn now() -> Time {
    Time(now_ns() / 1000)
}

impl Ring {
    fn serve(&mut self, mut reactor: Reactor) -> Result<(), ReactorError> {
        loop {
            self.take_calls();
            self.session.timer(now());
            self.carry_out(reactor.outbox());
            if self.is_done(now()) {
                // One more turn sends what the session said last.
                return reactor.turn(Some(now_ns()), &mut |_, _| {});
            }
            let deadline = [self.session.next_deadline(), self.stop_by].into_iter().flatten().min();
            let deadline_ns = deadline.map(|time| time.0.saturating_mul(1000));
            reactor.turn(deadline_ns, &mut |_, event| self.take_event(event))?;
        }
    }

    fn is_done(&mut self, now: Time) -> bool {
        if !self.shared.is_stopping() {
            return false;
        }
        let stop_by = *self.stop_by.get_or_insert(now.after(self.linger_us));
        !self.session.has_debt() || now >= stop_by
    }

    fn take_event(&mut self, event: Event<'_>) {
        match event {
            Event::Connected { connection } => {
                if let Some(found) = self.connections.get(&connection) {
                    self.session.connected(now(), found.dial);
                }
            }
            Event::Received { connection, bytes } => self.receive(connection, bytes),
            Event::Closed { connection, cause } => self.closed(connection, cause),
            Event::Drained { .. } | Event::Woken | Event::TimedOut => {}
        }
    }

    fn receive(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let Some(found) = self.connections.get_mut(&connection) else { return };
        let (dial, mut input, now) = (found.dial, bytes, now());
        loop {
            match found.assembler.next(&mut input) {
                Ok(None) => return,
                Ok(Some(frame)) => {
                    if let Some(call) = self.session.frame(now, dial, &frame)
                        && !self.shared.slots.reply(call, &frame)
                    {
                        self.session.late(now, dial, &frame);
                    }
                    if !self.session.is_open(dial) {
                        return;
                    }
                }
                Err(error) => return self.session.broken(now, dial, error.reason()),
            }
        }
    }

    fn closed(&mut self, connection: ConnectionId, cause: Cause) {
        let Some(found) = self.connections.remove(&connection) else { return };
        self.by_dial.remove(&found.dial);
        let cause = match cause {
            Cause::Error(errno) => {
                self.resolved = None;
                CloseCause::System(errno)
            }
            Cause::PeerClosed
            | Cause::PeerReset
            | Cause::Requested(_)
            | Cause::SendStalled
            | Cause::BufferLimit => CloseCause::Closed,
        };
        self.session.closed(now(), found.dial, cause);
    }

    /// Takes over what callers handed in: calls first, then what was let go.
    fn take_calls(&mut self) {
        let now = now();
        for _ in 0..SUBMITS_PER_TURN_MAX {
            let Some(id) = self.shared.submitted.pop() else { break };
            self.submit(now, id);
        }
        if !self.shared.submitted.is_empty() {
            self.shared.wake();
        }
        let mut dropped = std::mem::take(&mut self.dropped);
        self.shared.take_dropped(&mut dropped);
        for id in dropped.given_up.drain(..) {
            self.session.give_up(now, id);
        }
        for entry in dropped.abandoned.drain(..) {
            self.session.abandon(now, entry.shard, &[entry.ticket], entry.after_error);
        }
        for entry in dropped.released.drain(..) {
            let pins = (entry.lease, entry.keep);
            self.session.release(now, entry.generation, entry.shard, pins);
        }
        self.dropped = dropped;
    }

    fn submit(&mut self, now: Time, id: CallId) {
        // The caller may have given up before its call was seen.
        let Some(slot) = self.shared.slots.lock(id) else { return };
        let Some(intent) = &slot.intent else { return };
        match intent.op {
            None => self.session.reach(now, id, intent.link),
            Some(op) => self.session.submit(
                now,
                &Call {
                    id,
                    link: intent.link,
                    generation: intent.generation,
                    op,
                    item_count: intent.item_count,
                    tickets: &slot.tickets,
                    after_error: intent.after_error,
                    frame: &slot.request,
                },
            ),
        }
    }

    /// Does what the session wants done.
    fn carry_out(&mut self, outbox: &mut Outbox) {
        // Callers that are told of a new generation must find its layout.
        self.shared.set_layout(self.session.layout());
        while let Some(output) = self.session.next_output() {
            match output {
                Output::Connect(dial) => self.connect(outbox, dial),
                Output::Close(dial, reason) => {
                    if let Some(connection) = self.by_dial.remove(&dial) {
                        self.connections.remove(&connection);
                        outbox.abort(connection, reason);
                    }
                }
                Output::Send(dial) => {
                    let connection = self.by_dial.get(&dial).copied();
                    if let Some(buffer) = connection.and_then(|id| outbox.send(id)) {
                        self.session.take_output(dial, buffer);
                    }
                }
                Output::Complete(call, result) => {
                    self.shared.set_layout(self.session.layout());
                    self.shared.slots.complete(call, result);
                }
            }
        }
    }

    fn connect(&mut self, outbox: &mut Outbox, dial: Dial) {
        let connected =
            self.resolve().and_then(|address| outbox.connect(&address).map_err(io::Error::other));
        match connected {
            Ok(connection) => {
                let assembler = Assembler::new(BODY_BYTES_MAX);
                self.connections.insert(connection, Connection { dial, assembler });
                self.by_dial.insert(dial, connection);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                self.session.closed(now(), dial, CloseCause::System(errno));
            }
        }
    }

    /// Returns the address to connect to. Looks a host's name up; that may block this thread,
    /// never a caller past its deadline.
    fn resolve(&mut self) -> io::Result<Address> {
        if let Some(address) = &self.resolved {
            return Ok(address.clone());
        }
        let address = match &self.address {
            ServerAddress::Unix(path) => Address::Unix(path.clone()),
            ServerAddress::Tcp { host, port } => {
                let mut found = (host.as_str(), *port).to_socket_addrs()?;
                Address::Tcp(found.next().ok_or_else(|| io::Error::other("no address"))?)
            }
        };
        self.resolved = Some(address.clone());
        Ok(address)
    }

    /// Tells the session that every connection is gone.
    fn close_all(&mut self) {
        for connection in std::mem::take(&mut self.connections).into_values() {
            self.session.closed(now(), connection.dial, CloseCause::Closed);
        }
        self.by_dial.clear();
        while let Some(output) = self.session.next_output() {
            if let Output::Connect(dial) = output {
                self.session.closed(now(), dial, CloseCause::Closed);
            }
        }
    }
}
