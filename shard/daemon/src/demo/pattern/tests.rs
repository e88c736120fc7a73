use super::*;

fn key(number: u64) -> Key {
    let mut bytes = [0; 32];
    bytes[24..].copy_from_slice(&number.to_le_bytes());
    Key(bytes)
}

fn object(number: u64, bytes: usize) -> Vec<u8> {
    let mut object = vec![0; bytes];
    fill(&key(number), &mut object);
    object
}

#[test]
fn an_object_checks_as_itself_at_every_length() {
    for bytes in [1, 7, 8, 63, 64, 65, 4096, 5000] {
        assert_eq!(wrong_bytes(&key(1), &object(1, bytes)), 0, "{bytes} bytes");
    }
}

#[test]
fn every_single_wrong_byte_is_counted() {
    for index in [0, 63, 64, 4095, 4096, 4099] {
        let mut bytes = object(1, 4100);
        bytes[index] ^= 1;
        assert_eq!(wrong_bytes(&key(1), &bytes), 1, "byte {index}");
    }
}

#[test]
fn another_key_is_wrong_nearly_everywhere() {
    assert!(wrong_bytes(&key(2), &object(1, 4096)) > 4000);
}

/// Two pages of one object changed over, or one of them from elsewhere, must not pass.
#[test]
fn pages_in_another_order_and_torn_objects_are_wrong() {
    let mut swapped = object(1, 8192);
    swapped.rotate_left(4096);
    assert!(wrong_bytes(&key(1), &swapped) > 8000);

    let mut torn = object(1, 8192);
    torn[4096..].copy_from_slice(&object(2, 8192)[4096..]);
    let wrong = wrong_bytes(&key(1), &torn);
    assert!((4000..=4096).contains(&wrong), "{wrong} wrong bytes");
}

#[test]
fn zeroes_are_wrong() {
    assert!(wrong_bytes(&key(1), &[0; 4096]) > 4000);
}
