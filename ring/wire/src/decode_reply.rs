//! Bodies of replies, checked: also that counts, runs and leases agree with each other.

use crate::decode_request::{archive, at_most, is_checksum, valid};
use crate::hello::ArchivedRegionInfo;
use crate::reply::{
    ArchivedAbandonReply, ArchivedClearReply, ArchivedEvictedSinceReply, ArchivedExistsReply,
    ArchivedFound, ArchivedLookupOutcome, ArchivedLookupReply, ArchivedPageRun, ArchivedPingReply,
    ArchivedPublishReply, ArchivedRegionsReply, ArchivedReleaseReply, ArchivedRemoveReply,
    ArchivedReserveOutcome, ArchivedReserveReply,
};
use crate::stats::ArchivedStatsReply;
use crate::{
    DecodeError, Frame, Generation, KEYS_PER_FRAME_MAX, LeaseId, NAME_BYTES_MAX,
    NAMESPACES_PER_REPLY_MAX, Op, PAGES_PER_OBJECT_MAX, REASONS_PER_REPLY_MAX,
    REGIONS_PER_REPLY_MAX, Refusal, Ticket,
};

/// A reply, read in place from its frame.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// Answers a Reserve.
    Reserve(&'a ArchivedReserveReply),
    /// Answers a Publish.
    Publish(&'a ArchivedPublishReply),
    /// Answers an Abandon.
    Abandon(&'a ArchivedAbandonReply),
    /// Answers an Exists.
    Exists(&'a ArchivedExistsReply),
    /// Answers a Lookup.
    Lookup(&'a ArchivedLookupReply),
    /// Answers a Release.
    Release(&'a ArchivedReleaseReply),
    /// Answers an EvictedSince.
    EvictedSince(&'a ArchivedEvictedSinceReply),
    /// Answers a Remove.
    Remove(&'a ArchivedRemoveReply),
    /// Answers a Clear.
    Clear(&'a ArchivedClearReply),
    /// Answers a Ping.
    Ping(&'a ArchivedPingReply),
    /// Answers a Stats.
    Stats(&'a ArchivedStatsReply),
    /// Answers a Regions.
    Regions(&'a ArchivedRegionsReply),
    /// The whole frame was not executed.
    Refused(Refusal),
}

/// Checks a reply after the hello. Total: any bytes give a reply or an error.
///
/// What only the request knows stays with the caller: that there is one outcome per item, that
/// runs lie in announced regions, and that they hold the object's bytes.
///
/// # Errors
///
/// The frame is no reply: close the connection. A Hello or Challenge is none here.
pub fn decode_reply<'a>(frame: &Frame<'a>) -> Result<Reply<'a>, DecodeError> {
    let (op, body) = (frame.header.op, frame.body);
    if !frame.header.flags.is_reply() {
        return Err(DecodeError::WrongDirection(op));
    }
    if matches!(op, Op::Challenge | Op::Hello) {
        return Err(DecodeError::WrongOp(op));
    }
    valid(op, "generation", frame.header.generation != Generation(0))?;
    if frame.header.flags.is_refused() {
        return refusal(op, body).map(Reply::Refused);
    }
    match op {
        Op::Challenge | Op::Hello => Err(DecodeError::WrongOp(op)),
        Op::Reserve => reserve(archive(op, body)?).map(Reply::Reserve),
        Op::Publish => {
            let reply: &ArchivedPublishReply = archive(op, body)?;
            at_most(op, "outcomes", reply.outcomes.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Reply::Publish(reply))
        }
        Op::Abandon => {
            let reply: &ArchivedAbandonReply = archive(op, body)?;
            valid(op, "abandoned_count", reply.abandoned_count <= KEYS_PER_FRAME_MAX)?;
            Ok(Reply::Abandon(reply))
        }
        Op::Exists => exists(archive(op, body)?).map(Reply::Exists),
        Op::Lookup => lookup(archive(op, body)?).map(Reply::Lookup),
        Op::Release => {
            let reply: &ArchivedReleaseReply = archive(op, body)?;
            at_most(op, "held", reply.held.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Reply::Release(reply))
        }
        Op::EvictedSince => evicted_since(archive(op, body)?).map(Reply::EvictedSince),
        Op::Remove => {
            let reply: &ArchivedRemoveReply = archive(op, body)?;
            at_most(op, "outcomes", reply.outcomes.len(), KEYS_PER_FRAME_MAX)?;
            Ok(Reply::Remove(reply))
        }
        Op::Clear => archive(op, body).map(Reply::Clear),
        Op::Ping => archive(op, body).map(Reply::Ping),
        Op::Stats => stats(archive(op, body)?).map(Reply::Stats),
        Op::Regions => {
            let reply: &ArchivedRegionsReply = archive(op, body)?;
            regions(op, &reply.regions)?;
            Ok(Reply::Regions(reply))
        }
    }
}

/// Reads the body of a refused frame.
pub(crate) fn refusal(op: Op, body: &[u8]) -> Result<Refusal, DecodeError> {
    let archived: &<Refusal as rkyv::Archive>::Archived = archive(op, body)?;
    rkyv::api::low::deserialize::<Refusal, rkyv::rancor::Failure>(archived)
        .map_err(|_| DecodeError::BadBody(op))
}

/// Checks a list of regions: few enough, their numbers rising, none empty.
pub(crate) fn regions(op: Op, regions: &[ArchivedRegionInfo]) -> Result<(), DecodeError> {
    at_most(op, "regions", regions.len(), REGIONS_PER_REPLY_MAX)?;
    valid(op, "region", regions.is_sorted_by(|a, b| a.region < b.region))?;
    valid(op, "bytes", regions.iter().all(|region| region.bytes >= 1))?;
    valid(op, "node", regions.iter().all(|region| region.node >= -1))
}

fn reserve(reply: &ArchivedReserveReply) -> Result<&ArchivedReserveReply, DecodeError> {
    let op = Op::Reserve;
    at_most(op, "outcomes", reply.outcomes.len(), KEYS_PER_FRAME_MAX)?;
    let mut runs = Runs { op, left: reply.runs.as_slice() };
    for outcome in reply.outcomes.iter() {
        if let ArchivedReserveOutcome::Granted(grant) = outcome {
            valid(op, "ticket", grant.ticket != Ticket::default())?;
            runs.take(grant.run_count.to_native())?;
        }
    }
    runs.finish()?;
    Ok(reply)
}

fn exists(reply: &ArchivedExistsReply) -> Result<&ArchivedExistsReply, DecodeError> {
    let op = Op::Exists;
    let leading_count = reply.leading_count.to_native();
    at_most(op, "bitmap", reply.bitmap.len(), KEYS_PER_FRAME_MAX / u64::BITS)?;
    valid(op, "leading_count", leading_count <= KEYS_PER_FRAME_MAX)?;
    if !reply.bitmap.is_empty() {
        let ones = reply.bitmap.iter().map(|word| word.to_native().trailing_ones());
        let mut leading = 0;
        for word in ones {
            leading += word;
            if word < u64::BITS {
                break;
            }
        }
        valid(op, "leading_count", leading == leading_count)?;
    }
    Ok(reply)
}

fn lookup(reply: &ArchivedLookupReply) -> Result<&ArchivedLookupReply, DecodeError> {
    let op = Op::Lookup;
    at_most(op, "outcomes", reply.outcomes.len(), KEYS_PER_FRAME_MAX)?;
    let mut runs = Runs { op, left: reply.runs.as_slice() };
    let mut is_found = false;
    for outcome in reply.outcomes.iter() {
        if let ArchivedLookupOutcome::Found(found) = outcome {
            is_found = true;
            chunk(op, found)?;
            runs.take(found.run_count.to_native())?;
        }
    }
    runs.finish()?;
    valid(op, "lease", is_found == (reply.lease != LeaseId::default()))?;
    Ok(reply)
}

fn chunk(op: Op, found: &ArchivedFound) -> Result<(), DecodeError> {
    valid(op, "object_bytes", found.object_bytes >= 1)?;
    valid(op, "checksum", is_checksum(&found.checksum))?;
    valid(op, "ticket", found.ticket != Ticket::default())
}

fn evicted_since(
    reply: &ArchivedEvictedSinceReply,
) -> Result<&ArchivedEvictedSinceReply, DecodeError> {
    let op = Op::EvictedSince;
    at_most(op, "keys", reply.keys.len(), KEYS_PER_FRAME_MAX)?;
    valid(op, "number", reply.number <= reply.eviction_number)?;
    Ok(reply)
}

fn stats(reply: &ArchivedStatsReply) -> Result<&ArchivedStatsReply, DecodeError> {
    let op = Op::Stats;
    at_most(op, "closed", reply.closed.len(), REASONS_PER_REPLY_MAX)?;
    at_most(op, "namespaces", reply.namespaces.len(), NAMESPACES_PER_REPLY_MAX)?;
    valid(op, "io", reply.io.len() <= NAME_BYTES_MAX)?;
    valid(op, "core", reply.core >= -1)?;
    valid(op, "reason", reply.closed.iter().all(|closed| closed.reason.len() <= NAME_BYTES_MAX))?;
    let named = reply.namespaces.iter().all(|usage| usage.name.len() <= NAME_BYTES_MAX);
    valid(op, "name", named)?;
    Ok(reply)
}

/// The runs of a reply, taken off the front object by object.
struct Runs<'a> {
    op: Op,
    left: &'a [ArchivedPageRun],
}

impl Runs<'_> {
    /// Takes the runs of one object: at least one, and not more pages than an object may have.
    fn take(&mut self, run_count: u32) -> Result<(), DecodeError> {
        let split = self.left.split_at_checked(run_count as usize);
        let (taken, left) = split.ok_or(DecodeError::BadValue(self.op, "run_count"))?;
        valid(self.op, "run_count", run_count >= 1)?;
        let mut page_count = 0_u64;
        for run in taken {
            let (index, count) = (run.page_index.to_native(), run.page_count.to_native());
            valid(self.op, "page_count", count >= 1)?;
            valid(self.op, "page_index", index.checked_add(count).is_some())?;
            page_count += u64::from(count);
        }
        valid(self.op, "page_count", page_count <= u64::from(PAGES_PER_OBJECT_MAX))?;
        self.left = left;
        Ok(())
    }

    /// Checks that the objects' counts add up to all runs.
    fn finish(self) -> Result<(), DecodeError> {
        valid(self.op, "runs", self.left.is_empty())
    }
}

#[cfg(test)]
mod tests;
