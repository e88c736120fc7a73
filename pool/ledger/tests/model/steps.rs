//! The random steps. Faults are drawn at extremes: off, at the limit, between.

use maru_wire::Match;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::bench::{FENCE, LEASE_TTL, RESERVATION_TTL, TRANSFER_TIMEOUT};

/// Client objects; two of them share a peer, and two a namespace.
pub(crate) const CLIENTS: u8 = 4;
/// Pages of the shard.
pub(crate) const TOTAL: u32 = 34;
/// Keys in use; few, so that they meet.
const KEYS: u64 = 14;

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Advance(u64),
    /// Bit `i`: the hello lists the client's `i`-th reservation.
    Hello(u64),
    Close,
    Dead,
    /// Keys and pages.
    Reserve(Vec<(u64, u64)>),
    /// One of the latest tickets, and whether its own key is named.
    Publish(Vec<(u8, bool)>),
    Abandon(Vec<u8>, bool),
    Exists(Vec<u64>, Match),
    Lookup(Vec<u64>, Match),
    /// One of the latest leases, and how many pins it keeps.
    Release(Vec<(u8, u32)>),
    /// How far back, and how many keys.
    EvictedSince(u8, u32),
    Remove(u64, Option<u8>),
    Clear,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) client: u8,
    pub(crate) op: Op,
    /// Steps of each turn.
    pub(crate) budget: u32,
}

fn matching() -> impl Strategy<Value = Match> {
    prop_oneof![Just(Match::Leading), Just(Match::All)]
}

fn time() -> impl Strategy<Value = u64> {
    let limits = [TRANSFER_TIMEOUT, FENCE, RESERVATION_TTL, LEASE_TTL];
    prop_oneof![
        4 => 0..20u64,
        4 => (prop::sample::select(limits.to_vec()), 0..3u64).prop_map(|(limit, i)| limit + i - 1),
        1 => Just(1u64 << 40),
    ]
}

fn keys() -> impl Strategy<Value = Vec<u64>> {
    vec(0..KEYS, 0..7)
}

fn op() -> impl Strategy<Value = Op> {
    let item = (0..KEYS, prop_oneof![6 => 1..4u64, 2 => 4..13u64, 1 => 13..70u64]);
    prop_oneof![
        4 => time().prop_map(Op::Advance),
        1 => any::<u64>().prop_map(Op::Hello),
        1 => Just(Op::Close),
        1 => Just(Op::Dead),
        12 => vec(item, 0..6).prop_map(Op::Reserve),
        10 => vec((0..8u8, prop::bool::weighted(0.9)), 0..6).prop_map(Op::Publish),
        3 => (vec(0..8u8, 0..3), any::<bool>()).prop_map(|(t, e)| Op::Abandon(t, e)),
        3 => (keys(), matching()).prop_map(|(k, m)| Op::Exists(k, m)),
        8 => (keys(), matching()).prop_map(|(k, m)| Op::Lookup(k, m)),
        5 => vec((0..5u8, prop_oneof![2 => Just(0u32), 1 => 1..4u32]), 0..3).prop_map(Op::Release),
        2 => (0..20u8, 0..20u32).prop_map(|(b, m)| Op::EvictedSince(b, m)),
        2 => (0..KEYS, proptest::option::of(0..6u8)).prop_map(|(k, t)| Op::Remove(k, t)),
        1 => Just(Op::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let budget = prop_oneof![3 => Just(u32::MAX), 2 => 1..4u32];
    (0..CLIENTS, op(), budget).prop_map(|(client, op, budget)| Step { client, op, budget })
}

/// A script of one case.
pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 1..120)
}
