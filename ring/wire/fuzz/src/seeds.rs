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
        "handle" => handle(folder),
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

fn handle(folder: &Path) -> std::io::Result<()> {
    for (name, script) in scripts() {
        std::fs::write(folder.join(name), script)?;
    }
    Ok(())
}

/// Scripts of the target `handle`. Client 0's commands are 1 (hello), 6 (request), 2 (close);
/// client 1's are 9, 14 and 10. A request is kind and count, damage and flag, items.
pub(crate) fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let hello = [1, 0];
    let reserve_two = [6, 0x20, 0, 1, 0, 0, 2, 0xff, 0x1f];
    let publish_two = [6, 0x23, 1, 2, 0, 1, 1];
    let lookup_two = [6, 0x27, 1, 1, 2];
    let release_one = [6, 0x19, 0, 0, 0];
    let store = [&hello[..], &reserve_two, &publish_two].concat();
    let later = [0, 0xff, 0x0f, 9];
    let mut fill = vec![1, 64];
    for first in (0..28_u8).step_by(4) {
        fill.extend([6, 0x40, 0]);
        fill.extend((first..first + 4).flat_map(|key| [key, 0xff, 0x2f]));
        fill.extend([6, 0x43, 0]);
        fill.extend((0..4).flat_map(|at| [first + 3 - at, at]));
    }
    vec![
        ("store", store.clone()),
        ("load", [&store[..], &lookup_two, &release_one].concat()),
        ("keep_a_pin", [&store[..], &lookup_two, &[6, 0x19, 0, 0, 1], &release_one].concat()),
        ("exists", [&store[..], &[6, 0x36, 1, 1, 3, 2]].concat()),
        ("remove", [&store[..], &lookup_two, &[6, 0x2c, 0, 1, 1, 2, 63]].concat()),
        ("clear", [&store[..], &lookup_two, &[6, 13, 0, 6, 11, 0, 0, 0, 9], &later].concat()),
        ("abandon", [&hello[..], &reserve_two, &[6, 0x15, 0, 0, 6, 0x15, 1, 1], &later].concat()),
        ("overdue", [&hello[..], &reserve_two, &later, &publish_two].concat()),
        ("takeover", [&hello[..], &reserve_two, &hello, &publish_two, &[1, 4]].concat()),
        ("death", [&hello[..], &reserve_two, &[2, 0], &[2, 6], &hello, &reserve_two].concat()),
        ("two_writers", [&hello[..], &[9, 0], &reserve_two, &[14], &reserve_two[1..]].concat()),
        ("pause", [&fill[..], &[6, 0xf0, 0], &[9; 300], &[3, 5, 3, 5, 0, 32, 3, 200]].concat()),
        ("evict", [&fill[..], &[6, 11, 0, 0, 0, 40]].concat()),
        ("grow", [&fill[..], &[4, 1], &reserve_two, &[4, 3, 4, 7], &reserve_two].concat()),
        ("tell", [&store[..], &[6, 14, 0, 6, 15, 0, 6, 15, 1], &later].concat()),
        ("raw", raw(&hello)),
    ]
}

/// Real frames of the protocol, as a peer would send them.
fn raw(hello: &[u8]) -> Vec<u8> {
    let mut script = hello.to_vec();
    for (_, message) in samples() {
        let frame = message.encode(&crate::samples::hello());
        if let Ok(units) = u8::try_from(frame.len() / 16) {
            script.extend([5, units]);
            script.extend(frame);
        }
    }
    script
}
