//! What calls do when nothing goes wrong.

use std::thread;

use maru_client::{
    Key, LoadItem, LoadOutcome, LookedUp, Match, PublishOutcome, RemoveItem, RemoveOutcome,
    ReserveItem, Reserved, StoreItem, StoreOutcome, Ticket,
};

use crate::{LONG, Pair, both, eventually};

fn chunk(number: u32, bytes: usize) -> Vec<u8> {
    let seed = number.wrapping_mul(2_654_435_761).to_le_bytes();
    (0_u8..251).cycle().zip(seed.into_iter().cycle()).map(|(a, b)| a ^ b).take(bytes).collect()
}

fn keys(pair: &Pair, numbers: std::ops::Range<u32>) -> Vec<Key> {
    numbers.map(|number| pair.client.key(&number.to_le_bytes())).collect()
}

fn store(pair: &Pair, numbers: std::ops::Range<u32>, bytes: usize) -> Vec<StoreOutcome> {
    let chunks: Vec<Vec<u8>> = numbers.clone().map(|number| chunk(number, bytes)).collect();
    let keys = keys(pair, numbers);
    let items: Vec<StoreItem<'_>> =
        keys.iter().zip(&chunks).map(|(key, bytes)| StoreItem { key: *key, bytes }).collect();
    pair.client.store(&items, LONG).expect("the server is there")
}

fn load(
    pair: &Pair,
    numbers: std::ops::Range<u32>,
    matching: Match,
    room: usize,
) -> Vec<(LoadOutcome, Vec<u8>)> {
    let keys = keys(pair, numbers);
    let mut buffers = vec![vec![0; room]; keys.len()];
    let mut items: Vec<LoadItem<'_>> =
        keys.iter().zip(&mut buffers).map(|(key, into)| LoadItem { key: *key, into }).collect();
    let outcomes = pair.client.load(&mut items, matching, LONG).expect("the server is there");
    outcomes.into_iter().zip(buffers).collect()
}

#[test]
fn what_is_stored_is_loaded_byte_for_byte() {
    both(|io| {
        let pair = Pair::new(io);
        assert!(store(&pair, 0..40, 10_000).iter().all(|o| *o == StoreOutcome::Stored));
        for (number, (outcome, bytes)) in (0..).zip(load(&pair, 0..40, Match::All, 12_000)) {
            assert_eq!(outcome, LoadOutcome::Loaded(10_000));
            assert_eq!(bytes[..10_000], chunk(number, 10_000));
        }
        assert_eq!(pair.server.lease_count(), 0);
        let pages = pair.server.pages();
        assert_eq!((pages.published, pages.reserved), (120, 0));
    });
}

/// C23: a present key costs a round trip and no bytes.
#[test]
fn present_and_repeated_keys_are_stored_once() {
    both(|io| {
        let pair = Pair::new(io);
        let (key, bytes) = (pair.client.key(b"a"), chunk(1, 100));
        let item = StoreItem { key, bytes: &bytes };
        let outcomes = pair.client.store(&[item, item], LONG).expect("the server is there");
        assert_eq!(outcomes, [StoreOutcome::Stored, StoreOutcome::Stored]);
        let outcomes = pair.client.store(&[item], LONG).expect("the server is there");
        assert_eq!(outcomes, [StoreOutcome::Present]);
        assert_eq!(pair.server.executed(maru_wire::Op::Publish), 1);
        assert_eq!(pair.server.pages().published, 1);
    });
}

#[test]
fn empty_batches_and_empty_chunks_are_answered() {
    let pair = Pair::new(maru_client::IoMode::Auto);
    assert_eq!(pair.client.store(&[], LONG).expect("nothing to do"), []);
    assert_eq!(pair.client.load(&mut [], Match::All, LONG).expect("nothing to do"), []);
    assert_eq!(pair.client.exists(&[], Match::All, LONG).expect("nothing").leading_count, 0);
    let item = StoreItem { key: pair.client.key(b"empty"), bytes: &[] };
    assert_eq!(pair.client.store(&[item], LONG).expect("refused"), [StoreOutcome::Rejected]);
}

/// Batches above the caps of one client go in parts.
#[test]
fn stores_and_loads_above_the_caps_go_in_parts() {
    both(|io| {
        let tight = |limits: &mut maru_client::Limits| {
            limits.reserved_pages_max = 4;
            limits.pinned_pages_max = 5;
            limits.leases_max = 4;
        };
        let pair = Pair::with(io, |config| config.change_limits = tight, |_| {});
        assert!(store(&pair, 0..60, 8_192).iter().all(StoreOutcome::is_stored));
        let loaded = load(&pair, 0..60, Match::Leading, 8_192);
        assert!(loaded.iter().all(|(outcome, _)| *outcome == LoadOutcome::Loaded(8_192)));
        assert_eq!(pair.server.lease_count(), 0);
    });
}

/// X10: what another writer holds is not stored. S15: the first value wins.
#[test]
fn a_key_in_flight_is_not_stored() {
    both(|io| {
        let pair = Pair::new(io);
        let other = maru_client::Client::new(pair.client.config().clone()).expect("a client");
        let key = pair.client.key(b"contended");
        let item = ReserveItem { key, object_bytes: 100 };
        let reserved = other.reserve(&[item], LONG).expect("the server is there");
        assert!(matches!(reserved[0], Reserved::Granted(_)));
        let bytes = chunk(1, 100);
        let mine = StoreItem { key, bytes: &bytes };
        let outcomes = pair.client.store(&[mine], LONG).expect("the server is there");
        assert_eq!(outcomes, [StoreOutcome::InFlight]);
        assert!(!outcomes[0].is_stored());
        drop(reserved);
        eventually("a dropped reservation is abandoned", || pair.server.pages().reserved == 0);
        let outcomes = pair.client.store(&[mine], LONG).expect("the server is there");
        assert_eq!(outcomes, [StoreOutcome::Stored]);
    });
}

#[test]
fn a_full_pool_says_full_and_an_object_too_large_is_rejected() {
    both(|io| {
        let small = |config: &mut crate::mini::MiniConfig| {
            config.shard_count = 1;
            config.pages_per_shard = 16;
            config.change_limits = |limits| limits.reserved_pages_max = 100;
        };
        let pair = Pair::with(io, small, |_| {});
        let keys = keys(&pair, 0..20);
        let items: Vec<ReserveItem> =
            keys.iter().map(|key| ReserveItem { key: *key, object_bytes: 4096 }).collect();
        let other = maru_client::Client::new(pair.client.config().clone()).expect("a client");
        let held = other.reserve(&items[..16], LONG).expect("the server is there");
        assert!(held.iter().all(|reserved| matches!(reserved, Reserved::Granted(_))));
        let bytes = chunk(1, 4096);
        let item = StoreItem { key: keys[17], bytes: &bytes };
        assert_eq!(pair.client.store(&[item], LONG).expect("answered"), [StoreOutcome::Full]);
        let huge = vec![1; 4096 * 65];
        let item = StoreItem { key: keys[18], bytes: &huge };
        assert_eq!(pair.client.store(&[item], LONG).expect("answered"), [StoreOutcome::Rejected]);
    });
}

/// S16: a leading match stops at the first miss, and pins nothing past it.
#[test]
fn a_leading_match_stops_at_the_first_miss_over_all_shards() {
    both(|io| {
        let pair = Pair::new(io);
        store(&pair, 0..7, 100);
        store(&pair, 8..20, 100);
        let keys = keys(&pair, 0..20);
        let presence = pair.client.exists(&keys, Match::Leading, LONG).expect("answered");
        assert_eq!(presence.leading_count, 7);
        let presence = pair.client.exists(&keys, Match::All, LONG).expect("answered");
        assert_eq!(presence.present.iter().filter(|present| **present).count(), 19);
        assert_eq!(presence.leading_count, 7);

        let pinned = pair.client.lookup(&keys, Match::Leading, LONG).expect("answered");
        assert_eq!(pinned.leading_count(), 7);
        assert_eq!(pinned.outcomes()[7], LookedUp::Missing);
        assert!(pinned.outcomes()[8..].iter().all(|o| *o == LookedUp::NotTried));
        let held = pair.client.release(pinned, LONG);
        assert_eq!(held.iter().filter(|held| **held).count(), 7);
        eventually("the pins past the miss end", || pair.server.lease_count() == 0);

        let loaded = load(&pair, 0..20, Match::Leading, 100);
        let count = loaded.iter().filter(|(outcome, _)| outcome.is_loaded()).count();
        assert_eq!((count, loaded[7].0), (7, LoadOutcome::Missing));
        assert!(loaded[8..].iter().all(|(outcome, _)| *outcome == LoadOutcome::NotTried));
    });
}

#[test]
fn a_buffer_too_small_is_told_the_size() {
    let pair = Pair::new(maru_client::IoMode::Auto);
    store(&pair, 0..1, 100);
    assert_eq!(load(&pair, 0..1, Match::All, 99)[0].0, LoadOutcome::TooLarge(100));
    assert_eq!(pair.server.lease_count(), 0);
}

#[test]
fn steps_remove_clear_evicted_since_stats_and_ping() {
    both(|io| {
        let pair = Pair::new(io);
        let client = &pair.client;
        let attachment = client.attachment(LONG).expect("a local server");
        let keys = keys(&pair, 0..6);
        let items: Vec<ReserveItem> =
            keys.iter().map(|key| ReserveItem { key: *key, object_bytes: 5_000 }).collect();
        let reserved = client.reserve(&items, LONG).expect("answered");
        let mut granted: Vec<_> = reserved
            .into_iter()
            .map(|reserved| match reserved {
                Reserved::Granted(reservation) => reservation,
                other => panic!("{other:?}"),
            })
            .collect();
        for reservation in &granted {
            attachment.write(reservation, 1_000, &chunk(1, 4_000)).expect("it fits");
            assert!(attachment.write(reservation, 1_001, &chunk(1, 4_000)).is_err());
        }
        let kept = granted.split_off(4);
        let outcomes = client.publish(&mut granted, LONG).expect("answered");
        assert!(outcomes.iter().all(|outcome| *outcome == PublishOutcome::Created));
        let outcomes = client.publish(&mut granted, LONG).expect("a repeat is answered");
        assert!(outcomes.iter().all(|outcome| *outcome == PublishOutcome::AlreadyPresent));
        assert_eq!(client.abandon(kept, false, LONG).expect("answered"), 2);
        drop(granted);

        let wrong = RemoveItem { key: keys[0], ticket: Ticket([9; 16]) };
        let right = RemoveItem { key: keys[1], ticket: Ticket::default() };
        let gone = RemoveItem { key: keys[5], ticket: Ticket::default() };
        assert_eq!(
            client.remove(&[wrong, right, gone], LONG).expect("answered"),
            [RemoveOutcome::OtherTicket, RemoveOutcome::Removed, RemoveOutcome::Missing]
        );
        let shard = keys[1].shard(3);
        let evicted = client.evicted_since(shard, 0, LONG).expect("answered");
        assert_eq!((evicted.keys, evicted.more, evicted.lost), (vec![keys[1]], false, false));
        assert_eq!(client.clear(LONG).expect("answered"), 3);
        let stats = client.stats(LONG).expect("answered");
        assert_eq!(stats.iter().map(|stats| stats.shard).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(stats.iter().map(|stats| stats.granted_total).sum::<u64>(), 6);
        assert_eq!(client.ping(2, LONG).expect("answered").generation.0, 1);
        assert!(matches!(client.ping(3, LONG), Err(maru_client::Error::NoSuchShard { .. })));
        assert_eq!(client.shard_count(LONG).expect("known"), 3);
    });
}

/// Large batches go in frames of what a frame may carry, answered in order.
#[test]
fn ten_thousand_keys_are_answered_in_order() {
    both(|io| {
        let pair = Pair::new(io);
        store(&pair, 0..30, 10);
        let keys = keys(&pair, 0..10_000);
        let presence = pair.client.exists(&keys, Match::All, LONG).expect("answered");
        assert_eq!(presence.leading_count, 30);
        assert_eq!(presence.present.iter().filter(|present| **present).count(), 30);
    });
}

#[test]
fn sixteen_threads_share_one_client() {
    both(|io| {
        let pair = Pair::with(io, |_| {}, |config| config.requests_max = 24);
        thread::scope(|scope| {
            for worker in 0..16_u32 {
                let pair = &pair;
                scope.spawn(move || {
                    for round in 0..10 {
                        let numbers = worker * 4..worker * 4 + 8;
                        let outcomes = store(pair, numbers.clone(), 3_000);
                        let is_known = |outcome: &StoreOutcome| {
                            outcome.is_stored() || *outcome == StoreOutcome::InFlight
                        };
                        assert!(outcomes.iter().all(is_known), "{round}: {outcomes:?}");
                        for (number, (outcome, bytes)) in
                            numbers.clone().zip(load(pair, numbers, Match::All, 3_000))
                        {
                            if outcome.is_loaded() {
                                assert_eq!(bytes, chunk(number, 3_000));
                            }
                        }
                    }
                });
            }
        });
        let pages = pair.server.pages();
        assert_eq!((pages.reserved, pages.overdue), (0, 0));
        assert_eq!(pair.server.lease_count(), 0);
    });
}

fn numbered(number: u32) -> Key {
    let mut key = Key([0; 32]);
    key.0[..4].copy_from_slice(&number.to_le_bytes());
    key
}

/// The caller's frames and the shard's answers both exceed all buffers between them: an end that
/// stopped reading until the other has read would wait for ever.
#[test]
fn a_batch_larger_than_all_buffers_is_answered() {
    both(|io| {
        let pair = Pair::with(io, |config| config.shard_count = 1, |_| {});
        let keys: Vec<Key> = (0..140_000_u32).map(numbered).collect();
        let presence = pair.client.exists(&keys, Match::All, LONG).expect("the server is there");
        assert_eq!(presence.present.len(), keys.len());
        let pinned = pair.client.lookup(&keys, Match::All, LONG).expect("the server is there");
        let failed = pinned.outcomes().iter().find(|outcome| **outcome != LookedUp::Missing);
        assert_eq!(failed, None);
    });
}
