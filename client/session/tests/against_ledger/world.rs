//! Two shards, a lossy network, and callers that leave when they like.

use std::collections::{BTreeMap, VecDeque};

use maru_ledger::{Call as Executed, ClientId, Config, Extent, Peer, Progress, Shard, Work};
use maru_session::{
    Call, CallId, Channel, CloseCause, Dial, Failure, LinkId, Output, Session, SessionConfig,
    SessionLimits, Time,
};
use maru_wire::{
    ArchivedLookupOutcome, ArchivedPublishOutcome, ArchivedReserveOutcome, Assembler,
    BODY_BYTES_MAX, Challenge, Checksum, Frame, Generation, Handshake, HelloReply, Incarnation,
    Key, LeaseId, Lookup, Match, Namespace, Op, Publish, PublishItem, Purpose, Reply, RequestBody,
    Reserve, ReserveItem, Secret, Ticket, decode_hello, decode_reply, decode_request,
    encode_challenge, encode_hello_reply, encode_refusal, encode_reply, encode_request,
};

const SHARD_COUNT: u32 = 2;
const PAGE_BYTES: u64 = 4096;
const NONCE: [u8; 32] = [7; 32];

struct Connection {
    shard: Option<u32>,
    client: Option<(ClientId, Purpose, u64)>,
    to_server: VecDeque<Vec<u8>>,
    to_client: VecDeque<Vec<u8>>,
    is_server_open: bool,
    is_client_open: bool,
    generation: u64,
}

/// A reservation whose owner may write its pages.
#[derive(Clone, Copy)]
struct Held {
    generation: u64,
    shard: u32,
    ticket: Ticket,
    key: Key,
    /// Not once a publish was sent: the chunk may be visible.
    is_written: bool,
}

enum Asked {
    Reserve(u32, Vec<Key>),
    Publish(Vec<Held>),
    Lookup(u32),
}

pub(crate) struct World {
    session: Session,
    now: Time,
    generation: u64,
    shards: Vec<Shard>,
    connections: BTreeMap<Dial, Connection>,
    calls: BTreeMap<CallId, Asked>,
    held: Vec<Held>,
    leases: Vec<(u64, u32, LeaseId)>,
    namespace: Namespace,
    last_call: u64,
}

fn shards(generation: u64) -> Vec<Shard> {
    let shard = |number| {
        let mut config = Config::new(number, SHARD_COUNT, Generation(generation), PAGE_BYTES);
        config.seed = [u8::try_from(generation % 256).unwrap(); 32];
        config.limits.fence_us = 1_000_000;
        Shard::new(config, &[Extent { region: 0, page_index: 0, page_count: 128 }])
    };
    (0..SHARD_COUNT).map(shard).collect()
}

impl World {
    pub(crate) fn new() -> Self {
        let namespace = Namespace::new("world");
        let config = SessionConfig {
            incarnation: Incarnation([1; 16]),
            namespace,
            namespace_name: "world".to_owned(),
            node_name: String::new(),
            pool_list_digest: [0; 32],
            secret: Secret::none(),
            transfer_timeout_us: 30_000_000,
            object_bytes_max: PAGE_BYTES,
            seed: [3; 32],
            limits: SessionLimits::default(),
        };
        let mut world = Self {
            session: Session::new(config),
            now: Time(1_000_000),
            generation: 1,
            shards: shards(1),
            connections: BTreeMap::new(),
            calls: BTreeMap::new(),
            held: Vec::new(),
            leases: Vec::new(),
            namespace,
            last_call: 0,
        };
        world.session.reach(world.now, CallId(1 << 40), first());
        world.carry_out();
        world.settle();
        world
    }

    /// The network works for a moment.
    pub(crate) fn pump(&mut self) {
        for _ in 0..3 {
            for at in 0..self.connections.len() {
                self.server_reads(at);
                self.client_reads(at);
            }
        }
    }

    fn ledger_now(&self) -> maru_ledger::Time {
        maru_ledger::Time(self.now.0)
    }

    fn keys(&self, numbers: &[u8]) -> BTreeMap<u32, Vec<Key>> {
        let mut by_shard: BTreeMap<u32, Vec<Key>> = BTreeMap::new();
        for number in numbers {
            let key = Key::new(&self.namespace, &[*number]);
            by_shard.entry(key.shard(SHARD_COUNT)).or_default().push(key);
        }
        by_shard
    }

    fn submit(&mut self, shard: u32, body: &RequestBody<'_>, asked: Asked) {
        let Some(generation) = self.session.layout().map(|layout| layout.generation) else {
            return;
        };
        self.last_call += 1;
        let id = CallId(self.last_call);
        let mut frame = Vec::new();
        encode_request(&mut frame, id.0, generation, body);
        let (item_count, tickets) = match &asked {
            Asked::Reserve(_, keys) => (keys.len(), Vec::new()),
            Asked::Publish(held) => (held.len(), held.iter().map(|held| held.ticket).collect()),
            Asked::Lookup(_) => match body {
                RequestBody::Lookup(body) => (body.keys.len(), Vec::new()),
                _ => unreachable!("a lookup asks for a lookup"),
            },
        };
        self.calls.insert(id, asked);
        let call = Call {
            id,
            link: LinkId { channel: Channel::Data, shard },
            generation,
            op: body.op(),
            item_count,
            tickets: &tickets,
            after_error: false,
            frame: &frame,
        };
        self.session.submit(self.now, &call);
        self.carry_out();
    }

    pub(crate) fn reserve(&mut self, numbers: &[u8]) {
        for (shard, keys) in self.keys(numbers) {
            let item = |key: &Key| ReserveItem { key: *key, object_bytes: 1 + PAGE_BYTES / 2 };
            let body = Reserve { items: keys.iter().map(item).collect() };
            self.submit(shard, &RequestBody::Reserve(&body), Asked::Reserve(shard, keys));
        }
    }

    pub(crate) fn lookup(&mut self, numbers: &[u8]) {
        for (shard, keys) in self.keys(numbers) {
            let body = Lookup { keys, matching: Match::All };
            self.submit(shard, &RequestBody::Lookup(&body), Asked::Lookup(shard));
        }
    }

    pub(crate) fn publish(&mut self, at: usize) {
        if self.held.is_empty() {
            return;
        }
        let mut held = self.held.remove(at % self.held.len());
        held.is_written = false;
        let (ticket, key) = (held.ticket, held.key);
        let items = vec![PublishItem { ticket, key, checksum: Checksum::default() }];
        let is_stale = self.session.layout().is_none_or(|l| l.generation.0 != held.generation);
        if !is_stale {
            let body = Publish { items };
            self.submit(held.shard, &RequestBody::Publish(&body), Asked::Publish(vec![held]));
        }
    }

    pub(crate) fn abandon(&mut self, at: usize, after_error: bool) {
        if !self.held.is_empty() {
            let held = self.held.remove(at % self.held.len());
            self.session.abandon(self.now, held.shard, &[held.ticket], after_error);
            self.carry_out();
        }
    }

    pub(crate) fn release(&mut self, at: usize) {
        if !self.leases.is_empty() {
            let (generation, shard, lease) = self.leases.remove(at % self.leases.len());
            self.session.release(self.now, Generation(generation), shard, (lease, 0));
            self.carry_out();
        }
    }

    pub(crate) fn give_up(&mut self, at: usize) {
        if self.calls.is_empty() {
            return;
        }
        let id = *self.calls.keys().nth(at % self.calls.len()).unwrap();
        let asked = self.calls.remove(&id).unwrap();
        self.session.give_up(self.now, id);
        if let Asked::Publish(held) = asked {
            // Its owner writes no more: it lets go of the reservation.
            for held in held {
                self.session.abandon(self.now, held.shard, &[held.ticket], false);
            }
        }
        self.carry_out();
    }

    pub(crate) fn wait(&mut self, us: u64) {
        self.now = self.now.after(us);
        let now = self.ledger_now();
        for shard in &mut self.shards {
            while shard.tick(now, &mut 1_000) {}
        }
        self.session.timer(self.now);
        self.carry_out();
    }

    pub(crate) fn restart(&mut self) {
        self.generation += 1;
        self.shards = shards(self.generation);
        for connection in self.connections.values_mut() {
            connection.is_server_open = false;
            connection.to_server.clear();
        }
    }

    fn pick(&self, at: usize) -> Option<Dial> {
        let count = self.connections.len();
        (count > 0).then(|| *self.connections.keys().nth(at % count).unwrap())
    }

    pub(crate) fn server_cuts(&mut self, at: usize) {
        if let Some(dial) = self.pick(at) {
            self.server_closes(dial);
        }
    }

    fn server_closes(&mut self, dial: Dial) {
        let now = self.ledger_now();
        let Some(connection) = self.connections.get_mut(&dial) else { return };
        if !std::mem::replace(&mut connection.is_server_open, false) {
            return;
        }
        connection.to_server.clear();
        if let (Some((client, purpose, number)), Some(shard)) =
            (connection.client, connection.shard)
        {
            let shard = &mut self.shards[shard as usize];
            shard.connection_closed(now, client, purpose, number);
        }
    }

    /// The client hears of the end, whether or not it has read everything.
    pub(crate) fn client_sees_end(&mut self, at: usize) {
        let Some(dial) = self.pick(at) else { return };
        let connection = &self.connections[&dial];
        if !connection.is_server_open && connection.is_client_open {
            self.client_hears_end(dial);
        }
    }

    fn client_hears_end(&mut self, dial: Dial) {
        self.connections.get_mut(&dial).unwrap().is_client_open = false;
        self.session.closed(self.now, dial, CloseCause::Closed);
        self.carry_out();
    }

    pub(crate) fn client_reads(&mut self, at: usize) {
        let Some(dial) = self.pick(at) else { return };
        let connection = self.connections.get_mut(&dial).unwrap();
        if !connection.is_client_open {
            return;
        }
        match connection.to_client.pop_front() {
            Some(bytes) => self.client_takes(dial, &bytes),
            None if !connection.is_server_open => self.client_hears_end(dial),
            None => {}
        }
    }

    fn client_takes(&mut self, dial: Dial, bytes: &[u8]) {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = bytes;
        while let Some(frame) = assembler.next(&mut input).unwrap() {
            if let Some(call) = self.session.frame(self.now, dial, &frame) {
                self.answered(call, &frame);
            }
        }
        self.carry_out();
    }

    fn answered(&mut self, call: CallId, frame: &Frame<'_>) {
        let asked = self.calls.remove(&call).expect("a call is answered once");
        let generation = frame.header.generation.0;
        match (decode_reply(frame).unwrap(), asked) {
            (Reply::Reserve(reply), Asked::Reserve(shard, keys)) => {
                for (key, outcome) in keys.iter().zip(reply.outcomes.iter()) {
                    if let ArchivedReserveOutcome::Granted(grant) = outcome {
                        let (ticket, key) = (grant.ticket, *key);
                        let is_written = true;
                        self.held.push(Held { generation, shard, ticket, key, is_written });
                    }
                }
            }
            (Reply::Publish(reply), Asked::Publish(_)) => {
                let is_lost = |o: &ArchivedPublishOutcome| {
                    matches!(o, ArchivedPublishOutcome::Unknown | ArchivedPublishOutcome::WrongKey)
                };
                assert!(!reply.outcomes.iter().any(is_lost), "its pages went to somebody else");
            }
            (Reply::Lookup(reply), Asked::Lookup(shard)) => {
                let is_found =
                    |o: &ArchivedLookupOutcome| matches!(o, ArchivedLookupOutcome::Found(_));
                if reply.outcomes.iter().any(is_found) {
                    self.leases.push((generation, shard, reply.lease));
                }
            }
            (reply, _) => panic!("{reply:?}"),
        }
    }

    pub(crate) fn server_reads(&mut self, at: usize) {
        let Some(dial) = self.pick(at) else { return };
        let connection = self.connections.get_mut(&dial).unwrap();
        if !connection.is_server_open {
            return;
        }
        match connection.to_server.pop_front() {
            Some(bytes) => self.server_takes(dial, &bytes),
            None if !connection.is_client_open => self.server_closes(dial),
            None => {}
        }
    }

    fn server_takes(&mut self, dial: Dial, bytes: &[u8]) {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = bytes;
        while let Some(frame) = assembler.next(&mut input).unwrap() {
            if frame.header.op == Op::Hello {
                self.server_greets(dial, &frame);
            } else {
                self.server_executes(dial, &frame);
            }
        }
    }

    fn server_greets(&mut self, dial: Dial, frame: &Frame<'_>) {
        let (hello, proof) = decode_hello(frame).unwrap();
        let (now, generation) = (self.ledger_now(), Generation(self.generation));
        // Older connections to the shard are closed first, and their unread input dropped.
        let older: Vec<Dial> = self
            .connections
            .iter()
            .filter(|(other, connection)| **other < dial && connection.shard == Some(hello.shard))
            .map(|(other, _)| *other)
            .collect();
        let shard = &mut self.shards[hello.shard as usize];
        let mut out = Vec::new();
        match shard.hello(now, &hello, Peer::Uid(1)) {
            Ok(admission) => {
                for other in older {
                    self.server_closes(other);
                }
                let connection = self.connections.get_mut(&dial).unwrap();
                connection.shard = Some(hello.shard);
                connection.client =
                    Some((admission.client, hello.purpose, hello.connection_number));
                let reply = HelloReply {
                    version: 1,
                    shard_count: SHARD_COUNT,
                    shard: hello.shard,
                    node_name: String::new(),
                    eviction_number: 0,
                    limits: admission.limits,
                    regions: Vec::new(),
                    movers: Vec::new(),
                };
                let handshake = Handshake { secret: &Secret::none(), server_nonce: &NONCE };
                encode_hello_reply(&mut out, generation, &reply, &proof, &handshake);
            }
            Err(refusal) => {
                let id = frame.header.request_id;
                encode_refusal(&mut out, Op::Hello, id, generation, refusal);
            }
        }
        self.connections.get_mut(&dial).unwrap().to_client.push_back(out);
    }

    fn server_executes(&mut self, dial: Dial, frame: &Frame<'_>) {
        let now = self.ledger_now();
        let connection = self.connections.get_mut(&dial).unwrap();
        let (client, ..) = connection.client.expect("a hello comes first");
        let shard = &mut self.shards[connection.shard.unwrap() as usize];
        let header = frame.header;
        let request = decode_request(frame).unwrap();
        let mut work = Work::new();
        let call = Executed { client, generation: header.generation, request };
        let progress = loop {
            match shard.handle(now, &call, &mut work, &mut 1_000) {
                Progress::Paused => {}
                progress => break progress,
            }
        };
        let (id, generation) = (header.request_id, Generation(self.generation));
        let mut out = Vec::new();
        match progress {
            Progress::Refused(refusal) => {
                encode_refusal(&mut out, header.op, id, generation, refusal);
            }
            Progress::Done | Progress::Paused => {
                encode_reply(&mut out, header.op, id, generation, &work.replies);
            }
        }
        connection.to_client.push_back(out);
        shard.check_books().unwrap();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.session.next_output() {
            match output {
                Output::Connect(dial) => self.connect(dial),
                Output::Close(dial, _) => {
                    self.connections.get_mut(&dial).unwrap().is_client_open = false;
                }
                Output::Send(dial) => {
                    let mut bytes = Vec::new();
                    self.session.take_output(dial, &mut bytes);
                    let connection = self.connections.get_mut(&dial).unwrap();
                    if connection.is_server_open {
                        connection.to_server.push_back(bytes);
                    }
                }
                Output::Complete(call, result) => self.completed(call, result),
            }
        }
    }

    fn completed(&mut self, call: CallId, result: Result<(), Failure>) {
        match self.calls.remove(&call) {
            // Its owner may publish again, or let go.
            Some(Asked::Publish(held)) => self.held.extend(held),
            Some(Asked::Reserve(..) | Asked::Lookup(_)) => assert!(result.is_err()),
            None => assert_eq!(call, CallId(1 << 40)),
        }
    }

    fn connect(&mut self, dial: Dial) {
        self.session.connected(self.now, dial);
        let challenge = Challenge {
            server_nonce: NONCE,
            version_min: 1,
            version_max: 1,
            secret_required: false,
        };
        let mut out = Vec::new();
        encode_challenge(&mut out, Generation(self.generation), &challenge);
        let connection = Connection {
            shard: None,
            client: None,
            to_server: VecDeque::new(),
            to_client: VecDeque::from([out]),
            is_server_open: true,
            is_client_open: true,
            generation: self.generation,
        };
        self.connections.insert(dial, connection);
    }

    /// Safety: whoever holds a reservation in the present run of the server has its page.
    pub(crate) fn check(&mut self) {
        let generation = self.generation;
        self.check_connections();
        for (number, shard) in self.shards.iter().enumerate() {
            shard.check_books().unwrap();
            let pages = shard.page_counts();
            let is_here = |held: &&Held| {
                held.is_written && held.generation == generation && held.shard as usize == number
            };
            let held = self.held.iter().filter(is_here).count() as u64;
            assert!(pages.reserved + pages.overdue >= held, "{pages:?}, {held} held");
        }
    }

    fn check_connections(&mut self) {
        self.connections
            .retain(|_, connection| connection.is_client_open || connection.is_server_open);
        let generation = self.generation;
        assert!(self.connections.values().all(|connection| connection.generation <= generation));
    }

    /// Liveness: with a network that works and owners that let go, nothing is left.
    pub(crate) fn heal(&mut self) {
        self.settle();
        while !self.held.is_empty() {
            self.abandon(0, false);
        }
        while !self.leases.is_empty() {
            self.release(0);
        }
        self.settle();
        assert!(self.calls.is_empty(), "a call was never answered");
        assert!(!self.session.has_debt());
        for (number, shard) in self.shards.iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            assert_eq!(self.session.ticket_count(number), 0);
            let pages = shard.page_counts();
            assert_eq!((pages.reserved, pages.overdue), (0, 0), "{pages:?}");
            let mut stats = maru_wire::StatsReply::default();
            shard.fill_stats(self.ledger_now(), &mut stats);
            assert_eq!(stats.lease_count, 0);
        }
    }

    /// Runs until nothing moves any more.
    fn settle(&mut self) {
        for _ in 0..400 {
            for at in 0..self.connections.len() {
                self.server_reads(at);
                self.client_reads(at);
            }
            self.check_connections();
            let is_quiet = |c: &Connection| {
                c.is_server_open
                    && c.is_client_open
                    && c.to_server.is_empty()
                    && c.to_client.is_empty()
            };
            let is_still = self.connections.values().all(is_quiet);
            if is_still && self.calls.is_empty() && !self.session.has_debt() {
                break;
            }
            self.wait(50_000);
        }
        self.check();
    }
}

fn first() -> LinkId {
    LinkId { channel: Channel::Data, shard: 0 }
}
