//! What the user of a reactor may do with its connections.
//!
//! The calls only change state and note which connections changed; the backend carries the changes
//! out when the next turn begins, once for each connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::address::{Address, Socket, Started};
use crate::clock::now_ns;
use crate::config::ReactorConfig;
use crate::connection::{Connection, NEVER, Phase};
use crate::error::ConnectError;
use crate::event::{Cause, ConnectionId};
use crate::output::Spare;
use crate::table::Table;

mod life;

/// An event that waits for its turn to be told.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Connected(ConnectionId),
    Drained(ConnectionId),
    Closed(ConnectionId, Cause),
}

/// The connections of a reactor, and what is to be done for them next.
#[derive(Debug)]
pub struct Outbox {
    config: ReactorConfig,
    table: Table,
    spare: Spare,
    /// Slots whose connections changed since the backend looked at them.
    dirty: Vec<u32>,
    ready: VecDeque<Ready>,
    /// Unsent bytes of all connections, as last counted.
    buffered_bytes: usize,
    /// No deadline of a connection comes before this time.
    check_ns: u64,
    now_ns: u64,
    /// io_uring wants blocking sockets, epoll the contrary.
    is_blocking: bool,
}

impl Outbox {
    pub(crate) fn new(config: ReactorConfig, is_blocking: bool) -> Self {
        Self {
            table: Table::new(config.connections_max),
            spare: Spare::new(config.spare_bytes_max),
            dirty: Vec::new(),
            ready: VecDeque::new(),
            buffered_bytes: 0,
            check_ns: NEVER,
            now_ns: now_ns(),
            is_blocking,
            config,
        }
    }

    /// Takes over a connected stream socket and reads from it.
    ///
    /// Sets TCP_NODELAY, keep-alive and TCP_USER_TIMEOUT.
    ///
    /// # Errors
    ///
    /// Gives the socket back when all connections are in use, or when it is no usable socket.
    pub fn add(&mut self, socket: OwnedFd) -> Result<ConnectionId, OwnedFd> {
        if self.table.is_full() {
            return Err(socket);
        }
        let socket = Socket::adopt(socket, self.is_blocking, &self.config)?;
        Ok(self.insert(Connection::new(socket, Phase::Open)))
    }

    /// Starts to connect; never waits. `Connected` or `Closed` follows.
    ///
    /// # Errors
    ///
    /// - [`ConnectError::TableFull`]: close another connection first.
    /// - [`ConnectError::Socket`]: the address cannot be used, or no descriptor is left.
    pub fn connect(&mut self, address: &Address) -> Result<ConnectionId, ConnectError> {
        if self.table.is_full() {
            return Err(ConnectError::TableFull { connections_max: self.table.connections_max() });
        }
        let failed = |source| ConnectError::Socket { address: address.to_string(), source };
        match Socket::connect(address, &self.config).map_err(failed)? {
            Started::Made(socket) => {
                if let Err(errno) = socket.set_blocking(self.is_blocking) {
                    return Err(failed(errno.into()));
                }
                let id = self.insert(Connection::new(socket, Phase::Open));
                self.ready.push_back(Ready::Connected(id));
                Ok(id)
            }
            Started::Pending(socket) => {
                let mut connection = Connection::new(socket, Phase::Connecting);
                connection.deadline_ns = life::after(now_ns(), self.config.connect_timeout_us);
                self.check_ns = self.check_ns.min(connection.deadline_ns);
                Ok(self.insert(connection))
            }
            Started::Refused(socket, errno) => {
                let mut connection = Connection::new(socket, Phase::Dead);
                connection.blame(Cause::of_errno(errno as i32));
                Ok(self.insert(connection))
            }
        }
    }

    fn insert(&mut self, connection: Connection) -> ConnectionId {
        let id = self.table.insert(connection);
        self.mark(id);
        id
    }

    /// Returns the buffer to append whole frames to; they are sent when the next turn begins.
    ///
    /// Append only: earlier bytes may wait in it. None when the connection takes no more output,
    /// because it is closed or being closed, has grown above `send_bytes_max` just now, or its peer is
    /// gone; the last can be so even while bytes of that peer are still being received.
    pub fn send(&mut self, connection: ConnectionId) -> Option<&mut Vec<u8>> {
        self.table.get(connection).filter(|found| found.takes_output())?;
        self.mark(connection);
        if !self.is_within_limits(connection) {
            return None;
        }
        let found = self.table.get_mut(connection)?;
        Some(found.output.filling(&mut self.spare))
    }

    /// Counts the bytes that the kernel has not taken; 0 for a closed connection.
    pub fn unsent_bytes(&self, connection: ConnectionId) -> usize {
        self.table.get(connection).map_or(0, |found| found.output.unsent())
    }

    /// Stops reading. Bytes that were read before are still delivered.
    ///
    /// The end of a paused peer is seen when something is sent to it, or after `resume`.
    pub fn pause(&mut self, connection: ConnectionId) {
        self.set_paused(connection, true);
    }

    /// Goes on reading.
    pub fn resume(&mut self, connection: ConnectionId) {
        self.set_paused(connection, false);
    }

    fn set_paused(&mut self, connection: ConnectionId, is_paused: bool) {
        if let Some(found) = self.table.get_mut(connection)
            && found.is_paused != is_paused
        {
            found.is_paused = is_paused;
            self.mark(connection);
        }
    }

    /// Closes a connection after its queued output is sent. `Closed` follows.
    ///
    /// Nothing more is received from it. One that is not yet made is given up at once.
    pub fn close(&mut self, connection: ConnectionId, reason: &'static str) {
        let Some(found) = self.table.get_mut(connection) else { return };
        match found.phase {
            Phase::Open => {
                found.blame(Cause::Requested(reason));
                found.phase = Phase::Flushing;
                self.mark(connection);
            }
            Phase::Connecting | Phase::Broken => self.kill(connection, Cause::Requested(reason)),
            Phase::Flushing | Phase::Lingering | Phase::Dead => {}
        }
    }

    /// Closes a connection at once and drops its queued output. `Closed` follows.
    pub fn abort(&mut self, connection: ConnectionId, reason: &'static str) {
        if let Some(found) = self.table.get(connection) {
            found.socket.reset_on_close();
            self.kill(connection, Cause::Requested(reason));
        }
    }

    /// Counts the connections, those included that are being made or closed.
    pub fn connection_count(&self) -> usize {
        self.table.len()
    }

    /// Counts the unsent bytes of all connections, as of the beginning of the turn.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes
    }
}
