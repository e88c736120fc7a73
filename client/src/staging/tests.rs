use std::sync::Arc;

use maru_wire::{Generation, Key};

use super::{Health, REMEMBERED_MAX, Remembered, Staging, StagingConfig, kept_count};
use crate::{Client, ClientConfig, Error, ServerAddress};

fn client() -> Arc<Client> {
    let address = ServerAddress::Unix("/nonexistent/maru".into());
    Arc::new(Client::new(ClientConfig::new(address, "test")).expect("a client"))
}

fn config(load_reserve: f64) -> StagingConfig {
    StagingConfig { slot_bytes: 100, slot_count: 10, load_reserve }
}

/// C21, R1.
#[test]
fn a_reserve_outside_its_range_is_refused() {
    for load_reserve in [-0.1, 1.0, 2.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let refused = Staging::new(client(), config(load_reserve));
        assert!(matches!(refused, Err(Error::Config { setting: "load_reserve", .. })));
    }
    for load_reserve in [0.0, 0.5, 0.999] {
        Staging::new(client(), config(load_reserve)).expect("within the range");
    }
}

#[test]
fn the_reserve_leaves_stores_at_least_one_slot() {
    assert_eq!(kept_count(10, 0.5), 5);
    assert_eq!(kept_count(10, 0.0), 0);
    assert_eq!(kept_count(10, 0.999), 9);
    assert_eq!(kept_count(1, 0.9), 0);
}

/// C22b, R4.
#[test]
fn the_default_size_is_capped() {
    let gib = 1_u64 << 30;
    let bytes = |slot: usize, prompt, free| {
        let config = StagingConfig::for_objects(slot, prompt, free);
        config.slot_count as u64 * slot as u64
    };
    assert_eq!(bytes(1 << 20, 10, 64 * gib), gib);
    assert_eq!(bytes(32 << 20, 10, 64 * gib), 2 * gib);
    assert_eq!(bytes(32 << 20, 512, 64 * gib), 4 * gib, "32 GiB for 131k tokens is too much");
    assert_eq!(bytes(32 << 20, 512, 8 * gib), 2 * gib);
}

/// A call that began and ended in one generation.
fn in_one(generation: u64) -> (Option<Generation>, Generation) {
    (Some(Generation(generation)), Generation(generation))
}

/// R3: a million keys, and what is remembered stays bounded; refused ones leave nothing.
#[test]
fn what_is_remembered_has_a_limit() {
    let key = |number: u64| {
        let mut key = Key::default();
        key.0[..8].copy_from_slice(&number.to_le_bytes());
        key
    };
    let mut remembered = Remembered::default();
    remembered.note(in_one(1), (0..1_000_000).map(|number| (key(number), false)));
    assert_eq!(remembered.keys.len(), 0);
    remembered.note(in_one(1), (0..1_000_000).map(|number| (key(number), true)));
    assert_eq!(remembered.keys.len(), REMEMBERED_MAX);
    remembered.note(in_one(1), [(key(0), false)].into_iter());
    assert!(!remembered.keys.contains(&key(0)) && remembered.keys.contains(&key(1)));
    remembered.note(in_one(2), [(key(5), true)].into_iter());
    assert_eq!(remembered.keys.len(), 1);
}

/// What was stored while the server was restarted may be in either run: it is not remembered.
#[test]
fn answers_across_a_restart_are_not_remembered() {
    let key = Key([1; 32]);
    for before in [None, Some(Generation(1))] {
        let mut remembered = Remembered::default();
        remembered.note(in_one(1), [(Key([2; 32]), true)].into_iter());
        remembered.note((before, Generation(2)), [(key, true)].into_iter());
        assert!(remembered.keys.is_empty());
        remembered.note(in_one(2), [(key, true)].into_iter());
        assert!(remembered.keys.contains(&key));
    }
}

/// C20: no memory before the handshake; C33: none after the close.
#[test]
fn there_are_no_slots_before_connect_and_after_close() {
    let staging = Staging::new(client(), config(0.5)).expect("a configuration");
    assert_eq!(staging.health(), Health::NotConnected);
    assert!(matches!(staging.alloc(), Err(Error::NotConnected)));
    assert_eq!(staging.retrieve_capacity(), 0);
    let error = staging.connect(std::time::Duration::from_secs(10)).expect_err("nobody is there");
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    staging.close().expect("nothing is out");
    assert!(matches!(staging.connect(std::time::Duration::ZERO), Err(Error::Closed)));
    assert!(matches!(staging.alloc(), Err(Error::Closed)));
    assert_eq!(staging.health(), Health::Closed);
}
