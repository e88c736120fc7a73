//! Values to whole padded frames. Allocates nothing once the output's capacity suffices.

use alloc::vec::Vec;
use core::mem::MaybeUninit;

use rkyv::Serialize;
use rkyv::api::low::LowSerializer;
use rkyv::rancor::Failure;
use rkyv::ser::allocator::SubAllocator;

use crate::{
    Abandon, BODY_BYTES_MAX, Clear, EvictedSince, Exists, FRAME_ALIGN, Flags, Generation,
    HEADER_BYTES, Header, Lookup, Op, Publish, Refusal, Release, Remove, ReplyBuffer, Reserve,
};

/// Room for the serialiser's notes on the items of one list, in bytes: at most 2 for an outcome,
/// and 4 for a name.
const NOTES_BYTES: usize = 16 * 1024;

/// A request to encode.
#[derive(Clone, Copy, Debug)]
pub enum RequestBody<'a> {
    /// Pages to write new chunks to.
    Reserve(&'a Reserve),
    /// Makes written chunks visible.
    Publish(&'a Publish),
    /// Says that no write under these tickets is in flight.
    Abandon(&'a Abandon),
    /// Which keys are present.
    Exists(&'a Exists),
    /// Finds chunks and pins them.
    Lookup(&'a Lookup),
    /// Ends leases, whole or in part.
    Release(&'a Release),
    /// The keys that vanished since a number.
    EvictedSince(&'a EvictedSince),
    /// Unlinks keys.
    Remove(&'a Remove),
    /// Unlinks the connection's namespace.
    Clear(&'a Clear),
    /// A sign of life.
    Ping,
    /// The shard's books and counters.
    Stats,
    /// The regions.
    Regions,
}

impl RequestBody<'_> {
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

/// Appends a request to `out`.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes.
pub fn encode_request(
    out: &mut Vec<u8>,
    request_id: u64,
    generation: Generation,
    request: &RequestBody<'_>,
) {
    let frame = FrameWriter::begin(out, request.op(), Flags::REQUEST, (request_id, generation));
    match request {
        RequestBody::Reserve(body) => frame.finish(*body),
        RequestBody::Publish(body) => frame.finish(*body),
        RequestBody::Abandon(body) => frame.finish(*body),
        RequestBody::Exists(body) => frame.finish(*body),
        RequestBody::Lookup(body) => frame.finish(*body),
        RequestBody::Release(body) => frame.finish(*body),
        RequestBody::EvictedSince(body) => frame.finish(*body),
        RequestBody::Remove(body) => frame.finish(*body),
        RequestBody::Clear(body) => frame.finish(*body),
        RequestBody::Ping | RequestBody::Stats | RequestBody::Regions => {
            let _ = frame.seal();
        }
    }
}

/// Appends the reply of `replies` that answers `op` to `out`.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes, or `op` belongs to the handshake.
pub fn encode_reply(
    out: &mut Vec<u8>,
    op: Op,
    request_id: u64,
    generation: Generation,
    replies: &ReplyBuffer,
) {
    let frame = FrameWriter::begin(out, op, Flags::REPLY, (request_id, generation));
    match op {
        Op::Challenge | Op::Hello => unreachable!("the handshake has encoders of its own"),
        Op::Reserve => frame.finish(&replies.reserve),
        Op::Publish => frame.finish(&replies.publish),
        Op::Abandon => frame.finish(&replies.abandon),
        Op::Exists => frame.finish(&replies.exists),
        Op::Lookup => frame.finish(&replies.lookup),
        Op::Release => frame.finish(&replies.release),
        Op::EvictedSince => frame.finish(&replies.evicted_since),
        Op::Remove => frame.finish(&replies.remove),
        Op::Clear => frame.finish(&replies.clear),
        Op::Ping => frame.finish(&replies.ping),
        Op::Stats => frame.finish(&replies.stats),
        Op::Regions => frame.finish(&replies.regions),
    }
}

/// Appends a refusal of a whole frame to `out`; also of a hello.
///
/// # Panics
///
/// When `out` does not end at a multiple of 16 bytes, or `op` is Challenge.
pub fn encode_refusal(
    out: &mut Vec<u8>,
    op: Op,
    request_id: u64,
    generation: Generation,
    refusal: Refusal,
) {
    assert!(op != Op::Challenge, "a challenge is not refused");
    FrameWriter::begin(out, op, Flags::REFUSED, (request_id, generation)).finish(&refusal);
}

/// A frame under construction at the end of an output.
pub(crate) struct FrameWriter<'a> {
    out: &'a mut Vec<u8>,
    header: Header,
    start: usize,
}

impl<'a> FrameWriter<'a> {
    /// Appends room for the header.
    pub(crate) fn begin(
        out: &'a mut Vec<u8>,
        op: Op,
        flags: Flags,
        (request_id, generation): (u64, Generation),
    ) -> Self {
        let start = out.len();
        assert!(start.is_multiple_of(FRAME_ALIGN), "frames start at multiples of 16");
        out.resize(start + HEADER_BYTES, 0);
        let header = Header { op, flags, body_bytes: 0, request_id, generation };
        Self { out, header, start }
    }

    /// Appends bytes that stand before the archive.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends the archive of `body`.
    pub(crate) fn archive<T>(&mut self, body: &T)
    where
        T: for<'s> Serialize<LowSerializer<&'s mut Vec<u8>, SubAllocator<'s>, Failure>>,
    {
        let mut notes = [const { MaybeUninit::uninit() }; NOTES_BYTES];
        let notes = SubAllocator::new(&mut notes);
        rkyv::api::low::to_bytes_in_with_alloc(body, &mut *self.out, notes)
            .expect("lists within the protocol's limits fit the notes");
    }

    /// Appends the archive of `body` and seals the frame.
    fn finish<T>(mut self, body: &T)
    where
        T: for<'s> Serialize<LowSerializer<&'s mut Vec<u8>, SubAllocator<'s>, Failure>>,
    {
        self.archive(body);
        let _ = self.seal();
    }

    /// Fills in the header and appends the padding.
    pub(crate) fn seal(mut self) -> Sealed<'a> {
        let body_start = self.start + HEADER_BYTES;
        let bytes = u32::try_from(self.out.len() - body_start).unwrap_or(u32::MAX);
        assert!(bytes <= BODY_BYTES_MAX, "a body of {bytes} bytes was not sized before");
        self.header.body_bytes = bytes;
        self.out.resize(self.start + self.header.frame_bytes(), 0);
        self.out[self.start..body_start].copy_from_slice(&self.header.encode());
        let body = &mut self.out[body_start..body_start + bytes as usize];
        Sealed { header: self.header, body }
    }
}

/// A whole frame at the end of an output.
pub(crate) struct Sealed<'a> {
    pub(crate) header: Header,
    /// The body without its padding.
    pub(crate) body: &'a mut [u8],
}
