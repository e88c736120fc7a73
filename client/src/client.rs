//! The client object: identity, settings, and the ring thread that it starts on first use.

use std::sync::Arc;
use std::time::Duration;

use maru_wire::{Generation, Incarnation, Key, Limits, Namespace};

use crate::{Attachment, ClientConfig, Error};

/// One client of one server. Thread-safe: share it by reference or `Arc`.
///
/// A forked child gets [`Error::Forked`] from every call and must make a client of its own.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    namespace: Namespace,
    incarnation: Incarnation,
}

impl Client {
    /// Makes a client. Touches neither the network nor any thread.
    ///
    /// # Errors
    ///
    /// A setting is out of its bounds; the error names it.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        let _ = config;
        unreachable!("being written")
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Returns this client object's identity.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the digest of the namespace's name.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// Names the chunk `user_key` of this client's namespace.
    #[must_use]
    pub fn key(&self, user_key: &[u8]) -> Key {
        Key::new(&self.namespace, user_key)
    }

    /// Returns the server's shard count, connecting if need be.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refused the handshake.
    pub fn shard_count(&self, deadline: Duration) -> Result<u32, Error> {
        let _ = deadline;
        unreachable!("being written")
    }

    /// Returns the generation and limits that the server stated, connecting if need be.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refused the handshake.
    pub fn server_limits(&self, deadline: Duration) -> Result<(Generation, Limits), Error> {
        let _ = deadline;
        unreachable!("being written")
    }

    /// Returns the present generation's attachment, making it if need be.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`] for a TCP address; else the server cannot be reached or the regions
    /// cannot be mapped.
    pub fn attachment(&self, deadline: Duration) -> Result<Arc<Attachment>, Error> {
        let _ = deadline;
        unreachable!("being written")
    }
}
