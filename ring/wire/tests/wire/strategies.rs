//! Random legal messages: what an encoder may be given, a decoder must give back.

use maru_wire::{
    Abandon, AbandonReply, Challenge, Checksum, Clear, ClearReply, ClosedCount, EvictedSince,
    EvictedSinceReply, Exists, ExistsReply, Found, Grant, Hello, HelloReply, Incarnation, Key,
    LeaseId, Limits, Lookup, LookupOutcome, LookupReply, Match, Mover, MoverKind, Namespace,
    NamespaceUsage, Op, PageRun, PingReply, Publish, PublishItem, PublishOutcome, PublishReply,
    Purpose, Refusal, RegionInfo, RegionKind, RegionsReply, Release, ReleaseItem, ReleaseReply,
    Remove, RemoveItem, RemoveOutcome, RemoveReply, Reserve, ReserveItem, ReserveOutcome,
    ReserveReply, StatsReply, Ticket,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::messages::Message;

/// Lists of a few items; the limits have tests of their own.
const LIST: std::ops::Range<usize> = 0..9;

/// Every kind of message, each as likely as the others.
pub(crate) fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        4 => handshake(),
        12 => request(),
        12 => reply(),
        1 => refusal().prop_map(|refusal| Message::Refused(Op::Ping, refusal)),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    any::<[u8; 32]>().prop_map(Key)
}

/// Never zero: zero names no ticket.
fn ticket() -> impl Strategy<Value = Ticket> {
    any::<[u8; 16]>().prop_map(|mut bytes| {
        bytes[0] |= 1;
        Ticket(bytes)
    })
}

fn lease() -> impl Strategy<Value = LeaseId> {
    ticket().prop_map(|ticket| LeaseId(ticket.0))
}

fn checksum() -> impl Strategy<Value = Checksum> {
    (0..=1_u8, any::<u64>())
        .prop_map(|(kind, value)| Checksum { kind, value: value * u64::from(kind) })
}

fn name() -> impl Strategy<Value = String> {
    "[a-zäß€]{0,20}"
}

fn version_range() -> impl Strategy<Value = (u16, u16)> {
    (1..=9_u16, 0..=9_u16).prop_map(|(min, more)| (min, min + more))
}

fn handshake() -> impl Strategy<Value = Message> {
    let challenge = (any::<[u8; 32]>(), version_range(), any::<bool>()).prop_map(
        |(server_nonce, (version_min, version_max), secret_required)| {
            Message::Challenge(Challenge {
                server_nonce,
                version_min,
                version_max,
                secret_required,
            })
        },
    );
    prop_oneof![
        challenge,
        hello().prop_map(Message::Hello),
        hello_reply().prop_map(|reply| Message::HelloReply(Box::new(reply))),
        refusal().prop_map(|refusal| Message::Refused(Op::Hello, refusal)),
    ]
}

fn hello() -> impl Strategy<Value = Hello> {
    let ids = (any::<[u8; 32]>(), any::<[u8; 16]>(), any::<[u8; 32]>(), any::<[u8; 32]>());
    let numbers = (any::<u64>(), any::<u32>(), 1..u64::MAX, 1..u64::MAX);
    let purpose = select(vec![Purpose::Data, Purpose::Monitor, Purpose::Attach]);
    (ids, numbers, version_range(), purpose, (name(), name()), vec(ticket(), LIST)).prop_map(
        |(ids, numbers, versions, purpose, (namespace_name, node_name), tickets)| Hello {
            client_nonce: ids.0,
            version_min: versions.0,
            version_max: versions.1,
            purpose,
            incarnation: Incarnation(ids.1),
            connection_number: numbers.0,
            shard: numbers.1,
            namespace: Namespace(ids.2),
            namespace_name,
            node_name,
            pool_list_digest: ids.3,
            transfer_timeout_us: numbers.2,
            object_bytes_max: numbers.3,
            tickets: if purpose == Purpose::Data { tickets } else { Vec::new() },
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    let small = (4096..=256 * 1024_u32, 1..=4096_u32, any::<[u32; 4]>());
    (small, any::<[u64; 5]>()).prop_map(|((body, keys, counts), sizes)| {
        let [page_bytes, object_bytes_max, reservation_ttl_us, lease_ttl_us, fence_us] = sizes;
        Limits {
            body_bytes_max: body,
            keys_per_frame_max: keys,
            page_bytes: page_bytes | 1,
            object_bytes_max: object_bytes_max | 1,
            reserved_pages_max: counts[0],
            pinned_pages_max: counts[1],
            leases_max: counts[2],
            connections_max: counts[3],
            reservation_ttl_us: reservation_ttl_us | 1,
            lease_ttl_us: lease_ttl_us | 1,
            fence_us,
        }
    })
}

fn mover() -> impl Strategy<Value = Mover> {
    let kind = select(vec![MoverKind::Shm, MoverKind::Nixl, MoverKind::Tcp]);
    (kind, vec(any::<u8>(), 0..40)).prop_map(|(kind, endpoint)| {
        let endpoint = if kind == MoverKind::Shm { Vec::new() } else { endpoint };
        Mover { kind, endpoint }
    })
}

/// Regions with rising numbers.
fn regions() -> impl Strategy<Value = Vec<RegionInfo>> {
    let kinds =
        vec![RegionKind::Memfd, RegionKind::HugePages, RegionKind::DeviceDax, RegionKind::FileDax];
    let region = (1..1000_u32, select(kinds), -1..i32::MAX, 1..u64::MAX);
    vec(region, LIST).prop_map(|regions| {
        let mut number = 0;
        let rising = regions.into_iter().map(|(step, kind, node, bytes)| {
            number += step;
            RegionInfo { region: number, kind, node, bytes }
        });
        rising.collect()
    })
}

fn hello_reply() -> impl Strategy<Value = HelloReply> {
    let shards = (1..u32::MAX).prop_flat_map(|count| (Just(count), 0..count));
    (shards, name(), any::<u64>(), limits(), regions(), vec(mover(), LIST)).prop_map(
        |((shard_count, shard), node_name, eviction_number, limits, regions, mut movers)| {
            movers.truncate(8);
            HelloReply {
                version: 1,
                shard_count,
                shard,
                node_name,
                eviction_number,
                limits,
                regions,
                movers,
            }
        },
    )
}

fn matching() -> impl Strategy<Value = Match> {
    select(vec![Match::Leading, Match::All])
}

fn request() -> impl Strategy<Value = Message> {
    let reserve = vec((key(), 1..u64::MAX), LIST).prop_map(|items| {
        let item = |(key, object_bytes)| ReserveItem { key, object_bytes };
        Message::Reserve(Reserve { items: items.into_iter().map(item).collect() })
    });
    let publish = vec((ticket(), key(), checksum()), LIST).prop_map(|items| {
        let item = |(ticket, key, checksum)| PublishItem { ticket, key, checksum };
        Message::Publish(Publish { items: items.into_iter().map(item).collect() })
    });
    let abandon = (vec(ticket(), LIST), any::<bool>())
        .prop_map(|(tickets, after_error)| Message::Abandon(Abandon { tickets, after_error }));
    let exists = (vec(key(), LIST), matching())
        .prop_map(|(keys, matching)| Message::Exists(Exists { keys, matching }));
    let lookup = (vec(key(), LIST), matching())
        .prop_map(|(keys, matching)| Message::Lookup(Lookup { keys, matching }));
    let release = vec((lease(), 0..=4096_u32), LIST).prop_map(|items| {
        let item = |(lease, keep)| ReleaseItem { lease, keep };
        Message::Release(Release { items: items.into_iter().map(item).collect() })
    });
    let evicted_since = (any::<u64>(), 0..=4096_u32)
        .prop_map(|(number, keys_max)| Message::EvictedSince(EvictedSince { number, keys_max }));
    let remove = vec((key(), ticket()), LIST).prop_map(|items| {
        let item = |(key, ticket)| RemoveItem { key, ticket };
        Message::Remove(Remove { items: items.into_iter().map(item).collect() })
    });
    let fixed = select(vec![
        Message::Clear(Clear { confirm: 1 }),
        Message::Ping,
        Message::Stats,
        Message::Regions,
    ]);
    prop_oneof![reserve, publish, abandon, exists, lookup, release, evicted_since, remove, fixed]
}

/// Runs of one object: one to four, of at most 16 pages each.
fn runs() -> impl Strategy<Value = Vec<PageRun>> {
    let run = (any::<u32>(), 0..1_000_000_u32, 1..=16_u32);
    vec(run, 1..=4).prop_map(|runs| {
        let run = |(region, page_index, page_count)| PageRun { region, page_index, page_count };
        runs.into_iter().map(run).collect()
    })
}

fn reserve_reply() -> impl Strategy<Value = Message> {
    let refused = vec![
        ReserveOutcome::Present,
        ReserveOutcome::InFlight,
        ReserveOutcome::Full,
        ReserveOutcome::Growing(7),
        ReserveOutcome::Rejected,
        ReserveOutcome::ClientLimit,
        ReserveOutcome::Duplicate,
        ReserveOutcome::NotTried,
    ];
    let outcome = prop_oneof![
        select(refused).prop_map(|outcome| (outcome, Vec::new())),
        (ticket(), runs()).prop_map(|(ticket, runs)| {
            let run_count = u32::try_from(runs.len()).expect("at most four");
            (ReserveOutcome::Granted(Grant { ticket, run_count }), runs)
        }),
    ];
    (any::<u64>(), vec(outcome, LIST)).prop_map(|(eviction_number, list)| {
        let outcomes = list.iter().map(|(outcome, _)| *outcome).collect();
        let runs = list.into_iter().flat_map(|(_, runs)| runs).collect();
        Message::ReserveReply(ReserveReply { eviction_number, outcomes, runs })
    })
}

fn lookup_reply() -> impl Strategy<Value = Message> {
    let not_found =
        vec![LookupOutcome::Missing, LookupOutcome::ClientLimit, LookupOutcome::NotTried];
    let outcome = prop_oneof![
        select(not_found).prop_map(|outcome| (outcome, Vec::new())),
        (1..u64::MAX, checksum(), ticket(), runs()).prop_map(
            |(object_bytes, checksum, ticket, runs)| {
                let run_count = u32::try_from(runs.len()).expect("at most four");
                (LookupOutcome::Found(Found { object_bytes, checksum, ticket, run_count }), runs)
            }
        ),
    ];
    (any::<[u64; 2]>(), lease(), vec(outcome, LIST)).prop_map(|(numbers, lease, list)| {
        let outcomes: Vec<_> = list.iter().map(|(outcome, _)| *outcome).collect();
        let runs: Vec<_> = list.into_iter().flat_map(|(_, runs)| runs).collect();
        Message::LookupReply(LookupReply {
            eviction_number: numbers[0],
            lease: if runs.is_empty() { LeaseId::default() } else { lease },
            lease_left_us: numbers[1],
            outcomes,
            runs,
        })
    })
}

fn exists_reply() -> impl Strategy<Value = Message> {
    let all = (any::<u64>(), vec(any::<u64>(), 1..9)).prop_map(|(eviction_number, bitmap)| {
        let zero = bitmap.iter().position(|word| *word != u64::MAX);
        let (full, ones) =
            zero.map_or((bitmap.len(), 0), |word| (word, bitmap[word].trailing_ones()));
        let leading_count = u32::try_from(full).expect("at most 8") * 64 + ones;
        Message::ExistsReply(ExistsReply { eviction_number, leading_count, bitmap })
    });
    let leading = (any::<u64>(), 0..=4096_u32).prop_map(|(eviction_number, leading_count)| {
        Message::ExistsReply(ExistsReply { eviction_number, leading_count, bitmap: Vec::new() })
    });
    prop_oneof![all, leading]
}

fn evicted_since_reply() -> impl Strategy<Value = Message> {
    (any::<[u64; 2]>(), vec(key(), LIST), any::<[bool; 2]>()).prop_map(|(numbers, keys, flags)| {
        Message::EvictedSinceReply(EvictedSinceReply {
            eviction_number: numbers[0].max(numbers[1]),
            number: numbers[0].min(numbers[1]),
            keys,
            more: flags[0],
            lost: flags[1],
        })
    })
}

fn reply() -> impl Strategy<Value = Message> {
    let number = any::<u64>;
    let published = vec![
        PublishOutcome::Created,
        PublishOutcome::AlreadyPresent,
        PublishOutcome::Cleared,
        PublishOutcome::Unknown,
        PublishOutcome::WrongKey,
    ];
    let removed = vec![RemoveOutcome::Removed, RemoveOutcome::Missing, RemoveOutcome::OtherTicket];
    let publish =
        (number(), vec(select(published), LIST)).prop_map(|(eviction_number, outcomes)| {
            Message::PublishReply(PublishReply { eviction_number, outcomes })
        });
    let remove = (number(), vec(select(removed), LIST)).prop_map(|(eviction_number, outcomes)| {
        Message::RemoveReply(RemoveReply { eviction_number, outcomes })
    });
    let release = (number(), vec(any::<bool>(), LIST)).prop_map(|(eviction_number, held)| {
        Message::ReleaseReply(ReleaseReply { eviction_number, held })
    });
    let abandon = (number(), 0..=4096_u32).prop_map(|(eviction_number, abandoned_count)| {
        Message::AbandonReply(AbandonReply { eviction_number, abandoned_count })
    });
    let clear = any::<[u64; 2]>().prop_map(|[eviction_number, cleared_count]| {
        Message::ClearReply(ClearReply { eviction_number, cleared_count })
    });
    let ping = (number(), any::<[u32; 2]>()).prop_map(
        |(eviction_number, [connection_count, waiting_count])| {
            Message::PingReply(PingReply { eviction_number, connection_count, waiting_count })
        },
    );
    let regions = (number(), regions()).prop_map(|(eviction_number, regions)| {
        Message::RegionsReply(RegionsReply { eviction_number, regions })
    });
    prop_oneof![
        reserve_reply(),
        publish,
        abandon,
        exists_reply(),
        lookup_reply(),
        release,
        evicted_since_reply(),
        remove,
        clear,
        ping,
        stats_reply(),
        regions,
    ]
}

fn stats_reply() -> impl Strategy<Value = Message> {
    let usage = (name(), any::<[u64; 3]>()).prop_map(|(name, counts)| NamespaceUsage {
        name,
        key_count: counts[0],
        used_pages: counts[1],
        reserved_pages: counts[2],
    });
    let closed = (name(), any::<u64>()).prop_map(|(reason, count)| ClosedCount { reason, count });
    (any::<[u64; 4]>(), -1..64_i32, name(), vec(usage, LIST), vec(closed, LIST)).prop_map(
        |(counts, core, io, namespaces, closed)| {
            Message::StatsReply(Box::new(StatsReply {
                eviction_number: counts[0],
                core,
                io,
                uptime_us: counts[1],
                key_count: counts[2],
                pool_list_differs_total: counts[3],
                namespaces,
                closed,
                ..StatsReply::default()
            }))
        },
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u32>().prop_map(Refusal::WrongShard),
        any::<u64>().prop_map(Refusal::ConnectionNumberUsed),
        any::<u16>().prop_map(Refusal::WrongVersion),
        any::<u64>().prop_map(Refusal::TtlTooShort),
        select(vec![
            Refusal::StaleGeneration,
            Refusal::WrongSecret,
            Refusal::WrongNamespace,
            Refusal::WrongNode,
            Refusal::UnexpectedHello,
            Refusal::ShuttingDown,
            Refusal::NotLocal,
        ]),
    ]
}
