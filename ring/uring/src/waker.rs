//! The sleep and wake protocol: no wake-up is lost, and none costs a system call while awake.
//!
//! One byte holds the state. Every change is a read-modify-write of that byte, so all changes have
//! one order, and whoever changes it sees all that the earlier ones had written before.

use std::io;

use crate::sync::{Arc, AtomicU8, Bell, Ordering};

#[cfg(all(test, loom))]
mod tests;

/// The thread runs and has not been told of anything new.
const AWAKE: u8 = 0;
/// Somebody called `wake` since the thread last looked.
const NOTIFIED: u8 = 1;
/// The thread sleeps, or is about to: the next `wake` rings the bell.
const ASLEEP: u8 = 2;

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    bell: Bell,
}

/// Wakes a reactor's thread from any thread.
///
/// Put the message where the reactor's user looks for it first, then call [`wake`](Self::wake).
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Makes the reactor report `Woken` in its current or next turn. Many calls make one report.
    ///
    /// Never blocks. Makes a system call only when the reactor sleeps.
    pub fn wake(&self) {
        if self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            self.shared.bell.ring();
        }
    }
}

/// The sleeper's side; there is one for each reactor.
#[derive(Debug)]
pub(crate) struct Sleeper {
    shared: Arc<Shared>,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Self> {
        let shared = Shared { state: AtomicU8::new(AWAKE), bell: Bell::new()? };
        Ok(Self { shared: Arc::new(shared) })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.shared.bell
    }

    /// True while a wake-up waits to be taken.
    pub(crate) fn is_notified(&self) -> bool {
        self.shared.state.load(Ordering::Relaxed) == NOTIFIED
    }

    /// Announces sleep. True: a later `wake` rings the bell. False: do not sleep.
    pub(crate) fn prepare(&self) -> bool {
        let changed =
            self.shared.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Relaxed);
        changed.is_ok()
    }

    /// Ends sleep if there was any. True when `wake` was called since the last time.
    pub(crate) fn take(&self) -> bool {
        if self.shared.state.load(Ordering::Relaxed) == AWAKE {
            return false;
        }
        self.shared.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }
}
