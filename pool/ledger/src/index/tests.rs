//! The index against a map, with tags that collide.

use std::collections::BTreeMap;
use std::vec::Vec;

use super::Index;

/// Steps of a generator that is good enough to mix operations.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn run(mut index: Index, tags: &[u32], capacity: usize) {
    let mut model: BTreeMap<u32, u32> = BTreeMap::new();
    let mut state = 1;
    for step in 0..20_000u32 {
        let slot = u32::try_from(next(&mut state) % 300).unwrap();
        let tag = tags[slot as usize % tags.len()];
        match (next(&mut state) % 3, model.contains_key(&slot)) {
            (0 | 1, false) if model.len() < capacity => {
                index.insert(tag, slot);
                model.insert(slot, tag);
            }
            (2, true) => {
                index.remove(tag, slot);
                model.remove(&slot);
            }
            _ => {}
        }
        if step % 64 == 0 {
            for slot in 0..300 {
                let tag = tags[slot as usize % tags.len()];
                let found = index.find(tag, |candidate| candidate == slot);
                assert_eq!(found.is_some(), model.contains_key(&slot));
            }
            assert_eq!(index.len(), model.len());
        }
    }
}

#[test]
fn finds_what_is_there_and_nothing_else() {
    let spread: Vec<u32> = (0..300).map(|i: u32| i.wrapping_mul(0x9E37_79B9)).collect();
    run(Index::fixed(300), &spread, 300);
    run(Index::fixed(40), &spread, 40);
}

#[test]
fn tags_that_collide_or_wrap_around() {
    run(Index::fixed(300), &[7], 300);
    run(Index::fixed(300), &[u32::MAX, u32::MAX - 1, 0, 1], 300);
}

#[test]
fn grows_up_to_its_limit() {
    let mut index = Index::growing(5000);
    for slot in 0..5000u32 {
        index.insert(slot.wrapping_mul(0x9E37_79B9), slot);
    }
    for slot in 0..5000u32 {
        let tag = slot.wrapping_mul(0x9E37_79B9);
        assert_eq!(index.find(tag, |found| found == slot), Some(slot));
    }
    index.replace(0, 0, 9000);
    assert_eq!(index.find(0, |_| true), Some(9000));
}
