//! Bodies of requests, checked. Bytecheck proves memory safety; the meaning is checked here.

use rkyv::Portable;
use rkyv::api::low::{LowValidator, access};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Failure;

use crate::request::{
    ArchivedAbandon, ArchivedChecksum, ArchivedClear, ArchivedEvictedSince, ArchivedExists,
    ArchivedLookup, ArchivedPublish, ArchivedRelease, ArchivedRemove, ArchivedReserve,
};
use crate::{DecodeError, Frame, KEYS_PER_FRAME_MAX, Op};

/// A request, read in place from its frame.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Pages to write new chunks to.
    Reserve(&'a ArchivedReserve),
    /// Makes written chunks visible.
    Publish(&'a ArchivedPublish),
    /// Says that no write under these tickets is in flight.
    Abandon(&'a ArchivedAbandon),
    /// Which keys are present.
    Exists(&'a ArchivedExists),
    /// Finds chunks and pins them.
    Lookup(&'a ArchivedLookup),
    /// Ends leases, whole or in part.
    Release(&'a ArchivedRelease),
    /// The keys that vanished since a number.
    EvictedSince(&'a ArchivedEvictedSince),
    /// Unlinks keys.
    Remove(&'a ArchivedRemove),
    /// Unlinks the connection's namespace.
    Clear(&'a ArchivedClear),
    /// A sign of life.
    Ping,
    /// The shard's books and counters.
    Stats,
    /// The regions.
    Regions,
}

impl Request<'_> {
    /// Returns the operation asked for.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Reserve(_) => Op::Reserve,
            Self::Publish(_) => Op::Publish,
            Self::Abandon(_) => Op::Abandon,
            Self::Exists(_) => Op::Exists,
            Self::Lookup(_) => Op::Lookup,
            Self::Release(_) => Op::Release,
            Self::EvictedSince(_) => Op::EvictedSince,
            Self::Remove(_) => Op::Remove,
            Self::Clear(_) => Op::Clear,
            Self::Ping => Op::Ping,
            Self::Stats => Op::Stats,
            Self::Regions => Op::Regions,
        }
    }
}

/// Checks a request after the hello. Total: any bytes give a request or an error.
///
/// An empty batch is legal and is answered by an empty list. Whether ids exist, and whether a key
/// stands twice in a batch, is for the ledger to answer.
///
/// # Errors
///
/// The frame is no request: close the connection. A Hello or Challenge is none here.
pub fn decode_request<'a>(frame: &Frame<'a>) -> Result<Request<'a>, DecodeError> {
    let op = frame.header.op;
    if frame.header.flags.is_reply() {
        return Err(DecodeError::WrongDirection(op));
    }
    match op {
        Op::Challenge | Op::Hello => Err(DecodeError::WrongOp(op)),
        Op::Reserve => reserve(archive(op, frame.body)?).map(Request::Reserve),
        Op::Publish => publish(archive(op, frame.body)?).map(Request::Publish),
        Op::Abandon => {
            let body: &ArchivedAbandon = archive(op, frame.body)?;
            at_most(op, "tickets", body.tickets.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Request::Abandon(body))
        }
        Op::Exists => {
            let body: &ArchivedExists = archive(op, frame.body)?;
            at_most(op, "keys", body.keys.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Request::Exists(body))
        }
        Op::Lookup => {
            let body: &ArchivedLookup = archive(op, frame.body)?;
            at_most(op, "keys", body.keys.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Request::Lookup(body))
        }
        Op::Release => release(archive(op, frame.body)?).map(Request::Release),
        Op::EvictedSince => {
            let body: &ArchivedEvictedSince = archive(op, frame.body)?;
            at_most(op, "keys_max", body.keys_max.to_native() as usize, KEYS_PER_FRAME_MAX)?;
            Ok(Request::EvictedSince(body))
        }
        Op::Remove => {
            let body: &ArchivedRemove = archive(op, frame.body)?;
            at_most(op, "items", body.items.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Request::Remove(body))
        }
        Op::Clear => {
            let body: &ArchivedClear = archive(op, frame.body)?;
            valid(op, "confirm", body.confirm == 1)?;
            Ok(Request::Clear(body))
        }
        Op::Ping => no_body(frame).map(|()| Request::Ping),
        Op::Stats => no_body(frame).map(|()| Request::Stats),
        Op::Regions => no_body(frame).map(|()| Request::Regions),
    }
}

fn reserve(body: &ArchivedReserve) -> Result<&ArchivedReserve, DecodeError> {
    at_most(Op::Reserve, "items", body.items.len(), KEYS_PER_FRAME_MAX)?;
    let sized = body.items.iter().all(|item| item.object_bytes >= 1);
    valid(Op::Reserve, "object_bytes", sized)?;
    Ok(body)
}

fn publish(body: &ArchivedPublish) -> Result<&ArchivedPublish, DecodeError> {
    at_most(Op::Publish, "items", body.items.len(), KEYS_PER_FRAME_MAX)?;
    let known = body.items.iter().all(|item| is_checksum(&item.checksum));
    valid(Op::Publish, "checksum", known)?;
    Ok(body)
}

fn release(body: &ArchivedRelease) -> Result<&ArchivedRelease, DecodeError> {
    at_most(Op::Release, "items", body.items.len(), KEYS_PER_FRAME_MAX)?;
    let bounded = body.items.iter().all(|item| item.keep <= KEYS_PER_FRAME_MAX);
    valid(Op::Release, "keep", bounded)?;
    Ok(body)
}

fn no_body(frame: &Frame<'_>) -> Result<(), DecodeError> {
    if frame.body.is_empty() { Ok(()) } else { Err(DecodeError::BadBody(frame.header.op)) }
}

/// Reads the archive that ends where `body` ends. Proves memory safety only.
pub(crate) fn archive<T>(op: Op, body: &[u8]) -> Result<&T, DecodeError>
where
    T: Portable + for<'a> CheckBytes<LowValidator<'a, Failure>>,
{
    access::<T, Failure>(body).map_err(|_| DecodeError::BadBody(op))
}

pub(crate) fn at_most(
    op: Op,
    field: &'static str,
    count: usize,
    max: u32,
) -> Result<(), DecodeError> {
    let max = max as usize;
    if count <= max { Ok(()) } else { Err(DecodeError::TooMany { op, field, count, max }) }
}

pub(crate) fn valid(op: Op, field: &'static str, is_valid: bool) -> Result<(), DecodeError> {
    if is_valid { Ok(()) } else { Err(DecodeError::BadValue(op, field)) }
}

/// Whether the checksum's kind is known, and its value zero when there is none.
pub(crate) fn is_checksum(checksum: &ArchivedChecksum) -> bool {
    match checksum.kind {
        0 => checksum.value == 0,
        1 => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
