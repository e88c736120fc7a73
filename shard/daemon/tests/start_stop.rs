//! S2, S5, S12: starting, stopping, and starting again.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use maru_client::Match;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::harness::{CALL, SHARDD, Server, command, pattern, poll, run, serve_flags};
use crate::requests::{load_one, store_one};

/// The whole path: a client stores over shared memory, another finds and loads the bytes.
#[test]
fn what_one_client_stores_another_loads() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io, "--shards", "2"]);
        let (writer, reader) = (server.client(), server.client());
        let keys: Vec<_> = (0..64u64).map(|i| writer.key(&i.to_le_bytes())).collect();
        for (i, key) in keys.iter().enumerate() {
            assert!(store_one(&writer, *key, &pattern(i as u64, 9_000 + i)).is_stored());
        }
        let presence = reader.exists(&keys, Match::All, CALL).unwrap();
        assert_eq!(presence.leading_count, keys.len());
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(load_one(&reader, *key), Some(pattern(i as u64, 9_000 + i)));
        }
        let stats = server.stats();
        assert_eq!(stats.iter().map(|shard| shard.key_count).sum::<u64>(), 64);
        assert!(stats.iter().all(|shard| shard.io == io && shard.key_count > 0));
        server.stop();
    }
}

/// S12: SIGTERM and SIGINT end the server with 0; a second one changes nothing.
#[test]
fn signals_end_it_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&[]);
        let client = server.client();
        client.ping(0, CALL).unwrap();
        server.signal(signal);
        server.signal(signal);
        assert_eq!(server.wait().code(), Some(0), "{}", server.log());
        assert!(!server.socket.exists(), "the socket is removed");
        assert!(TcpStream::connect(server.tcp).is_err(), "the port is closed");
        assert!(server.log().contains("ended"));
    }
}

/// S12: the port is reusable at once, 150 times, also after a bind that failed.
#[test]
fn the_port_is_reusable_at_once() {
    let first = Server::start(&[]);
    let port = first.tcp.to_string();
    let mut folder = first.stop();
    for round in 0..150 {
        if round % 10 == 0 {
            let taken = TcpListener::bind(&port).unwrap();
            let socket = folder.path().join("pool.sock");
            let (code, _, error) = run(&serve_flags(&socket, &port, &[]));
            assert_eq!(code, Some(1));
            assert!(error.contains("in use") && error.contains(&port), "{error}");
            assert!(!socket.exists(), "a failed start leaves nothing");
            drop(taken);
        }
        let server = Server::start_in(folder, &port, &[]);
        // A connection that the server closes first would hold the port without SO_REUSEADDR.
        let _open = TcpStream::connect(server.tcp).unwrap();
        folder = server.stop();
    }
}

/// A socket that a killed server left is taken over; a running server's is not.
#[test]
fn only_a_stale_socket_is_taken_over() {
    let server = Server::start(&[]);
    let pid = server.pid().to_string();
    let (code, _, error) = run(&serve_flags(&server.socket, "none", &[]));
    assert_eq!(code, Some(1));
    assert!(error.contains("unix") && error.contains(&pid), "{error}");
    server.client().ping(0, CALL).unwrap();
    let folder = server.kill();
    assert!(folder.path().join("pool.sock").exists());
    let server = Server::start_in(folder, "none", &[]);
    server.client().ping(0, CALL).unwrap();
}

/// What lies in the way of the socket and is none is not removed.
#[test]
fn a_file_in_the_way_is_kept() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("pool.sock");
    std::fs::write(&socket, "a letter").unwrap();
    let (code, _, error) = run(&serve_flags(&socket, "none", &[]));
    assert_eq!(code, Some(1));
    assert!(error.contains("is no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "a letter");
    std::fs::remove_file(&socket).unwrap();
    drop(UnixListener::bind(&socket).unwrap());
    Server::start_in(folder, "none", &[]).stop();
}

/// S5: each run has a generation of its own.
#[test]
fn every_run_has_a_generation() {
    let server = Server::start(&[]);
    let first = server.client().ping(0, CALL).unwrap().generation;
    let server = Server::start_in(server.stop(), "127.0.0.1:0", &[]);
    assert_ne!(server.client().ping(0, CALL).unwrap().generation, first);
}

/// A signal that comes while memory is taken ends the server too.
#[test]
fn a_signal_before_it_is_ready_ends_it() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("pool.sock");
    let mut command = command(SHARDD);
    command.args(serve_flags(&socket, "none", &["--pool-bytes", "1G"]));
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    poll(|| socket.exists().then_some(())).unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(server.id()).unwrap());
    nix::sys::signal::kill(pid, Signal::SIGTERM).unwrap();
    let status = poll(|| server.try_wait().unwrap()).unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!socket.exists());
}

/// `ping` and `stats` answer in words and in JSON, and say when nobody is there.
#[test]
fn the_operators_commands_answer() {
    let server = Server::start(&["--shards", "2"]);
    let unix = format!("unix:{}", server.socket.display());
    let tcp = format!("tcp:{}", server.tcp);
    for address in [&unix, &tcp] {
        let (code, out, error) = run(&["ping", "--address", address]);
        assert_eq!((code, out.lines().count()), (Some(0), 2), "{out}{error}");
        let (code, out, error) = run(&["stats", "--address", address]);
        assert!(code == Some(0) && out.contains("shard 1"), "{out}{error}");
    }
    let (code, out, _) = run(&["stats", "--address", &unix, "--json"]);
    assert_eq!(code, Some(0));
    let stats: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(stats["shards"].as_array().unwrap().len(), 2);
    assert_eq!(stats["sum"]["pages"]["total"], 4096);
    assert_eq!(stats["sum"]["books_balanced"], true);
    let (code, out, _) = run(&["ping", "--address", &tcp, "--json"]);
    let pong: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == Some(0) && pong["shards"][1]["shard"] == 1, "{out}");
    drop(server);
    for name in ["ping", "stats"] {
        let (code, _, error) = run(&[name, "--address", &unix, "--timeout", "50ms"]);
        assert!(code == Some(1) && error.contains(&unix), "{error}");
        let (code, _, error) = run(&[name, "--address", "unix:/nowhere.sock", "--timeout", "1s"]);
        assert!(code == Some(1) && error.contains("there is no such socket"), "{error}");
        assert!(error.contains("is maru-shardd running"), "{error}");
    }
}

/// An operator without the secret is told so; with it, any namespace is watched.
#[test]
fn the_operator_needs_the_secret_and_no_namespace() {
    let folder = TempDir::new().unwrap();
    let secret = crate::requests::secret_file(folder.path(), "the secret of this pool");
    let secret = secret.to_str().unwrap();
    let server = Server::start(&["--secret-file", secret, "--namespace", "llama"]);
    let unix = format!("unix:{}", server.socket.display());
    let (code, _, error) = run(&["stats", "--address", &unix, "--timeout", "2s"]);
    assert!(code == Some(1) && error.contains("secret"), "{error}");
    let other = TempDir::new().unwrap();
    let wrong = crate::requests::secret_file(other.path(), "the secret of another pool");
    let wrong = ["stats", "--address", &unix, "--secret-file", wrong.to_str().unwrap()];
    let (code, _, error) = run(&wrong);
    assert!(code == Some(1) && error.contains("secret"), "{error}");
    poll(|| {
        let (code, out, error) = run(&["stats", "--address", &unix, "--secret-file", secret]);
        assert_eq!(code, Some(0), "{error}");
        out.contains("refused wrong secret").then_some(())
    })
    .expect("the refusal is counted");
    let log = server.log();
    assert_eq!(log.matches("trust:").count(), 1, "{log}");
}

/// The address that scripts rely on is the one that is printed.
#[test]
fn the_help_names_every_flag() {
    let (code, out, _) = run(&["serve", "--help"]);
    assert_eq!(code, Some(0));
    for word in ["--pool-bytes", "--secret-file", "--io", "127.0.0.1:6278", "--reservation-ttl"] {
        assert!(out.contains(word), "{word}");
    }
    let (code, out, _) = run(&["--version"]);
    assert!(code == Some(0) && out.starts_with("maru-shardd "), "{out}");
    let address: SocketAddr = "127.0.0.1:6278".parse().unwrap();
    assert!(address.ip().is_loopback());
}
