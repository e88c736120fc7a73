//! The loop of one thread: flush, wait, report.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;

use crate::clock::now_ns;
use crate::config::{Io, IoMode, ReactorConfig};
use crate::connection::NEVER;
use crate::epoll::Epoll;
use crate::error::ReactorError;
use crate::event::Event;
use crate::outbox::Outbox;
use crate::uring::Uring;
use crate::waker::{Sleeper, Waker};

enum Backend {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

/// How often a reactor met a case worth watching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Turns.
    pub turns: u64,
    /// Turns that blocked.
    pub sleeps: u64,
    /// Receives that found all buffers of the ring in use (io_uring only).
    pub buffers_exhausted: u64,
}

/// Connections, their bytes, and the waits of one thread.
///
/// A server's shard and a client's ring thread each own one and call [`turn`](Self::turn) for ever.
pub struct Reactor {
    backend: Backend,
    outbox: Outbox,
    sleeper: Sleeper,
    fallback_reason: Option<String>,
    spin_ns: u64,
    /// When something last happened.
    active_ns: u64,
    counters: Counters,
    /// The ring may be used, and its memory freed, on the thread that made it only.
    not_send: PhantomData<*const ()>,
}

impl Reactor {
    /// Makes a reactor for the calling thread, which must be the one that runs it.
    ///
    /// Blocks up to `2^ring_attempts` milliseconds while locked memory is short.
    ///
    /// # Errors
    ///
    /// - [`ReactorError::Config`]: correct the named field.
    /// - [`ReactorError::UringRefused`]: only with [`IoMode::Uring`]; the text says what to do.
    /// - [`ReactorError::System`]: no descriptor or memory is left.
    pub fn new(config: ReactorConfig) -> Result<Self, ReactorError> {
        config.check()?;
        let failed = |call| move |source| ReactorError::System { call, source };
        let sleeper = Sleeper::new().map_err(failed("eventfd"))?;
        let bell = sleeper.bell();
        let mut fallback_reason = None;
        let uring = match config.io {
            IoMode::Epoll => None,
            IoMode::Uring => Some(Uring::new(&config, bell.as_raw_fd())?),
            IoMode::Auto => match Uring::new(&config, bell.as_raw_fd()) {
                Ok(uring) => Some(uring),
                Err(refused) => {
                    fallback_reason = Some(refused.to_string());
                    None
                }
            },
        };
        let backend = match uring {
            Some(uring) => Backend::Uring(Box::new(uring)),
            None => Backend::Epoll(Box::new(Epoll::new(&config, bell)?)),
        };
        let is_blocking = matches!(backend, Backend::Uring(_));
        Ok(Self {
            backend,
            sleeper,
            fallback_reason,
            spin_ns: u64::from(config.spin_us) * 1000,
            active_ns: 0,
            counters: Counters::default(),
            outbox: Outbox::new(config, is_blocking),
            not_send: PhantomData,
        })
    }

    /// Says which system interface is in use.
    pub fn io(&self) -> Io {
        match self.backend {
            Backend::Uring(_) => Io::Uring,
            Backend::Epoll(_) => Io::Epoll,
        }
    }

    /// Says why io_uring is not used although [`IoMode::Auto`] allowed it. Log it once.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Returns what was counted since the start.
    pub fn counters(&self) -> Counters {
        let buffers_exhausted = match &self.backend {
            Backend::Uring(uring) => uring.starved(),
            Backend::Epoll(_) => 0,
        };
        Counters { buffers_exhausted, ..self.counters }
    }

    /// Makes a handle that ends this reactor's sleep from any thread.
    pub fn waker(&self) -> Waker {
        self.sleeper.waker()
    }

    /// Returns the connections, to be used between turns.
    pub fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Sends what was appended, waits for something to happen, and reports it.
    ///
    /// Waits until `deadline_ns` of [`now_ns`] at most, or for ever. Polls for `spin_us` after the
    /// last event, then blocks. A deadline in the past only polls. A turn may end early without an
    /// event. What `on_event` appends is sent when the next turn begins, one send a connection: do
    /// not wait elsewhere. A forked child must not call it (it may drop the reactor).
    ///
    /// # Errors
    ///
    /// [`ReactorError::System`]: the system interface failed as a whole; end the thread.
    pub fn turn(
        &mut self,
        deadline_ns: Option<u64>,
        on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) -> Result<(), ReactorError> {
        self.counters.turns += 1;
        self.flush().map_err(|source| ReactorError::System { call: "flush", source })?;
        self.wait(deadline_ns).map_err(|source| ReactorError::System { call: "wait", source })?;
        let is_woken = self.sleeper.take();
        let now = now_ns();
        self.outbox.set_now(now);
        self.outbox.deliver_ready(on_event);
        let is_any = self
            .dispatch(on_event)
            .map_err(|source| ReactorError::System { call: "dispatch", source })?;
        self.outbox.expire();
        self.outbox.deliver_ready(on_event);
        if is_woken {
            on_event(&mut self.outbox, Event::Woken);
        }
        if is_any || is_woken {
            self.active_ns = now;
        }
        if deadline_ns.is_some_and(|deadline| now >= deadline) {
            on_event(&mut self.outbox, Event::TimedOut);
        }
        Ok(())
    }

    fn wait(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let until = deadline_ns.unwrap_or(NEVER).min(self.outbox.check_ns());
        let now = now_ns();
        if self.outbox.has_work() || until <= now {
            return self.poll().map(|_| ());
        }
        let spin_until = until.min(self.active_ns.saturating_add(self.spin_ns));
        while now_ns() < spin_until {
            if self.poll()? || self.sleeper.is_notified() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if !self.sleeper.prepare() {
            return self.poll().map(|_| ());
        }
        self.counters.sleeps += 1;
        let wait_ns = (until != NEVER).then(|| until.saturating_sub(now_ns()));
        match &mut self.backend {
            Backend::Uring(uring) => uring.block(wait_ns),
            Backend::Epoll(epoll) => epoll.block(wait_ns),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.backend {
            Backend::Uring(uring) => uring.flush(&mut self.outbox),
            Backend::Epoll(epoll) => {
                epoll.flush(&mut self.outbox);
                Ok(())
            }
        }
    }

    fn poll(&mut self) -> io::Result<bool> {
        match &mut self.backend {
            Backend::Uring(uring) => uring.poll(),
            Backend::Epoll(epoll) => epoll.poll(),
        }
    }

    fn dispatch(&mut self, on_event: &mut dyn FnMut(&mut Outbox, Event<'_>)) -> io::Result<bool> {
        match &mut self.backend {
            Backend::Uring(uring) => Ok(uring.dispatch(&mut self.outbox, on_event)),
            Backend::Epoll(epoll) => {
                epoll.dispatch(&mut self.outbox, self.sleeper.bell(), on_event)
            }
        }
    }
}

impl Drop for Reactor {
    /// Closes all connections without flushing. Waits for the kernel, 2 s at most, else leaks.
    fn drop(&mut self) {
        if let Backend::Uring(uring) = &mut self.backend {
            uring.shut_down(&mut self.outbox);
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("io", &self.io())
            .field("outbox", &self.outbox)
            .finish_non_exhaustive()
    }
}
