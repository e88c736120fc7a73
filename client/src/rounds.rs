//! A store or load in rounds: each a leading part of what is left, below the client's caps.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use maru_session::{Failure, Layout};
use maru_wire::{Key, Limits};

use crate::deadline::Deadline;
use crate::inner::Inner;

/// First and longest wait for pages of one's own to come back, when nothing tells of it.
const OWN_WAIT_MIN: Duration = Duration::from_millis(1);
const OWN_WAIT_MAX: Duration = Duration::from_millis(50);

/// What is left of a batch, and how often it was begun anew.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// The items without an outcome, in order.
    pub(crate) open: Vec<usize>,
    wait: Duration,
    has_restarted: bool,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundEnd {
    /// Some item got its outcome.
    Progress,
    /// Every item waits for pages that this client holds elsewhere.
    Limited,
    /// The server is a new one.
    Stale,
}

impl Rounds {
    pub(crate) fn new(open: Vec<usize>) -> Self {
        Self { open, wait: OWN_WAIT_MIN, has_restarted: false }
    }

    /// Takes the leading part of what is left that one round may hold.
    ///
    /// `page_max` picks the cap of a shard.
    pub(crate) fn next(
        &self,
        layout: &Layout,
        item: impl Fn(usize) -> (Key, u64),
        page_max: impl Fn(&Limits) -> u32,
    ) -> Vec<usize> {
        let mut pages_by_shard: BTreeMap<u32, u64> = BTreeMap::new();
        let fits = |index: &usize| {
            let (key, bytes) = item(*index);
            let shard = key.shard(layout.shard_count);
            let page_max = u64::from(page_max(layout.limits_of(shard)));
            let pages = pages_by_shard.entry(shard).or_default();
            let is_first = *pages == 0;
            *pages += layout.pages_of(bytes).max(1);
            is_first || *pages <= page_max
        };
        self.open.iter().copied().take_while(fits).collect()
    }

    /// Judges a round's end. Says why the batch ends with it, if it does.
    pub(crate) fn ended(
        &mut self,
        inner: &Inner,
        end: RoundEnd,
        seen: u64,
        deadline: Deadline,
    ) -> Result<(), Failure> {
        match end {
            RoundEnd::Progress => self.wait = OWN_WAIT_MIN,
            RoundEnd::Limited => {
                let until = Instant::now() + self.wait;
                inner.shared.await_progress(seen, until.min(deadline.at));
                self.wait = (self.wait * 2).min(OWN_WAIT_MAX);
                if deadline.is_over() {
                    return Err(Failure::ClientLimit);
                }
            }
            RoundEnd::Stale if self.has_restarted => return Err(Failure::Stale),
            RoundEnd::Stale => {
                self.has_restarted = true;
                inner.refresh(deadline)?;
            }
        }
        if deadline.is_over() { Err(Failure::Timeout) } else { Ok(()) }
    }
}
