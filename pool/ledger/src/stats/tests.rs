//! Statistics: S10.

use crate::bench::{Bench, RESERVATION_TTL};

// S10
#[test]
fn statistics_tell_what_is_held() {
    let mut bench = Bench::new(32);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.store(a, 1, 2);
    bench.store(a, 2, 3);
    bench.at(7).reserve(b, 3, 4);
    bench.at(9).pin(b, &[1]);
    let stats = bench.at(19).stats();
    assert_eq!((stats.key_count, stats.reservation_count, stats.lease_count), (2, 1, 1));
    assert_eq!((stats.oldest_reservation_us, stats.oldest_lease_us), (12, 10));
    assert_eq!((stats.pages.published, stats.pages.reserved, stats.pages.free), (5, 4, 23));
    assert_eq!((stats.granted_total, stats.created_total, stats.incarnation_count), (3, 2, 2));
    let spaces = &stats.namespaces;
    assert_eq!((spaces[0].name.as_str(), spaces[1].name.as_str()), ("space 1", "space 2"));
    assert_eq!((spaces[0].key_count, spaces[0].used_pages, spaces[0].reserved_pages), (2, 5, 0));
    assert_eq!((spaces[1].key_count, spaces[1].used_pages, spaces[1].reserved_pages), (0, 0, 4));
    let stats = bench.at(7 + RESERVATION_TTL).stats();
    assert_eq!((stats.reservation_count, stats.overdue_count, stats.overdue_total), (0, 1, 1));
    assert_eq!(stats.oldest_reservation_us, RESERVATION_TTL);
    assert_eq!(stats.namespaces[1].reserved_pages, 4);
}
