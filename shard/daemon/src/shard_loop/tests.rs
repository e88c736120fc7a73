//! One shard's thread on real sockets, with its heap allocations counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use maru_ledger::{Config, Extent, Peer, Shard};
use maru_uring::mailbox::{Sender, channel};
use maru_uring::{IoMode, Reactor, ReactorConfig};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Exists, Generation, Handshake, Hello, Incarnation, Key, Lookup,
    Match, Namespace, PROTOCOL_VERSION, Publish, PublishItem, Purpose, Release, ReleaseItem, Reply,
    RequestBody, Reserve, ReserveItem, Secret, decode_hello, decode_reply, encode_hello,
    encode_request,
};

use super::*;
use crate::acceptor::Terms;
use crate::executor::Facts;
use crate::mail::{AcceptorMailbox, Greeted, ToAcceptor};

/// Counts the allocations of the threads that ask for it.
struct Counting;

thread_local! {
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    if IS_COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const GENERATION: Generation = Generation(7);
const NONCE: [u8; 32] = [5; 32];

fn limits() -> LoopLimits {
    LoopLimits::new(1, Duration::from_secs(10), Duration::from_secs(600))
}

/// A shard's thread, and the ends of its mailboxes.
struct Bench {
    thread: JoinHandle<()>,
    shard: Sender<ToShard>,
    acceptor: AcceptorMailbox,
}

impl Bench {
    /// Starts a shard; `is_counted`: with its allocations counted, of one shard at a time.
    fn new(io: IoMode, limits: LoopLimits, is_counted: bool) -> Self {
        let (acceptor_post, acceptor) = AcceptorPost::new(16).unwrap();
        let (tell, told) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let config = ReactorConfig { io, ..ReactorConfig::default() };
            let mut reactor = Reactor::new(config).unwrap();
            let (sender, mailbox) = channel(16, reactor.waker());
            let ledger = Config::new(0, 1, GENERATION, 4096);
            let terms = Terms {
                secret: Secret::none(),
                node_name: "test".to_owned(),
                namespaces: Vec::new(),
                shard_count: 1,
                limits: ledger.limits,
                regions: Vec::new(),
            };
            let facts = Facts {
                generation: GENERATION,
                terms: Arc::new(terms),
                core: None,
                io: reactor.io().name(),
            };
            let extent = Extent { region: 0, page_index: 0, page_count: 1024 };
            let parts = ShardParts {
                executor: Executor::new(Shard::new(ledger, &[extent]), facts),
                limits,
                mailbox,
                acceptor: acceptor_post,
                start_ns: now_ns(),
                shard: 0,
            };
            tell.send(sender).unwrap();
            IS_COUNTED.set(is_counted);
            ShardLoop::new(parts).run(&mut reactor).unwrap();
            IS_COUNTED.set(false);
        });
        Self { thread, shard: told.recv().unwrap(), acceptor }
    }

    /// Mails a connection whose hello the acceptor found good, and returns its far end.
    fn connect(&mut self, name: u8) -> Caller {
        let (near, far) = UnixStream::pair().unwrap();
        // A test that would wait for ever fails instead.
        far.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let hello = Hello {
            client_nonce: [name; 32],
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            purpose: Purpose::Data,
            incarnation: Incarnation([name; 16]),
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
        let (secret, mut bytes) = (Secret::none(), Vec::new());
        let handshake = Handshake { secret: &secret, server_nonce: &NONCE };
        encode_hello(&mut bytes, 1, Generation(0), &hello, &handshake);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let frame = assembler.next(&mut &bytes[..]).unwrap().unwrap();
        let (hello, proof) = decode_hello(&frame).unwrap();
        let greeted = Greeted {
            socket: near.into(),
            hello,
            proof,
            server_nonce: NONCE,
            request_id: 1,
            peer: Peer::Uid(0),
        };
        self.shard.try_send(ToShard::Connected(Box::new(greeted))).unwrap();
        let mut caller = Caller { stream: far, assembler: Assembler::new(BODY_BYTES_MAX) };
        caller.read(|_| ());
        caller
    }

    /// Ends the shard in order.
    fn end(mut self) {
        self.shard.try_send(ToShard::Shutdown).unwrap();
        self.thread.join().unwrap();
        assert!(matches!(self.acceptor.queue.recv(), Ok(ToAcceptor::Closed { shard: 0, .. })));
    }
}

/// The far end of a connection.
struct Caller {
    stream: UnixStream,
    assembler: Assembler,
}

impl Caller {
    fn ask<T>(&mut self, request: &RequestBody<'_>, read: impl FnOnce(Reply<'_>) -> T) -> T {
        let mut bytes = Vec::new();
        encode_request(&mut bytes, 2, GENERATION, request);
        self.stream.write_all(&bytes).unwrap();
        self.read(|frame| read(decode_reply(frame).unwrap()))
    }

    fn read<T>(&mut self, read: impl FnOnce(&maru_wire::Frame<'_>) -> T) -> T {
        loop {
            let mut chunk = vec![0; 64 * 1024];
            let count = self.stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the shard answers");
            let mut input = &chunk[..count];
            if let Some(frame) = self.assembler.next(&mut input).unwrap() {
                return read(&frame);
            }
        }
    }

    /// Stores the keys.
    fn store(&mut self, keys: &[Key]) {
        let item = |key: &Key| ReserveItem { key: *key, object_bytes: 9 };
        let reserve = Reserve { items: keys.iter().map(item).collect() };
        let tickets = self.ask(&RequestBody::Reserve(&reserve), |reply| match reply {
            Reply::Reserve(reply) => reply
                .outcomes
                .iter()
                .map(|outcome| match outcome {
                    maru_wire::ArchivedReserveOutcome::Granted(grant) => grant.ticket,
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        });
        let items = keys.iter().zip(tickets).map(|(key, ticket)| PublishItem {
            ticket,
            key: *key,
            checksum: maru_wire::Checksum::default(),
        });
        let publish = Publish { items: items.collect() };
        self.ask(&RequestBody::Publish(&publish), |reply| {
            assert!(matches!(reply, Reply::Publish(_)));
        });
    }

    /// Finds, pins and releases the keys.
    fn read_path(&mut self, keys: &[Key]) {
        let exists = Exists { keys: keys.to_vec(), matching: Match::All };
        self.ask(&RequestBody::Exists(&exists), |reply| match reply {
            Reply::Exists(reply) => assert_eq!(reply.leading_count, 64),
            other => panic!("{other:?}"),
        });
        let lookup = Lookup { keys: keys.to_vec(), matching: Match::All };
        let lease = self.ask(&RequestBody::Lookup(&lookup), |reply| match reply {
            Reply::Lookup(reply) => reply.lease,
            other => panic!("{other:?}"),
        });
        let release = Release { items: vec![ReleaseItem { lease, keep: 0 }] };
        self.ask(&RequestBody::Release(&release), |reply| match reply {
            Reply::Release(reply) => assert!(reply.held[0]),
            other => panic!("{other:?}"),
        });
        self.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
    }
}

/// Exists, lookup, release and ping allocate nothing once a shard is warm, through its sockets.
#[test]
fn a_warm_shard_allocates_nothing() {
    for io in [IoMode::Epoll, IoMode::Uring] {
        let mut bench = Bench::new(io, limits(), true);
        let mut caller = bench.connect(1);
        let keys: Vec<Key> = (0..64u8).map(|i| Key([i; 32])).collect();
        caller.store(&keys);
        for _ in 0..50 {
            caller.read_path(&keys);
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..200 {
            caller.read_path(&keys);
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(allocations, 0, "{io:?}");
        drop(caller);
        bench.end();
    }
}

/// S17: mails have a budget of each turn. What is left is read in the next, although nobody wakes
/// the shard for it.
#[test]
fn mails_above_a_turns_budget_are_read_in_the_next() {
    for io in [IoMode::Epoll, IoMode::Uring] {
        let limits = LoopLimits::new(1, Duration::from_secs(10), Duration::from_secs(600));
        let mut bench = Bench::new(io, LoopLimits { turn_mails: 1, ..limits }, false);
        for name in 1..9 {
            // Most of these find the shard awake, or ring for several of them at once.
            for _ in 0..14 {
                bench.shard.try_send(ToShard::IncarnationDead(Incarnation([0; 16]))).unwrap();
            }
            let mut caller = bench.connect(name);
            caller.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
        }
        bench.end();
    }
}

/// R8, S17: unfinished frames above the shard's limit cost those who have not finished for
/// longest. A client that sends its frame to the end is answered.
#[test]
fn the_oldest_unfinished_frames_are_given_up() {
    for io in [IoMode::Epoll, IoMode::Uring] {
        let limits = LoopLimits { partial_bytes_max: 200 << 10, ..limits() };
        let mut bench = Bench::new(io, limits, false);
        let (mut greedy, mut modest) = (bench.connect(1), bench.connect(2));
        let exists = Exists { keys: vec![Key([0; 32]); 4096], matching: Match::All };
        let mut frame = Vec::new();
        encode_request(&mut frame, 2, GENERATION, &RequestBody::Exists(&exists));
        greedy.stream.write_all(&frame[..120 << 10]).unwrap();
        modest.ask(&RequestBody::Ping, |reply| assert!(matches!(reply, Reply::Ping(_))));
        modest.stream.write_all(&frame[..120 << 10]).unwrap();
        let mut ignored = [0; 64];
        assert!(matches!(greedy.stream.read(&mut ignored), Ok(0) | Err(_)), "{io:?}: it is closed");
        modest.stream.write_all(&frame[120 << 10..]).unwrap();
        modest.read(|frame| assert!(matches!(decode_reply(frame), Ok(Reply::Exists(_)))));
        drop(greedy);
        let mut closed = || {
            modest.ask(&RequestBody::Stats, |reply| match reply {
                Reply::Stats(stats) => {
                    assert_eq!(stats.buffered_bytes, 0, "{io:?}");
                    stats.closed.iter().map(|c| c.reason.as_str().to_owned()).collect::<Vec<_>>()
                }
                other => panic!("{other:?}"),
            })
        };
        let told = (0..10_000).map(|_| closed()).find(|closed| !closed.is_empty());
        assert_eq!(told.expect("the closed connection is counted"), ["buffer_limit"], "{io:?}");
        drop(modest);
        bench.end();
    }
}

/// S12: the last answer is sent, and the last connection closed, within a second.
#[test]
fn the_end_takes_less_than_a_second() {
    let limits = limits();
    assert!(limits.drain_timeout + limits.close_timeout < Duration::from_secs(1));
}

/// S11: warned about in time, and once a minute at most when the age is as long as that.
#[test]
fn overdue_reservations_are_looked_for_in_time() {
    for (age_s, period_s) in [(1, 1), (59, 59), (600, 60)] {
        let limits = LoopLimits::new(1, Duration::from_secs(10), Duration::from_secs(age_s));
        assert_eq!(limits.overdue_period, Duration::from_secs(period_s));
    }
}
