//! The server's end of a session in tests: scripts with explicit times.

use std::collections::BTreeMap;
use std::string::ToString;
use std::vec::Vec;

use maru_wire::{
    Assembler, BODY_BYTES_MAX, Challenge, Generation, Grant, Handshake, Hello, HelloReply,
    Incarnation, Key, LeaseId, Limits, Namespace, Op, Refusal, ReplyBuffer, RequestBody, Reserve,
    ReserveItem, ReserveOutcome, Secret, Ticket, decode_hello, encode_challenge,
    encode_hello_reply, encode_refusal, encode_reply, encode_request,
};

use crate::{
    Call, CallId, Channel, CloseCause, Dial, Failure, LinkId, Output, Session, SessionConfig,
    SessionLimits, Time,
};

pub(crate) const NONCE: [u8; 32] = [7; 32];

/// One frame that the session sent: op, request id, body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) op: Op,
    pub(crate) id: u64,
    pub(crate) body: Vec<u8>,
}

/// A session with the one place that knows how to play its server.
pub(crate) struct Bench {
    pub(crate) session: Session,
    pub(crate) now: Time,
    pub(crate) secret: Secret,
    pub(crate) shard_count: u32,
    pub(crate) limits: Limits,
    /// Where each dial went, as its hello says.
    pub(crate) hellos: BTreeMap<Dial, Hello>,
}

pub(crate) fn limits() -> Limits {
    Limits {
        body_bytes_max: BODY_BYTES_MAX,
        keys_per_frame_max: 4096,
        page_bytes: 4096,
        object_bytes_max: 64 * 4096,
        reserved_pages_max: 64,
        pinned_pages_max: 64,
        leases_max: 64,
        connections_max: 16,
        reservation_ttl_us: 60_000_000,
        lease_ttl_us: 60_000_000,
        fence_us: 60_000_000,
    }
}

pub(crate) fn config() -> SessionConfig {
    SessionConfig {
        incarnation: Incarnation([1; 16]),
        namespace: Namespace::new("test"),
        namespace_name: "test".to_string(),
        node_name: "".to_string(),
        pool_list_digest: [0; 32],
        secret: Secret::none(),
        transfer_timeout_us: 30_000_000,
        object_bytes_max: 4096,
        seed: [3; 32],
        limits: SessionLimits::default(),
    }
}

pub(crate) fn data(shard: u32) -> LinkId {
    LinkId { channel: Channel::Data, shard }
}

pub(crate) fn key(number: u8) -> Key {
    let mut key = Key::default();
    key.0[31] = number;
    key
}

pub(crate) fn ticket(number: u8) -> Ticket {
    Ticket([number; 16])
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: SessionConfig) -> Self {
        Self {
            session: Session::new(config),
            now: Time(1_000_000),
            secret: Secret::none(),
            shard_count: 4,
            limits: limits(),
            hellos: BTreeMap::new(),
        }
    }

    pub(crate) fn later(&mut self, us: u64) -> &mut Self {
        self.now = self.now.after(us);
        self.session.timer(self.now);
        self
    }

    pub(crate) fn outputs(&mut self) -> Vec<Output> {
        core::iter::from_fn(|| self.session.next_output()).collect()
    }

    /// The one dial that the session asks for now.
    pub(crate) fn dial(&mut self) -> Dial {
        let outputs = self.outputs();
        let dials: Vec<Dial> = outputs
            .iter()
            .filter_map(|output| match output {
                Output::Connect(dial) => Some(*dial),
                Output::Close(..) | Output::Send(_) | Output::Complete(..) => None,
            })
            .collect();
        assert_eq!(dials.len(), 1, "{outputs:?}");
        dials[0]
    }

    pub(crate) fn completions(&mut self) -> Vec<(u64, Result<(), Failure>)> {
        self.outputs()
            .into_iter()
            .filter_map(|output| match output {
                Output::Complete(call, result) => Some((call.0, result)),
                Output::Close(..) | Output::Send(_) | Output::Connect(_) => None,
            })
            .collect()
    }

    pub(crate) fn feed(&mut self, dial: Dial, bytes: &[u8]) -> Option<CallId> {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = bytes;
        let mut call = None;
        while let Some(frame) = assembler.next(&mut input).unwrap() {
            call = self.session.frame(self.now, dial, &frame).or(call);
        }
        call
    }

    /// Every frame that waits to be sent on a connection.
    pub(crate) fn sent(&mut self, dial: Dial) -> Vec<Sent> {
        let mut bytes = Vec::new();
        self.session.take_output(dial, &mut bytes);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let (mut input, mut sent) = (bytes.as_slice(), Vec::new());
        while let Some(frame) = assembler.next(&mut input).unwrap() {
            let (op, id) = (frame.header.op, frame.header.request_id);
            sent.push(Sent { op, id, body: frame.body.to_vec() });
        }
        sent
    }

    pub(crate) fn challenge(&mut self, dial: Dial, generation: u64) {
        self.session.connected(self.now, dial);
        let challenge = Challenge {
            server_nonce: NONCE,
            version_min: 1,
            version_max: 1,
            secret_required: !self.secret.is_none(),
        };
        let mut out = Vec::new();
        encode_challenge(&mut out, Generation(generation), &challenge);
        self.feed(dial, &out);
    }

    pub(crate) fn reply_bytes(&mut self, dial: Dial, generation: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.session.take_output(dial, &mut bytes);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = bytes.as_slice();
        let frame = assembler.next(&mut input).unwrap().expect("a hello");
        let (hello, proof) = decode_hello(&frame).unwrap();
        let reply = HelloReply {
            version: 1,
            shard_count: self.shard_count,
            shard: hello.shard,
            node_name: "node".to_string(),
            eviction_number: 0,
            limits: self.limits,
            regions: Vec::new(),
            movers: Vec::new(),
        };
        self.hellos.insert(dial, hello);
        let handshake = Handshake { secret: &self.secret, server_nonce: &NONCE };
        let mut out = Vec::new();
        encode_hello_reply(&mut out, Generation(generation), &reply, &proof, &handshake);
        out
    }

    /// Plays the whole handshake of a dial.
    pub(crate) fn accept(&mut self, dial: Dial, generation: u64) -> &Hello {
        self.challenge(dial, generation);
        let out = self.reply_bytes(dial, generation);
        self.feed(dial, &out);
        &self.hellos[&dial]
    }

    pub(crate) fn refuse_hello(&mut self, dial: Dial, generation: u64, refusal: Refusal) {
        self.challenge(dial, generation);
        let id = self.sent(dial)[0].id;
        let mut out = Vec::new();
        encode_refusal(&mut out, Op::Hello, id, Generation(generation), refusal);
        self.feed(dial, &out);
    }

    /// Brings the link to a shard up.
    pub(crate) fn up(&mut self, shard: u32, generation: u64) -> Dial {
        self.session.reach(self.now, CallId(9_000 + u64::from(shard)), data(shard));
        let dial = self.dial();
        self.accept(dial, generation);
        self.outputs();
        dial
    }

    pub(crate) fn submit(&mut self, id: u64, shard: u32, body: &RequestBody<'_>) {
        self.submit_in(id, shard, 1, body);
    }

    pub(crate) fn submit_in(
        &mut self,
        id: u64,
        shard: u32,
        generation: u64,
        body: &RequestBody<'_>,
    ) {
        let generation = Generation(generation);
        let mut frame = Vec::new();
        encode_request(&mut frame, id, generation, body);
        let (item_count, tickets) = match body {
            RequestBody::Reserve(body) => (body.items.len(), Vec::new()),
            RequestBody::Lookup(body) => (body.keys.len(), Vec::new()),
            RequestBody::Publish(body) => {
                (body.items.len(), body.items.iter().map(|item| item.ticket).collect())
            }
            RequestBody::Abandon(body) => (body.tickets.len(), body.tickets.clone()),
            _ => (0, Vec::new()),
        };
        let call = Call {
            id: CallId(id),
            link: data(shard),
            generation,
            op: body.op(),
            item_count,
            tickets: &tickets,
            after_error: matches!(body, RequestBody::Abandon(body) if body.after_error),
            frame: &frame,
        };
        self.session.submit(self.now, &call);
    }

    pub(crate) fn reserve(&mut self, id: u64, shard: u32, keys: &[u8]) {
        let item = |number: &u8| ReserveItem { key: key(*number), object_bytes: 100 };
        let body = Reserve { items: keys.iter().map(item).collect() };
        self.submit(id, shard, &RequestBody::Reserve(&body));
    }

    pub(crate) fn ping(&mut self, id: u64, shard: u32) {
        self.submit(id, shard, &RequestBody::Ping);
    }

    pub(crate) fn reply(
        &mut self,
        dial: Dial,
        (op, id, generation): (Op, u64, u64),
        fill: impl FnOnce(&mut ReplyBuffer),
    ) -> Option<CallId> {
        let mut replies = ReplyBuffer::default();
        fill(&mut replies);
        let mut out = Vec::new();
        encode_reply(&mut out, op, id, Generation(generation), &replies);
        self.feed(dial, &out)
    }

    /// Grants the tickets of these numbers.
    pub(crate) fn grant(&mut self, dial: Dial, id: u64, tickets: &[u8]) -> Option<CallId> {
        self.reply(dial, (Op::Reserve, id, 1), |replies| grant(replies, tickets))
    }

    pub(crate) fn found(&mut self, dial: Dial, id: u64, lease: u8) -> Option<CallId> {
        self.reply(dial, (Op::Lookup, id, 1), |replies| {
            let object = maru_wire::Found {
                object_bytes: 100,
                checksum: maru_wire::Checksum::default(),
                ticket: ticket(1),
                run_count: 1,
            };
            replies.lookup.lease = LeaseId([lease; 16]);
            replies.lookup.lease_left_us = 1;
            replies.lookup.outcomes.push(maru_wire::LookupOutcome::Found(object));
            replies.lookup.runs.push(run());
        })
    }

    pub(crate) fn cut(&mut self, dial: Dial) {
        self.session.closed(self.now, dial, CloseCause::Closed);
    }
}

fn run() -> maru_wire::PageRun {
    maru_wire::PageRun { region: 0, page_index: 0, page_count: 1 }
}

pub(crate) fn grant(replies: &mut ReplyBuffer, tickets: &[u8]) {
    for number in tickets {
        let grant = Grant { ticket: ticket(*number), run_count: 1 };
        replies.reserve.outcomes.push(ReserveOutcome::Granted(grant));
        replies.reserve.runs.push(run());
    }
}
