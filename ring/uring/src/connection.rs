//! One connection: how far its life has come, and what the kernel does for it.

use crate::address::Socket;
use crate::event::Cause;
use crate::output::Output;

/// No deadline.
pub(crate) const NEVER: u64 = u64::MAX;

/// The life of a connection, in order; a step may be skipped, none is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits to be made.
    Connecting,
    /// Receives and sends.
    Open,
    /// The peer takes no more bytes; what it had sent is still delivered.
    Broken,
    /// Sends what is left; receives nothing.
    Flushing,
    /// All is sent and the peer told; waits for its end, and drops what it still sends.
    Lingering,
    /// Waits for the kernel to let go, then is closed.
    Dead,
}

/// One operation of the kernel (io_uring only).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Operation {
    /// There is none.
    #[default]
    Idle,
    /// It runs.
    Armed,
    /// It was asked to end and has not answered.
    Cancelling,
}

/// What the kernel does for a connection at this time.
#[derive(Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) connect: Operation,
    pub(crate) receive: Operation,
    pub(crate) send: Operation,
    /// Events asked of epoll, as bits; 0 when the socket is not registered.
    pub(crate) interest: i32,
}

impl Kernel {
    /// True when no completion can arrive any more.
    pub(crate) fn is_idle(&self) -> bool {
        [self.connect, self.receive, self.send] == [Operation::Idle; 3]
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) phase: Phase,
    /// Why it ends; set once.
    pub(crate) cause: Option<Cause>,
    pub(crate) output: Output,
    /// The user does not want to read.
    pub(crate) is_paused: bool,
    /// Its output is too long for more to be read.
    pub(crate) is_held: bool,
    /// Its output was above the pause mark since it was last empty.
    pub(crate) was_above: bool,
    /// It is in the list of connections to be looked at.
    pub(crate) is_dirty: bool,
    /// When the wait of this phase ends.
    pub(crate) deadline_ns: u64,
    /// Its part of the sum of all unsent bytes.
    pub(crate) counted_bytes: usize,
    pub(crate) kernel: Kernel,
}

impl Connection {
    pub(crate) fn new(socket: Socket, phase: Phase) -> Self {
        Self {
            socket,
            phase,
            cause: None,
            output: Output::default(),
            is_paused: false,
            is_held: false,
            was_above: false,
            is_dirty: false,
            deadline_ns: NEVER,
            counted_bytes: 0,
            kernel: Kernel::default(),
        }
    }

    /// True while its bytes should be received.
    pub(crate) fn wants_read(&self) -> bool {
        match self.phase {
            Phase::Open => !self.is_paused && !self.is_held,
            Phase::Broken => !self.is_paused,
            Phase::Lingering => true,
            Phase::Connecting | Phase::Flushing | Phase::Dead => false,
        }
    }

    /// True while its unsent bytes should be sent.
    pub(crate) fn wants_send(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Flushing) && self.output.unsent() > 0
    }

    /// True while the user may append output.
    pub(crate) fn takes_output(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Open)
    }

    /// True while received bytes are the user's.
    pub(crate) fn delivers(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Broken)
    }

    /// Notes why it ends, unless that is known.
    pub(crate) fn blame(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
    }
}
