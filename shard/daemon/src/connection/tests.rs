use std::sync::Arc;

use maru_ledger::{Config, Extent, Peer, Shard};
use maru_wire::{
    Exists, Generation, Hello, Key, Match, Namespace, PROTOCOL_VERSION, RequestBody, Secret,
    encode_request,
};

use super::*;
use crate::acceptor::Terms;
use crate::executor::Facts;

const GENERATION: Generation = Generation(7);
const INCARNATION: Incarnation = Incarnation([1; 16]);

/// A connection with the shard behind it.
struct Bench {
    executor: Executor,
    connection: Connection,
    out: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let config = Config::new(0, 1, GENERATION, 4096);
        let terms = Terms {
            secret: Secret::none(),
            node_name: "test".to_owned(),
            namespaces: Vec::new(),
            shard_count: 1,
            limits: config.limits,
            regions: Vec::new(),
        };
        let facts =
            Facts { generation: GENERATION, terms: Arc::new(terms), core: None, io: "none" };
        let extent = Extent { region: 0, page_index: 0, page_count: 1024 };
        let mut executor = Executor::new(Shard::new(config, &[extent]), facts);
        let hello = Hello {
            client_nonce: [1; 32],
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            purpose: Purpose::Data,
            incarnation: INCARNATION,
            connection_number: 1,
            shard: 0,
            namespace: Namespace::new("test"),
            namespace_name: "test".to_owned(),
            node_name: String::new(),
            pool_list_digest: [0; 32],
            transfer_timeout_us: 1_000_000,
            object_bytes_max: 4096,
            tickets: Vec::new(),
        };
        let admission = executor.ledger.hello(Time(0), &hello, Peer::Uid(0)).unwrap();
        let identity = Identity {
            client: admission.client,
            incarnation: INCARNATION,
            purpose: Purpose::Data,
            connection_number: 1,
            may_only_watch: false,
        };
        let id = some_id();
        let connection = Connection::new(id, identity, admission.limits.body_bytes_max);
        Self { executor, connection, out: Vec::new() }
    }

    /// Lets the connection work for `budget` steps, and returns how many bytes it answered.
    fn turn(
        &mut self,
        budget: u32,
        step: impl FnOnce(&mut Connection, &mut Turn<'_>) -> Result<Standing, DecodeError>,
    ) -> (Standing, usize) {
        let slice = Slice { out: &mut self.out, now: Time(1), budget };
        let mut turn = Turn { executor: &mut self.executor, slice, out_bytes_max: usize::MAX };
        let standing = step(&mut self.connection, &mut turn).unwrap();
        let answered = self.out.len();
        self.out.clear();
        (standing, answered)
    }
}

/// The id of a real connection: only a reactor makes them.
fn some_id() -> ConnectionId {
    let config = maru_uring::ReactorConfig {
        io: maru_uring::IoMode::Epoll,
        ..maru_uring::ReactorConfig::default()
    };
    let mut reactor = maru_uring::Reactor::new(config).unwrap();
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    reactor.outbox().add(near.into()).unwrap()
}

/// A client that always has a few frames under way keeps a busy shard's connection from ever
/// running dry. What is answered must leave memory all the same.
#[test]
fn a_connection_that_never_runs_dry_keeps_only_what_is_not_answered() {
    let mut bench = Bench::new();
    let exists = Exists { keys: vec![Key([9; 32]); 64], matching: Match::All };
    let mut frame = Vec::new();
    encode_request(&mut frame, 1, GENERATION, &RequestBody::Exists(&exists));
    let sixteen = frame.repeat(16);
    let (standing, reply_bytes) =
        bench.turn(65, |connection, turn| connection.receive(turn, &frame));
    assert_eq!(standing, Standing::Idle);
    let mut answered = bench.turn(1, |connection, turn| connection.receive(turn, &sixteen)).1;
    for round in 1..2_000 {
        // As many frames come as are answered; fifteen and a part always wait.
        bench.turn(1, |connection, turn| connection.receive(turn, &frame));
        let (standing, bytes) = bench.turn(65, Connection::resume);
        assert_eq!(standing, Standing::Busy);
        answered += bytes;
        let waiting = (16 + round - answered / reply_bytes) * frame.len();
        assert!(bench.connection.held_bytes() <= waiting);
        assert!(bench.connection.held.capacity() <= 4 * sixteen.len(), "in round {round}");
    }
    assert_eq!(answered, 1_999 * reply_bytes);
    let (standing, bytes) = bench.turn(10_000, Connection::resume);
    assert_eq!((standing, bytes), (Standing::Idle, 16 * reply_bytes));
}
