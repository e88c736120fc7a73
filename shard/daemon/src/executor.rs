//! Frames in, reply frames out: decode, the ledger, encode. One per shard.
//!
//! It adds to the ledger's answers what only the shell knows: connections, threads, bytes.

use std::sync::Arc;

use maru_ledger::{Call, Progress, Shard, Time, Work};
use maru_wire::{
    ClosedCount, DecodeError, FRAME_ALIGN, Flags, Frame, Generation, Header, Op, Refusal,
    ReplyBuffer, decode_request, encode_refusal, encode_reply,
};
use nix::time::{ClockId, clock_gettime};
use rkyv::util::AlignedVec;

use crate::acceptor::Terms;
use crate::connection::Identity;
use crate::reasons::{self, Reasons};

/// What a shard is, apart from its books.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) generation: Generation,
    pub(crate) terms: Arc<Terms>,
    /// The core that the thread is pinned to.
    pub(crate) core: Option<u32>,
    /// Name of the I/O backend.
    pub(crate) io: &'static str,
}

/// What only ever rises.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) frame_total: u64,
    pub(crate) scratch_frame_total: u64,
}

/// How the shard is loaded at this moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) connection_count: u32,
    pub(crate) waiting_count: u32,
    pub(crate) buffered_bytes: usize,
}

/// What one connection may do in one turn.
#[derive(Debug)]
pub(crate) struct Slice<'a> {
    /// Where replies go.
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) now: Time,
    /// Steps that are left.
    pub(crate) budget: u32,
}

/// A frame that was begun and goes on in a later turn.
#[derive(Debug, Default)]
pub(crate) struct Suspended {
    work: Work,
    header: Option<Header>,
    body: AlignedVec<FRAME_ALIGN>,
}

/// Works and buffers that are not in use, kept warm.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    #[expect(clippy::vec_box, reason = "the boxes move to connections and back as they are")]
    suspended: Vec<Box<Suspended>>,
    buffers: Vec<AlignedVec<FRAME_ALIGN>>,
}

/// Most spares of a kind.
const SPARES_MAX: usize = 16;
/// Most capacity of a spare buffer, in bytes.
const SPARE_BYTES_MAX: usize = 512 * 1024;

/// The executing part of a shard.
#[derive(Debug)]
pub(crate) struct Executor {
    pub(crate) ledger: Shard,
    pub(crate) facts: Facts,
    pub(crate) counters: Counters,
    pub(crate) load: Load,
    pub(crate) closed: Reasons,
    /// Connections that the acceptor closed. Shard 0 speaks for it.
    pub(crate) acceptor_closed: Vec<ClosedCount>,
    pub(crate) spares: Spares,
}

impl Executor {
    /// Makes an executor of a ledger.
    pub(crate) fn new(ledger: Shard, facts: Facts) -> Self {
        Self {
            ledger,
            facts,
            counters: Counters::default(),
            load: Load::default(),
            closed: Reasons::default(),
            acceptor_closed: Vec::new(),
            spares: Spares::default(),
        }
    }

    /// Executes a frame and appends its reply, or returns it suspended when the budget ends first.
    ///
    /// An error means that the connection must be closed, once what was appended is sent.
    pub(crate) fn execute(
        &mut self,
        identity: &Identity,
        frame: &Frame<'_>,
        slice: &mut Slice<'_>,
    ) -> Result<Option<Box<Suspended>>, DecodeError> {
        self.counters.frame_total += 1;
        slice.budget = slice.budget.saturating_sub(1);
        if frame.header.op == Op::Hello && frame.header.flags == Flags::REQUEST {
            self.refuse(&frame.header, Refusal::UnexpectedHello, slice.out);
            return Err(DecodeError::WrongOp(Op::Hello));
        }
        if identity.may_only_watch && !is_watching(frame.header.op) {
            self.refuse(&frame.header, Refusal::WrongNamespace, slice.out);
            return Ok(None);
        }
        let mut suspended = self.spares.take();
        if self.step(identity, frame, &mut suspended.work, slice)? {
            self.spares.put(suspended);
            return Ok(None);
        }
        suspended.header = Some(frame.header);
        suspended.body.clear();
        suspended.body.extend_from_slice(frame.body);
        Ok(Some(suspended))
    }

    /// Goes on with a suspended frame. Returns it when the budget ends first.
    pub(crate) fn resume(
        &mut self,
        identity: &Identity,
        mut suspended: Box<Suspended>,
        slice: &mut Slice<'_>,
    ) -> Result<Option<Box<Suspended>>, DecodeError> {
        let Suspended { work, header, body } = &mut *suspended;
        let header = header.expect("suspended with its header");
        let is_answered = self.step(identity, &Frame { header, body }, work, slice)?;
        if !is_answered {
            return Ok(Some(suspended));
        }
        self.spares.put(suspended);
        Ok(None)
    }

    /// Executes as much of a frame as the budget allows. Returns whether it was answered.
    fn step(
        &mut self,
        identity: &Identity,
        frame: &Frame<'_>,
        work: &mut Work,
        slice: &mut Slice<'_>,
    ) -> Result<bool, DecodeError> {
        let Header { op, request_id, generation, .. } = frame.header;
        let call = Call { client: identity.client, generation, request: decode_request(frame)? };
        match self.ledger.handle(slice.now, &call, work, &mut slice.budget) {
            Progress::Paused => return Ok(false),
            Progress::Refused(refusal) => self.refuse(&frame.header, refusal, slice.out),
            Progress::Done => {
                self.complete(op, &mut work.replies);
                let generation = self.facts.generation;
                encode_reply(slice.out, op, request_id, generation, &work.replies);
            }
        }
        Ok(true)
    }

    fn refuse(&mut self, header: &Header, refusal: Refusal, out: &mut Vec<u8>) {
        encode_refusal(out, header.op, header.request_id, self.facts.generation, refusal);
    }

    /// Adds to the ledger's answer what the ledger cannot know.
    fn complete(&mut self, op: Op, replies: &mut ReplyBuffer) {
        match op {
            Op::Ping => {
                replies.ping.connection_count = self.load.connection_count;
                replies.ping.waiting_count = self.load.waiting_count;
            }
            Op::Regions => replies.regions.regions.clone_from(&self.facts.terms.regions),
            Op::Stats => self.complete_stats(replies),
            Op::Challenge
            | Op::Hello
            | Op::Reserve
            | Op::Publish
            | Op::Abandon
            | Op::Exists
            | Op::Lookup
            | Op::Release
            | Op::EvictedSince
            | Op::Remove
            | Op::Clear => {}
        }
    }

    fn complete_stats(&mut self, replies: &mut ReplyBuffer) {
        let stats = &mut replies.stats;
        stats.core = self.facts.core.and_then(|core| i32::try_from(core).ok()).unwrap_or(-1);
        self.facts.io.clone_into(&mut stats.io);
        stats.cpu_us = thread_cpu_us();
        stats.connection_count = u64::from(self.load.connection_count);
        stats.buffered_bytes = self.load.buffered_bytes as u64;
        stats.frame_total = self.counters.frame_total;
        stats.scratch_frame_total = self.counters.scratch_frame_total;
        stats.closed.clear();
        self.closed.add_to(&mut stats.closed);
        for closed in &self.acceptor_closed {
            reasons::add(&mut stats.closed, &closed.reason, closed.count);
        }
    }
}

impl Suspended {
    /// Size of the frame's body, in bytes.
    pub(crate) fn body_bytes(&self) -> usize {
        self.body.len()
    }
}

impl Spares {
    fn take(&mut self) -> Box<Suspended> {
        self.suspended.pop().unwrap_or_default()
    }

    /// Takes back what is not in use any more, whether its frame was answered or not.
    pub(crate) fn put(&mut self, mut suspended: Box<Suspended>) {
        if self.suspended.len() < SPARES_MAX {
            suspended.work.reset();
            suspended.header = None;
            suspended.body.clear();
            self.suspended.push(suspended);
        }
    }

    /// Takes an empty buffer.
    pub(crate) fn take_buffer(&mut self) -> AlignedVec<FRAME_ALIGN> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn put_buffer(&mut self, mut buffer: AlignedVec<FRAME_ALIGN>) {
        let is_kept = (1..=SPARE_BYTES_MAX).contains(&buffer.capacity());
        if is_kept && self.buffers.len() < SPARES_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }
}

/// Whether a request touches no key.
fn is_watching(op: Op) -> bool {
    match op {
        Op::Ping | Op::Stats | Op::Regions => true,
        Op::Challenge
        | Op::Hello
        | Op::Reserve
        | Op::Publish
        | Op::Abandon
        | Op::Exists
        | Op::Lookup
        | Op::Release
        | Op::EvictedSince
        | Op::Remove
        | Op::Clear => false,
    }
}

/// CPU time of the calling thread, in microseconds; 0 when the system does not say.
fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| {
        let duration = std::time::Duration::from(time);
        u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
    })
}
