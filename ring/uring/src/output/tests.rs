use super::{FIRST_BYTES, KEPT_BYTES_MAX, Output, Spare};

#[test]
fn bytes_keep_their_order_over_partial_sends() {
    let mut spare = Spare::new(1 << 20);
    let mut output = Output::default();
    output.filling(&mut spare).extend_from_slice(b"abcdef");
    assert_eq!(output.next_piece(), b"abcdef");
    output.filling(&mut spare).extend_from_slice(b"gh");
    output.advance(4, &mut spare);
    assert_eq!(output.unsent(), 4);
    assert_eq!(output.next_piece(), b"ef");
    output.advance(2, &mut spare);
    assert_eq!(output.next_piece(), b"gh");
    output.advance(2, &mut spare);
    assert_eq!((output.unsent(), output.next_piece()), (0, &b""[..]));
}

#[test]
fn lent_bytes_stay_while_more_is_appended_and_discarded() {
    let mut spare = Spare::new(1 << 20);
    let mut output = Output::default();
    output.filling(&mut spare).extend_from_slice(b"first");
    let (pointer, length) = output.lend();
    output.filling(&mut spare).resize(FIRST_BYTES * 4, 7);
    output.discard(&mut spare);
    assert_eq!(output.unsent(), 5);
    output.take_back();
    assert_eq!((output.next_piece().as_ptr(), output.next_piece().len()), (pointer, 5));
    assert_eq!(length, 5);
    output.discard(&mut spare);
    assert_eq!(output.unsent(), 0);
}

#[test]
fn spare_buffers_are_reused_within_their_bound() {
    let mut spare = Spare::new(KEPT_BYTES_MAX);
    let mut output = Output::default();
    output.filling(&mut spare).push(1);
    let first = output.next_piece().as_ptr();
    output.advance(1, &mut spare);
    output.filling(&mut spare).push(2);
    assert_eq!(output.next_piece().as_ptr(), first);
    output.advance(1, &mut spare);

    let mut big = Output::default();
    big.filling(&mut spare).resize(KEPT_BYTES_MAX + 1, 0);
    let count = big.next_piece().len();
    big.advance(count, &mut spare);
    for _ in 0..3 {
        spare.give(Vec::with_capacity(KEPT_BYTES_MAX / 2));
    }
    assert!(spare.bytes <= spare.bytes_max);
    assert_eq!(spare.bytes, spare.buffers.iter().map(Vec::capacity).sum::<usize>());
}
