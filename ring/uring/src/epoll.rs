//! The epoll backend, for systems that refuse io_uring: the same behaviour by plain calls.
//!
//! A connection is registered only while something is wanted of it, so that the end of a paused
//! peer wakes nobody, as with io_uring.

use std::io;
use std::os::fd::AsFd;

use memmap2::MmapMut;
use nix::errno::Errno;
use nix::sys::epoll::{
    Epoll as Descriptor, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout,
};

use crate::config::ReactorConfig;
use crate::connection::{Connection, Phase};
use crate::error::ReactorError;
use crate::event::{ConnectionId, Event};
use crate::outbox::Outbox;
use crate::sync::Bell;

/// Events taken at once.
const EVENTS_MAX: usize = 256;
/// Names the bell among the registered descriptors; no connection has this tag and slot.
const BELL: u64 = u64::MAX;

/// One epoll descriptor and what it needs.
pub(crate) struct Epoll {
    descriptor: Descriptor,
    events: Vec<EpollEvent>,
    /// Events of the last wait that are not yet reported.
    event_count: usize,
    /// Slots to look at, taken from the outbox.
    visits: Vec<u32>,
    /// Page-aligned, as received frames should be.
    buffer: MmapMut,
}

impl Epoll {
    pub(crate) fn new(config: &ReactorConfig, bell: &Bell) -> Result<Self, ReactorError> {
        let failed = |call| move |error: Errno| ReactorError::System { call, source: error.into() };
        let descriptor =
            Descriptor::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed("epoll_create1"))?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, BELL);
        descriptor.add(bell.as_fd(), event).map_err(failed("epoll_ctl"))?;
        let buffer = MmapMut::map_anon(config.buffer_bytes as usize)
            .map_err(|source| ReactorError::System { call: "mmap", source })?;
        let events = vec![EpollEvent::empty(); EVENTS_MAX];
        Ok(Self { descriptor, events, event_count: 0, visits: Vec::new(), buffer })
    }

    /// Sends what changed connections have, and registers what they want.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) {
        let mut visits = std::mem::take(&mut self.visits);
        outbox.swap_dirty(&mut visits);
        for index in visits.drain(..) {
            if let Some(id) = outbox.visit(index) {
                self.serve(outbox, id);
            }
        }
        self.visits = visits;
    }

    fn serve(&mut self, outbox: &mut Outbox, id: ConnectionId) {
        send(outbox, id);
        outbox.settle(id);
        outbox.hold_if_stuck(id);
        let Some(connection) = outbox.get(id) else { return };
        let is_dead = connection.phase == Phase::Dead;
        let registered = self.register(connection, id);
        if is_dead {
            // Its descriptor is closed, and so leaves epoll, whether or not that call worked.
            outbox.release(id);
        } else if let Err(errno) = registered {
            outbox.receive_failed(id, errno);
        }
    }

    fn register(&self, connection: &mut Connection, id: ConnectionId) -> Result<(), Errno> {
        let mut wanted = EpollFlags::empty();
        wanted.set(EpollFlags::EPOLLIN, connection.wants_read());
        let is_sending = connection.wants_send() || connection.phase == Phase::Connecting;
        wanted.set(EpollFlags::EPOLLOUT, is_sending);
        let registered = connection.kernel.interest;
        if wanted.bits() == registered {
            return Ok(());
        }
        let mut event = EpollEvent::new(wanted, pack(id));
        if wanted.is_empty() {
            self.descriptor.delete(&connection.socket)?;
        } else if registered == 0 {
            self.descriptor.add(&connection.socket, event)?;
        } else {
            self.descriptor.modify(&connection.socket, &mut event)?;
        }
        connection.kernel.interest = wanted.bits();
        Ok(())
    }

    /// Looks without waiting. True: something happened.
    pub(crate) fn poll(&mut self) -> io::Result<bool> {
        self.wait(EpollTimeout::ZERO)?;
        Ok(self.event_count > 0)
    }

    /// Waits, at most `wait_ns` rounded up to milliseconds.
    pub(crate) fn block(&mut self, wait_ns: Option<u64>) -> io::Result<()> {
        self.wait(wait_ns.map_or(EpollTimeout::NONE, |wait_ns| {
            let wait_ms = i32::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
            EpollTimeout::try_from(wait_ms).unwrap_or(EpollTimeout::MAX)
        }))
    }

    fn wait(&mut self, timeout: EpollTimeout) -> io::Result<()> {
        match self.descriptor.wait(&mut self.events, timeout) {
            Ok(count) => self.event_count = count,
            Err(Errno::EINTR) => self.event_count = 0,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Reports the events of the last wait. True: there were any.
    pub(crate) fn dispatch(
        &mut self,
        outbox: &mut Outbox,
        bell: &Bell,
        on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) -> io::Result<bool> {
        let count = std::mem::take(&mut self.event_count);
        for index in 0..count {
            let (data, flags) = (self.events[index].data(), self.events[index].events());
            if data == BELL {
                // Only this thread takes from the bell, so it does not wait.
                bell.take()?;
                continue;
            }
            let id = unpack(data);
            let Some(connection) = outbox.get(id) else { continue };
            if connection.phase == Phase::Connecting {
                outbox.connect_ended(id);
                continue;
            }
            if connection.wants_read() && flags != EpollFlags::EPOLLOUT {
                self.receive(outbox, id, on_event);
            }
            // A socket that can take output, or is broken, is served when the next turn begins.
            if flags != EpollFlags::EPOLLIN {
                outbox.mark(id);
            }
        }
        Ok(count > 0)
    }

    fn receive(
        &mut self,
        outbox: &mut Outbox,
        id: ConnectionId,
        on_event: &mut dyn FnMut(&mut Outbox, Event<'_>),
    ) {
        let Some(connection) = outbox.get(id) else { return };
        match connection.socket.receive(&mut self.buffer) {
            Ok(0) => outbox.peer_ended(id),
            Ok(count) => outbox.received(id, &self.buffer[..count], on_event),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => outbox.receive_failed(id, errno),
        }
    }
}

/// Sends until the kernel takes no more.
fn send(outbox: &mut Outbox, id: ConnectionId) {
    while let Some(connection) = outbox.get(id).filter(|connection| connection.wants_send()) {
        match connection.socket.send(connection.output.next_piece()) {
            Ok(count) => outbox.sent(id, count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return outbox.send_started(id),
            Err(errno) => return outbox.send_failed(id, errno),
        }
    }
}

fn pack(id: ConnectionId) -> u64 {
    u64::from(id.tag) << 32 | u64::from(id.index)
}

fn unpack(data: u64) -> ConnectionId {
    let index = u32::try_from(data & 0xffff_ffff).expect("masked to 32 bits");
    let tag = u32::try_from(data >> 32).expect("shifted to 32 bits");
    ConnectionId { index, tag }
}
