//! Why connections were closed, counted by reason.

use maru_wire::{ClosedCount, REASONS_PER_REPLY_MAX, Refusal};

/// Counts of closed connections. All reasons are constants, so there are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reasons {
    counts: Vec<(&'static str, u64)>,
}

impl Reasons {
    /// Counts one connection closed for `reason`.
    pub(crate) fn count(&mut self, reason: &'static str) {
        match self.counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((reason, 1)),
        }
    }

    /// Adds the counts to those of a reply.
    pub(crate) fn add_to(&self, closed: &mut Vec<ClosedCount>) {
        for (reason, count) in &self.counts {
            add(closed, reason, *count);
        }
    }
}

/// Adds `count` to that of `reason`. What has no room any more counts as `other`, the last one.
pub(crate) fn add(closed: &mut Vec<ClosedCount>, reason: &str, count: u64) {
    if let Some(known) = closed.iter_mut().find(|known| known.reason == reason) {
        known.count += count;
    } else if closed.len() + 1 < REASONS_PER_REPLY_MAX as usize || reason == "other" {
        closed.push(ClosedCount { reason: reason.to_owned(), count });
    } else {
        add(closed, "other", count);
    }
}

/// Names the refusal of a hello, which closes its connection.
pub(crate) fn refusal_reason(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::StaleGeneration => "refused_stale_generation",
        Refusal::WrongShard(_) => "refused_wrong_shard",
        Refusal::TooManyKeys(_) => "refused_too_many_keys",
        Refusal::WrongSecret => "refused_wrong_secret",
        Refusal::WrongVersion(_) => "refused_wrong_version",
        Refusal::WrongNamespace => "refused_wrong_namespace",
        Refusal::WrongNode => "refused_wrong_node",
        Refusal::NoSuchShard(_) => "refused_no_such_shard",
        Refusal::ConnectionNumberUsed(_) => "refused_connection_number_used",
        Refusal::IncarnationTaken(_) => "refused_incarnation_taken",
        Refusal::TooManyConnections(_) => "refused_too_many_connections",
        Refusal::TooManyIncarnations(_) => "refused_too_many_incarnations",
        Refusal::ShardTooSmall(_) => "refused_shard_too_small",
        Refusal::TtlTooShort(_) => "refused_ttl_too_short",
        Refusal::UnexpectedHello => "refused_unexpected_hello",
        Refusal::TooManyNamespaces(_) => "refused_too_many_namespaces",
        Refusal::ShuttingDown => "refused_shutting_down",
        Refusal::NotLocal => "refused_not_local",
    }
}
