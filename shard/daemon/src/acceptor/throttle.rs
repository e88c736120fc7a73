//! Warnings that clients could make come in floods: one line a minute, with a count.

use std::time::{Duration, Instant};

/// Time between two lines.
const QUIET: Duration = Duration::from_secs(60);

/// Counts what is to be warned of, and says when.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    count: u64,
    quiet_until: Option<Instant>,
}

impl Throttle {
    /// Counts what happened.
    pub(crate) fn add(&mut self, count: u64) {
        self.count += count;
    }

    /// When `take` has something to tell.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        (self.count > 0).then(|| self.quiet_until.unwrap_or(now))
    }

    /// Gives what happened since the last line, when it may be told: at once, if it is the first.
    pub(crate) fn take(&mut self, now: Instant) -> Option<u64> {
        if self.due(now)? > now {
            return None;
        }
        self.quiet_until = Some(now + QUIET);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flood costs one line a minute, and nothing of it is lost.
    #[test]
    fn the_first_is_told_at_once_and_the_others_counted() {
        let start = Instant::now();
        let mut throttle = Throttle::default();
        assert_eq!((throttle.due(start), throttle.take(start)), (None, None));
        throttle.add(1);
        assert_eq!((throttle.due(start), throttle.take(start)), (Some(start), Some(1)));
        for _ in 0..16_384 {
            throttle.add(1);
            assert_eq!(throttle.take(start + QUIET / 2), None);
        }
        assert_eq!(throttle.due(start), Some(start + QUIET));
        assert_eq!(throttle.take(start + QUIET), Some(16_384));
        assert_eq!(throttle.due(start + QUIET), None);
    }
}
