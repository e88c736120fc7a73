//! What a reactor tells its user.

/// Names one connection of one reactor. Never names a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) tag: u32,
}

impl ConnectionId {
    /// Returns the slot, below `connections_max`; a later connection may have the same.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Why a connection ended. The first reason counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The peer ended its stream in order.
    PeerClosed,
    /// The peer broke the connection off.
    PeerReset,
    /// The user asked for it, with this reason.
    Requested(&'static str),
    /// The peer took no output for the stall timeout.
    SendStalled,
    /// The unsent output grew above its limit.
    BufferLimit,
    /// The system reported this error number.
    Error(i32),
}

impl Cause {
    /// Names the cause in snake case, for counters.
    pub fn reason(self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::PeerReset => "peer_reset",
            Self::Requested(reason) => reason,
            Self::SendStalled => "send_stalled",
            Self::BufferLimit => "buffer_limit",
            Self::Error(_) => "io_error",
        }
    }

    pub(crate) fn of_errno(errno: i32) -> Self {
        match errno {
            libc::ECONNRESET | libc::EPIPE => Self::PeerReset,
            other => Self::Error(other),
        }
    }
}

/// One thing that happened.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A connection that was asked for with `connect` is made.
    Connected {
        /// Which.
        connection: ConnectionId,
    },
    /// Bytes arrived, at most a receive buffer's size, on a 16-byte boundary.
    Received {
        /// From which connection.
        connection: ConnectionId,
        /// The bytes, borrowed for the time of the call.
        bytes: &'a [u8],
    },
    /// The output is sent after it had been above the pause mark.
    Drained {
        /// Of which connection.
        connection: ConnectionId,
    },
    /// The connection is gone and its descriptor closed; comes once for every connection.
    Closed {
        /// Which.
        connection: ConnectionId,
        /// Why.
        cause: Cause,
    },
    /// A [`Waker`](crate::Waker) was used since the last such event.
    Woken,
    /// The turn's deadline has passed; the last event of its turn.
    TimedOut,
}
