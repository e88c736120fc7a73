//! Many connections, each with many requests out, driven by one thread on our own reactor.
//!
//! Closed loop: an answer brings the next request. Latency counts from the hand-over of a request
//! to the turn's send until its answer is read.

use std::time::Duration;

use anyhow::bail;
use hdrhistogram::Histogram;
use maru_uring::{ConnectionId, Event, IoMode, Outbox, Reactor, ReactorConfig, now_ns};
use maru_wire::{Assembler, BODY_BYTES_MAX, decode_reply};

use crate::dial::Stream;
use crate::result::new_histogram;
use crate::work::{Counts, Next, Work};

/// How long a load may go without any answer.
const SILENCE_LIMIT_NS: u64 = 30_000_000_000;
/// How long a turn may wait when nothing happens.
const TURN_NS: u64 = 100_000_000;

/// What one window of a load gave.
pub(crate) struct Window {
    pub(crate) counts: Counts,
    pub(crate) elapsed: Duration,
    /// Latency of each frame, in nanoseconds.
    pub(crate) latency: Histogram<u64>,
}

struct Connection {
    id: ConnectionId,
    assembler: Assembler,
    work: usize,
    /// When each slot's request was sent; 0 for a free slot.
    sent_ns: Vec<u64>,
}

/// A load at work.
pub(crate) struct Load {
    reactor: Reactor,
    state: State,
}

/// All but the reactor, which lends itself to the events' handler.
struct State {
    connections: Vec<Connection>,
    /// By the connection's index in the reactor.
    by_index: Vec<usize>,
    works: Vec<Work>,
    outstanding: usize,
    is_draining: bool,
    latency: Histogram<u64>,
    failure: Option<anyhow::Error>,
}

impl Load {
    /// Takes over streams past their handshake, each with the index of its shard's work, and sends
    /// the first `depth` requests on each.
    pub(crate) fn start(
        io: IoMode,
        streams: Vec<(Stream, usize)>,
        works: Vec<Work>,
        depth: usize,
    ) -> anyhow::Result<Self> {
        // It keeps busy, so that the server is what waits.
        Self::start_spinning(1000, io, streams, works, depth)
    }

    /// As `start`, but polls for `spin_us` after an event before it leaves the core to others.
    pub(crate) fn start_spinning(
        spin_us: u32,
        io: IoMode,
        streams: Vec<(Stream, usize)>,
        works: Vec<Work>,
        depth: usize,
    ) -> anyhow::Result<Self> {
        let config = ReactorConfig { io, spin_us, ..ReactorConfig::default() };
        let mut reactor = Reactor::new(config)?;
        let mut state = State {
            connections: Vec::new(),
            by_index: Vec::new(),
            works,
            outstanding: 0,
            is_draining: false,
            latency: new_histogram(),
            failure: None,
        };
        for (stream, work) in streams {
            let Ok(id) = reactor.outbox().add(stream.into_fd()?) else {
                bail!("the reactor takes no more connections");
            };
            if state.by_index.len() <= id.index() {
                state.by_index.resize(id.index() + 1, usize::MAX);
            }
            state.by_index[id.index()] = state.connections.len();
            let assembler = Assembler::new(BODY_BYTES_MAX);
            state.connections.push(Connection { id, assembler, work, sent_ns: vec![0; depth] });
        }
        let mut load = Self { reactor, state };
        load.resume();
        Ok(load)
    }

    /// Runs for `duration` and returns what happened in that time.
    pub(crate) fn run_for(&mut self, duration: Duration) -> anyhow::Result<Window> {
        self.state.reset();
        let start = now_ns();
        let end = start + u64::try_from(duration.as_nanos())?;
        self.run_while(|_, now| now < end)?;
        Ok(self.window(start))
    }

    /// Runs until the keys are used up and every answer has come.
    pub(crate) fn run_to_end(&mut self) -> anyhow::Result<Window> {
        self.state.reset();
        let start = now_ns();
        self.run_while(|state, _| state.outstanding > 0)?;
        Ok(self.window(start))
    }

    /// Runs until `is_over`, then waits until every answer has come. Counts both.
    pub(crate) fn run_until(&mut self, is_over: impl Fn() -> bool) -> anyhow::Result<Counts> {
        self.state.reset();
        self.run_while(|_, _| !is_over())?;
        self.drain()?;
        Ok(self.state.total())
    }

    /// Begins nothing new and waits until every answer has come.
    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        self.state.is_draining = true;
        self.run_while(|state, _| state.outstanding > 0)
    }

    /// Goes on after a drain.
    pub(crate) fn resume(&mut self) {
        self.state.is_draining = false;
        for connection in 0..self.state.connections.len() {
            for slot in 0..self.state.connections[connection].sent_ns.len() {
                self.state.begin(self.reactor.outbox(), connection, slot, now_ns());
            }
        }
    }

    /// Returns the number from which on no key was used.
    pub(crate) fn next_key(&self) -> u64 {
        self.state.works.iter().map(Work::next_key).max().unwrap_or(0)
    }

    fn run_while(&mut self, mut go_on: impl FnMut(&State, u64) -> bool) -> anyhow::Result<()> {
        let mut heard_ns = now_ns();
        let mut heard_frames = self.state.total().frames;
        loop {
            let now = now_ns();
            if !go_on(&self.state, now) {
                return Ok(());
            }
            let state = &mut self.state;
            self.reactor.turn(Some(now + TURN_NS), &mut |outbox, event| state.on(outbox, event))?;
            if let Some(failure) = state.failure.take() {
                return Err(failure);
            }
            let frames = state.total().frames;
            if frames != heard_frames {
                (heard_frames, heard_ns) = (frames, now);
            } else if now - heard_ns > SILENCE_LIMIT_NS {
                bail!("no answer for {} s", SILENCE_LIMIT_NS / 1_000_000_000);
            }
        }
    }

    fn window(&self, start_ns: u64) -> Window {
        Window {
            counts: self.state.total(),
            elapsed: Duration::from_nanos(now_ns() - start_ns),
            latency: self.state.latency.clone(),
        }
    }
}

impl State {
    fn reset(&mut self) {
        for work in &mut self.works {
            work.counts = Counts::default();
        }
        self.latency.reset();
    }

    fn total(&self) -> Counts {
        self.works.iter().fold(Counts::default(), |sum, work| Counts {
            frames: sum.frames + work.counts.frames,
            keys: sum.keys + work.counts.keys,
            others: sum.others + work.counts.others,
            client_limit: sum.client_limit + work.counts.client_limit,
            full: sum.full + work.counts.full,
            not_held: sum.not_held + work.counts.not_held,
        })
    }

    fn on(&mut self, outbox: &mut Outbox, event: Event<'_>) {
        match event {
            Event::Received { connection, bytes } => {
                if let Err(error) = self.received(outbox, connection, bytes) {
                    self.failure.get_or_insert(error);
                }
            }
            Event::Closed { cause, .. } => {
                let error = anyhow::anyhow!("the server closed a connection: {}", cause.reason());
                self.failure.get_or_insert(error);
            }
            Event::Connected { .. } | Event::Drained { .. } | Event::Woken | Event::TimedOut => {}
        }
    }

    fn received(
        &mut self,
        outbox: &mut Outbox,
        id: ConnectionId,
        bytes: &[u8],
    ) -> anyhow::Result<()> {
        let now = now_ns();
        let place = self.by_index[id.index()];
        let mut input = bytes;
        loop {
            let connection = &mut self.connections[place];
            let Some(frame) = connection.assembler.next(&mut input)? else { return Ok(()) };
            let request_id = frame.header.request_id;
            let slot = usize::try_from(request_id)?;
            let Some(sent_ns) = connection.sent_ns.get_mut(slot).filter(|sent| **sent > 0) else {
                bail!("an answer to request {request_id}, which is not out");
            };
            self.latency.saturating_record(now - *sent_ns);
            *sent_ns = now;
            let reply = decode_reply(&frame)?;
            let Some(out) = outbox.send(id) else { bail!("the connection is gone") };
            match self.works[connection.work].proceed(
                &reply,
                out,
                (slot_of(place, slot, connection.sent_ns.len()), request_id),
            )? {
                Next::Second => {}
                Next::Done => {
                    connection.sent_ns[slot] = 0;
                    self.outstanding -= 1;
                    self.begin(outbox, place, slot, now);
                }
            }
        }
    }

    /// Sends the next request of a free slot, unless there is none.
    fn begin(&mut self, outbox: &mut Outbox, place: usize, slot: usize, now: u64) {
        if self.is_draining {
            return;
        }
        let connection = &mut self.connections[place];
        let depth = connection.sent_ns.len();
        let work = &mut self.works[connection.work];
        let Some(out) = outbox.send(connection.id) else { return };
        if work.begin(out, slot_of(place, slot, depth), slot as u64) {
            connection.sent_ns[slot] = now;
            self.outstanding += 1;
        }
    }
}

/// Numbers the slots of all connections.
fn slot_of(place: usize, slot: usize, depth: usize) -> usize {
    place * depth + slot
}
