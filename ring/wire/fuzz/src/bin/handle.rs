//! libFuzzer target: see `maru_wire_fuzz::handle`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| maru_wire_fuzz::handle(input));
