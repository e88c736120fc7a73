//! First inputs for the fuzzer, made from the samples of the protocol.

use std::path::Path;

use crate::samples::{hello, samples};

/// Writes the seeds of the target `name` to `folder`.
///
/// # Errors
///
/// A file cannot be written.
///
/// # Panics
///
/// There is no target `name`.
pub fn write(name: &str, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    match name {
        "decode" => decode(folder),
        other => panic!("no seeds for a target called `{other}`"),
    }
}

fn decode(folder: &Path) -> std::io::Result<()> {
    let mut stream = vec![100_u8];
    for (name, message) in samples() {
        let frame = message.encode(&hello());
        stream.extend_from_slice(&frame);
        std::fs::write(folder.join(name), [&[0], frame.as_slice()].concat())?;
    }
    std::fs::write(folder.join("all_in_pieces"), stream)
}
