//! What an attack leaves behind in the server's memory once it is over.

use maru_client::{Key, Match};
use maru_wire::{Exists, Purpose, RequestBody};

use crate::harness::{Server, poll};
use crate::raw::{Raw, hello};

/// Shards of the server, each with a heap of its own.
const SHARDS: u32 = 4;
/// Clients of each shard.
const CLIENTS: u16 = 200;
/// What the server may keep: the books of clients that may still hold pages, and a little more.
const KEPT_BYTES_MAX: u64 = 8 << 20;

/// The server's memory beside the pool, in bytes.
fn anonymous_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
}

/// Connects a client that sends a part of a large frame, and no more.
fn half(server: &Server, shard: u32, name: u16) -> Raw {
    let mut said = hello(9, 1, Purpose::Data);
    said.shard = shard;
    said.incarnation.0[0] = u8::try_from(shard).unwrap();
    said.incarnation.0[1..3].copy_from_slice(&name.to_le_bytes());
    let mut raw = Raw::admitted(server, &said);
    let keys = vec![Key([0; 32]); 4096];
    let frame = raw.request_bytes(&RequestBody::Exists(&Exists { keys, matching: Match::All }));
    // Of every size, so that no hole in the heap fits the next.
    raw.throw(&frame[..frame.len() / 16 * (1 + usize::from(name) % 15)]);
    raw
}

/// S17: unfinished frames by the thousand, then all connections close: the memory is given back.
#[test]
fn half_frames_leave_no_memory_behind() {
    let servers = ["uring", "epoll"].map(|io| {
        let server = Server::start(&["--io", io, "--shards", "4"]);
        assert_eq!(server.stats().len(), SHARDS as usize);
        let idle_bytes = anonymous_bytes(&server);
        for round in 0..3 {
            let clients = (0..CLIENTS).flat_map(|name| (0..SHARDS).map(move |shard| (shard, name)));
            let halves = clients.map(|(shard, name)| half(&server, shard, name + round * CLIENTS));
            drop(halves.collect::<Vec<_>>());
        }
        (server, idle_bytes)
    });
    for (server, idle_bytes) in servers {
        let kept_bytes = || anonymous_bytes(&server).saturating_sub(idle_bytes);
        let given_back = poll(|| (kept_bytes() < KEPT_BYTES_MAX).then_some(()));
        assert!(given_back.is_some(), "{} bytes are kept", kept_bytes());
    }
}
