//! Why a link is not up, and why a request got no answer.

use alloc::format;
use alloc::string::String;

use maru_wire::Refusal;

/// Why a connection to a shard is not usable. Kept for the callers that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The system refused the connection with this error number.
    #[error("{}", connect_text(*.0))]
    ConnectFailed(i32),
    /// The host's name has no address.
    #[error("the host's name has no address")]
    NoAddress,
    /// Connection and handshake took longer than the control timeout.
    #[error("no handshake within the control timeout")]
    HandshakeTimeout,
    /// The server closed the connection during the handshake.
    #[error("the server closed the connection during the handshake")]
    ClosedInHandshake,
    /// The server refused the hello.
    #[error("the server refused the hello: {0}")]
    Refused(Refusal),
    /// The server could not prove the secret: do not trust it.
    #[error("the server could not prove the secret; is this the right server?")]
    WrongProof,
    /// The server has a secret and this client has none.
    #[error("the server wants a secret; configure its secret file")]
    SecretRequired,
    /// This client has a secret and the server says that it has none.
    #[error("the server has no secret, but this client does; is this the right server?")]
    ServerHasNoSecret,
    /// The ranges of protocol versions do not overlap.
    #[error("the server speaks protocol versions {min} to {max}, this client speaks {ours}")]
    WrongVersion {
        /// The server's lowest.
        min: u16,
        /// The server's highest.
        max: u16,
        /// This client's.
        ours: u16,
    },
    /// The server sent bytes that are no frame, or a frame that was not due.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// Connections to one address show several generations that are all alive.
    #[error("several servers answer behind this address; give each its own address")]
    SeveralServers,
}

/// Says what Linux means by the number that a connect ended with, and what to do.
fn connect_text(errno: i32) -> String {
    let meaning = match errno {
        2 => "there is no such socket",
        11 => "too many connections wait there already",
        13 => "this user may not connect there",
        101 => "the network is unreachable",
        110 => "the host did not answer",
        111 => "nobody listens there",
        113 => "no way leads to the host",
        _ => "the system refused it",
    };
    format!(
        "cannot connect: {meaning} (system error {errno}); is maru-shardd running, and is this \
         its address?"
    )
}

impl LinkFault {
    /// Whether it lasts until somebody changes a setting: callers are told it for a retry period.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::ConnectFailed(_)
            | Self::NoAddress
            | Self::HandshakeTimeout
            | Self::ClosedInHandshake
            | Self::Refused(
                Refusal::ShuttingDown
                | Refusal::StaleGeneration
                | Refusal::ConnectionNumberUsed(_)
                | Refusal::TooManyConnections(_)
                | Refusal::TooManyIncarnations(_),
            ) => false,
            Self::Refused(_)
            | Self::WrongProof
            | Self::SecretRequired
            | Self::ServerHasNoSecret
            | Self::WrongVersion { .. }
            | Self::Protocol(_)
            | Self::SeveralServers => true,
        }
    }
}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The link could not be made. Nothing was sent.
    #[error("{0}")]
    Unreachable(LinkFault),
    /// The connection was lost after the request was sent: it may have been executed.
    #[error("the connection was lost; the request may have been executed")]
    Disconnected,
    /// The server has another generation than the request names. Nothing was executed.
    #[error("the server was restarted; the request was not executed")]
    Stale,
    /// The server answered and executed nothing.
    #[error("refused: {0}")]
    Refused(Refusal),
    /// Too many requests or tickets are outstanding at the shard. Nothing was sent.
    #[error("too many requests outstanding at one shard")]
    Busy,
    /// The client holds as many pages as the server lets it, to the call's deadline.
    #[error("this client holds as many pages as the server allows one client")]
    ClientLimit,
    /// The server does not know the reservation any more, and the key is not there.
    #[error("the server does not know the reservation")]
    TicketUnknown,
    /// No answer came within the call's deadline.
    #[error("no answer within the deadline")]
    Timeout,
    /// The bytes could not be copied.
    #[error("the pool's memory could not be copied")]
    Copy,
}

impl Failure {
    /// Says whether the server may have executed the request.
    #[must_use]
    pub fn may_have_executed(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Timeout)
    }
}

#[cfg(test)]
mod tests;
