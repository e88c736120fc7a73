//! What can go wrong with a whole reactor, or with the start of a connection.

use std::io;

/// A reactor could not be made, or can no longer run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReactorError {
    /// A value of the config is out of its range.
    #[error("reactor config: {field} {rule}")]
    Config {
        /// The field's name.
        field: &'static str,
        /// What it must satisfy.
        rule: &'static str,
    },
    /// The system refuses io_uring, and nothing else was allowed.
    #[error("io_uring is not usable: {step} failed: {source}; {hint}")]
    UringRefused {
        /// The call that failed.
        step: &'static str,
        /// What the operator can do.
        hint: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A system call that every reactor needs failed.
    #[error("{call} failed: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// A connection could not even be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The reactor holds as many connections as its config allows.
    #[error("all {connections_max} connections are in use (connections_max)")]
    TableFull {
        /// The limit.
        connections_max: u32,
    },
    /// No socket could be made for this address.
    #[error("no socket for {address}: {source}")]
    Socket {
        /// The address as text.
        address: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}
