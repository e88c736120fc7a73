//! One sample of every message, with values that can be told apart in a dump.

use maru_wire::{
    Abandon, AbandonReply, Challenge, Checksum, Clear, ClearReply, ClosedCount, EvictedSince,
    EvictedSinceReply, Exists, ExistsReply, Found, Grant, Hello, HelloReply, Incarnation, Key,
    LeaseId, Limits, Lookup, LookupOutcome, LookupReply, Match, Mover, MoverKind, Namespace,
    NamespaceUsage, Op, PageCounts, PageRun, PingReply, Publish, PublishItem, PublishOutcome,
    PublishReply, Purpose, Refusal, RegionInfo, RegionKind, RegionsReply, Release, ReleaseItem,
    ReleaseReply, Remove, RemoveItem, RemoveOutcome, RemoveReply, Reserve, ReserveItem,
    ReserveOutcome, ReserveReply, StatsReply, Ticket,
};

use crate::messages::{Message, SERVER_NONCE};

const KEY_A: Key = Key([0xa1; 32]);
const KEY_B: Key = Key([0xb2; 32]);
const TICKET_A: Ticket = Ticket([0x71; 16]);
const TICKET_B: Ticket = Ticket([0x72; 16]);
const LEASE: LeaseId = LeaseId([0x1e; 16]);
const EVICTION_NUMBER: u64 = 0x0e;
const CHECKSUM: Checksum = Checksum { kind: 1, value: 0x0123_4567_89ab_cdef };

/// Returns every sample with its name.
pub(crate) fn samples() -> Vec<(&'static str, Message)> {
    let mut samples = handshake();
    samples.extend(requests());
    samples.extend(replies());
    samples
}

pub(crate) fn hello() -> Hello {
    Hello {
        client_nonce: [0xc1; 32],
        version_min: 1,
        version_max: 1,
        purpose: Purpose::Data,
        incarnation: Incarnation([0x1c; 16]),
        connection_number: 3,
        shard: 1,
        namespace: Namespace([0x4a; 32]),
        namespace_name: "tests".into(),
        node_name: "memory-node-a".into(),
        pool_list_digest: [0xd1; 32],
        transfer_timeout_us: 30_000_000,
        object_bytes_max: 3 << 20,
        tickets: vec![TICKET_A, TICKET_B],
    }
}

fn region(region: u32) -> RegionInfo {
    RegionInfo { region, kind: RegionKind::HugePages, node: -1, bytes: 1 << 30 }
}

fn handshake() -> Vec<(&'static str, Message)> {
    let reply = HelloReply {
        version: 1,
        shard_count: 4,
        shard: 1,
        node_name: "memory-node-a".into(),
        eviction_number: EVICTION_NUMBER,
        limits: Limits {
            body_bytes_max: 256 << 10,
            keys_per_frame_max: 4096,
            page_bytes: 1 << 20,
            object_bytes_max: 64 << 20,
            reserved_pages_max: 128,
            pinned_pages_max: 256,
            leases_max: 64,
            connections_max: 8,
            reservation_ttl_us: 60_000_000,
            lease_ttl_us: 120_000_000,
            fence_us: 60_000_001,
        },
        regions: vec![region(0)],
        movers: vec![
            Mover { kind: MoverKind::Shm, endpoint: vec![] },
            Mover { kind: MoverKind::Nixl, endpoint: b"agent".to_vec() },
        ],
    };
    let challenge = Challenge {
        server_nonce: SERVER_NONCE,
        version_min: 1,
        version_max: 1,
        secret_required: true,
    };
    vec![
        ("challenge", Message::Challenge(challenge)),
        ("hello", Message::Hello(hello())),
        ("hello_reply", Message::HelloReply(Box::new(reply))),
        ("hello_refused", Message::Refused(Op::Hello, Refusal::WrongSecret)),
    ]
}

fn requests() -> Vec<(&'static str, Message)> {
    let reserve = Reserve {
        items: vec![
            ReserveItem { key: KEY_A, object_bytes: 3 << 20 },
            ReserveItem { key: KEY_B, object_bytes: 1 },
        ],
    };
    let publish =
        Publish { items: vec![PublishItem { ticket: TICKET_A, key: KEY_A, checksum: CHECKSUM }] };
    let remove = Remove {
        items: vec![
            RemoveItem { key: KEY_A, ticket: TICKET_A },
            RemoveItem { key: KEY_B, ticket: Ticket::default() },
        ],
    };
    let release = Release { items: vec![ReleaseItem { lease: LEASE, keep: 1 }] };
    let abandon = Abandon { tickets: vec![TICKET_A, TICKET_B], after_error: true };
    let keys = vec![KEY_A, KEY_B];
    vec![
        ("reserve", Message::Reserve(reserve)),
        ("publish", Message::Publish(publish)),
        ("abandon", Message::Abandon(abandon)),
        ("exists", Message::Exists(Exists { keys: keys.clone(), matching: Match::All })),
        ("exists_empty", Message::Exists(Exists { keys: vec![], matching: Match::Leading })),
        ("lookup", Message::Lookup(Lookup { keys, matching: Match::Leading })),
        ("release", Message::Release(release)),
        ("evicted_since", Message::EvictedSince(EvictedSince { number: 9, keys_max: 64 })),
        ("remove", Message::Remove(remove)),
        ("clear", Message::Clear(Clear { confirm: 1 })),
        ("ping", Message::Ping),
        ("stats", Message::Stats),
        ("regions", Message::Regions),
    ]
}

fn run(page_index: u32, page_count: u32) -> PageRun {
    PageRun { region: 2, page_index, page_count }
}

fn replies() -> Vec<(&'static str, Message)> {
    let eviction_number = EVICTION_NUMBER;
    let granted = ReserveOutcome::Granted(Grant { ticket: TICKET_A, run_count: 2 });
    let reserve = ReserveReply {
        eviction_number,
        outcomes: vec![granted, ReserveOutcome::Present, ReserveOutcome::Growing(21_000)],
        runs: vec![run(16, 2), run(33, 1)],
    };
    let publish = PublishReply {
        eviction_number,
        outcomes: vec![PublishOutcome::Created, PublishOutcome::AlreadyPresent],
    };
    let exists = ExistsReply { eviction_number, leading_count: 1, bitmap: vec![0b101] };
    let found = Found { object_bytes: 3 << 20, checksum: CHECKSUM, ticket: TICKET_A, run_count: 1 };
    let lookup = LookupReply {
        eviction_number,
        lease: LEASE,
        lease_left_us: 120_000_000,
        outcomes: vec![LookupOutcome::Found(found), LookupOutcome::Missing],
        runs: vec![run(16, 3)],
    };
    let evicted_since = EvictedSinceReply {
        eviction_number,
        number: 11,
        keys: vec![KEY_B],
        more: true,
        lost: false,
    };
    let remove = RemoveReply {
        eviction_number,
        outcomes: vec![RemoveOutcome::Removed, RemoveOutcome::OtherTicket],
    };
    let ping = PingReply { eviction_number, connection_count: 5, waiting_count: 2 };
    let regions = RegionsReply { eviction_number, regions: vec![region(0), region(1)] };
    let release = ReleaseReply { eviction_number, held: vec![true, false] };
    let abandon = AbandonReply { eviction_number, abandoned_count: 2 };
    vec![
        ("reserve_reply", Message::ReserveReply(reserve)),
        ("publish_reply", Message::PublishReply(publish)),
        ("abandon_reply", Message::AbandonReply(abandon)),
        ("exists_reply", Message::ExistsReply(exists)),
        ("lookup_reply", Message::LookupReply(lookup)),
        ("release_reply", Message::ReleaseReply(release)),
        ("evicted_since_reply", Message::EvictedSinceReply(evicted_since)),
        ("remove_reply", Message::RemoveReply(remove)),
        ("clear_reply", Message::ClearReply(ClearReply { eviction_number, cleared_count: 17 })),
        ("ping_reply", Message::PingReply(ping)),
        ("stats_reply", Message::StatsReply(Box::new(stats()))),
        ("regions_reply", Message::RegionsReply(regions)),
        ("refused", Message::Refused(Op::Reserve, Refusal::WrongShard(3))),
    ]
}

/// Every counter has a value of its own.
fn stats() -> StatsReply {
    let pages = PageCounts {
        free: 0x50,
        reserved: 0x51,
        overdue: 0x52,
        fenced: 0x53,
        published: 0x54,
        cleared: 0x55,
        unlinked: 0x56,
        total: 0x243,
    };
    let usage = NamespaceUsage {
        name: "tests".into(),
        key_count: 0x70,
        used_pages: 0x71,
        reserved_pages: 0x72,
    };
    StatsReply {
        eviction_number: EVICTION_NUMBER,
        shard: 1,
        core: -1,
        io: "uring".into(),
        uptime_us: 0x10,
        cpu_us: 0x11,
        page_bytes: 1 << 20,
        pages,
        key_count: 0x12,
        reservation_count: 0x13,
        overdue_count: 0x14,
        lease_count: 0x15,
        pinned_count: 0x16,
        incarnation_count: 0x17,
        oldest_reservation_us: 0x18,
        oldest_lease_us: 0x19,
        evicted_total: 0x1a,
        removed_total: 0x1b,
        granted_total: 0x1c,
        created_total: 0x1d,
        exists_hit_total: 0x1e,
        exists_miss_total: 0x1f,
        lookup_hit_total: 0x20,
        lookup_miss_total: 0x21,
        full_total: 0x22,
        overdue_total: 0x23,
        lease_expired_total: 0x24,
        connection_count: 0x25,
        frame_total: 0x26,
        scratch_frame_total: 0x27,
        refused_total: 0x28,
        buffered_bytes: 0x29,
        pool_list_differs_total: 0x2a,
        closed: vec![ClosedCount { reason: "a_reason_of_more_than_8".into(), count: 0x60 }],
        namespaces: vec![usage],
    }
}
