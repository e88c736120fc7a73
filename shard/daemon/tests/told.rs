//! What a person reads when a client's settings do not fit a server: the thing, and what it should
//! be.

use std::time::Duration;

use maru_client::{Client, ClientConfig};
use maru_wire::{Purpose, Refusal, Secret};
use tempfile::TempDir;

use crate::harness::{CALL, Server, run};
use crate::raw::{Raw, hello};
use crate::requests::secret_file;

/// Changes a client's settings, asks for data, and returns the error's text.
fn told(server: &Server, change: impl FnOnce(&mut ClientConfig)) -> String {
    let mut settings = server.client_config();
    settings.secret = Secret::new(SECRET.as_bytes());
    change(&mut settings);
    let client = Client::new(settings).unwrap();
    let error = client.exists(&[client.key(b"any")], maru_client::Match::All, CALL).unwrap_err();
    error.to_string()
}

const SECRET: &str = "the secret of this pool";

/// Bad input, named: wrong secret, none, wrong namespace, wrong node, a TTL too short, objects too
/// large for the shards, a shard that is not there.
#[test]
fn a_refused_client_is_told_why() {
    let folder = TempDir::new().unwrap();
    let secret = secret_file(folder.path(), SECRET);
    let flags = ["--secret-file", secret.to_str().unwrap(), "--namespace", "test"];
    let server =
        Server::start(&[&flags[..], &["--node-name", "pool-1", "--pool-bytes", "1M"]].concat());
    let small = |settings: &mut ClientConfig| settings.object_bytes_max = 4096;
    type Change = fn(&mut ClientConfig);
    let cases: [(Change, &str); 6] = [
        (|s| s.secret = Secret::new(b"the secret of another"), "the secret does not match"),
        (|s| s.secret = Secret::none(), "the server wants a secret; configure its secret file"),
        (|s| s.namespace = "other".to_owned(), "does not serve this namespace"),
        (|s| s.node_name = "pool-2".to_owned(), "another node name than the one expected"),
        (
            |s| s.transfer_timeout = Duration::from_secs(31),
            "a TTL of 60000000 us is below twice the client's transfer timeout",
        ),
        (
            |s| s.object_bytes_max = 256 << 10,
            "a shard holds 4 objects of the size announced, at least 16 are needed",
        ),
    ];
    let place = server.socket.display().to_string();
    for (change, words) in cases {
        let text = told(&server, |settings| {
            small(settings);
            change(settings);
        });
        assert!(text.contains(words) && text.contains(&place), "`{words}` is not in: {text}");
    }
    let mut settings = server.client_config();
    settings.secret = Secret::new(SECRET.as_bytes());
    small(&mut settings);
    let client = Client::new(settings).unwrap();
    let text = client.ping(7, CALL).unwrap_err().to_string();
    assert_eq!(text, "no shard 7: the server has 1");
    let server = Server::start(&[]);
    let text = told(&server, small);
    assert!(text.contains("the server has no secret, but this client does"), "{text}");
}

/// Bad input, named: a hello of another protocol version, or to a shard that is not there.
#[test]
fn other_versions_and_shards_are_refused() {
    let server = Server::start(&[]);
    let greet = |version, shard| {
        let mut said = hello(1, 1, Purpose::Data);
        (said.version_min, said.version_max, said.shard) = (version, version, shard);
        let mut raw = Raw::tcp(&server);
        let challenge = raw.challenge();
        raw.greet(&challenge, &said, &Secret::none()).unwrap_err()
    };
    let version = greet(9, 0);
    assert_eq!(version, Refusal::WrongVersion(1));
    assert_eq!(version.to_string(), "the server speaks protocol version 1 only");
    let shard = greet(1, 5);
    assert_eq!(shard, Refusal::NoSuchShard(1));
    assert_eq!(shard.to_string(), "no such shard: the server has 1");
    server.wait_closed("refused_wrong_version", 1);
    server.wait_closed("refused_no_such_shard", 1);
}

/// A folder that one may not write, and none at all: the start says which and why.
#[test]
fn a_socket_that_cannot_be_made_is_told_with_the_reason() {
    let socket = "/nowhere/pool.sock";
    let flags = ["serve", "--unix", socket, "--tcp", "none", "--pool-bytes", "16M"];
    let (code, _, error) = run(&flags);
    assert_eq!(code, Some(1));
    assert!(error.contains(socket) && error.contains("No such file or directory"), "{error}");
}
