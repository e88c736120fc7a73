use std::collections::BTreeSet;

use super::Slots;

#[test]
fn slots_are_apart_and_come_back() {
    let slots = Slots::new(100, 4).expect("a little memory");
    let mut held: Vec<_> = std::iter::from_fn(|| slots.take(0)).collect();
    assert_eq!((held.len(), slots.free_count()), (4, 0));
    for (number, slot) in (0_u8..).zip(&mut held) {
        slot.fill(number);
    }
    for (number, slot) in (0_u8..).zip(&held) {
        assert!(slot.len() == 100 && slot.iter().all(|byte| *byte == number));
    }
    let places: BTreeSet<usize> = held.iter().map(|slot| slot.as_ptr().addr()).collect();
    assert_eq!(places.len(), 4);
    drop(held);
    assert_eq!(slots.free_count(), 4);
}

#[test]
fn slots_kept_for_others_are_not_taken() {
    let slots = Slots::new(10, 4).expect("a little memory");
    let held: Vec<_> = std::iter::from_fn(|| slots.take(3)).collect();
    assert_eq!(held.len(), 1);
    assert!(slots.take(2).is_some());
}

#[test]
fn a_slot_outlives_its_mapping_handle() {
    let slots = Slots::new(10, 1).expect("a little memory");
    let mut slot = slots.take(0).expect("it is free");
    drop(slots);
    slot.fill(7);
    assert_eq!(slot[9], 7);
}

#[test]
fn sizes_that_are_none_are_refused() {
    assert!(Slots::new(0, 4).is_err());
    assert!(Slots::new(4, 0).is_err());
    assert!(Slots::new(usize::MAX, 2).is_err());
}

#[test]
fn many_threads_never_share_a_slot() {
    let slots = Slots::new(64, 8).expect("a little memory");
    std::thread::scope(|scope| {
        for number in 0_u8..8 {
            let slots = &slots;
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let Some(mut slot) = slots.take(0) else { continue };
                    slot.fill(number);
                    assert!(slot.iter().all(|byte| *byte == number));
                }
            });
        }
    });
    assert_eq!(slots.free_count(), 8);
}
