//! The allocator: contiguous where it can be, whole always.

use std::vec;
use std::vec::Vec;

use maru_wire::PageRun;

use super::Pages;
use crate::Extent;

fn pages(extents: &[Extent]) -> Pages {
    let page_count = extents.iter().map(|extent| extent.page_count).sum();
    let mut pages = Pages::new(page_count, 8);
    for extent in extents {
        assert!(pages.add(*extent));
    }
    pages
}

fn runs(pages: &Pages, first: u32) -> Vec<PageRun> {
    let mut runs = vec![];
    pages.append_runs(first, u32::MAX, &mut runs);
    runs
}

#[test]
fn contiguous_when_any_run_is_long_enough() {
    let mut pages = pages(&[Extent { region: 3, page_index: 10, page_count: 100 }]);
    let objects: Vec<u32> = (0..10).map(|_| pages.take(10)).collect();
    pages.free(objects[2]);
    pages.free(objects[5]);
    pages.free(objects[6]);
    // The best fit is the hole of ten, not the one of twenty.
    let ten = pages.take(10);
    assert_eq!(runs(&pages, ten), [PageRun { region: 3, page_index: 30, page_count: 10 }]);
    let twenty = pages.take(20);
    assert_eq!(runs(&pages, twenty).len(), 1);
    assert_eq!(pages.free_count(), 0);
}

#[test]
fn runs_never_cross_an_extent() {
    let mut pages = pages(&[
        Extent { region: 0, page_index: 0, page_count: 5 },
        Extent { region: 0, page_index: 5, page_count: 5 },
        Extent { region: 1, page_index: 0, page_count: 6 },
    ]);
    let all = pages.take(16);
    let mut found = runs(&pages, all);
    found.sort_by_key(|run| (run.region, run.page_index));
    let run = |region, page_index, page_count| PageRun { region, page_index, page_count };
    assert_eq!(found, [run(0, 0, 5), run(0, 5, 5), run(1, 0, 6)]);
    assert_eq!(pages.free(all), 16);
    // Freed neighbours of two extents stay two runs.
    let six = pages.take(6);
    assert_eq!(runs(&pages, six), [run(1, 0, 6)]);
}

#[test]
fn pieces_when_no_run_is_long_enough() {
    let mut pages = pages(&[Extent { region: 0, page_index: 0, page_count: 64 }]);
    let singles: Vec<u32> = (0..64).map(|_| pages.take(1)).collect();
    for single in singles.iter().step_by(2) {
        pages.free(*single);
    }
    let object = pages.take(32);
    assert_eq!(runs(&pages, object).len(), 32);
    assert_eq!(pages.run_count(object), 32);
    assert_eq!(pages.free_count(), 0);
}

#[test]
fn random_use_keeps_the_lists_whole() {
    let mut pages = pages(&[
        Extent { region: 0, page_index: 0, page_count: 300 },
        Extent { region: 1, page_index: 7, page_count: 200 },
    ]);
    let mut held: Vec<(u32, u32)> = vec![];
    let mut state = 9u32;
    for _ in 0..5_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let page_count = 1 + (state >> 8) % 64;
        if state >> 31 == 0 && page_count <= pages.free_count() {
            held.push((pages.take(page_count), page_count));
        } else if !held.is_empty() {
            let (first, page_count) = held.swap_remove((state >> 4) as usize % held.len());
            assert_eq!(pages.free(first), page_count);
        }
        let mut is_taken = vec![false; pages.number_count()];
        pages.check_free(&mut is_taken).unwrap();
        for (first, page_count) in &held {
            let taken = pages.check_object(*first, &mut is_taken).unwrap();
            assert_eq!(taken, u64::from(*page_count));
        }
        assert_eq!(is_taken.iter().filter(|is_taken| **is_taken).count(), 500);
    }
}
