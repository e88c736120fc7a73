//! What one connection of a load asks: its requests, and what each answer leads to.

use maru_wire::{
    Abandon, ArchivedLookupOutcome, ArchivedPublishOutcome, ArchivedReserveOutcome, BODY_BYTES_MAX,
    Checksum, Exists, Generation, Key, LeaseId, Lookup, Match, Op, Publish, PublishItem, Release,
    ReleaseItem, Reply, RequestBody, Reserve, ReserveItem, Ticket, encode_request,
    request_items_max,
};

use crate::dial::{OBJECT_BYTES, refused};
use crate::keys::ShardKeys;

/// Where the request id stands in a frame's header.
const REQUEST_ID_AT: usize = 16;

/// What a load does over and over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Operation {
    /// Asks whether keys are present, and gets a canned answer.
    Echo,
    /// Asks whether keys are present.
    Exists,
    /// Finds and pins keys, then releases the lease.
    Lookup,
    /// Reserves pages for new keys, then publishes them; nothing is written to the pages.
    Reserve,
    /// Reserves pages for new keys, then gives them back.
    #[value(skip)]
    Abandon,
}

impl Operation {
    /// Returns the name used in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Exists => "exists",
            Self::Lookup => "lookup+release",
            Self::Reserve => "reserve+publish",
            Self::Abandon => "reserve+abandon",
        }
    }
}

/// What the answers said, summed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Answers of any kind: one per frame sent.
    pub(crate) frames: u64,
    /// Keys carried through: found, published, or given back.
    pub(crate) keys: u64,
    /// Keys that were not there, or not granted.
    pub(crate) others: u64,
    /// Of these, keys for which the client held too much.
    pub(crate) client_limit: u64,
    /// Of these, keys for which the pool had no room.
    pub(crate) full: u64,
    /// Leases that ended before their release.
    pub(crate) not_held: u64,
}

/// Frames of one size, encoded before the load starts, used in turn.
pub(crate) struct Canned {
    bytes: Vec<u8>,
    frame_bytes: usize,
    next: usize,
}

impl Canned {
    /// Encodes `keys` in frames of `keys_per_frame`; a rest that fills no frame is left out.
    fn new(
        operation: Operation,
        generation: Generation,
        keys: &[Key],
        keys_per_frame: usize,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut frame_bytes = 0;
        for keys in keys.chunks_exact(keys_per_frame) {
            let (keys, matching) = (keys.to_vec(), Match::All);
            let before = bytes.len();
            match operation {
                Operation::Lookup => {
                    let lookup = Lookup { keys, matching };
                    encode_request(&mut bytes, 0, generation, &RequestBody::Lookup(&lookup));
                }
                Operation::Echo | Operation::Exists | Operation::Reserve | Operation::Abandon => {
                    // The leading run answers with a count: the smallest answer.
                    let exists = Exists { keys, matching: Match::Leading };
                    encode_request(&mut bytes, 0, generation, &RequestBody::Exists(&exists));
                }
            }
            frame_bytes = bytes.len() - before;
        }
        Self { bytes, frame_bytes, next: 0 }
    }

    fn append(&mut self, out: &mut Vec<u8>, request_id: u64) {
        let start = out.len();
        out.extend_from_slice(&self.bytes[self.next..self.next + self.frame_bytes]);
        out[start + REQUEST_ID_AT..start + REQUEST_ID_AT + 8]
            .copy_from_slice(&request_id.to_le_bytes());
        self.next += self.frame_bytes;
        if self.next == self.bytes.len() {
            self.next = 0;
        }
    }
}

/// What an answer leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// The second half of the work: a frame was appended.
    Second,
    /// The work is done; the slot is free for the next.
    Done,
}

/// The work of one shard: where its requests come from.
pub(crate) struct Work {
    operation: Operation,
    generation: Generation,
    keys_per_frame: usize,
    canned: Option<Canned>,
    new_keys: ShardKeys,
    reserve: Reserve,
    publish: Publish,
    abandon: Abandon,
    release: Release,
    /// Keys of each slot's reserve, which its publish must name.
    reserved: Vec<Vec<Key>>,
    /// What did not fit into each slot's first publish.
    unpublished: Vec<Vec<PublishItem>>,
    pub(crate) counts: Counts,
}

impl Work {
    /// Makes work over `resident` keys (read) or `new_keys` (stored), in `slot_count` slots.
    pub(crate) fn new(
        (operation, keys_per_frame): (Operation, usize),
        generation: Generation,
        resident: &[Key],
        new_keys: ShardKeys,
        slot_count: usize,
    ) -> Self {
        let is_read = !matches!(operation, Operation::Reserve | Operation::Abandon);
        let canned = is_read.then(|| Canned::new(operation, generation, resident, keys_per_frame));
        Self {
            operation,
            generation,
            keys_per_frame,
            canned,
            new_keys,
            reserve: Reserve::default(),
            publish: Publish::default(),
            abandon: Abandon::default(),
            release: Release { items: vec![ReleaseItem { lease: LeaseId::default(), keep: 0 }] },
            reserved: vec![Vec::new(); slot_count],
            unpublished: vec![Vec::new(); slot_count],
            counts: Counts::default(),
        }
    }

    /// Appends the next first request of `slot`; `false` when no keys are left.
    pub(crate) fn begin(&mut self, out: &mut Vec<u8>, slot: usize, request_id: u64) -> bool {
        if let Some(canned) = &mut self.canned {
            canned.append(out, request_id);
            return true;
        }
        let keys = &mut self.reserved[slot];
        keys.clear();
        keys.extend(self.new_keys.by_ref().take(self.keys_per_frame));
        if keys.is_empty() {
            return false;
        }
        self.reserve.items.clear();
        self.reserve
            .items
            .extend(keys.iter().map(|key| ReserveItem { key: *key, object_bytes: OBJECT_BYTES }));
        encode_request(out, request_id, self.generation, &RequestBody::Reserve(&self.reserve));
        true
    }

    /// Returns the number from which on no key was used.
    pub(crate) fn next_key(&self) -> u64 {
        self.new_keys.next_number()
    }

    /// Takes an answer to a request of `slot`, and appends what follows from it.
    pub(crate) fn proceed(
        &mut self,
        reply: &Reply<'_>,
        out: &mut Vec<u8>,
        (slot, request_id): (usize, u64),
    ) -> anyhow::Result<Next> {
        self.counts.frames += 1;
        match reply {
            Reply::Exists(reply) => {
                let found = u64::from(reply.leading_count.to_native());
                self.counts.keys += found;
                self.counts.others += self.keys_per_frame as u64 - found;
                Ok(Next::Done)
            }
            Reply::Lookup(reply) => {
                if reply.lease == LeaseId::default() {
                    self.counts.others += self.keys_per_frame as u64;
                    return Ok(Next::Done);
                }
                self.count_lookup(&reply.outcomes);
                self.release.items[0].lease = reply.lease;
                let request = RequestBody::Release(&self.release);
                encode_request(out, request_id, self.generation, &request);
                Ok(Next::Second)
            }
            Reply::Release(reply) => {
                self.counts.not_held += reply.held.iter().filter(|held| !**held).count() as u64;
                Ok(Next::Done)
            }
            Reply::Reserve(reply) => Ok(self.settle(&reply.outcomes, out, (slot, request_id))),
            Reply::Abandon(reply) => {
                self.counts.keys += u64::from(reply.abandoned_count.to_native());
                Ok(Next::Done)
            }
            Reply::Publish(reply) => {
                for outcome in reply.outcomes.iter() {
                    match outcome {
                        ArchivedPublishOutcome::Created => self.counts.keys += 1,
                        _ => self.counts.others += 1,
                    }
                }
                self.publish.items.clear();
                self.publish.items.append(&mut self.unpublished[slot]);
                Ok(self.send_publish(out, request_id))
            }
            Reply::Refused(refusal) => Err(refused(*refusal)),
            other => anyhow::bail!("the server gave an answer that was not asked for: {other:?}"),
        }
    }

    fn count_lookup(&mut self, outcomes: &[ArchivedLookupOutcome]) {
        for outcome in outcomes {
            match outcome {
                ArchivedLookupOutcome::Found(_) => self.counts.keys += 1,
                ArchivedLookupOutcome::ClientLimit => {
                    self.counts.others += 1;
                    self.counts.client_limit += 1;
                }
                ArchivedLookupOutcome::Missing | ArchivedLookupOutcome::NotTried => {
                    self.counts.others += 1;
                }
            }
        }
    }

    /// Publishes what was granted, or gives it back.
    fn settle(
        &mut self,
        outcomes: &[ArchivedReserveOutcome],
        out: &mut Vec<u8>,
        (slot, request_id): (usize, u64),
    ) -> Next {
        self.publish.items.clear();
        for (outcome, key) in outcomes.iter().zip(&self.reserved[slot]) {
            match outcome {
                ArchivedReserveOutcome::Granted(grant) => {
                    let (ticket, key): (Ticket, Key) = (grant.ticket, *key);
                    let checksum = Checksum::default();
                    self.publish.items.push(PublishItem { ticket, key, checksum });
                    continue;
                }
                ArchivedReserveOutcome::ClientLimit => self.counts.client_limit += 1,
                ArchivedReserveOutcome::Full => self.counts.full += 1,
                _ => {}
            }
            self.counts.others += 1;
        }
        if self.operation == Operation::Abandon {
            return self.send_abandon(out, request_id);
        }
        let items_max = request_items_max(Op::Publish, BODY_BYTES_MAX);
        if self.publish.items.len() > items_max {
            self.unpublished[slot].extend(self.publish.items.drain(items_max..));
        }
        self.send_publish(out, request_id)
    }

    fn send_publish(&mut self, out: &mut Vec<u8>, request_id: u64) -> Next {
        if self.publish.items.is_empty() {
            return Next::Done;
        }
        encode_request(out, request_id, self.generation, &RequestBody::Publish(&self.publish));
        Next::Second
    }

    fn send_abandon(&mut self, out: &mut Vec<u8>, request_id: u64) -> Next {
        self.abandon.tickets.clear();
        self.abandon.tickets.extend(self.publish.items.iter().map(|item| item.ticket));
        if self.abandon.tickets.is_empty() {
            return Next::Done;
        }
        encode_request(out, request_id, self.generation, &RequestBody::Abandon(&self.abandon));
        Next::Second
    }
}

#[cfg(test)]
mod tests;
