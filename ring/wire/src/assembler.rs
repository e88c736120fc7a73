//! Bytes of a stream to whole frames, with at most one frame kept.
//!
//! It owns the scratch of split and misaligned frames. It does not look into bodies.

use rkyv::util::AlignedVec;

use crate::frame::MAGIC;
use crate::{DecodeError, FRAME_ALIGN, Frame, HEADER_BYTES, Header};

/// The most scratch that is kept between frames, in bytes; more is given back.
const SCRATCH_KEPT_BYTES: usize = 16 * 1024;

/// Cuts a stream into frames: in place where possible, else through an aligned scratch.
#[derive(Debug)]
pub struct Assembler {
    body_bytes_max: u32,
    /// The part of a frame that came so far, or the frame returned last when `is_returned`.
    scratch: AlignedVec<FRAME_ALIGN>,
    is_returned: bool,
    scratch_frames: u64,
}

impl Assembler {
    /// Makes an assembler for bodies of at most `body_bytes_max` bytes. Allocates nothing.
    #[must_use]
    pub fn new(body_bytes_max: u32) -> Self {
        Self { body_bytes_max, scratch: AlignedVec::new(), is_returned: false, scratch_frames: 0 }
    }

    /// Changes the largest body, in bytes. Holds from the next header on.
    pub fn set_body_bytes_max(&mut self, body_bytes_max: u32) {
        self.body_bytes_max = body_bytes_max;
    }

    /// Takes one frame off the front of `input`, and moves `input` past what it took.
    ///
    /// Call it until it returns `None`: then all of `input` was taken, and the begun frame is
    /// kept. A frame that lies whole in `input`, at an address that is a multiple of 16, is
    /// returned in place. Every other one is collected in the scratch, which never exceeds one
    /// frame and never the bytes received by more than half.
    ///
    /// # Errors
    ///
    /// The stream is no sequence of frames: close the connection. Nothing of a body is kept
    /// before its header was found good, and the begun frame is dropped.
    pub fn next<'a, 'i: 'a>(
        &'a mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'a>>, DecodeError> {
        self.drop_returned();
        if self.scratch.is_empty()
            && let Some(frame) = take_in_place(input, self.body_bytes_max)?
        {
            return Ok(Some(frame));
        }
        match self.collect(input) {
            Ok(Some(header)) => {
                self.is_returned = true;
                self.scratch_frames += 1;
                Frame::new(header, self.scratch.as_slice()).map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.scratch = AlignedVec::new();
                Err(error)
            }
        }
    }

    /// Returns how many bytes of a begun frame are kept.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        if self.is_returned { 0 } else { self.scratch.len() }
    }

    /// Returns how many frames were collected in the scratch so far.
    #[must_use]
    pub fn scratch_frames(&self) -> u64 {
        self.scratch_frames
    }

    /// Whether a frame has begun and is not whole yet.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.buffered_bytes() > 0
    }

    fn drop_returned(&mut self) {
        if self.is_returned {
            self.is_returned = false;
            self.scratch.clear();
            if self.scratch.capacity() > SCRATCH_KEPT_BYTES {
                self.scratch = AlignedVec::new();
            }
        }
    }

    /// Moves bytes of the begun frame from `input` to the scratch. Returns its header once it is
    /// whole.
    fn collect(&mut self, input: &mut &[u8]) -> Result<Option<Header>, DecodeError> {
        self.fill(input, HEADER_BYTES);
        let Some(head) = self.scratch.first_chunk() else {
            let (begun, magic) = (self.scratch.as_slice(), MAGIC.as_slice());
            let is_magic = begun.iter().zip(magic).all(|(a, b)| a == b);
            return if is_magic { Ok(None) } else { Err(DecodeError::BadMagic) };
        };
        let header = Header::decode(head, self.body_bytes_max)?;
        self.fill(input, header.frame_bytes());
        Ok((self.scratch.len() == header.frame_bytes()).then_some(header))
    }

    /// Moves bytes from `input` until the scratch holds `bytes`, as far as `input` reaches.
    fn fill(&mut self, input: &mut &[u8], bytes: usize) {
        let missing = bytes.saturating_sub(self.scratch.len());
        let (taken, rest) = input.split_at(missing.min(input.len()));
        let len = self.scratch.len() + taken.len();
        if len > self.scratch.capacity() {
            // Grows with what came, not with what the header promises.
            let capacity = bytes.min(len + len / 2).max(len);
            self.scratch.reserve_exact(capacity - self.scratch.len());
        }
        self.scratch.extend_from_slice(taken);
        *input = rest;
    }
}

/// Takes a frame that lies whole and aligned at the front of `input`.
fn take_in_place<'a>(
    input: &mut &'a [u8],
    body_bytes_max: u32,
) -> Result<Option<Frame<'a>>, DecodeError> {
    let Some(head) = input.first_chunk() else { return Ok(None) };
    let header = Header::decode(head, body_bytes_max)?;
    if !input.as_ptr().addr().is_multiple_of(FRAME_ALIGN) {
        return Ok(None);
    }
    let Some((bytes, rest)) = input.split_at_checked(header.frame_bytes()) else {
        return Ok(None);
    };
    *input = rest;
    Frame::new(header, bytes).map(Some)
}

#[cfg(test)]
mod tests;
