//! A small server for tests of the client: real sockets, the real reactor, real shards.
//!
//! One thread accepts and shakes hands, one serves all shards. A script says what goes wrong.

mod greet;

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

use maru_ledger::{Call, ClientId, Config, Extent, Progress, Shard, Time, Work};
use maru_region::{Region, RegionKind, RegionSpec};
use maru_uring::{ConnectionId, Event, IoMode, Outbox, Reactor, ReactorConfig, Waker, now_ns};
use maru_wire::{
    Assembler, BODY_BYTES_MAX, Generation, Limits, Op, PageCounts, Purpose, Secret, StatsReply,
    decode_request, encode_refusal, encode_reply,
};
use nix::sys::socket::Shutdown;

/// What a server is started with.
#[derive(Clone)]
pub(crate) struct MiniConfig {
    pub(crate) path: PathBuf,
    pub(crate) io: IoMode,
    pub(crate) generation: u64,
    pub(crate) shard_count: u32,
    pub(crate) pages_per_shard: u32,
    pub(crate) page_bytes: u64,
    pub(crate) secret: Secret,
    /// Takes every hello, and proves with its own secret.
    pub(crate) is_rogue: bool,
    pub(crate) change_limits: fn(&mut Limits),
}

impl MiniConfig {
    pub(crate) fn new(path: &Path, io: IoMode) -> Self {
        Self {
            path: path.to_owned(),
            io,
            generation: 1,
            shard_count: 3,
            pages_per_shard: 256,
            page_bytes: 4096,
            secret: Secret::none(),
            is_rogue: false,
            change_limits: |_| {},
        }
    }
}

/// What goes wrong.
#[derive(Default)]
pub(crate) struct Script {
    /// Replies to these are kept back until `let_replies_go`.
    pub(crate) hold: Vec<Op>,
    /// These are executed, and the connection is closed instead of a reply.
    pub(crate) cut: Vec<Op>,
    held: Vec<(ConnectionId, Vec<u8>)>,
    /// How often each operation was executed.
    pub(crate) executed: BTreeMap<Op, u32>,
}

/// A connection past its handshake.
struct Admitted {
    socket: OwnedFd,
    client: ClientId,
    shard: u32,
    purpose: Purpose,
    number: u64,
}

struct Shared {
    config: MiniConfig,
    shards: Mutex<Vec<Shard>>,
    region: Region,
    script: Mutex<Script>,
    admitted: Mutex<Vec<Admitted>>,
    attached: Mutex<Vec<UnixStream>>,
    waker: OnceLock<Waker>,
    is_stopping: AtomicBool,
}

/// A running server. Dropping it kills it: every connection ends at once.
pub(crate) struct MiniServer {
    shared: Arc<Shared>,
    listener: UnixListener,
    threads: Vec<JoinHandle<()>>,
}

impl MiniServer {
    pub(crate) fn start(config: MiniConfig) -> Self {
        let pages = config.pages_per_shard * config.shard_count;
        let region = Region::create(&RegionSpec {
            region: 7,
            kind: RegionKind::Memfd,
            bytes: u64::from(pages) * config.page_bytes,
            node: None,
            name: "mini".to_owned(),
        });
        let shared = Arc::new(Shared {
            shards: Mutex::new((0..config.shard_count).map(|n| shard(&config, n)).collect()),
            region: region.expect("a small region"),
            script: Mutex::default(),
            admitted: Mutex::default(),
            attached: Mutex::default(),
            waker: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
            config,
        });
        if shared.config.path.exists() {
            std::fs::remove_file(&shared.config.path).expect("a stale socket");
        }
        let listener = UnixListener::bind(&shared.config.path).expect("a path of the test");
        let own_listener = listener.try_clone().expect("a descriptor");
        let (server, acceptor) = (Arc::clone(&shared), Arc::clone(&shared));
        let threads = vec![
            std::thread::spawn(move || serve(&server)),
            std::thread::spawn(move || greet::accept(&acceptor, &listener)),
        ];
        while shared.waker.get().is_none() {
            std::thread::yield_now();
        }
        Self { shared, listener: own_listener, threads }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script.lock().expect("no test panics with it")
    }

    pub(crate) fn executed(&self, op: Op) -> u32 {
        self.script().executed.get(&op).copied().unwrap_or(0)
    }

    /// Sends the replies that were kept back, and keeps none from here on.
    pub(crate) fn let_replies_go(&self) {
        self.script().hold.clear();
        self.wake();
    }

    pub(crate) fn kill(mut self) {
        self.stop();
    }

    /// The books of every shard, added up; they are checked on the way.
    pub(crate) fn pages(&self) -> PageCounts {
        let mut sum = PageCounts::default();
        for shard in self.shared.shards.lock().expect("no test panics with it").iter() {
            shard.check_books().expect("the books balance");
            let pages = shard.page_counts();
            sum.free += pages.free;
            sum.reserved += pages.reserved;
            sum.overdue += pages.overdue;
            sum.published += pages.published;
            sum.unlinked += pages.unlinked;
            sum.total += pages.total;
        }
        sum
    }

    pub(crate) fn lease_count(&self) -> u64 {
        let shards = self.shared.shards.lock().expect("no test panics with it");
        let leases = shards.iter().map(|shard| {
            let mut stats = StatsReply::default();
            shard.fill_stats(now(), &mut stats);
            stats.lease_count
        });
        leases.sum()
    }

    fn wake(&self) {
        if let Some(waker) = self.shared.waker.get() {
            waker.wake();
        }
    }

    fn stop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.wake();
        let listener = self.listener.as_raw_fd();
        nix::sys::socket::shutdown(listener, Shutdown::Both).expect("a listener");
        for thread in self.threads.drain(..) {
            thread.join().expect("the server does not panic");
        }
        self.shared.attached.lock().expect("no thread is left").clear();
        self.shared.admitted.lock().expect("no thread is left").clear();
    }
}

impl Drop for MiniServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn shard(config: &MiniConfig, number: u32) -> Shard {
    let generation = Generation(config.generation);
    let mut ledger = Config::new(number, config.shard_count, generation, config.page_bytes);
    ledger.seed = seed_of(config.generation, number);
    (config.change_limits)(&mut ledger.limits);
    let page_count = config.pages_per_shard;
    Shard::new(ledger, &[Extent { region: 7, page_index: number * page_count, page_count }])
}

fn seed_of(generation: u64, number: u32) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&generation.to_le_bytes());
    seed[8..12].copy_from_slice(&number.to_le_bytes());
    seed
}

fn now() -> Time {
    Time(now_ns() / 1000)
}

struct Connection {
    assembler: Assembler,
    client: ClientId,
    shard: u32,
    purpose: Purpose,
    number: u64,
}

fn serve(shared: &Shared) {
    let config = ReactorConfig {
        io: shared.config.io,
        entries: 64,
        completion_entries: 256,
        buffer_count: 16,
        spin_us: 0,
        // It executes all that it has read, unlike a shard: what it answers at once may be long.
        send_bytes_max: 16 << 20,
        ..ReactorConfig::default()
    };
    let mut reactor = Reactor::new(config).expect("a reactor");
    shared.waker.set(reactor.waker()).expect("set once");
    let mut connections: BTreeMap<ConnectionId, Connection> = BTreeMap::new();
    while !shared.is_stopping.load(Ordering::Acquire) {
        adopt(shared, reactor.outbox(), &mut connections);
        let turn = reactor.turn(None, &mut |outbox, event| match event {
            Event::Received { connection, bytes } => {
                receive(shared, outbox, (connection, &mut connections), bytes);
            }
            Event::Closed { connection, .. } => {
                if let Some(found) = connections.remove(&connection) {
                    let mut shards = shared.shards.lock().expect("no test panics with it");
                    let shard = &mut shards[found.shard as usize];
                    shard.connection_closed(now(), found.client, found.purpose, found.number);
                }
            }
            Event::Connected { .. } | Event::Drained { .. } | Event::Woken | Event::TimedOut => {}
        });
        turn.expect("a turn");
    }
}

fn adopt(
    shared: &Shared,
    outbox: &mut Outbox,
    connections: &mut BTreeMap<ConnectionId, Connection>,
) {
    for new in shared.admitted.lock().expect("no test panics with it").drain(..) {
        // The newer data connection takes over; the older one's input is dropped.
        let older = connections.iter().find(|(_, old)| {
            new.purpose == Purpose::Data
                && old.purpose == Purpose::Data
                && old.shard == new.shard
                && old.client == new.client
        });
        if let Some((older, _)) = older.map(|(id, old)| (*id, old.number)) {
            connections.remove(&older);
            outbox.abort(older, "superseded");
        }
        let Admitted { socket, client, shard, purpose, number } = new;
        let id = outbox.add(socket).expect("room for a connection");
        let assembler = Assembler::new(BODY_BYTES_MAX);
        connections.insert(id, Connection { assembler, client, shard, purpose, number });
    }
    let mut script = shared.script.lock().expect("no test panics with it");
    if script.hold.is_empty() {
        for (connection, bytes) in script.held.drain(..) {
            if let Some(out) = outbox.send(connection) {
                out.extend_from_slice(&bytes);
            }
        }
    }
}

fn receive(
    shared: &Shared,
    outbox: &mut Outbox,
    (id, connections): (ConnectionId, &mut BTreeMap<ConnectionId, Connection>),
    bytes: &[u8],
) {
    let Some(connection) = connections.get_mut(&id) else { return };
    let mut input = bytes;
    while let Some(frame) = connection.assembler.next(&mut input).expect("the client is right") {
        let request = decode_request(&frame).expect("the client is right");
        let header = frame.header;
        let mut work = Work::new();
        let mut shards = shared.shards.lock().expect("no test panics with it");
        let shard = &mut shards[connection.shard as usize];
        let call = Call { client: connection.client, generation: header.generation, request };
        let progress = loop {
            match shard.handle(now(), &call, &mut work, &mut 1_000) {
                Progress::Paused => {}
                progress => break progress,
            }
        };
        if header.op == Op::Stats {
            shard.fill_stats(now(), &mut work.replies.stats);
            work.replies.stats.io = "mini".to_owned();
        }
        drop(shards);
        let (own, mut out) = (Generation(shared.config.generation), Vec::new());
        match progress {
            Progress::Refused(refusal) => {
                encode_refusal(&mut out, header.op, header.request_id, own, refusal);
            }
            Progress::Done | Progress::Paused => {
                encode_reply(&mut out, header.op, header.request_id, own, &work.replies);
            }
        }
        let mut script = shared.script.lock().expect("no test panics with it");
        *script.executed.entry(header.op).or_default() += 1;
        if script.cut.contains(&header.op) {
            outbox.abort(id, "cut");
        } else if script.hold.contains(&header.op) {
            script.held.push((id, out));
        } else if let Some(buffer) = outbox.send(id) {
            buffer.extend_from_slice(&out);
        }
    }
}
