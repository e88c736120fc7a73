//! What callers and the ring thread share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use maru_session::{CallId, Failure, Layout, Session};
use maru_uring::Waker;
use maru_wire::{Generation, LeaseId, Ticket};

use crate::slots::Slots;

/// A reservation whose owner let it go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned {
    pub(crate) shard: u32,
    pub(crate) ticket: Ticket,
    pub(crate) after_error: bool,
}

/// A lease whose owner let go of its pins past the first `keep`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Released {
    pub(crate) generation: Generation,
    pub(crate) shard: u32,
    pub(crate) lease: LeaseId,
    pub(crate) keep: u32,
}

/// What owners let go of. Bounded by what the server lets one client hold, and by the slots.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) abandoned: Vec<Abandoned>,
    pub(crate) released: Vec<Released>,
    pub(crate) given_up: Vec<CallId>,
}

impl Dropped {
    pub(crate) fn is_empty(&self) -> bool {
        self.abandoned.is_empty() && self.released.is_empty() && self.given_up.is_empty()
    }

    pub(crate) fn append(&mut self, other: &mut Self) {
        self.abandoned.append(&mut other.abandoned);
        self.released.append(&mut other.released);
        self.given_up.append(&mut other.given_up);
    }
}

/// Where the ring thread stands.
#[derive(Debug)]
pub(crate) enum Phase {
    /// Not started yet.
    Idle,
    /// Being started.
    Starting,
    /// Serving.
    Running(Waker),
    /// Could not be started: the next call tries again.
    Failed(String),
    /// Closed for good.
    Closed,
}

/// The meeting place of callers and the ring thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    /// Calls to submit, in order.
    pub(crate) submitted: ArrayQueue<CallId>,
    dropped: Mutex<Dropped>,
    layout: Mutex<Option<Arc<Layout>>>,
    pub(crate) phase: Mutex<Phase>,
    pub(crate) phase_changed: Condvar,
    /// The session while no thread runs it: its tickets outlive a thread.
    pub(crate) parked: Mutex<Option<Box<Session>>>,
    pub(crate) is_stopping: AtomicBool,
    /// Rises with whatever may lift a ClientLimit.
    progress: Mutex<u64>,
    progressed: Condvar,
    /// Whether the fallback to epoll was told.
    pub(crate) told_fallback: AtomicBool,
}

impl Shared {
    pub(crate) fn new(requests_max: u32, session: Session) -> Self {
        Self {
            slots: Slots::new(requests_max),
            submitted: ArrayQueue::new(requests_max as usize * 2),
            dropped: Mutex::default(),
            layout: Mutex::default(),
            phase: Mutex::new(Phase::Idle),
            phase_changed: Condvar::new(),
            parked: Mutex::new(Some(Box::new(session))),
            is_stopping: AtomicBool::new(false),
            progress: Mutex::default(),
            progressed: Condvar::new(),
            told_fallback: AtomicBool::new(false),
        }
    }

    pub(crate) fn layout(&self) -> Option<Arc<Layout>> {
        lock(&self.layout).clone()
    }

    pub(crate) fn set_layout(&self, layout: Option<&Arc<Layout>>) {
        let mut own = lock(&self.layout);
        let is_same = match (&*own, layout) {
            (Some(own), Some(layout)) => Arc::ptr_eq(own, layout),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_same {
            *own = layout.cloned();
        }
    }

    /// Hands what was let go to the ring thread.
    pub(crate) fn let_go(&self, note: impl FnOnce(&mut Dropped)) {
        note(&mut lock(&self.dropped));
        self.wake();
        self.note_progress();
    }

    pub(crate) fn take_dropped(&self, into: &mut Dropped) {
        std::mem::swap(&mut *lock(&self.dropped), into);
    }

    /// Wakes the ring thread. Returns whether it runs.
    pub(crate) fn wake(&self) -> bool {
        if let Phase::Running(waker) = &*lock(&self.phase) {
            waker.wake();
            return true;
        }
        false
    }

    /// Notes that this client may hold more again.
    pub(crate) fn note_progress(&self) {
        *lock(&self.progress) += 1;
        self.progressed.notify_all();
    }

    pub(crate) fn progress(&self) -> u64 {
        *lock(&self.progress)
    }

    /// Waits until there was progress after `seen`, at most until `until`.
    pub(crate) fn await_progress(&self, seen: u64, until: Instant) {
        let guard = lock(&self.progress);
        let wait = until.saturating_duration_since(Instant::now());
        let waited = self.progressed.wait_timeout_while(guard, wait, |now| *now == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the ring thread's service: every caller that waits is told.
    pub(crate) fn end_service(&self, phase: Phase) {
        *lock(&self.phase) = phase;
        self.phase_changed.notify_all();
        while self.submitted.pop().is_some() {}
        self.slots.fail_all(Failure::Disconnected);
        self.note_progress();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

/// Locks a mutex whose holder cannot leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
