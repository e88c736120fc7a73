//! What a client is told: where the server is, who it is, how long things may take.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use maru_uring::IoMode;
use maru_wire::{NAME_BYTES_MAX, Secret};

use crate::Error;
use crate::slots::SLOTS_MAX;

/// Longest setting of a time.
const DURATION_MAX: Duration = Duration::from_secs(86_400);

/// Where a server listens. Parsed from `unix:PATH` or `tcp:HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A Unix socket on this host. Bytes move through shared memory.
    Unix(PathBuf),
    /// A TCP port. Control messages only: regions are handed out on the Unix socket.
    Tcp {
        /// Name or address of the host, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
}

impl FromStr for ServerAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |reason| Error::Address { text: text.to_owned(), reason };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(bad("the path is empty"));
            }
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(bad("it starts with neither `unix:` nor `tcp:`"));
        };
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| bad("the port is missing"))?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().map_err(|_| bad("the port is no number from 1 to 65535"))?;
        if host.is_empty() {
            return Err(bad("the host is empty"));
        }
        if port == 0 {
            return Err(bad("the port is no number from 1 to 65535"));
        }
        Ok(Self::Tcp { host: host.to_owned(), port })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

/// Settings of a [`Client`](crate::Client). Start from [`ClientConfig::new`].
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where the server listens.
    pub address: ServerAddress,
    /// Name of the namespace of every key; 1 to 64 bytes.
    pub namespace: String,
    /// The secret that both ends prove. `Secret::none()` for a server without one.
    pub secret: Secret,
    /// Node name that the server must have; empty accepts any.
    pub node_name: String,
    /// How the ring thread does its I/O.
    pub io: IoMode,
    /// Longest wait for a connection and its handshake. Default 500 ms.
    pub control_timeout: Duration,
    /// Longest time that one transfer may take; the server's TTLs must be twice that. Default 30 s.
    pub transfer_timeout: Duration,
    /// How long a refused handshake is remembered before it is tried again. Default 30 s.
    pub retry_period: Duration,
    /// Largest object that will be stored, announced to the server; 0 announces nothing.
    pub object_bytes_max: u64,
    /// Most requests in flight at once, over all callers. Default 1,024.
    pub requests_max: u32,
    /// How long the ring thread spins before it sleeps. Default 0: it shares cores with an engine.
    pub spin: Duration,
}

impl ClientConfig {
    /// Returns the defaults for a server at `address` and the namespace called `namespace`.
    #[must_use]
    pub fn new(address: ServerAddress, namespace: impl Into<String>) -> Self {
        Self {
            address,
            namespace: namespace.into(),
            secret: Secret::none(),
            node_name: String::new(),
            io: IoMode::Auto,
            control_timeout: Duration::from_millis(500),
            transfer_timeout: Duration::from_secs(30),
            retry_period: Duration::from_secs(30),
            object_bytes_max: 0,
            requests_max: 1024,
            spin: Duration::ZERO,
        }
    }

    /// Refuses what no client can work with, by name.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |setting, reason| Err(Error::Config { setting, reason });
        if self.namespace.is_empty() || self.namespace.len() > NAME_BYTES_MAX {
            return refuse("namespace", "it must have 1 to 64 bytes");
        }
        if self.node_name.len() > NAME_BYTES_MAX {
            return refuse("node_name", "it must have at most 64 bytes");
        }
        for (setting, duration) in [
            ("control_timeout", self.control_timeout),
            ("transfer_timeout", self.transfer_timeout),
            ("retry_period", self.retry_period),
        ] {
            if duration.is_zero() || duration > DURATION_MAX {
                return refuse(setting, "it must be above zero and at most one day");
            }
        }
        if !(1..=SLOTS_MAX).contains(&self.requests_max) {
            return refuse("requests_max", "it must be 1 to 65536");
        }
        if self.spin > Duration::from_secs(1) {
            return refuse("spin", "it must be at most one second");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
