//! The io_uring backend: carries out what connections want, and reports what the kernel did.
//!
//! Receives are multishot into shared buffers; each connection has at most one send in flight.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{opcode, squeue, types};

use self::buffers::{Buffers, GROUP};
use self::ring::{Completion, Ring};
use self::tag::{Kind, Tag};
use crate::config::ReactorConfig;
use crate::connection::{Connection, Operation, Phase};
use crate::error::ReactorError;
use crate::event::ConnectionId;
use crate::outbox::Outbox;

mod buffers;
mod complete;
mod ring;
mod tag;

/// One ring and what it needs.
pub(crate) struct Uring {
    /// Dropped before the memory that it uses.
    ring: Ring,
    buffers: Buffers,
    batch: Vec<Completion>,
    /// Slots to look at, taken from the outbox.
    visits: Vec<u32>,
    bell: RawFd,
    /// What the read of the bell writes to. None only in `Drop`.
    bell_value: Option<Box<u64>>,
    is_bell_armed: bool,
    /// How often a receive found no free buffer.
    starved: u64,
}

impl Uring {
    /// Makes the backend of the calling thread. The bell must outlive it.
    pub(crate) fn new(config: &ReactorConfig, bell: RawFd) -> Result<Self, ReactorError> {
        let (ring, buffers) = Ring::new(config)?;
        Ok(Self {
            ring,
            buffers,
            batch: Vec::with_capacity(config.completion_entries as usize),
            visits: Vec::new(),
            bell,
            bell_value: Some(Box::new(0)),
            is_bell_armed: false,
            starved: 0,
        })
    }

    pub(crate) fn starved(&self) -> u64 {
        self.starved
    }

    /// Queues the operations that changed connections want.
    pub(crate) fn flush(&mut self, outbox: &mut Outbox) -> io::Result<()> {
        self.arm_bell()?;
        let mut visits = std::mem::take(&mut self.visits);
        outbox.swap_dirty(&mut visits);
        let mut is_room = true;
        for index in visits.drain(..) {
            let Some(id) = outbox.visit(index) else { continue };
            if is_room {
                is_room = self.serve(outbox, id)?;
            }
            if !is_room {
                outbox.mark(id);
            }
        }
        self.visits = visits;
        Ok(())
    }

    fn arm_bell(&mut self) -> io::Result<()> {
        if self.is_bell_armed {
            return Ok(());
        }
        let Some(value) = &mut self.bell_value else { return Ok(()) };
        let pointer = std::ptr::from_mut::<u64>(value.as_mut()).cast::<u8>();
        let entry = opcode::Read::new(types::Fd(self.bell), pointer, 8).build();
        self.is_bell_armed = self.ring.push(&entry.user_data(Tag::BELL.pack()))?;
        Ok(())
    }

    /// Queues what one connection wants. False: the queue is full, and more is to be done.
    fn serve(&mut self, outbox: &mut Outbox, id: ConnectionId) -> io::Result<bool> {
        let Some(connection) = outbox.get(id) else { return Ok(true) };
        match connection.phase {
            Phase::Dead => {
                let is_done = self.cancel_all(connection, id)?;
                if connection.kernel.is_idle() {
                    outbox.release(id);
                }
                return Ok(is_done);
            }
            Phase::Connecting => return self.connect(connection, id),
            Phase::Open | Phase::Broken | Phase::Flushing | Phase::Lingering => {}
        }
        if connection.kernel.send != Operation::Idle {
            outbox.hold_if_stuck(id);
        } else if connection.wants_send() {
            if !self.send(connection, id)? {
                return Ok(false);
            }
            outbox.send_started(id);
            outbox.look_again_if_long(id);
        }
        let Some(connection) = outbox.get(id) else { return Ok(true) };
        match (connection.wants_read(), connection.kernel.receive) {
            (true, Operation::Idle) => self.receive(connection, id),
            (false, Operation::Armed) => {
                let receive = Tag { kind: Kind::Receive, id };
                self.cancel(&mut connection.kernel.receive, receive)
            }
            (true, _) | (false, _) => Ok(true),
        }
    }

    fn connect(&mut self, connection: &mut Connection, id: ConnectionId) -> io::Result<bool> {
        if connection.kernel.connect != Operation::Idle {
            return Ok(true);
        }
        let events = u32::from(libc::POLLOUT.cast_unsigned());
        let entry = opcode::PollAdd::new(fd(connection), events).build();
        let is_pushed = self.push(entry, Tag { kind: Kind::Connect, id })?;
        connection.kernel.connect = armed(is_pushed);
        Ok(is_pushed)
    }

    fn send(&mut self, connection: &mut Connection, id: ConnectionId) -> io::Result<bool> {
        let fd = fd(connection);
        let (pointer, length) = connection.output.lend();
        let entry = opcode::Send::new(fd, pointer, length).flags(libc::MSG_NOSIGNAL).build();
        let is_pushed = self.push(entry, Tag { kind: Kind::Send, id })?;
        if !is_pushed {
            connection.output.take_back();
        }
        connection.kernel.send = armed(is_pushed);
        Ok(is_pushed)
    }

    fn receive(&mut self, connection: &mut Connection, id: ConnectionId) -> io::Result<bool> {
        let entry = opcode::RecvMulti::new(fd(connection), GROUP).build();
        let is_pushed = self.push(entry, Tag { kind: Kind::Receive, id })?;
        connection.kernel.receive = armed(is_pushed);
        Ok(is_pushed)
    }

    fn cancel_all(&mut self, connection: &mut Connection, id: ConnectionId) -> io::Result<bool> {
        let kernel = &mut connection.kernel;
        let mut is_done = self.cancel(&mut kernel.connect, Tag { kind: Kind::Connect, id })?;
        is_done &= self.cancel(&mut kernel.send, Tag { kind: Kind::Send, id })?;
        is_done &= self.cancel(&mut kernel.receive, Tag { kind: Kind::Receive, id })?;
        Ok(is_done)
    }

    fn cancel(&mut self, operation: &mut Operation, tag: Tag) -> io::Result<bool> {
        if *operation != Operation::Armed {
            return Ok(true);
        }
        let entry = opcode::AsyncCancel::new(tag.pack()).build();
        let is_pushed = self.push(entry, Tag { kind: Kind::Cancel, id: tag.id })?;
        if is_pushed {
            *operation = Operation::Cancelling;
        }
        Ok(is_pushed)
    }

    fn push(&mut self, entry: squeue::Entry, tag: Tag) -> io::Result<bool> {
        self.ring.push(&entry.user_data(tag.pack()))
    }

    /// Hands over and looks, without waiting. True: something happened.
    pub(crate) fn poll(&mut self) -> io::Result<bool> {
        self.ring.poll()
    }

    /// Hands over and waits, at most `wait_ns`.
    pub(crate) fn block(&mut self, wait_ns: Option<u64>) -> io::Result<()> {
        if !self.is_bell_armed {
            // Nobody could end the sleep; the queue was full, and completions make room.
            return self.poll().map(|_| ());
        }
        self.ring.block(wait_ns.map(Duration::from_nanos))
    }

    /// Ends all operations before the memory they use is freed; what does not end is leaked.
    pub(crate) fn shut_down(&mut self, outbox: &mut Outbox) {
        if self.ring.drain() {
            outbox.kernel_is_done();
            self.buffers.kernel_is_done();
        } else if let Some(value) = self.bell_value.take() {
            Box::leak(value);
        }
    }
}

fn fd(connection: &Connection) -> types::Fd {
    types::Fd(connection.socket.as_raw_fd())
}

fn armed(is_pushed: bool) -> Operation {
    if is_pushed { Operation::Armed } else { Operation::Idle }
}
