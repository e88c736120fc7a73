//! R8, S17: what is no message ends its connection with a counted reason, and nothing else.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use maru_client::{Error, Match};
use maru_wire::{
    Challenge, Exists, Key, Op, Purpose, Refusal, Reply, RequestBody, Reserve, ReserveItem, Secret,
    encode_challenge,
};
use tempfile::TempDir;

use crate::harness::{CALL, Server, closed, config, pattern, poll, resident_bytes};
use crate::raw::{Raw, hello};
use crate::requests::{load_one, secret_file, store_one};

/// Memory that garbage may cost beyond an idle server.
const RESIDENT_GROWTH_MAX: u64 = 16 << 20;

/// A generator of numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }
}

/// Frames that a client could send.
fn good_frames(raw: &Raw) -> Vec<Vec<u8>> {
    let keys: Vec<Key> = (0..32u8).map(|i| Key([i; 32])).collect();
    let items: Vec<_> = keys.iter().map(|key| ReserveItem { key: *key, object_bytes: 9 }).collect();
    let exists = Exists { keys, matching: Match::All };
    let reserve = Reserve { items };
    [RequestBody::Exists(&exists), RequestBody::Reserve(&reserve), RequestBody::Stats]
        .iter()
        .map(|body| raw.request_bytes(body))
        .collect()
}

/// One frame that is broken in some way: random, mutated, cut, or with a giant length.
fn bad_frame(random: &mut Random, good: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = good[random.below(good.len())].clone();
    match random.below(4) {
        0 => {
            let bytes = 1 + random.below(300);
            (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect()
        }
        1 => {
            for _ in 0..=random.below(8) {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
            frame
        }
        2 => {
            frame.truncate(random.below(frame.len()));
            frame
        }
        _ => {
            frame[8..12].copy_from_slice(&(100u32 << 20).to_le_bytes());
            frame
        }
    }
}

/// 10,000 random and mutated frames, before and after the hello: a client beside them sees no
/// error, memory stays, and every connection is counted.
#[test]
fn garbage_ends_its_own_connection_only() {
    let server = Server::start(&["--frame-timeout", "1s"]);
    let client = server.client();
    let key = client.key(b"kept");
    let bytes = pattern(1, 20_000);
    assert!(store_one(&client, key, &bytes).is_stored());
    let idle_bytes = resident_bytes(server.pid());
    let mut random = Random(0x5EED);
    let mut number = 0;
    for round in 0..1_000u32 {
        let mut raw = if round % 2 == 0 { Raw::tcp(&server) } else { Raw::unix(&server) };
        let challenge = raw.challenge();
        if round % 4 != 0 {
            number += 1;
            let mut hello = hello(9, number, Purpose::Data);
            hello.incarnation.0[0] = u8::from(round % 2 == 0);
            raw.greet(&challenge, &hello, &Secret::none()).unwrap();
        }
        let good = good_frames(&raw);
        // Up to the first bad one, which closes the connection, good ones may be among them.
        for _ in 0..10 {
            let bad = bad_frame(&mut random, &good);
            raw.throw(&bad);
        }
        if round % 100 == 0 {
            assert_eq!(load_one(&client, key).as_ref(), Some(&bytes), "round {round}");
        }
    }
    // Each is counted once, for one reason, and none for one that says nothing.
    let stats = server.wait_for("all closed", |stats| {
        let count: u64 = stats.closed.iter().map(|closed| closed.count).sum();
        stats.connection_count <= 3 && count >= 1_000
    });
    assert!(closed(&stats, "bad_magic") > 100, "{:?}", stats.closed);
    let reasons: Vec<_> = stats.closed.iter().map(|closed| closed.reason.as_str()).collect();
    assert!(reasons.len() > 5 && !reasons.contains(&"other"), "{reasons:?}");
    let grown = resident_bytes(server.pid()).saturating_sub(idle_bytes);
    assert!(grown < RESIDENT_GROWTH_MAX, "{grown} bytes more than idle");
    assert_eq!(load_one(&client, key), Some(bytes));
    server.stop();
}

/// Every kind of bad frame is counted under its own name.
#[test]
fn each_fault_has_a_name() {
    let server = Server::start(&["--frame-timeout", "100ms"]);
    let good = |raw: &Raw| raw.request_bytes(&RequestBody::Ping);
    type Fault<'a> = (&'a str, &'a dyn Fn(&mut Vec<u8>));
    let faults: [Fault<'_>; 7] = [
        ("bad_magic", &|frame| frame[0] = b'X'),
        ("bad_version", &|frame| frame[4] = 9),
        ("unknown_op", &|frame| frame[6] = 200),
        ("bad_flags", &|frame| frame[7] = 0x80),
        ("body_too_large", &|frame| frame[8..12].copy_from_slice(&(100u32 << 20).to_le_bytes())),
        ("bad_reserved", &|frame| frame[12] = 1),
        ("half_frame", &|frame| frame.truncate(20)),
    ];
    for (number, (reason, spoil)) in (1..).zip(faults) {
        let mut raw = Raw::admitted(&server, &hello(1, number, Purpose::Data));
        let mut frame = good(&raw);
        spoil(&mut frame);
        raw.throw(&frame);
        raw.wait_until_closed();
        server.wait_closed(reason, 1);
    }
    // A batch over its limit: the header is good, the body is not.
    let mut raw = Raw::admitted(&server, &hello(1, 50, Purpose::Data));
    let keys = vec![Key([0; 32]); 4097];
    raw.send(&RequestBody::Exists(&Exists { keys, matching: Match::All }));
    raw.wait_until_closed();
    server.wait_closed("too_many_items", 1);
    // A hello must come first, and only once.
    let mut raw = Raw::admitted(&server, &hello(1, 100, Purpose::Data));
    let challenge =
        Challenge { server_nonce: [0; 32], version_min: 1, version_max: 1, secret_required: false };
    let again = hello(1, 101, Purpose::Data);
    assert_eq!(raw.greet(&challenge, &again, &Secret::none()), Err(Refusal::UnexpectedHello));
    raw.wait_until_closed();
    server.wait_closed("wrong_op", 1);
}

/// Half frames of many clients at once: their memory is bounded, the oldest are given up, and
/// another client's large frames are answered meanwhile.
#[test]
fn half_frames_of_many_cost_little_memory() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io]);
        let client = server.client();
        let keys: Vec<_> = (0..4096u32).map(|i| client.key(&i.to_le_bytes())).collect();
        client.exists(&keys, Match::All, CALL).unwrap();
        let idle_bytes = resident_bytes(server.pid());
        let mut halves: Vec<Raw> = Vec::new();
        for name in 0..400u16 {
            let mut said = hello(9, 1, Purpose::Data);
            said.incarnation.0[..2].copy_from_slice(&name.to_le_bytes());
            let mut raw = Raw::admitted(&server, &said);
            let keys = vec![Key([0; 32]); 4096];
            let exists = Exists { keys, matching: Match::All };
            let frame = raw.request_bytes(&RequestBody::Exists(&exists));
            raw.throw(&frame[..frame.len() - 5000]);
            halves.push(raw);
        }
        server.wait_closed("buffer_limit", 1);
        client.exists(&keys, Match::All, CALL).unwrap();
        let grown = resident_bytes(server.pid()).saturating_sub(idle_bytes);
        assert!(grown < RESIDENT_GROWTH_MAX, "{grown} bytes more than idle ({io})");
    }
}

/// A frame that trickles in is closed by its first byte's age, however lively the sender is.
#[test]
fn slow_senders_are_closed() {
    let server = Server::start(&["--frame-timeout", "200ms"]);
    let mut raw = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
    let keys = vec![Key([0; 32]); 4096];
    let frame = raw.request_bytes(&RequestBody::Exists(&Exists { keys, matching: Match::All }));
    let mut trickle = frame.iter();
    let closed = poll(|| raw.stream.write_all(&[*trickle.next().unwrap()]).err());
    assert!(closed.is_some(), "the server closes the connection");
    server.wait_closed("half_frame", 1);
}

/// Connections that never say hello end after two seconds, or earlier when there are too many.
#[test]
fn silent_connections_are_closed() {
    let server = Server::start(&[]);
    let mut silent: Vec<Raw> = (0..1_100).map(|_| Raw::tcp(&server)).collect();
    server.client().ping(0, CALL).unwrap();
    server.wait_closed("hello_dropped", 76);
    let mut last = silent.pop().unwrap();
    last.challenge();
    last.wait_until_closed();
    server.wait_closed("hello_timeout", 1_000);
}

/// A hello that was recorded on another connection proves nothing on this one.
#[test]
fn a_replayed_hello_is_refused() {
    let folder = TempDir::new().unwrap();
    let secret_path = secret_file(folder.path(), "the secret of this pool");
    let server = Server::start(&["--secret-file", secret_path.to_str().unwrap()]);
    let secret = Secret::new(b"the secret of this pool");
    let mut first = Raw::tcp(&server);
    let challenge = first.challenge();
    assert!(challenge.secret_required);
    let said = hello(1, 1, Purpose::Data);
    let (bytes, proof) = first.hello_bytes(&challenge, &said, &secret);
    first.throw(&bytes);
    first.answer(&challenge, &proof, &secret).unwrap();
    let mut second = Raw::tcp(&server);
    let other = second.challenge();
    assert_ne!(other.server_nonce, challenge.server_nonce);
    second.throw(&bytes);
    assert_eq!(second.answer(&other, &proof, &secret), Err(Refusal::WrongSecret));
    second.wait_until_closed();
    // The connection whose hello was replayed goes on.
    first.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
}

/// A server that does not know the secret gets neither keys nor bytes from a client.
#[test]
fn a_rogue_server_is_found_out() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("pool.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let rogue = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let challenge = Challenge {
            server_nonce: [1; 32],
            version_min: 1,
            version_max: 1,
            secret_required: true,
        };
        let mut frame = Vec::new();
        encode_challenge(&mut frame, maru_wire::Generation(5), &challenge);
        stream.write_all(&frame).unwrap();
        // Sends the client's own hello back, as the nearest thing to a proof that it has.
        let mut said = vec![0; 64 << 10];
        let count = std::io::Read::read(&mut stream, &mut said).unwrap();
        said[7] = 1;
        stream.write_all(&said[..count]).unwrap();
        let more = std::io::Read::read(&mut stream, &mut said).unwrap_or(0);
        assert_eq!(more, 0, "the client says no more");
    });
    let mut settings = config(&path);
    settings.secret = Secret::new(b"the secret of this pool");
    let client = maru_client::Client::new(settings).unwrap();
    let error = client.exists(&[Key([1; 32])], Match::All, CALL).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    rogue.join().unwrap();
}

/// S5: a request to another generation is refused unexecuted; a ping is answered all the same.
#[test]
fn another_generation_is_refused() {
    let server = Server::start(&[]);
    let mut raw = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
    raw.generation.0 ^= 1;
    let exists = Exists { keys: vec![Key([0; 32])], matching: Match::All };
    raw.ask(&RequestBody::Exists(&exists), |reply| {
        assert!(matches!(reply, Reply::Refused(Refusal::StaleGeneration)));
    });
    raw.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
}

/// Two clients with one incarnation: the lower or equal number is refused, the higher supersedes.
#[test]
fn connection_numbers_decide_between_twins() {
    let server = Server::start(&[]);
    let mut first = Raw::admitted(&server, &hello(1, 5, Purpose::Data));
    for number in [4, 5] {
        let mut twin = Raw::tcp(&server);
        let challenge = twin.challenge();
        let refused = twin.greet(&challenge, &hello(1, number, Purpose::Data), &Secret::none());
        assert_eq!(refused, Err(Refusal::ConnectionNumberUsed(5)));
    }
    first.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
    let mut newer = Raw::admitted(&server, &hello(1, 6, Purpose::Data));
    first.wait_until_closed();
    newer.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
    server.wait_closed("superseded", 1);
}

/// Regions are not handed out by TCP, whatever is proved.
#[test]
fn regions_stay_on_this_host() {
    let server = Server::start(&[]);
    let mut raw = Raw::tcp(&server);
    let challenge = raw.challenge();
    let refused = raw.greet(&challenge, &hello(1, 1, Purpose::Attach), &Secret::none());
    assert_eq!(refused, Err(Refusal::NotLocal));
    raw.wait_until_closed();
    server.wait_closed("refused_not_local", 1);
}

/// A frame that was begun is answered whole before the connection is read on, and pipelined
/// frames are answered in order.
#[test]
fn pipelined_frames_are_answered_in_order() {
    for io in ["uring", "epoll"] {
        let server = Server::start(&["--io", io]);
        let mut raw = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
        let keys = (0..4096u32).map(|i| Key(blake(i))).collect();
        let large = Exists { keys, matching: Match::All };
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(raw.send(&RequestBody::Exists(&large)));
            ids.push(raw.send(&RequestBody::Ping));
        }
        for (i, id) in ids.into_iter().enumerate() {
            raw.reply(id, |reply| match reply {
                Reply::Exists(reply) => assert!(i % 2 == 0 && reply.leading_count == 0),
                Reply::Ping(_) => assert_eq!(i % 2, 1),
                _ => panic!("another reply"),
            });
        }
    }
}

fn blake(i: u32) -> [u8; 32] {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&i.wrapping_mul(0x9E37_79B9).to_le_bytes());
    key[8..12].copy_from_slice(&i.to_le_bytes());
    key
}

/// A peer that does not read its replies is paused, then closed; others do not notice.
#[test]
fn a_peer_that_does_not_read_is_closed() {
    let server = Server::start(&[]);
    let mut deaf = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
    let frame = deaf.request_bytes(&RequestBody::Stats);
    let flood: Vec<u8> = frame.iter().copied().cycle().take(frame.len() * 4096).collect();
    let sender = std::thread::spawn(move || while deaf.stream.write_all(&flood).is_ok() {});
    let client = server.client();
    let before = resident_bytes(server.pid());
    server.wait_closed("send_stalled", 1);
    client.ping(0, CALL).unwrap();
    sender.join().unwrap();
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < RESIDENT_GROWTH_MAX, "{grown} bytes more");
    assert_eq!(Op::Stats.name(), "stats");
}

/// A server that a client cannot reach is an error within the call's deadline.
#[test]
fn nobody_there_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let mut settings = config(std::path::Path::new("/nowhere"));
    settings.address = address.parse().unwrap();
    settings.control_timeout = Duration::from_millis(50);
    let client = maru_client::Client::new(settings).unwrap();
    assert!(client.exists(&[Key([1; 32])], Match::All, Duration::from_millis(300)).is_err());
}
