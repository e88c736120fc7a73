//! The one clock of the loop.

use nix::time::{ClockId, clock_gettime};

/// Reads CLOCK_MONOTONIC in nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux always has this clock");
    let seconds = u64::try_from(now.tv_sec()).expect("monotonic time is not negative");
    let nanoseconds = u64::try_from(now.tv_nsec()).expect("nanoseconds are not negative");
    seconds * 1_000_000_000 + nanoseconds
}
