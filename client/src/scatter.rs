//! A batch over several shards: all parts under way at once, answers taken in order.

use std::collections::VecDeque;

use maru_session::{Channel, Failure, LinkId, Part};
use maru_wire::{
    Abandon, Clear, EvictedSince, Exists, Generation, Lookup, Publish, Release, Remove, Reply,
    RequestBody, Reserve, Ticket,
};

use crate::deadline::Deadline;
use crate::flight::{Ask, Flight};
use crate::inner::Inner;

/// Most parts of one call under way at once.
const FLIGHTS_MAX: usize = 64;

/// The body of one part, owned until it is encoded.
#[derive(Debug)]
pub(crate) enum PartBody {
    Reserve(Reserve),
    Publish(Publish),
    Abandon(Abandon),
    Exists(Exists),
    Lookup(Lookup),
    Release(Release),
    Remove(Remove),
    Clear(Clear),
    EvictedSince(EvictedSince),
    Ping,
    Stats,
}

impl PartBody {
    fn request(&self) -> RequestBody<'_> {
        match self {
            Self::Reserve(body) => RequestBody::Reserve(body),
            Self::Publish(body) => RequestBody::Publish(body),
            Self::Abandon(body) => RequestBody::Abandon(body),
            Self::Exists(body) => RequestBody::Exists(body),
            Self::Lookup(body) => RequestBody::Lookup(body),
            Self::Release(body) => RequestBody::Release(body),
            Self::Remove(body) => RequestBody::Remove(body),
            Self::Clear(body) => RequestBody::Clear(body),
            Self::EvictedSince(body) => RequestBody::EvictedSince(body),
            Self::Ping => RequestBody::Ping,
            Self::Stats => RequestBody::Stats,
        }
    }

    fn item_count(&self) -> usize {
        match self {
            Self::Reserve(body) => body.items.len(),
            Self::Publish(body) => body.items.len(),
            Self::Abandon(body) => body.tickets.len(),
            Self::Exists(body) => body.keys.len(),
            Self::Lookup(body) => body.keys.len(),
            Self::Release(body) => body.items.len(),
            Self::Remove(body) => body.items.len(),
            Self::Clear(_) | Self::EvictedSince(_) | Self::Ping | Self::Stats => 0,
        }
    }

    fn tickets(&self) -> Vec<Ticket> {
        match self {
            Self::Publish(body) => body.items.iter().map(|item| item.ticket).collect(),
            Self::Abandon(body) => body.tickets.clone(),
            Self::Reserve(_)
            | Self::Exists(_)
            | Self::Lookup(_)
            | Self::Release(_)
            | Self::Remove(_)
            | Self::Clear(_)
            | Self::EvictedSince(_)
            | Self::Ping
            | Self::Stats => Vec::new(),
        }
    }
}

/// Which links and which generation a batch goes to, and by when it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) channel: Channel,
    pub(crate) generation: Generation,
    pub(crate) deadline: Deadline,
}

impl Inner {
    /// Sends every part and reads every answer. `read` gives `None` for a reply of another kind.
    ///
    /// Returns one result per part, in order. Parts that were not answered by the deadline fail
    /// with `Timeout`.
    pub(crate) fn scatter<T>(
        &self,
        parts: &[Part],
        target: Target,
        encode: impl Fn(&Part) -> PartBody,
        mut read: impl FnMut(&Part, Reply<'_>, Generation) -> Option<T>,
    ) -> Vec<Result<T, Failure>> {
        let mut results = Vec::with_capacity(parts.len());
        let mut flights: VecDeque<Result<Flight<'_>, Failure>> = VecDeque::new();
        let mut next = 0;
        while results.len() < parts.len() {
            while next < parts.len() && flights.len() < FLIGHTS_MAX {
                match self.launch(&parts[next], target, &encode, flights.is_empty()) {
                    Some(flight) => flights.push_back(flight),
                    None => break,
                }
                next += 1;
            }
            let part = &parts[results.len()];
            let flight = flights.pop_front().expect("the first part waits for a slot");
            results.push(flight.and_then(|flight| {
                flight.read(target.deadline, |reply, generation| read(part, reply, generation))
            }));
        }
        results
    }

    /// Sends one part; without a free slot only the first one waits for one.
    fn launch(
        &self,
        part: &Part,
        target: Target,
        encode: &impl Fn(&Part) -> PartBody,
        may_wait: bool,
    ) -> Option<Result<Flight<'_>, Failure>> {
        let body = encode(part);
        let ask = Ask {
            link: LinkId { channel: target.channel, shard: part.shard },
            generation: target.generation,
            body: body.request(),
            item_count: body.item_count(),
            tickets: &body.tickets(),
        };
        match self.try_ask(&ask) {
            Some(flight) => Some(flight),
            None if may_wait => Some(self.ask(&ask, target.deadline)),
            None => None,
        }
    }
}

/// One part for each shard, without items.
pub(crate) fn every_shard(shard_count: u32) -> Vec<Part> {
    (0..shard_count).map(|shard| Part { shard, indices: Vec::new() }).collect()
}

/// Returns the values of all parts, or the failure to report.
///
/// A stale part counts first: the whole call is repeated in the new generation.
pub(crate) fn all<T>(results: Vec<Result<T, Failure>>) -> Result<Vec<T>, Failure> {
    if results.iter().any(|result| matches!(result, Err(Failure::Stale))) {
        return Err(Failure::Stale);
    }
    results.into_iter().collect()
}

/// Returns the failure to report when no part has a value; `Stale` when any part is stale.
pub(crate) fn none_or_stale<T>(results: &[Result<T, Failure>]) -> Option<Failure> {
    let failures = || results.iter().filter_map(|result| result.as_ref().err().copied());
    if failures().any(|failure| failure == Failure::Stale) {
        return Some(Failure::Stale);
    }
    let failed = failures().count();
    if failed == results.len() { failures().next() } else { None }
}
