//! The ring thread: moves bytes between the session and the sockets. It decides nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use maru_session::{Call, CallId, CloseCause, Dial, Output, Session, SessionLimits, Time};
use maru_uring::{
    Address, Cause, ConnectError, ConnectionId, Event, Outbox, Reactor, ReactorConfig,
    ReactorError, now_ns,
};
use maru_wire::{Assembler, BODY_BYTES_MAX, FRAME_ALIGN, HEADER_BYTES};

use crate::ClientConfig;
use crate::deadline::micros;
use crate::resolver::Resolver;
use crate::shared::{Dropped, Phase, Shared, lock};

/// Sizes of a client's reactor: few connections, few buffers.
const ENTRIES: u32 = 64;
const COMPLETION_ENTRIES: u32 = 256;
const BUFFER_COUNT: u16 = 16;
/// Calls taken over in one turn, so that frames are not starved.
const SUBMITS_PER_TURN_MAX: usize = 1024;
/// Largest frame with its header and padding.
const FRAME_BYTES_MAX: usize = BODY_BYTES_MAX as usize + HEADER_BYTES + FRAME_ALIGN;

/// Starts the thread. It reports through the shared phase.
pub(crate) fn spawn(config: &ClientConfig, shared: &Arc<Shared>) -> io::Result<()> {
    let (config, shared) = (config.clone(), Arc::clone(shared));
    let builder = thread::Builder::new().name("maru-client".to_owned());
    builder.spawn(move || run(&config, &shared)).map(drop)
}

fn run(config: &ClientConfig, shared: &Arc<Shared>) {
    // A panic leaves the session in doubt: the client is closed for good, its callers told.
    let guard = CloseOnPanic(shared);
    let reactor = match Reactor::new(reactor_config(config)) {
        Ok(reactor) => reactor,
        Err(error) => {
            return shared.end_service(Phase::Failed(error.to_string()));
        }
    };
    if let Some(reason) = reactor.fallback_reason()
        && !shared.told_fallback.swap(true, Ordering::Relaxed)
    {
        tracing::warn!(reason, "maru client uses epoll: io_uring is not usable here");
    }
    let session = lock(&shared.parked).take().expect("one thread at a time runs the session");
    *lock(&shared.phase) = Phase::Running(reactor.waker());
    shared.phase_changed.notify_all();
    let mut ring = Ring {
        resolver: Resolver::new(config.address.clone()),
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
            *lock(&shared.parked) = Some(ring.session);
            Phase::Failed(error.to_string())
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

/// The session bounds the requests under way, and with them the unsent bytes. Reading must not
/// wait for sending here: the server stops reading until this end has read.
fn reactor_config(config: &ClientConfig) -> ReactorConfig {
    let send_bytes_max = SessionLimits::default().requests_per_link_max * 2 * FRAME_BYTES_MAX;
    ReactorConfig {
        send_bytes_pause: send_bytes_max,
        send_bytes_max,
        buffered_bytes_max: usize::MAX,
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
    /// Further addresses of the host, while it is not connected.
    addresses: VecDeque<Address>,
    is_connected: bool,
}

struct Ring {
    resolver: Resolver,
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
            reactor.turn(deadline_ns, &mut |outbox, event| self.take_event(outbox, event))?;
        }
    }

    fn is_done(&mut self, now: Time) -> bool {
        if !self.shared.is_stopping() {
            return false;
        }
        let stop_by = *self.stop_by.get_or_insert(now.after(self.linger_us));
        !self.session.has_debt() || now >= stop_by
    }

    fn take_event(&mut self, outbox: &mut Outbox, event: Event<'_>) {
        match event {
            Event::Connected { connection } => {
                if let Some(found) = self.connections.get_mut(&connection) {
                    found.is_connected = true;
                    self.session.connected(now(), found.dial);
                }
            }
            Event::Received { connection, bytes } => self.receive(connection, bytes),
            Event::Closed { connection, cause } => self.closed(outbox, connection, cause),
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

    fn closed(&mut self, outbox: &mut Outbox, connection: ConnectionId, cause: Cause) {
        let Some(found) = self.connections.remove(&connection) else { return };
        self.by_dial.remove(&found.dial);
        if !found.is_connected && !found.addresses.is_empty() {
            return self.connect_to(outbox, found.dial, found.addresses);
        }
        let cause = match cause {
            Cause::Error(errno) => CloseCause::System(errno),
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
        let addresses = self.resolver.addresses(now);
        self.connect_to(outbox, dial, addresses);
    }

    /// Connects to the first of `addresses` that a connection can be begun to.
    fn connect_to(&mut self, outbox: &mut Outbox, dial: Dial, mut addresses: VecDeque<Address>) {
        let mut cause = CloseCause::NoAddress;
        while let Some(address) = addresses.pop_front() {
            match outbox.connect(&address) {
                Ok(id) => {
                    let assembler = Assembler::new(BODY_BYTES_MAX);
                    let connection = Connection { dial, assembler, addresses, is_connected: false };
                    self.connections.insert(id, connection);
                    self.by_dial.insert(dial, id);
                    return;
                }
                Err(error) => cause = CloseCause::System(errno(&error)),
            }
        }
        self.session.closed(now(), dial, cause);
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

/// The system's error number behind a connection that could not be begun.
fn errno(error: &ConnectError) -> i32 {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.and_then(io::Error::raw_os_error).unwrap_or(0)
}
