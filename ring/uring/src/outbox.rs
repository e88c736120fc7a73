//! stub
use std::os::fd::OwnedFd;

use crate::address::Address;
use crate::error::ConnectError;
use crate::event::ConnectionId;

/// The connections of a reactor and what they are to do next.
#[derive(Debug)]
pub struct Outbox {}

impl Outbox {
    /// Adds a connected socket.
    ///
    /// # Errors
    ///
    /// Gives the socket back when the reactor is full.
    pub fn add(&mut self, _fd: OwnedFd) -> Result<ConnectionId, OwnedFd> {
        unreachable!("stub")
    }
    /// Starts to connect.
    ///
    /// # Errors
    ///
    /// When the table is full or no socket can be made.
    pub fn connect(&mut self, _address: &Address) -> Result<ConnectionId, ConnectError> {
        unreachable!("stub")
    }
    /// The buffer to append output to.
    pub fn send(&mut self, _connection: ConnectionId) -> Option<&mut Vec<u8>> {
        unreachable!("stub")
    }
    /// Bytes not yet taken by the kernel.
    pub fn unsent_bytes(&self, _connection: ConnectionId) -> usize {
        unreachable!("stub")
    }
    /// Stops reading.
    pub fn pause(&mut self, _connection: ConnectionId) {
        unreachable!("stub")
    }
    /// Goes on reading.
    pub fn resume(&mut self, _connection: ConnectionId) {
        unreachable!("stub")
    }
    /// Closes after what is queued is sent.
    pub fn close(&mut self, _connection: ConnectionId, _reason: &'static str) {
        unreachable!("stub")
    }
    /// Closes at once.
    pub fn abort(&mut self, _connection: ConnectionId, _reason: &'static str) {
        unreachable!("stub")
    }
    /// Connections at this time, those being closed included.
    pub fn connection_count(&self) -> usize {
        unreachable!("stub")
    }
}
