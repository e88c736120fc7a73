use maru_wire::ClosedCount;

use super::*;

fn shard(number: u32, key_count: u64, age_us: u64) -> StatsReply {
    let pages =
        PageCounts { free: 3, published: key_count, total: 3 + key_count, ..PageCounts::default() };
    StatsReply {
        shard: number,
        core: 1,
        io: "uring".to_owned(),
        key_count,
        oldest_lease_us: age_us,
        pages,
        closed: vec![ClosedCount { reason: "half_frame".to_owned(), count: 2 }],
        namespaces: vec![NamespaceUsage { name: "a".to_owned(), key_count, ..Default::default() }],
        ..StatsReply::default()
    }
}

/// S10: per shard and summed.
#[test]
fn counts_are_added_and_ages_are_not() {
    let sum = sum(&[shard(0, 5, 70), shard(1, 6, 30)]);
    assert_eq!((sum.key_count, sum.oldest_lease_us, sum.pages.total), (11, 70, 17));
    assert_eq!(sum.closed, [ClosedCount { reason: "half_frame".to_owned(), count: 4 }]);
    assert_eq!((sum.namespaces.len(), sum.namespaces[0].key_count), (1, 11));
    assert_eq!(sum.io, "uring");
    assert!(is_balanced(&sum.pages));
}

#[test]
fn json_has_every_number_under_its_own_name() {
    let json = to_json(&shard(1, 5, 70));
    assert_eq!(json["shard"], 1);
    assert_eq!(json["pages"]["published"], 5);
    assert_eq!(json["oldest_lease_us"], 70);
    assert_eq!(json["closed"]["half_frame"], 2);
    assert_eq!(json["namespaces"]["a"]["key_count"], 5);
    assert_eq!(json["books_balanced"], true);
    let numbers = json.as_object().unwrap().len() + json["pages"].as_object().unwrap().len();
    assert_eq!(numbers, ROWS.len() + 3 + 4, "no two rows share a name");
}

#[test]
fn the_table_shows_shards_reasons_and_namespaces() {
    let shards = [shard(0, 5, 1_500_000), shard(1, 6, 30)];
    let text = to_text(&shards, &sum(&shards));
    for word in ["shard 0", "shard 1", "sum", "1.500 s", "half frame", "namespace", "key count"] {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
}
