//! Why a server did not carry out a whole frame.

use rkyv::{Archive, Deserialize, Serialize};

/// Why a frame was not executed. Part of the protocol: add variants at the end, never reorder.
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[rkyv(derive(Debug))]
#[repr(u8)]
pub enum Refusal {
    /// The frame named an earlier run of the server. Safe to repeat in the present one.
    #[error("addressed to an earlier run of the server")]
    StaleGeneration,
    /// A key of the frame belongs to the shard of this number. Route by the hello's shard count.
    #[error("a key of the frame belongs to shard {0}")]
    WrongShard(u32),
    /// The frame holds more keys than this limit.
    #[error("more than {0} keys in one frame")]
    TooManyKeys(u32),
    /// The hello's proof does not match the server's secret.
    #[error("the secret does not match the server's")]
    WrongSecret,
    /// The server speaks only this version of the protocol.
    #[error("the server speaks protocol version {0} only")]
    WrongVersion(u16),
    /// The server does not allow the namespace of the hello.
    #[error("the server does not serve this namespace")]
    WrongNamespace,
    /// The hello expected a node of another name.
    #[error("the server has another node name than the one expected")]
    WrongNode,
    /// The server has this many shards; the hello wanted another.
    #[error("no such shard: the server has {0}")]
    NoSuchShard(u32),
    /// A connection of this incarnation with this number or a higher one exists already.
    #[error("this client has used connection number {0} already; a higher one is needed")]
    ConnectionNumberUsed(u64),
    /// Another process uses this incarnation; the number is its process id.
    #[error("process {0} uses this incarnation already")]
    IncarnationTaken(u32),
    /// An incarnation may not open more connections than this.
    #[error("more than {0} connections of one incarnation")]
    TooManyConnections(u32),
    /// The shard keeps no more incarnations than this.
    #[error("more than {0} clients at one shard")]
    TooManyIncarnations(u32),
    /// The shard holds only this many objects of the size announced; 16 is the least.
    #[error(
        "a shard holds {0} objects of the size announced, at least 16 are needed: enlarge the pool or its pages"
    )]
    ShardTooSmall(u32),
    /// The reservation or lease TTL, this many microseconds, is below twice the client's
    /// transfer timeout.
    #[error("a TTL of {0} us is below twice the client's transfer timeout")]
    TtlTooShort(u64),
    /// The hello must come first, and only once.
    #[error("a hello is not expected here")]
    UnexpectedHello,
    /// The server keeps no more namespaces than this.
    #[error("more than {0} namespaces")]
    TooManyNamespaces(u32),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// Regions are handed out on the Unix socket only.
    #[error("regions are handed out on the Unix socket only")]
    NotLocal,
}
