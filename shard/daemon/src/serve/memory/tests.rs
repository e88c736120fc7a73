use maru_region::memory_available;

use super::*;

/// What is said of a pool of `need_bytes` while others hold all memory.
fn lacking(need_bytes: u64) -> RegionError {
    let mut available = memory_available().unwrap();
    available.most_bytes = 1 << 30;
    RegionError::Memory { need_bytes, available, kept_bytes: 0 }
}

/// Memory that comes while the server waits is taken.
#[test]
fn memory_is_waited_for() {
    let mut looks = 0;
    let make = || {
        looks += 1;
        if looks < 4 { Err(lacking(1 << 30)) } else { Ok("regions") }
    };
    let mut waits = Vec::new();
    let made = wait_for_memory(make, |wait| {
        waits.push(wait);
        Ok(false)
    });
    assert_eq!(made.unwrap(), Some("regions"));
    assert_eq!(waits, [MEMORY_POLL; 3]);
}

/// Ten seconds, no longer, and then the error itself.
#[test]
fn the_wait_has_an_end() {
    let mut waited = Duration::ZERO;
    let made: Result<Option<()>, _> = wait_for_memory(
        || Err(lacking(1 << 30)),
        |wait| {
            waited += wait;
            Ok(false)
        },
    );
    assert!(matches!(made, Err(StartError::Region(RegionError::Memory { .. }))));
    assert_eq!(waited, Duration::from_secs(10));
}

/// A pool that never fits, and what no waiting helps, fail at once; a signal ends the wait.
#[test]
fn only_what_may_pass_is_waited_for() {
    let waits = |_| -> Result<bool, StartError> { panic!("it waits") };
    let never: Result<Option<()>, _> = wait_for_memory(|| Err(lacking((1 << 30) + 1)), waits);
    assert!(never.is_err());
    let wrong = || Err(RegionError::Size { bytes: 1, unit: 4096 });
    let wrong: Result<Option<()>, _> = wait_for_memory(wrong, waits);
    assert!(wrong.is_err());
    let ended: Result<Option<()>, _> = wait_for_memory(|| Err(lacking(1 << 30)), |_| Ok(true));
    assert!(ended.unwrap().is_none());
}
