//! The unsent bytes of one connection, and the shared store of empty buffers.
//!
//! Two buffers: the user fills one while the kernel may own the other. What the kernel owns is
//! neither changed, moved nor freed before it is given back.

/// Buffers start at this capacity.
const FIRST_BYTES: usize = 4 * 1024;
/// A buffer that grew above this is freed after use, not kept.
const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// The kernel takes at most this much at once.
const PIECE_BYTES_MAX: usize = 1 << 30;

/// Unsent bytes.
#[derive(Debug, Default)]
pub(crate) struct Output {
    filling: Vec<u8>,
    sending: Vec<u8>,
    sent: usize,
    is_lent: bool,
}

impl Output {
    /// Counts the bytes that the kernel has not taken.
    pub(crate) fn unsent(&self) -> usize {
        self.filling.len() + self.sending.len() - self.sent
    }

    /// Returns the buffer that the user appends to.
    pub(crate) fn filling(&mut self, spare: &mut Spare) -> &mut Vec<u8> {
        if self.filling.capacity() == 0 {
            self.filling = spare.take();
        }
        &mut self.filling
    }

    /// Returns the next bytes to send; empty when there are none.
    pub(crate) fn next_piece(&mut self) -> &[u8] {
        assert!(!self.is_lent, "the kernel owns the bytes being sent");
        if self.sending.is_empty() {
            std::mem::swap(&mut self.filling, &mut self.sending);
        }
        let end = self.sending.len().min(self.sent + PIECE_BYTES_MAX);
        &self.sending[self.sent..end]
    }

    /// Lends the next bytes to the kernel until [`Self::take_back`].
    pub(crate) fn lend(&mut self) -> (*const u8, u32) {
        let piece = self.next_piece();
        let length = u32::try_from(piece.len()).expect("a piece is at most 2^30 bytes");
        let pointer = piece.as_ptr();
        self.is_lent = true;
        (pointer, length)
    }

    /// Notes that the kernel is done with the bytes it was lent.
    pub(crate) fn take_back(&mut self) {
        self.is_lent = false;
    }

    /// Notes that the kernel took the first `count` bytes of the piece.
    pub(crate) fn advance(&mut self, count: usize, spare: &mut Spare) {
        assert!(!self.is_lent, "the kernel owns the bytes being sent");
        self.sent += count;
        assert!(self.sent <= self.sending.len(), "the kernel takes no more than it was given");
        if self.sent == self.sending.len() {
            self.sent = 0;
            spare.give(std::mem::take(&mut self.sending));
            if self.filling.is_empty() {
                spare.give(std::mem::take(&mut self.filling));
            }
        }
    }

    /// Drops what is unsent, except what the kernel owns.
    pub(crate) fn discard(&mut self, spare: &mut Spare) {
        spare.give(std::mem::take(&mut self.filling));
        if !self.is_lent {
            self.sent = 0;
            spare.give(std::mem::take(&mut self.sending));
        }
    }
}

impl Drop for Output {
    /// Leaks bytes that the kernel still owns: it may read them at any later time.
    fn drop(&mut self) {
        if self.is_lent {
            std::mem::take(&mut self.sending).leak();
        }
    }
}

/// Empty buffers for reuse, so that idle connections hold none and busy ones allocate none.
#[derive(Debug)]
pub(crate) struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
}

impl Spare {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { buffers: Vec::new(), bytes: 0, bytes_max }
    }

    fn take(&mut self) -> Vec<u8> {
        let Some(buffer) = self.buffers.pop() else { return Vec::with_capacity(FIRST_BYTES) };
        self.bytes -= buffer.capacity();
        buffer
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        let is_kept = capacity > 0
            && capacity <= KEPT_BYTES_MAX
            && self.bytes.saturating_add(capacity) <= self.bytes_max;
        if is_kept {
            buffer.clear();
            self.bytes += capacity;
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests;
