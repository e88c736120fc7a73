use std::path::Path;

use super::*;
use crate::demo::trace::TraceReader;

/// The cache "too simple to be wrong": a list, oldest first.
struct Model(Vec<u64>, usize);

impl Model {
    fn touch(&mut self, block: u64) -> bool {
        let Some(place) = self.0.iter().position(|b| *b == block) else { return false };
        let block = self.0.remove(place);
        self.0.push(block);
        true
    }

    fn request(&mut self, blocks: &[u64]) -> usize {
        let run = blocks.iter().take_while(|block| self.touch(**block)).count();
        for block in &blocks[run..] {
            if !self.touch(*block) {
                if self.0.len() == self.1 {
                    self.0.remove(0);
                }
                self.0.push(*block);
            }
        }
        run
    }
}

#[test]
fn agrees_with_a_plain_list_on_random_requests() {
    for capacity in [1, 2, 7, 30] {
        let (mut lru, mut model) = (IdealLru::new(capacity), Model(Vec::new(), capacity));
        let mut seed = capacity as u64;
        for _ in 0..2000 {
            seed = crate::demo::pattern::splitmix(seed);
            let first = seed % 40;
            let blocks: Vec<u64> = (first..first + (seed >> 32) % 9).collect();
            assert_eq!(lru.request(&blocks), model.request(&blocks));
        }
    }
}

#[test]
fn a_request_larger_than_the_cache_keeps_its_tail() {
    let mut lru = IdealLru::new(2);
    assert_eq!(lru.request(&[1, 2, 3]), 0);
    assert_eq!(lru.request(&[2, 3]), 2);
}

#[test]
fn no_requests_is_a_ratio_of_zero() {
    assert!(IdealLru::new(1).hit_ratio().abs() < f64::EPSILON);
}

/// The LRU row of the published simulation. Needs ../shared beside the repository.
#[test]
fn gives_the_published_hit_ratios_on_the_conversation_trace() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/traces/mooncake_conversation_trace.jsonl");
    if !trace.exists() {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{} is missing", trace.display());
        eprintln!("skipped: needs {}", trace.display());
        return;
    }
    let known =
        [(1000, 0.0445), (5860, 0.1355), (10_000, 0.2112), (20_000, 0.2875), (40_000, 0.3514)];
    let mut caches = known.map(|(capacity, ratio)| (IdealLru::new(capacity), ratio));
    for request in TraceReader::open(&trace).unwrap() {
        let request = request.unwrap();
        for (cache, _) in &mut caches {
            cache.request(&request.blocks);
        }
    }
    for (cache, ratio) in &caches {
        assert_eq!(cache.block_count(), 288_500, "blocks of the trace");
        assert!((cache.hit_ratio() - ratio).abs() < 0.0001, "{} is not {ratio}", cache.hit_ratio());
    }
}
