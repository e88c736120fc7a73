//! When a call returns at the latest, and durations as the protocol counts them.

use std::time::{Duration, Instant};

/// A moment by which a call returns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) given: Duration,
}

impl Deadline {
    pub(crate) fn new(given: Duration) -> Self {
        let now = Instant::now();
        // A century stands for "for ever" where the clock has no later moment.
        let at = now.checked_add(given).unwrap_or(now + Duration::from_secs(3_155_760_000));
        Self { at, given }
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
