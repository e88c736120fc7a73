use alloc::string::ToString;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn request(shards: Option<u32>, cpus: &[u32], pages: u64) -> PlanRequest<'_> {
    PlanRequest {
        shards,
        allowed_cpus: cpus,
        pool_bytes: pages * MIB,
        page_bytes: MIB,
        kind: RegionKind::Memfd,
    }
}

fn pages_of(plan: &Plan) -> Vec<(u32, u32)> {
    plan.shards.iter().map(|s| (s.extents[0].page_index, s.extents[0].page_count)).collect()
}

#[test]
fn remainder_goes_to_the_first_shards() {
    let plan = plan_simple(&request(Some(3), &[4, 5, 6], 1000)).unwrap();
    assert_eq!(pages_of(&plan), [(0, 334), (334, 333), (667, 333)]);
    assert_eq!(plan.shards.iter().map(|s| s.core).collect::<Vec<_>>(), [Some(4), Some(5), Some(6)]);
    assert_eq!(plan.page_count(), 1000);
    assert_eq!(plan.regions[0].bytes, 1000 * MIB);
    assert!(plan.warnings.is_empty());
}

#[test]
fn automatic_count_is_one_shard_per_cpu_with_pages_enough() {
    let cpus: Vec<u32> = (0..8).collect();
    let count = |cpus: &[u32], pages| plan_simple(&request(None, cpus, pages)).unwrap();
    assert_eq!(count(&cpus, 8 * 256).shards.len(), 8);
    assert!(count(&cpus, 8 * 256).warnings.is_empty());
    assert_eq!(count(&cpus, 8 * 256 - 1).shards.len(), 7);
    assert_eq!(count(&cpus, 8 * 256 - 1).warnings.len(), 1);
    assert_eq!(count(&cpus, 1).shards.len(), 1);
    assert_eq!(count(&[], 4096).shards.len(), 1);
    assert_eq!(count(&[], 4096).shards[0].core, None);
    assert_eq!(count(&[7, 7, 3], 4096).shards.len(), 2);
}

#[test]
fn more_shards_than_cpus_run_unpinned_with_a_warning() {
    let plan = plan_simple(&request(Some(16), &[0, 1], 16 * 64)).unwrap();
    assert!(plan.shards.iter().all(|shard| shard.core.is_none()));
    assert_eq!(plan.warnings.len(), 1);
    assert!(plan.warnings[0].contains("16 shards share 2 CPUs"));
}

#[test]
fn small_shards_and_left_out_bytes_are_warned_about() {
    let plan =
        plan_simple(&PlanRequest { pool_bytes: 10 * MIB + 5, ..request(Some(2), &[0, 1], 0) })
            .unwrap();
    assert_eq!(plan.page_count(), 10);
    assert!(plan.warnings[0].starts_with("5 of the pool's"));
    assert!(plan.warnings[1].contains("2 shards have 5 pages each"));
}

#[test]
fn a_huge_page_region_is_whole_huge_pages() {
    let kind = RegionKind::HugePages { page_bytes: 2 * MIB };
    let plan = plan_simple(&PlanRequest { kind, ..request(Some(1), &[0], 65) }).unwrap();
    assert_eq!(plan.regions[0].bytes, 66 * MIB);
    assert!(plan.warnings[0].contains("1048576 bytes of the last huge page"));
    let kind = RegionKind::HugePages { page_bytes: 3 * MIB };
    let refused = plan_simple(&PlanRequest { kind, ..request(Some(1), &[0], 65) });
    assert_eq!(refused, Err(PlanError::HugePageBytes { page_bytes: 3 * MIB }));
}

// S2: nonsense is refused, and the text names the numbers.
#[test]
fn errors_name_their_numbers() {
    let bad_page = |page_bytes| plan_simple(&PlanRequest { page_bytes, ..request(None, &[0], 1) });
    for page_bytes in [0, 1, 63, 100, PAGE_BYTES_MAX + 64, u64::MAX] {
        assert_eq!(bad_page(page_bytes), Err(PlanError::PageBytes { page_bytes }));
    }
    assert!(bad_page(100).unwrap_err().to_string().contains("100 bytes"));

    let small = plan_simple(&PlanRequest { pool_bytes: MIB - 1, ..request(None, &[0], 0) });
    assert!(small.unwrap_err().to_string().contains("a pool of 1048575 bytes holds no page"));
    let many = plan_simple(&PlanRequest {
        pool_bytes: u64::MAX,
        page_bytes: PAGE_BYTES_GRANULE,
        ..request(None, &[0], 0)
    });
    assert!(many.unwrap_err().to_string().contains("more than 4294967295"));
    let none = plan_simple(&request(Some(0), &[0], 8)).unwrap_err();
    assert_eq!(none, PlanError::ShardCount { shards: 0 });
    let few = plan_simple(&request(Some(9), &[0], 8)).unwrap_err();
    assert_eq!(
        few.to_string().split(':').next().unwrap(),
        "9 shards need at least a page each, and the pool has 8"
    );
}

proptest! {
    // Every page belongs to exactly one shard, shares differ by one page at most, and the same
    // request gives the same plan.
    #[test]
    fn extents_cover_all_pages_once(
        shards in prop::option::of(0..40u32),
        cpus in prop::collection::vec(0..64u32, 0..40),
        pages in 0..5000u64,
        rest in 0..MIB,
    ) {
        let request =
            PlanRequest { pool_bytes: pages * MIB + rest, ..request(shards, &cpus, 0) };
        let plan = plan_simple(&request);
        prop_assert_eq!(&plan, &plan_simple(&request));
        let Ok(plan) = plan else {
            prop_assert!(pages == 0 || shards.is_some_and(|s| s == 0 || u64::from(s) > pages));
            return Ok(());
        };
        let mut next = 0;
        for (number, shard) in plan.shards.iter().enumerate() {
            prop_assert_eq!(shard.shard as usize, number);
            prop_assert_eq!(shard.extents.len(), 1);
            prop_assert_eq!(shard.extents[0].page_index, next);
            prop_assert!(shard.extents[0].page_count >= 1);
            next += shard.extents[0].page_count;
        }
        prop_assert_eq!(u64::from(next), pages);
        prop_assert!(plan.regions[0].bytes >= pages * plan.page_bytes);
        let counts: Vec<u64> = plan.shards.iter().map(ShardPlan::page_count).collect();
        prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1);
        prop_assert_eq!(plan.shards.len(), shards.map_or(plan.shards.len(), |s| s as usize));
        let cores: Vec<u32> = plan.shards.iter().filter_map(|s| s.core).collect();
        prop_assert!(cores.is_empty() || cores.len() == plan.shards.len());
        prop_assert_eq!(distinct(&cores).len(), cores.len());
        prop_assert!(cores.iter().all(|core| cpus.contains(core)));
    }
}
