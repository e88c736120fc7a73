//! Caps and sizes.

use maru_wire::Generation;

use crate::{Caps, Config};

#[test]
fn caps_are_shares_with_a_least_number_of_objects() {
    let config = Config::new(0, 1, Generation(1), 4096);
    let caps = |reserved_pages_max, pinned_pages_max| Caps { reserved_pages_max, pinned_pages_max };
    assert_eq!(config.caps_for(8000, 1), caps(1000, 2000));
    assert_eq!(config.caps_for(80, 4), caps(32, 128));
}

#[test]
fn stated_caps_win() {
    let mut config = Config::new(0, 1, Generation(1), 4096);
    config.limits.reserved_pages_max = 5;
    assert_eq!(config.caps_for(8000, 1).reserved_pages_max, 5);
    assert_eq!(config.caps_for(8000, 1).pinned_pages_max, 2000);
}

#[test]
fn an_object_has_one_to_64_pages() {
    let config = Config::new(0, 1, Generation(1), 4096);
    assert_eq!(config.pages_of(1), Some(1));
    assert_eq!(config.pages_of(4096), Some(1));
    assert_eq!(config.pages_of(4097), Some(2));
    assert_eq!(config.pages_of(64 * 4096), Some(64));
    assert_eq!(config.pages_of(64 * 4096 + 1), None);
    assert_eq!(config.pages_of(u64::MAX), None);
}
