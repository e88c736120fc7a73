//! Identifiers of the protocol. Each is a newtype of its exact bytes on the wire.

use rkyv::bytecheck::CheckBytes;
use rkyv::{Archive, Deserialize, Portable, Serialize};

macro_rules! wire_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(
            Archive, Serialize, Deserialize, Portable, CheckBytes, Clone, Copy, PartialEq, Eq,
            PartialOrd, Ord, Hash, Default,
        )]
        #[bytecheck(crate = rkyv::bytecheck)]
        #[rkyv(as = $name)]
        #[repr(transparent)]
        pub struct $name(pub [u8; $bytes]);

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    };
}

wire_id! {
    /// Names a chunk: BLAKE3 over the namespace's digest and the user's key.
    Key, 32
}
wire_id! {
    /// Names a reservation: a counter and a keyed hash, little endian. Never recurs.
    Ticket, 16
}
wire_id! {
    /// Names a lease: a counter and a keyed hash, little endian. Never recurs. Zero is no lease.
    LeaseId, 16
}
wire_id! {
    /// Names one client object: 4 bytes of process id, then 12 random bytes.
    Incarnation, 16
}
wire_id! {
    /// Digest of a namespace's name.
    Namespace, 32
}

/// One run of a server. Random and never zero; zero in a request of Hello or Ping means "any".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Generation(pub u64);

/// Rises with each data connection of one incarnation to one shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ConnectionNumber(pub u64);

impl Key {
    /// Names the chunk `user_key` of `namespace`.
    #[must_use]
    pub fn new(namespace: &Namespace, user_key: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&namespace.0);
        hasher.update(user_key);
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the shard of this key: its first 8 bytes, little endian, scaled to `shard_count`.
    #[must_use]
    pub fn shard(&self, shard_count: u32) -> u32 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        let route = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let scaled = (u128::from(route) * u128::from(shard_count)) >> 64;
        u32::try_from(scaled).expect("route x count >> 64 is below the count")
    }
}

impl Namespace {
    /// Returns the digest of the namespace called `name`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(blake3::derive_key("maru-shard namespace v1", name.as_bytes()))
    }
}

impl Incarnation {
    /// Returns the process id in the incarnation's first four bytes.
    #[must_use]
    pub fn process_id(&self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }
}
