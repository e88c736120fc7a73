//! CPU time per key of each request, from small to large shards. Prints medians in ns.
//!
//! `cargo bench -p maru-ledger [-- evicting|reading|memory]`. R12: evicting stores must be flat.

use std::hint::black_box;
use std::time::Instant;

use maru_ledger::{Call, ClientId, Config, Extent, Peer, Progress, Shard, Time, Work};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Checksum, Exists, Generation, Hello, Incarnation, Key, Lookup,
    Match, Namespace, Publish, PublishItem, Purpose, Release, ReleaseItem, RequestBody, Reserve,
    ReserveItem, ReserveOutcome, decode_request, encode_request,
};

const GENERATION: Generation = Generation(1);
const PAGE_BYTES: u64 = 4096;
const KEYS_PER_FRAME: u64 = 64;

/// A shard with what its requests need.
struct Rig {
    shard: Shard,
    work: Work,
    bytes: Vec<u8>,
    assembler: Assembler,
}

impl Rig {
    fn new(page_count: u32) -> Self {
        let mut config = Config::new(0, 1, GENERATION, PAGE_BYTES);
        config.limits.reserved_pages_max = page_count;
        config.limits.pinned_pages_max = page_count;
        let extents = [Extent { region: 0, page_index: 0, page_count }];
        Self {
            shard: Shard::new(config, &extents),
            work: Work::new(),
            bytes: Vec::new(),
            assembler: Assembler::new(BODY_BYTES_MAX),
        }
    }

    fn client(&mut self, name: u8) -> ClientId {
        let hello = Hello {
            client_nonce: [0; 32],
            version_min: 1,
            version_max: 1,
            purpose: Purpose::Data,
            incarnation: Incarnation([name; 16]),
            connection_number: 1,
            shard: 0,
            namespace: Namespace::default(),
            namespace_name: String::new(),
            node_name: String::new(),
            pool_list_digest: [0; 32],
            transfer_timeout_us: 1,
            object_bytes_max: PAGE_BYTES,
            tickets: vec![],
        };
        let peer = Peer::Uid(u32::from(name));
        self.shard.hello(Time(0), &hello, peer).expect("a good hello").client
    }

    /// Executes a request. Returns the time spent in the ledger, in ns.
    fn call(&mut self, client: ClientId, body: &RequestBody<'_>) -> f64 {
        self.bytes.clear();
        encode_request(&mut self.bytes, 1, GENERATION, body);
        let mut input = self.bytes.as_slice();
        let frame = self.assembler.next(&mut input).expect("a frame").expect("a whole one");
        let request = decode_request(&frame).expect("a request");
        let call = Call { client, generation: GENERATION, request };
        let start = Instant::now();
        let progress = self.shard.handle(Time(0), &call, &mut self.work, &mut u32::MAX.clone());
        let spent = start.elapsed();
        assert_eq!(black_box(progress), Progress::Done);
        spent.as_secs_f64() * 1e9
    }

    /// Reserves and publishes the keys. Returns the time of each, in ns.
    fn store(&mut self, client: ClientId, keys: &[Key]) -> (f64, f64) {
        let item = |key: &Key| ReserveItem { key: *key, object_bytes: PAGE_BYTES };
        let reserve = Reserve { items: keys.iter().map(item).collect() };
        let reserved = self.call(client, &RequestBody::Reserve(&reserve));
        let granted = keys.iter().zip(&self.work.replies.reserve.outcomes);
        let items = granted.map(|(key, outcome)| match outcome {
            ReserveOutcome::Granted(grant) => {
                PublishItem { ticket: grant.ticket, key: *key, checksum: Checksum::default() }
            }
            other => panic!("not granted: {other:?}"),
        });
        let publish = Publish { items: items.collect() };
        (reserved, self.call(client, &RequestBody::Publish(&publish)))
    }

    fn pin(&mut self, client: ClientId, keys: &[Key]) -> f64 {
        let lookup = Lookup { keys: keys.to_vec(), matching: Match::All };
        let spent = self.call(client, &RequestBody::Lookup(&lookup));
        assert_ne!(self.work.replies.lookup.lease, maru_wire::LeaseId::default());
        spent
    }

    fn release(&mut self, client: ClientId) -> f64 {
        let lease = self.work.replies.lookup.lease;
        let release = Release { items: vec![ReleaseItem { lease, keep: 0 }] };
        self.call(client, &RequestBody::Release(&release))
    }
}

fn keys(range: std::ops::Range<u64>) -> Vec<Key> {
    let namespace = Namespace::default();
    range.map(|n| Key::new(&namespace, &n.to_le_bytes())).collect()
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2] / KEYS_PER_FRAME as f64
}

/// A generator of the keys to read: good enough to miss every cache.
fn scattered(round: u64, resident: u64) -> Vec<usize> {
    let mix = |i: u64| (round * KEYS_PER_FRAME + i).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    (0..KEYS_PER_FRAME).map(|i| usize::try_from(mix(i) % resident).expect("small")).collect()
}

fn fill(rig: &mut Rig, client: ClientId, resident: u64) -> Vec<Key> {
    let all = keys(0..resident);
    for chunk in all.chunks(1024) {
        rig.store(client, chunk);
    }
    all
}

/// What stands in the way of an eviction.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// The order of use is that of storing.
    Stored,
    /// The coldest quarter is pinned by four incarnations.
    ColdPinned,
    /// The order of use is random, so that each victim misses the cache.
    Shuffled,
}

fn evicting(resident: u32, order: Order, rounds: u64) {
    let mut rig = Rig::new(resident);
    let client = rig.client(1);
    let all = fill(&mut rig, client, u64::from(resident));
    if order == Order::ColdPinned {
        let coldest = &all[..all.len() / 4];
        for (name, part) in (2u8..).zip(coldest.chunks(coldest.len().div_ceil(4))) {
            let client = rig.client(name);
            for chunk in part.chunks(1024) {
                rig.pin(client, chunk);
            }
        }
    }
    if order == Order::Shuffled {
        for round in 0..u64::from(resident) / 16 {
            let picked = scattered(round, u64::from(resident));
            let picked: Vec<Key> = picked.iter().map(|n| all[*n]).collect();
            rig.pin(client, &picked);
            rig.release(client);
        }
    }
    let (mut reserves, mut publishes) = (vec![], vec![]);
    for round in 0..rounds {
        let first = u64::from(resident) + round * KEYS_PER_FRAME;
        let (reserved, published) = rig.store(client, &keys(first..first + KEYS_PER_FRAME));
        reserves.push(reserved);
        publishes.push(published);
    }
    let (reserve, publish) = (median(reserves), median(publishes));
    let order = match order {
        Order::Stored => "",
        Order::ColdPinned => "coldest quarter pinned",
        Order::Shuffled => "random order of use",
    };
    let sum = reserve + publish;
    print!("evicting store  {resident:>9} keys  reserve {reserve:6.1}  publish {publish:6.1}");
    println!("  sum {sum:6.1}  {order}");
}

fn reading(resident: u32, rounds: u64) {
    let mut rig = Rig::new(resident);
    let client = rig.client(1);
    let all = fill(&mut rig, client, u64::from(resident));
    let (mut hits, mut misses, mut lookups, mut releases) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        let picked = scattered(round, u64::from(resident));
        let picked: Vec<Key> = picked.iter().map(|n| all[*n]).collect();
        let exists = Exists { keys: picked.clone(), matching: Match::All };
        hits.push(rig.call(client, &RequestBody::Exists(&exists)));
        let first = (1 << 40) + round * KEYS_PER_FRAME;
        let absent = Exists { keys: keys(first..first + KEYS_PER_FRAME), matching: Match::All };
        misses.push(rig.call(client, &RequestBody::Exists(&absent)));
        let picked = scattered(round + (1 << 30), u64::from(resident));
        let picked: Vec<Key> = picked.iter().map(|n| all[*n]).collect();
        lookups.push(rig.pin(client, &picked));
        releases.push(rig.release(client));
    }
    println!(
        "reading         {resident:>9} keys  exists hit {:6.1}  miss {:6.1}  lookup {:6.1}  release {:6.1}",
        median(hits),
        median(misses),
        median(lookups),
        median(releases)
    );
}

/// Resident memory of the process, in bytes.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0.0) * 1024.0
}

/// Memory of a full shard, and of one whose keys were all replaced once.
fn memory(resident: u32) {
    let before = resident_bytes();
    let mut rig = Rig::new(resident);
    let client = rig.client(1);
    for pass in 0..2 {
        for first in (0..u64::from(resident)).step_by(1024) {
            let first = first + pass * u64::from(resident);
            rig.store(client, &keys(first..first + 1024));
        }
        let bytes = (resident_bytes() - before) / f64::from(resident);
        println!("memory          {resident:>9} keys  {bytes:6.1} bytes a key after pass {pass}");
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    if filter.as_deref() == Some("memory") {
        memory(1 << 22);
        return;
    }
    if filter.as_deref() == Some("shuffled") {
        evicting(1 << 20, Order::Shuffled, 14000);
        return;
    }
    let sizes = [1 << 10, 1 << 14, 1 << 17, 1 << 20];
    println!("ns per key, medians over frames of {KEYS_PER_FRAME} keys, single-page objects");
    for resident in sizes {
        if wanted("evicting") {
            for order in [Order::Stored, Order::ColdPinned, Order::Shuffled] {
                evicting(resident, order, 4000);
            }
        }
        if wanted("reading") {
            reading(resident, 4000);
        }
    }
}
