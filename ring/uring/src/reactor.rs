//! stub
use crate::config::{Io, ReactorConfig};
use crate::error::ReactorError;
use crate::event::Event;
use crate::outbox::Outbox;
use crate::waker::Waker;

/// Reads the monotonic clock in nanoseconds.
pub fn now_ns() -> u64 {
    unreachable!("stub")
}

/// Counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {}

/// The loop of one thread.
#[derive(Debug)]
pub struct Reactor {
    not_send: std::marker::PhantomData<*const ()>,
}

impl Reactor {
    /// Makes a reactor for the calling thread.
    ///
    /// # Errors
    ///
    /// See [`ReactorError`].
    pub fn new(_config: ReactorConfig) -> Result<Self, ReactorError> {
        unreachable!("stub")
    }
    /// The interface in use.
    pub fn io(&self) -> Io {
        unreachable!("stub")
    }
    /// Why io_uring is not used.
    pub fn fallback_reason(&self) -> Option<&str> {
        unreachable!("stub")
    }
    /// Counters.
    pub fn counters(&self) -> Counters {
        unreachable!("stub")
    }
    /// Makes a waker.
    pub fn waker(&self) -> Waker {
        unreachable!("stub")
    }
    /// The connections.
    pub fn outbox(&mut self) -> &mut Outbox {
        unreachable!("stub")
    }
    /// One turn.
    ///
    /// # Errors
    ///
    /// When the system interface fails as a whole.
    pub fn turn(
        &mut self,
        _deadline_ns: Option<u64>,
        _on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) -> Result<(), ReactorError> {
        unreachable!("stub")
    }
}
