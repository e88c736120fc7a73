//! Errors of the client: what failed, whether the server may have acted, what to do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use maru_transfer::shm::{DescriptorError, MapError};

use maru_session::{Failure, LinkFault};
use maru_wire::Refusal;

/// Whether the server may have acted on a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing was executed: safe to repeat.
    None,
    /// A part may have been executed.
    MaybeExecuted,
}

/// Why the regions could not be attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachFault {
    /// The connection or its handshake failed.
    #[error("{0}")]
    Link(#[from] LinkFault),
    /// The system refused a socket call.
    #[error("the socket failed: {0}")]
    Socket(#[from] io::Error),
    /// The descriptors did not come.
    #[error("the regions' descriptors did not come: {0}")]
    Descriptors(#[from] DescriptorError),
    /// The server handed out another number of descriptors than of regions.
    #[error("{descriptors} descriptors came for {regions} regions")]
    Count {
        /// Descriptors received.
        descriptors: usize,
        /// Regions announced.
        regions: usize,
    },
    /// The regions could not be mapped.
    #[error("{0}")]
    Map(#[from] MapError),
    /// No thread could be started for it.
    #[error("no thread for the attachment: {0}")]
    Thread(io::Error),
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is none.
    #[error("`{text}` is no server address: {reason}; write unix:PATH or tcp:HOST:PORT")]
    Address {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A setting is out of its bounds.
    #[error("client setting `{setting}` is refused: {reason}")]
    Config {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it, and what is allowed.
        reason: &'static str,
    },
    /// This process is a forked child of the one that made the client.
    #[error("this client belongs to process {owner}; make a client of its own after fork")]
    Forked {
        /// The process that made it.
        owner: u32,
    },
    /// The thread that does the client's I/O cannot be started.
    #[error("cannot start the client's I/O thread: {reason}")]
    Start {
        /// What the system said, and what to do.
        reason: String,
    },
    /// No answer came within the call's deadline.
    #[error("{server} did not answer within {:?}", rounded(*deadline))]
    Timeout {
        /// The server.
        server: String,
        /// The call's deadline.
        deadline: Duration,
    },
    /// The server cannot be reached or refused the handshake.
    #[error("{server} is not usable: {fault}")]
    Unreachable {
        /// The server.
        server: String,
        /// Why.
        #[source]
        fault: LinkFault,
    },
    /// The request failed on its way.
    #[error("request to {server} failed: {failure}")]
    Failed {
        /// The server.
        server: String,
        /// Why.
        #[source]
        failure: Failure,
    },
    /// The server answered and executed nothing.
    #[error("{server} refused the request: {refusal}")]
    Refused {
        /// The server.
        server: String,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// The server has no such shard.
    #[error("no shard {shard}: the server has {shard_count}")]
    NoSuchShard {
        /// The shard asked for.
        shard: u32,
        /// How many there are.
        shard_count: u32,
    },
    /// The bytes of the pool are not reachable over this address.
    #[error(
        "store and load need the server's Unix socket on this host: {server} hands out no memory; \
         use a unix: address"
    )]
    NotLocal {
        /// The server.
        server: String,
    },
    /// The regions could not be attached.
    #[error("cannot attach the regions of {server}: {fault}")]
    Attach {
        /// The server.
        server: String,
        /// Why.
        #[source]
        fault: Arc<AttachFault>,
    },
    /// The server of this attachment is gone; its memory was unmapped.
    #[error("the server of this attachment is gone; get the attachment anew")]
    AttachmentLost,
    /// A grant or lease of one generation was used with another's attachment.
    #[error("the pages are of another run of the server; reserve or look up again")]
    OtherGeneration,
    /// The copy does not fit the pages, or key `index` has none.
    #[error("the copy of {bytes} bytes at {offset} does not fit the {object_bytes} bytes there")]
    CopyBounds {
        /// Where it starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// What is there.
        object_bytes: u64,
    },
    /// The pool's memory faulted under the copy (poison or a shrunk device).
    #[error("the pool's memory could not be copied: {source}")]
    Fault {
        /// What the mover said.
        source: maru_transfer::shm::CopyError,
    },
    /// Too many requests are in flight in this client.
    #[error(
        "all {requests_max} request slots stayed in use; raise requests_max or use fewer threads"
    )]
    Busy {
        /// The setting.
        requests_max: u32,
    },
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
    /// The staging memory is not mapped yet.
    #[error("not connected yet; call connect first")]
    NotConnected,
    /// The staging memory cannot be mapped.
    #[error("cannot map the staging memory: {source}; make it smaller")]
    Memory {
        /// What the system said.
        source: io::Error,
    },
    /// Too few staging slots are free.
    #[error("{needed} staging slots are needed, {free} are free; ask for fewer chunks at once")]
    NoSlots {
        /// Slots needed.
        needed: usize,
        /// Slots free.
        free: usize,
    },
    /// The staging memory is in use and cannot be closed.
    #[error("{leases} read leases are out and {transfers} transfers run; end them, then close")]
    InUse {
        /// Read leases.
        leases: usize,
        /// Transfers.
        transfers: usize,
    },
}

/// Rounds a deadline to what people set: whole milliseconds, or microseconds when it is short.
fn rounded(deadline: Duration) -> Duration {
    let unit = if deadline < Duration::from_millis(10) { 1_000 } else { 1_000_000 };
    let half = Duration::from_nanos(unit / 2);
    // Beyond centuries it stands for "for ever", and needs no rounding.
    let units = u64::try_from(deadline.saturating_add(half).as_nanos()).map(|ns| ns / unit);
    units.map_or(deadline, |units| Duration::from_nanos(units * unit))
}

impl Error {
    /// Says whether the server may have acted.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Timeout { .. } => Effect::MaybeExecuted,
            Self::Failed { failure, .. } if failure.may_have_executed() => Effect::MaybeExecuted,
            _ => Effect::None,
        }
    }
}

#[cfg(test)]
mod tests;
