use std::collections::BTreeMap;
use std::vec::Vec;

use maru_wire::{Generation, Key, Namespace, Op};

use crate::bench::limits;
use crate::{Layout, split};

fn layout(shard_count: u32, keys_per_frame_max: u32) -> Layout {
    let mut limits = limits();
    limits.keys_per_frame_max = keys_per_frame_max;
    limits.body_bytes_max = 4096;
    Layout {
        generation: Generation(1),
        shard_count,
        node_name: Default::default(),
        limits,
        shard_limits: Vec::new(),
        regions: Vec::new(),
        movers: Vec::new(),
    }
}

fn keys(count: u32) -> Vec<Key> {
    let namespace = Namespace::new("split");
    (0..count).map(|number| Key::new(&namespace, &number.to_le_bytes())).collect()
}

#[test]
fn every_key_goes_to_its_shard_once_and_in_order() {
    let (layout, keys) = (layout(7, 10), keys(500));
    let parts = split(&layout, Op::Exists, keys.iter().copied());
    let mut seen: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for part in &parts {
        assert!((1..=10).contains(&part.indices.len()));
        assert!(part.indices.iter().all(|index| keys[*index].shard(7) == part.shard));
        seen.entry(part.shard).or_default().extend(&part.indices);
    }
    assert!(seen.values().all(|indices| indices.is_sorted()));
    let mut all: Vec<usize> = seen.into_values().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_frame_stays_below_the_largest_body() {
    let (layout, keys) = (layout(1, 4096), keys(1000));
    let widest = |op| {
        let parts = split(&layout, op, keys.iter().copied());
        parts.iter().map(|part| part.indices.len()).max()
    };
    assert_eq!(widest(Op::Exists), Some(126));
    assert_eq!(widest(Op::Publish), Some(63));
}

#[test]
fn no_keys_make_no_parts() {
    assert_eq!(split(&layout(4, 10), Op::Exists, []), []);
}
