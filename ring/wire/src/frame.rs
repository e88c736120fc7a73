//! The frame: a header of 32 bytes, a body, zero padding to a multiple of 16.
//!
//! It owns the header's layout and its checks. Bodies are opaque here.

use core::fmt;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{DecodeError, Generation, PROTOCOL_VERSION};

/// Size of a frame's header, in bytes.
pub const HEADER_BYTES: usize = 32;
/// Frames start and end at multiples of this in a stream; so do their bodies.
pub const FRAME_ALIGN: usize = 16;
/// The first four bytes of every frame.
pub(crate) const MAGIC: [u8; 4] = *b"MARU";

/// What a frame asks for or answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// The server's first frame on every connection.
    Challenge = 1,
    /// The client's first frame, and its answer.
    Hello,
    /// Pages to write new chunks to.
    Reserve,
    /// Makes written chunks visible.
    Publish,
    /// Says that no write under these tickets is in flight.
    Abandon,
    /// Which keys are present.
    Exists,
    /// Finds chunks and pins them.
    Lookup,
    /// Ends leases, whole or in part.
    Release,
    /// The keys that vanished since a number.
    EvictedSince,
    /// Unlinks keys.
    Remove,
    /// Unlinks a whole namespace.
    Clear,
    /// A sign of life, and the shard's load.
    Ping,
    /// The shard's books and counters.
    Stats,
    /// The regions, also those added since the hello.
    Regions,
}

impl Op {
    /// Every operation, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Challenge,
        Self::Hello,
        Self::Reserve,
        Self::Publish,
        Self::Abandon,
        Self::Exists,
        Self::Lookup,
        Self::Release,
        Self::EvictedSince,
        Self::Remove,
        Self::Clear,
        Self::Ping,
        Self::Stats,
        Self::Regions,
    ];

    /// Returns the operation of this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns the operation's number on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the name in snake case, for metrics and errors.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Challenge => "challenge",
            Self::Hello => "hello",
            Self::Reserve => "reserve",
            Self::Publish => "publish",
            Self::Abandon => "abandon",
            Self::Exists => "exists",
            Self::Lookup => "lookup",
            Self::Release => "release",
            Self::EvictedSince => "evicted_since",
            Self::Remove => "remove",
            Self::Clear => "clear",
            Self::Ping => "ping",
            Self::Stats => "stats",
            Self::Regions => "regions",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What kind of frame it is. Checked: only the three known kinds exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Flags(u8);

impl Flags {
    /// From a client to a server.
    pub const REQUEST: Self = Self(0);
    /// From a server to a client.
    pub const REPLY: Self = Self(1);
    /// From a server to a client; the body is a `Refusal`.
    pub const REFUSED: Self = Self(3);

    /// Whether the frame goes from a server to a client.
    #[must_use]
    pub fn is_reply(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the body is a refusal.
    #[must_use]
    pub fn is_refused(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns the bits on the wire.
    #[must_use]
    pub fn bits(self) -> u8 {
        self.0
    }
}

/// A frame's header, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the frame asks for or answers.
    pub op: Op,
    /// Whether it asks, answers or refuses.
    pub flags: Flags,
    /// Size of the body without its padding, in bytes.
    pub body_bytes: u32,
    /// The sender's number of a request; its reply repeats it.
    pub request_id: u64,
    /// Request: the generation addressed. Reply: the server's own.
    pub generation: Generation,
}

/// The header as it stands on the wire.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U16,
    op: u8,
    flags: u8,
    body_bytes: U32,
    reserved: U32,
    request_id: U64,
    generation: U64,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

impl Header {
    /// Checks the header of a frame whose body may have `body_bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// The first field that is wrong, in the order of the bytes.
    pub fn decode(bytes: &[u8; HEADER_BYTES], body_bytes_max: u32) -> Result<Self, DecodeError> {
        let raw: &RawHeader = zerocopy::transmute_ref!(bytes);
        if raw.magic != MAGIC {
            return Err(DecodeError::BadMagic);
        }
        if raw.version.get() != PROTOCOL_VERSION {
            return Err(DecodeError::BadVersion(raw.version.get()));
        }
        let op = Op::from_number(raw.op).ok_or(DecodeError::UnknownOp(raw.op))?;
        let flags = match raw.flags {
            0 if op == Op::Challenge => return Err(DecodeError::WrongDirection(op)),
            3 if op == Op::Challenge => return Err(DecodeError::BadFlags(raw.flags)),
            0 | 1 | 3 => Flags(raw.flags),
            unknown => return Err(DecodeError::BadFlags(unknown)),
        };
        let bytes = raw.body_bytes.get();
        if bytes > body_bytes_max {
            return Err(DecodeError::BodyTooLarge { bytes, max: body_bytes_max });
        }
        if raw.reserved.get() != 0 {
            return Err(DecodeError::BadReserved(raw.reserved.get()));
        }
        Ok(Self {
            op,
            flags,
            body_bytes: bytes,
            request_id: raw.request_id.get(),
            generation: Generation(raw.generation.get()),
        })
    }

    /// Returns the header's bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let raw = RawHeader {
            magic: MAGIC,
            version: U16::new(PROTOCOL_VERSION),
            op: self.op.number(),
            flags: self.flags.bits(),
            body_bytes: U32::new(self.body_bytes),
            reserved: U32::new(0),
            request_id: U64::new(self.request_id),
            generation: U64::new(self.generation.0),
        };
        zerocopy::transmute!(raw)
    }

    /// Returns the size of the whole frame with its padding, in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + (self.body_bytes as usize).next_multiple_of(FRAME_ALIGN)
    }
}

/// One whole frame. Its padding was checked, its body was not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The body without its padding, aligned to 16 bytes when it comes from an `Assembler`.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Splits `bytes`, which are exactly one frame with its padding, at the header's end.
    pub(crate) fn new(header: Header, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let body = bytes.get(HEADER_BYTES..header.frame_bytes()).ok_or(DecodeError::BadPadding)?;
        let (body, padding) = body.split_at(header.body_bytes as usize);
        if padding.iter().any(|byte| *byte != 0) {
            return Err(DecodeError::BadPadding);
        }
        Ok(Self { header, body })
    }
}
