//! The mover for one host: shared memory, passed as descriptors over a Unix socket.
//!
//! Owns the passing of descriptors, a client's maps of them, the guarded copies, and what a
//! server knows about the process at the other end.

mod descriptors;
mod error;
mod guard;
mod map;
mod peer;
#[cfg(test)]
mod testing;

pub use descriptors::{
    DESCRIPTORS_MAX, DescriptorError, Received, receive_descriptors, send_descriptors,
    try_send_descriptors,
};
pub use error::{CopyError, MapError, Run};
pub use guard::fault_guard_is_installed;
pub use map::{Map, MappedSpec, REGIONS_MAX};
pub use peer::{PeerError, PeerProcess};
