//! Fuzz targets of the protocol, as plain functions of bytes.
//!
//! `run.sh` builds them with the fuzzer's instrumentation; the tests here replay the corpora.

mod decode;
mod handle;
#[path = "../../tests/wire/messages.rs"]
#[allow(dead_code, reason = "shared with the tests of maru-wire, which use all of it")]
mod messages;
#[path = "../../tests/wire/samples.rs"]
mod samples;
pub mod seeds;

/// Runs one input of the target `decode`.
pub fn decode(input: &[u8]) {
    decode::run(input);
}

/// Runs one input of the target `handle`.
pub fn handle(input: &[u8]) {
    drop(handle::run(input));
}

#[cfg(test)]
mod tests;
