use super::*;

fn stats() -> StatsReply {
    let pages = PageCounts { free: 3, published: 5, total: 8, ..Default::default() };
    StatsReply { pages, evicted_total: 2, io: "epoll".to_owned(), ..Default::default() }
}

fn report(shards: &[StatsReply], wrong_bytes: u64) -> Report {
    let setup = Setup {
        workload: "conversations".to_owned(),
        shards: 2,
        workers: 1,
        capacity_blocks: 16,
        object_bytes: 4096,
        seed: 1,
    };
    let workers = WorkerReport {
        requests: 2,
        blocks: 8,
        loaded: 2,
        stored: 6,
        wrong_bytes,
        ..WorkerReport::default()
    };
    Report::new(setup, &workers, ServerSide::of(shards), Duration::from_secs(2), 0.5)
}

#[test]
fn json_has_the_promised_fields() {
    let json: serde_json::Value =
        serde_json::from_str(&report(&[stats(), stats()], 0).to_json()).unwrap();
    assert_eq!(json["hit_ratio"], 0.25);
    assert_eq!(json["ideal_lru_hit_ratio"], 0.5);
    assert_eq!(json["wrong_bytes"], 0);
    assert_eq!(json["books_balanced"], true);
    assert_eq!(json["evictions"], 4);
    assert_eq!(json["keys_per_s"], 4.0);
    assert!((json["gb_per_s"].as_f64().unwrap() - 8.0 * 4096.0 / 2e9).abs() < 1e-12);
    for call in ["lookup_us", "store_us", "load_us"] {
        for percentile in ["p50", "p99", "p999"] {
            assert!(json[call][percentile].is_number(), "{call} {percentile}");
        }
    }
}

#[test]
fn wrong_bytes_are_a_failure_and_shown() {
    let report = report(&[stats()], 3);
    assert!(!report.is_good());
    assert!(report.to_table().contains("WRONG BYTES: 3"));
}

#[test]
fn each_imbalance_is_a_failure_and_named() {
    type Planted = (&'static str, fn(&mut StatsReply));
    let planted: [Planted; 7] = [
        ("8 pages of 9", |stats| stats.pages.total = 9),
        ("1 reserved pages left", |stats| (stats.pages.reserved, stats.pages.free) = (1, 2)),
        ("1 fenced pages left", |stats| (stats.pages.fenced, stats.pages.free) = (1, 2)),
        ("1 unlinked pages left", |stats| (stats.pages.unlinked, stats.pages.free) = (1, 2)),
        ("1 reservations left", |stats| stats.reservation_count = 1),
        ("2 leases left", |stats| stats.lease_count = 2),
        ("1 pinned objects left", |stats| stats.pinned_count = 1),
    ];
    for (text, plant) in planted {
        let mut wrong = stats();
        plant(&mut wrong);
        let report = report(&[stats(), wrong], 0);
        assert!(!report.is_good(), "{text}");
        let table = report.to_table();
        assert!(table.contains("NOT BALANCED") && table.contains(text), "{text}: {table}");
    }
}

#[test]
fn good_books_are_good() {
    assert!(report(&[stats()], 0).is_good());
}

#[test]
fn sizes_read_well() {
    assert_eq!(bytes_text(4096), "4 KiB");
    assert_eq!(bytes_text(3 << 20), "3 MiB");
    assert_eq!(bytes_text(1000), "1000 bytes");
}
