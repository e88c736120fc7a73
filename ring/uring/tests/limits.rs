//! Limits answer; they do not grow.

use maru_uring::{Address, ConnectError, IoMode, Reactor, ReactorConfig, ReactorError};

use crate::bench::{Bench, Kind, config};

on_both_backends!(a_full_table_gives_the_socket_back, a_file_is_no_connection);

fn a_full_table_gives_the_socket_back(io: IoMode) {
    let mut bench = Bench::with(ReactorConfig { connections_max: 2, ..config(io) });
    let (first, _peer) = bench.add(Kind::Unix);
    let (_, _second) = bench.add(Kind::Unix);
    let (socket, _third) = Kind::Unix.pair();
    let socket = bench.outbox().add(socket).unwrap_err();
    let refused = bench.outbox().connect(&Address::Unix("x".into())).unwrap_err();
    assert!(matches!(refused, ConnectError::TableFull { connections_max: 2 }));
    bench.outbox().abort(first, "room");
    bench.until_closed(first);
    bench.outbox().add(socket).unwrap();
}

fn a_file_is_no_connection(io: IoMode) {
    let mut bench = Bench::new(io);
    let file = tempfile::tempfile().unwrap();
    assert!(bench.outbox().add(file.into()).is_err());
    assert_eq!(bench.outbox().connection_count(), 0);
}

#[test]
fn a_wrong_config_is_named() {
    let wrong = [
        ("entries", ReactorConfig { entries: 0, ..ReactorConfig::default() }),
        ("completion_entries", ReactorConfig { completion_entries: 8, ..ReactorConfig::default() }),
        ("buffer_count", ReactorConfig { buffer_count: 3, ..ReactorConfig::default() }),
        ("buffer_bytes", ReactorConfig { buffer_bytes: 100, ..ReactorConfig::default() }),
        ("connections_max", ReactorConfig { connections_max: 0, ..ReactorConfig::default() }),
        ("send_bytes_max", ReactorConfig { send_bytes_max: 1, ..ReactorConfig::default() }),
        ("buffered_bytes_max", ReactorConfig { buffered_bytes_max: 1, ..ReactorConfig::default() }),
    ];
    for (name, config) in wrong {
        match Reactor::new(config).unwrap_err() {
            ReactorError::Config { field, .. } => assert_eq!(field, name),
            other => panic!("{other}"),
        }
    }
}
