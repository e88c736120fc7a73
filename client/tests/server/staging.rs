//! The storage contract over a real server.

use std::sync::Arc;

use maru_client::{Error, Health, Key, Staged, Staging, StagingConfig};
use maru_wire::Op;

use crate::{LONG, Pair, both, eventually};

fn staging(pair: &Pair, slot_count: usize) -> Staging {
    let client = maru_client::Client::new(pair.client.config().clone()).expect("a client");
    let config = StagingConfig { slot_bytes: 10_000, slot_count, load_reserve: 0.5 };
    let staging = Staging::new(Arc::new(client), config).expect("a configuration");
    staging.connect(LONG).expect("the server is there");
    staging
}

fn store(staging: &Staging, keys: &[Key], fill: u8) -> Vec<bool> {
    let slot = |key: &Key| {
        let mut slot = staging.alloc().expect("a free slot");
        slot.fill(fill);
        slot.set_filled(9_000);
        (*key, slot)
    };
    staging.batch_store(keys.iter().map(slot).collect(), LONG).expect("the server is there")
}

/// C19: true = the key is in the pool; slots come back; leases are read and given back.
#[test]
fn chunks_go_out_and_come_back_through_slots() {
    both(|io| {
        let pair = Pair::new(io);
        let staging = staging(&pair, 8);
        let keys: Vec<Key> = (0_u8..4).map(|number| pair.client.key(&[number])).collect();
        assert_eq!(store(&staging, &keys, 7), [true; 4]);
        assert_eq!(store(&staging, &keys, 8), [true; 4], "present keys count as stored");
        assert!(keys.iter().all(|key| staging.has_local(key)));
        assert_eq!(staging.exists(&keys, LONG).expect("answered"), [true; 4]);

        let absent = pair.client.key(b"absent");
        let staged = staging.batch_load(&[keys[1], absent, keys[3]], LONG).expect("answered");
        let [Staged::Loaded(first), Staged::Missing, Staged::Loaded(second)] = &staged[..] else {
            panic!("{staged:?}")
        };
        assert!(first.len() == 9_000 && first.iter().chain(second.iter()).all(|b| *b == 7));
        assert_eq!(staging.retrieve_capacity(), 6);
        assert!(matches!(staging.close(), Err(Error::InUse { leases: 2, transfers: 0 })));
        drop(staged);
        let stats = staging.stats();
        assert_eq!((stats.stores, stats.store_bytes, stats.skipped_present), (4, 36_000, 4));
        assert_eq!((stats.loads, stats.load_bytes, stats.free_slot_count), (2, 18_000, 8));
        assert_eq!(pair.server.lease_count(), 0);
        staging.close().expect("nothing is out");
        assert!(matches!(staging.connect(LONG), Err(Error::Closed)));
    });
}

/// C21: stores leave a share of the slots to loads. C24: too few slots are told, nothing read.
#[test]
fn stores_leave_slots_to_loads_and_too_few_are_told() {
    let pair = Pair::new(maru_client::IoMode::Auto);
    let staging = staging(&pair, 4);
    let held = [staging.alloc().expect("one"), staging.alloc().expect("two")];
    assert!(matches!(staging.alloc(), Err(Error::NoSlots { .. })));
    drop(held);
    let keys: Vec<Key> = (0_u8..6).map(|number| pair.client.key(&[number])).collect();
    for pair_of_keys in keys.chunks(2) {
        assert_eq!(store(&staging, pair_of_keys, 1), [true; 2]);
    }
    let error = staging.batch_load(&keys, LONG).expect_err("six chunks, four slots");
    assert!(matches!(error, Error::NoSlots { needed: 6, free: 4 }), "{error}");
    eventually("the pins are given back", || pair.server.lease_count() == 0);
    assert_eq!(staging.retrieve_capacity(), 4);
    assert_eq!(staging.batch_load(&keys[..4], LONG).expect("they fit").len(), 4);
}

/// C32: while a store waits for the server, slots are taken and freed, and leases are given back.
/// C33: a close meanwhile is refused, and works afterwards.
#[test]
fn slots_never_wait_behind_a_transfer() {
    both(|io| {
        let pair = Pair::new(io);
        let staging = staging(&pair, 8);
        let (early, late) = (pair.client.key(b"early"), pair.client.key(b"late"));
        assert_eq!(store(&staging, &[early], 1), [true]);
        let staged = staging.batch_load(&[early], LONG).expect("answered");
        pair.server.script().hold = vec![Op::Reserve];
        std::thread::scope(|scope| {
            let storing = scope.spawn(|| store(&staging, &[late], 2));
            eventually("the store is at the server", || pair.server.executed(Op::Reserve) == 2);
            drop(staging.alloc().expect("a free slot"));
            drop(staged);
            assert_eq!(staging.retrieve_capacity(), 7, "one slot is the store's");
            assert!(!storing.is_finished(), "all of that happened beside it");
            assert!(matches!(staging.close(), Err(Error::InUse { leases: 0, transfers: 1 })));
            pair.server.let_replies_go();
            assert_eq!(storing.join().expect("no panic"), [true]);
        });
        staging.close().expect("nothing is in flight");
    });
}

/// C34: what failed is counted, and what was skipped is no failure. C23: refused chunks are told.
#[test]
fn failures_are_counted() {
    let pair = Pair::new(maru_client::IoMode::Auto);
    let staging = staging(&pair, 8);
    let (key, absent) = (pair.client.key(b"a"), pair.client.key(b"absent"));
    assert_eq!(store(&staging, &[key, key], 1), [true, true], "a key twice is stored once");
    assert!(matches!(
        staging.batch_load(&[absent], LONG).expect("answered")[..],
        [Staged::Missing]
    ));
    pair.server.kill();
    let slot = staging.alloc().expect("a free slot");
    staging.batch_store(vec![(absent, slot)], LONG).expect_err("nobody is there");
    staging.batch_load(&[key, absent], LONG).expect_err("nobody is there");
    let stats = staging.stats();
    assert_eq!((stats.stores, stats.stores_failed, stats.skipped_present), (1, 1, 1));
    assert_eq!((stats.loads, stats.loads_failed, stats.quarantined_transfers), (0, 2, 0));
    assert_eq!((stats.slot_count, stats.free_slot_count), (8, 8), "no slot is lost");
    assert!(stats.write_us > 0 && stats.read_us > 0);
}

/// C20, C29: a lost server is "unavailable", and a new one starts with nothing remembered.
#[test]
fn a_restart_forgets_what_was_remembered() {
    let pair = Pair::new(maru_client::IoMode::Auto);
    let staging = staging(&pair, 8);
    let key = pair.client.key(b"a");
    assert_eq!(store(&staging, &[key], 1), [true]);
    assert_eq!(staging.health(), Health::Ready);
    let Pair { client: _, server, mut config, _folder } = pair;
    server.kill();
    eventually("the loss is seen", || staging.health() == Health::Lost);
    assert!(staging.batch_load(&[key], LONG).is_err());
    config.generation = 2;
    let server = crate::mini::MiniServer::start(config);
    let staged = staging.batch_load(&[key], LONG).expect("it is back");
    assert!(matches!(staged[..], [Staged::Missing]));
    assert!(!staging.has_local(&key));
    assert_eq!(staging.health(), Health::Ready);
    drop(server);
}
