//! The regions of one server generation, mapped: the only way from pages to bytes.

use std::sync::{Arc, Mutex, PoisonError};

use maru_transfer::shm::{CopyError, Map, Run};
use maru_wire::{Generation, PageRun};

use crate::shared::lock;
use crate::{Error, LookedUp, Pinned, Reservation};

/// One generation's regions in this process. Held by whoever copies.
///
/// When the server is lost the memory is unmapped as soon as no copy runs, whoever still holds
/// the attachment; copies then fail with [`Error::AttachmentLost`].
#[derive(Debug)]
pub struct Attachment {
    generation: Generation,
    /// The process that mapped it; a forked child has no mapping.
    owner: u32,
    /// Each copy holds the map for its time.
    map: Mutex<Option<Arc<Map>>>,
}

impl Attachment {
    pub(crate) fn new(generation: Generation, map: Map) -> Self {
        Self { generation, owner: std::process::id(), map: Mutex::new(Some(Arc::new(map))) }
    }

    /// Returns the generation whose pages this reaches.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Says whether the server is gone, and with it the mapping.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        std::process::id() != self.owner || lock(&self.map).is_none()
    }

    /// Writes `bytes` to the reservation's pages from `offset` on.
    ///
    /// # Errors
    ///
    /// The attachment is of another generation or lost, the bytes do not fit, or the memory
    /// faulted: let the reservation go.
    pub fn write(&self, reservation: &Reservation, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let map = self.map_of(reservation.generation())?;
        let (length, object_bytes) = (bytes.len() as u64, reservation.object_bytes());
        if offset.checked_add(length).is_none_or(|end| end > object_bytes) {
            return Err(Error::CopyBounds { offset, bytes: length, object_bytes });
        }
        map.write_at(&runs(reservation.runs()), offset, bytes).map_err(fault)
    }

    /// Reads the chunk of key `index` of a lookup into the front of `out`; returns its size.
    ///
    /// The bytes count only if [`Client::release`](crate::Client::release) then says "held".
    ///
    /// # Errors
    ///
    /// As [`Attachment::write`]; also when key `index` was not found.
    pub fn read(&self, pinned: &Pinned, index: usize, out: &mut [u8]) -> Result<usize, Error> {
        let room = out.len() as u64;
        let none = Error::CopyBounds { offset: 0, bytes: room, object_bytes: 0 };
        let Some(LookedUp::Found(chunk)) = pinned.outcomes().get(index) else { return Err(none) };
        let object_bytes = chunk.object_bytes;
        let bounds = Error::CopyBounds { offset: 0, bytes: room, object_bytes };
        let Ok(bytes) = usize::try_from(object_bytes) else { return Err(bounds) };
        let Some(front) = out.get_mut(..bytes) else { return Err(bounds) };
        let map = self.map_of(pinned.generation())?;
        map.read(&runs(&chunk.runs), object_bytes, front).map_err(fault)?;
        Ok(bytes)
    }

    /// Drops the mapping as soon as no copy runs: the server is gone.
    pub(crate) fn lose(&self) {
        let map = lock(&self.map).take();
        drop(map);
    }

    fn map_of(&self, generation: Generation) -> Result<Arc<Map>, Error> {
        if std::process::id() != self.owner {
            return Err(Error::Forked { owner: self.owner });
        }
        if generation != self.generation {
            return Err(Error::OtherGeneration);
        }
        lock(&self.map).clone().ok_or(Error::AttachmentLost)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        if std::process::id() != self.owner {
            // The mapping was not inherited: its addresses may be somebody else's by now.
            // No lock: another thread of the parent may have held it at the fork.
            let map = self.map.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            let _leaked = std::mem::ManuallyDrop::new(map);
        }
    }
}

fn runs(runs: &[PageRun]) -> Vec<Run> {
    let run = |run: &PageRun| Run {
        region: run.region,
        page_index: run.page_index,
        page_count: run.page_count,
    };
    runs.iter().map(run).collect()
}

fn fault(error: CopyError) -> Error {
    Error::Fault { source: error }
}
