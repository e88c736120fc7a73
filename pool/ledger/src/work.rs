//! A frame in progress: its replies so far and where to go on.

use alloc::vec::Vec;

use maru_wire::{Generation, LeaseId, Refusal, ReplyBuffer, Request};

use crate::clients::ClientId;
use crate::config::Time;
use crate::list::Slot;

/// One frame to execute.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Who asks.
    pub client: ClientId,
    /// The run of the server that the frame is addressed to.
    pub generation: Generation,
    /// What is asked.
    pub request: Request<'a>,
}

/// How far a call got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The answer is in `Work::replies`.
    Done,
    /// The budget is spent. Call again with the same call and work.
    Paused,
    /// Nothing was executed.
    Refused(Refusal),
}

/// The state of one frame in progress. Reused, so that a warm one allocates nothing.
#[derive(Debug, Default)]
pub struct Work {
    /// The answer, once the call is done: the field of the request's kind.
    pub replies: ReplyBuffer,
    pub(crate) is_started: bool,
    /// The next item of the request.
    pub(crate) cursor: usize,
    /// The item at the cursor was begun in an earlier turn.
    pub(crate) is_mid_item: bool,
    /// A read has met its first miss, or a reply has no more room: no item is tried any more.
    pub(crate) is_over: bool,
    /// The lease that a Lookup fills; zero when there is none yet.
    pub(crate) lease: LeaseId,
    /// Bit `i % 64` of word `i / 64`: the key of item `i` stands earlier in the frame.
    pub(crate) duplicates: Vec<u64>,
}

impl Work {
    /// Returns an empty work.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets a frame in progress, whose connection is gone. A call that was answered needs none.
    pub fn reset(&mut self) {
        self.is_started = false;
    }

    /// Whether a frame was begun and is not answered yet.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        self.is_started
    }

    pub(crate) fn begin(&mut self) {
        self.is_started = true;
        self.cursor = 0;
        self.is_mid_item = false;
        self.is_over = false;
        self.lease = LeaseId::default();
        self.clear_replies();
    }

    fn clear_replies(&mut self) {
        let replies = &mut self.replies;
        replies.reserve.outcomes.clear();
        replies.reserve.runs.clear();
        replies.publish.outcomes.clear();
        replies.abandon.abandoned_count = 0;
        replies.exists.leading_count = 0;
        replies.exists.bitmap.clear();
        replies.lookup.outcomes.clear();
        replies.lookup.runs.clear();
        replies.release.held.clear();
        replies.evicted_since.keys.clear();
        replies.evicted_since.more = false;
        replies.evicted_since.lost = false;
        replies.remove.outcomes.clear();
    }

    pub(crate) fn is_duplicate(&self, item: usize) -> bool {
        self.duplicates.get(item / 64).is_some_and(|word| word >> (item % 64) & 1 == 1)
    }
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) now: Time,
    pub(crate) client: Slot,
}

/// Takes one step from the budget. False when none is left.
pub(crate) fn take_step(budget: &mut u32) -> bool {
    match budget.checked_sub(1) {
        Some(left) => {
            *budget = left;
            true
        }
        None => false,
    }
}
