//! The client object: what callers hold.

use std::sync::Arc;
use std::time::Duration;

use maru_wire::{Generation, Incarnation, Key, Limits, Namespace};

use crate::deadline::Deadline;
use crate::inner::Inner;
use crate::{Attachment, ClientConfig, Error};

/// One client of one server. Thread-safe: share it by reference or `Arc`.
///
/// A forked child gets [`Error::Forked`] from every call and must make a client of its own.
/// Dropping it gives unpublished reservations back and blocks for about one control timeout at
/// most.
#[derive(Debug)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl Client {
    /// Makes a client. Touches neither the network nor any thread.
    ///
    /// # Errors
    ///
    /// A setting is out of its bounds; the error names it.
    pub fn new(config: ClientConfig) -> Result<Self, Error> {
        Ok(Self { inner: Arc::new(Inner::new(config)?) })
    }

    /// Returns the settings.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// Returns this client object's identity.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.inner.incarnation
    }

    /// Returns the digest of the namespace's name.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.inner.namespace
    }

    /// Names the chunk `user_key` of this client's namespace.
    #[must_use]
    pub fn key(&self, user_key: &[u8]) -> Key {
        Key::new(&self.inner.namespace, user_key)
    }

    /// Returns the server's shard count, connecting if need be.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refused the handshake.
    pub fn shard_count(&self, deadline: Duration) -> Result<u32, Error> {
        self.inner.with_layout(Deadline::new(deadline), |layout| Ok(layout.shard_count))
    }

    /// Returns the generation and limits that the server stated, connecting if need be.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, or refused the handshake.
    pub fn server_limits(&self, deadline: Duration) -> Result<(Generation, Limits), Error> {
        let deadline = Deadline::new(deadline);
        self.inner.with_layout(deadline, |layout| Ok((layout.generation, layout.limits)))
    }

    /// Returns the present generation's attachment, making it if need be.
    ///
    /// # Errors
    ///
    /// [`Error::NotLocal`] for a TCP address; else the server cannot be reached or the regions
    /// cannot be mapped.
    pub fn attachment(&self, deadline: Duration) -> Result<Arc<Attachment>, Error> {
        self.inner.attached(Deadline::new(deadline)).map(|(_, attachment)| attachment)
    }
}
