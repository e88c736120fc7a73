//! One admitted connection: what has arrived and is not answered yet.
//!
//! Bytes become whole frames here, in order. A frame that needs more steps than a turn allows is
//! kept with its work; what arrives behind it is held. It decides nothing about keys.

use maru_ledger::{ClientId, Time};
use maru_uring::ConnectionId;
use maru_wire::{Assembler, DecodeError, FRAME_ALIGN, Incarnation, Purpose};
use rkyv::util::AlignedVec;

use crate::executor::{Executor, Slice, Spares, Suspended};

/// Who is at the other end, as its hello said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) client: ClientId,
    pub(crate) incarnation: Incarnation,
    pub(crate) purpose: Purpose,
    pub(crate) connection_number: u64,
    /// A monitor of a namespace that is not served may only watch.
    pub(crate) may_only_watch: bool,
}

/// One connection of a shard.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) identity: Identity,
    assembler: Assembler,
    /// Bytes behind the frame in progress, from `held_start` on. Starts at a frame's start.
    held: AlignedVec<FRAME_ALIGN>,
    held_start: usize,
    suspended: Option<Box<Suspended>>,
    mid_frame_since: Option<Time>,
    /// Stands in the queue of those that go on in a later turn.
    pub(crate) is_queued: bool,
    /// Its reads were paused because it holds too much.
    pub(crate) is_paused: bool,
    /// It is being closed: nothing that arrives counts any more.
    pub(crate) is_closing: bool,
}

/// A connection's part of a turn.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) executor: &'a mut Executor,
    pub(crate) slice: Slice<'a>,
    /// Above so many bytes of output nothing more is executed: the peer must read first.
    pub(crate) out_bytes_max: usize,
}

/// How a connection stands after executing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything that arrived whole is answered.
    Idle,
    /// More is there, for a later turn.
    Busy,
}

impl Connection {
    /// Makes a connection whose frames have bodies of at most `body_bytes_max` bytes.
    pub(crate) fn new(id: ConnectionId, identity: Identity, body_bytes_max: u32) -> Self {
        Self {
            id,
            identity,
            assembler: Assembler::new(body_bytes_max),
            held: AlignedVec::new(),
            held_start: 0,
            suspended: None,
            mid_frame_since: None,
            is_queued: false,
            is_paused: false,
            is_closing: false,
        }
    }

    /// Takes bytes that arrived: executes them, or holds them behind what is in progress.
    pub(crate) fn receive(
        &mut self,
        turn: &mut Turn<'_>,
        bytes: &[u8],
    ) -> Result<Standing, DecodeError> {
        if self.is_busy() {
            self.hold(bytes);
            return Ok(Standing::Busy);
        }
        let mut input = bytes;
        let standing = self.execute(turn, &mut input)?;
        if !input.is_empty() {
            self.held = turn.executor.spares.take_buffer();
            self.held.extend_from_slice(input);
        }
        Ok(standing)
    }

    /// Holds bytes behind the others. Drops those in front that were executed once they are as
    /// many as the rest, so that moving the rest costs no more than executing them did.
    fn hold(&mut self, bytes: &[u8]) {
        let rest = self.held_bytes();
        if self.held_start >= rest {
            self.held.copy_within(self.held_start.., 0);
            self.held.resize(rest, 0);
            self.held_start = 0;
        }
        self.held.extend_from_slice(bytes);
    }

    /// Goes on with what is in progress and held.
    pub(crate) fn resume(&mut self, turn: &mut Turn<'_>) -> Result<Standing, DecodeError> {
        if let Some(suspended) = self.suspended.take() {
            self.suspended = turn.executor.resume(&self.identity, suspended, &mut turn.slice)?;
            if self.suspended.is_some() {
                return Ok(Standing::Busy);
            }
        }
        // Taken out while its frames are read where they lie.
        let held = std::mem::take(&mut self.held);
        let mut input = &held[self.held_start..];
        let executed = self.execute(turn, &mut input);
        let is_spent = input.is_empty();
        self.held_start = if is_spent { 0 } else { held.len() - input.len() };
        if is_spent {
            turn.executor.spares.put_buffer(held);
        } else {
            self.held = held;
        }
        executed
    }

    /// Executes whole frames off the front of `input` until it or the budget ends.
    fn execute(&mut self, turn: &mut Turn<'_>, input: &mut &[u8]) -> Result<Standing, DecodeError> {
        while turn.slice.budget > 0 && turn.slice.out.len() <= turn.out_bytes_max {
            let scratch_before = self.assembler.scratch_frames();
            let Some(frame) = self.assembler.next(input)? else {
                if self.assembler.is_mid_frame() {
                    self.mid_frame_since.get_or_insert(turn.slice.now);
                }
                return Ok(Standing::Idle);
            };
            self.mid_frame_since = None;
            self.suspended = turn.executor.execute(&self.identity, &frame, &mut turn.slice)?;
            let copied = self.assembler.scratch_frames() - scratch_before;
            turn.executor.counters.scratch_frame_total += copied;
            if self.suspended.is_some() {
                return Ok(Standing::Busy);
            }
        }
        // What is left may be the start of a frame only, which the next turn finds.
        Ok(if input.is_empty() { Standing::Idle } else { Standing::Busy })
    }

    /// Whether something waits for a later turn.
    pub(crate) fn is_busy(&self) -> bool {
        self.suspended.is_some() || self.held_bytes() > 0
    }

    /// How many bytes are held behind a frame in progress.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held.len() - self.held_start
    }

    /// How many bytes there are of a frame that is not whole.
    pub(crate) fn partial_bytes(&self) -> usize {
        self.assembler.buffered_bytes()
    }

    /// How many bytes arrived and are not answered yet.
    pub(crate) fn buffered_bytes(&self) -> usize {
        let suspended = self.suspended.as_ref().map_or(0, |suspended| suspended.body_bytes());
        self.held_bytes() + self.partial_bytes() + suspended
    }

    /// Since when a frame is not whole.
    pub(crate) fn mid_frame_since(&self) -> Option<Time> {
        self.mid_frame_since
    }

    /// Drops what is not answered: the connection is over.
    pub(crate) fn drop_input(&mut self, spares: &mut Spares) {
        self.is_closing = true;
        self.held_start = 0;
        self.mid_frame_since = None;
        self.assembler = Assembler::new(0);
        spares.put_buffer(std::mem::take(&mut self.held));
        if let Some(suspended) = self.suspended.take() {
            spares.put(suspended);
        }
    }
}

#[cfg(test)]
mod tests;
