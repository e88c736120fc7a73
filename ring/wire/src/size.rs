//! Sizes of bodies, so that a reply is sized before anything is granted or pinned.

use crate::hello::ArchivedHello;
use crate::reply::{
    ArchivedEvictedSinceReply, ArchivedLookupOutcome, ArchivedLookupReply, ArchivedPageRun,
    ArchivedReserveOutcome, ArchivedReserveReply,
};
use crate::request::{
    ArchivedAbandon, ArchivedExists, ArchivedLookup, ArchivedPublish, ArchivedPublishItem,
    ArchivedRelease, ArchivedReleaseItem, ArchivedRemove, ArchivedRemoveItem, ArchivedReserve,
    ArchivedReserveItem,
};
use crate::{HELLO_BODY_BYTES_MAX, KEYS_PER_FRAME_MAX, Key, NAME_BYTES_MAX, Op, Ticket};

// A hello with the longest lists fits the bytes that a server takes before the proof.
const _: () = assert!(
    32 + size_of::<ArchivedHello>() + 2 * NAME_BYTES_MAX + 4096 * size_of::<Ticket>() + 16
        <= HELLO_BODY_BYTES_MAX as usize
);

/// Returns the size of the body of a Reserve's reply, in bytes.
#[must_use]
pub fn reserve_reply_bytes(outcomes: usize, runs: usize) -> usize {
    let lists =
        outcomes * size_of::<ArchivedReserveOutcome>() + runs * size_of::<ArchivedPageRun>();
    body_bytes::<ArchivedReserveReply>(lists)
}

/// Returns the size of the body of a Lookup's reply, in bytes.
#[must_use]
pub fn lookup_reply_bytes(outcomes: usize, runs: usize) -> usize {
    let lists = outcomes * size_of::<ArchivedLookupOutcome>() + runs * size_of::<ArchivedPageRun>();
    body_bytes::<ArchivedLookupReply>(lists)
}

/// Returns the size of the body of an EvictedSince's reply, in bytes.
#[must_use]
pub fn evicted_since_reply_bytes(keys: usize) -> usize {
    body_bytes::<ArchivedEvictedSinceReply>(keys * size_of::<Key>())
}

/// Returns how many items a request of `op` may hold when its body may have `body_bytes_max`.
#[must_use]
pub fn request_items_max(op: Op, body_bytes_max: u32) -> usize {
    let (root, item) = match op {
        Op::Reserve => (size_of::<ArchivedReserve>(), size_of::<ArchivedReserveItem>()),
        Op::Publish => (size_of::<ArchivedPublish>(), size_of::<ArchivedPublishItem>()),
        Op::Abandon => (size_of::<ArchivedAbandon>(), size_of::<Ticket>()),
        Op::Exists => (size_of::<ArchivedExists>(), size_of::<Key>()),
        Op::Lookup => (size_of::<ArchivedLookup>(), size_of::<Key>()),
        Op::Release => (size_of::<ArchivedRelease>(), size_of::<ArchivedReleaseItem>()),
        Op::Remove => (size_of::<ArchivedRemove>(), size_of::<ArchivedRemoveItem>()),
        Op::Challenge | Op::Hello | Op::EvictedSince | Op::Clear => return 0,
        Op::Ping | Op::Stats | Op::Regions => return 0,
    };
    let fitting = (body_bytes_max as usize).saturating_sub(root) / item;
    fitting.min(KEYS_PER_FRAME_MAX as usize)
}

/// Size of an archive with its lists before its root. Lists of our items need no gaps: each
/// item's size is a multiple of the alignment of the next list.
fn body_bytes<Root>(lists: usize) -> usize {
    lists.next_multiple_of(align_of::<Root>()) + size_of::<Root>()
}

#[cfg(test)]
mod tests;
