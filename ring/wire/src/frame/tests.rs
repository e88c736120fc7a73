use super::*;
use crate::BODY_BYTES_MAX;

fn header() -> Header {
    Header {
        op: Op::Lookup,
        flags: Flags::REQUEST,
        body_bytes: 40,
        request_id: 0x0102_0304_0506_0708,
        generation: Generation(0x1112_1314_1516_1718),
    }
}

/// Decodes the header above after `change` was made to its bytes.
fn changed(change: impl FnOnce(&mut [u8; HEADER_BYTES])) -> Result<Header, DecodeError> {
    let mut bytes = header().encode();
    change(&mut bytes);
    Header::decode(&bytes, BODY_BYTES_MAX)
}

#[test]
fn header_comes_back() {
    assert_eq!(changed(|_| {}), Ok(header()));
}

#[test]
fn header_fields_stand_where_the_protocol_draws_them() {
    let bytes = header().encode();
    assert_eq!(&bytes[0..4], b"MARU");
    assert_eq!(&bytes[4..6], [1, 0]);
    assert_eq!(&bytes[6..8], [7, 0]);
    assert_eq!(&bytes[8..12], [40, 0, 0, 0]);
    assert_eq!(&bytes[12..16], [0; 4]);
    assert_eq!(&bytes[16..24], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(&bytes[24..32], [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
}

#[test]
fn every_wrong_field_has_an_error_of_its_own() {
    assert_eq!(changed(|bytes| bytes[3] = b'u'), Err(DecodeError::BadMagic));
    assert_eq!(changed(|bytes| bytes[4] = 2), Err(DecodeError::BadVersion(2)));
    assert_eq!(changed(|bytes| bytes[4] = 0), Err(DecodeError::BadVersion(0)));
    assert_eq!(changed(|bytes| bytes[6] = 0), Err(DecodeError::UnknownOp(0)));
    assert_eq!(changed(|bytes| bytes[6] = 15), Err(DecodeError::UnknownOp(15)));
    assert_eq!(changed(|bytes| bytes[7] = 2), Err(DecodeError::BadFlags(2)));
    assert_eq!(changed(|bytes| bytes[7] = 4), Err(DecodeError::BadFlags(4)));
    assert_eq!(changed(|bytes| bytes[15] = 1), Err(DecodeError::BadReserved(1 << 24)));
}

#[test]
fn a_body_over_the_limit_is_refused_by_its_header_alone() {
    let max = BODY_BYTES_MAX;
    let announce = |bytes: u32| changed(|raw| raw[8..12].copy_from_slice(&bytes.to_le_bytes()));
    assert!(announce(max).is_ok());
    for bytes in [max + 1, 100_000_000, u32::MAX] {
        assert_eq!(announce(bytes), Err(DecodeError::BodyTooLarge { bytes, max }));
    }
}

#[test]
fn a_challenge_goes_from_the_server_only_and_is_never_refused() {
    let challenge = |flags: u8| {
        changed(|bytes| {
            bytes[6] = Op::Challenge.number();
            bytes[7] = flags;
        })
    };
    assert_eq!(challenge(0), Err(DecodeError::WrongDirection(Op::Challenge)));
    assert!(challenge(1).is_ok());
    assert_eq!(challenge(3), Err(DecodeError::BadFlags(3)));
}

#[test]
fn op_numbers_are_part_of_the_protocol() {
    let names = Op::ALL.map(Op::name);
    assert_eq!(names[0], "challenge");
    assert_eq!(names[13], "regions");
    for (index, op) in Op::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(op.number()), index + 1);
        assert_eq!(Op::from_number(op.number()), Some(op));
    }
    assert_eq!(Op::from_number(0), None);
    assert_eq!(Op::from_number(15), None);
}

#[test]
fn padding_must_be_zero_and_is_no_part_of_the_body() {
    let mut bytes = [0_u8; HEADER_BYTES + 48];
    bytes[..HEADER_BYTES].copy_from_slice(&header().encode());
    bytes[HEADER_BYTES + 39] = 0xff;
    let frame = Frame::new(header(), &bytes).expect("the padding is zero");
    assert_eq!(frame.body.len(), 40);
    for index in 40..48 {
        let mut bytes = bytes;
        bytes[HEADER_BYTES + index] = 1;
        assert_eq!(Frame::new(header(), &bytes), Err(DecodeError::BadPadding));
    }
}
