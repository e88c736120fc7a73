//! The regions of one server generation, mapped: the only way from pages to bytes.

use maru_wire::Generation;

use crate::{Error, Pinned, Reservation};

/// One generation's regions in this process. Held by whoever copies.
///
/// When the server is lost the memory is unmapped as soon as no copy runs, whoever still holds
/// the attachment; copies then fail with [`Error::AttachmentLost`].
#[derive(Debug)]
pub struct Attachment {
    generation: Generation,
}

impl Attachment {
    /// Returns the generation whose pages this reaches.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Says whether the server is gone, and with it the mapping.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        unreachable!("being written")
    }

    /// Writes `bytes` to the reservation's pages from `offset` on.
    ///
    /// # Errors
    ///
    /// The attachment is of another generation or lost, the bytes do not fit, or the memory
    /// faulted: let the reservation go.
    pub fn write(&self, reservation: &Reservation, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let _ = (reservation, offset, bytes);
        unreachable!("being written")
    }

    /// Reads the chunk of key `index` of a lookup into the front of `out`; returns its size.
    ///
    /// The bytes count only if [`Client::release`](crate::Client::release) then says "held".
    ///
    /// # Errors
    ///
    /// As [`Attachment::write`]; also when key `index` was not found.
    pub fn read(&self, pinned: &Pinned, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let _ = (pinned, index, out);
        unreachable!("being written")
    }
}
