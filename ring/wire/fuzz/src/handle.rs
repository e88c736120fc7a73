//! Bytes to frames to the ledger and back, by several clients, with time jumps in between.
//!
//! After each step the books must balance, every reply must decode at the client, and no page may
//! be granted that a writer may still write.

mod held;
mod script;

use maru_ledger::{Call, ClientId, Config, Extent, Growth, Peer, Progress, Shard, Time, Work};
use maru_wire::{
    Assembler, Hello, Incarnation, Limits, Namespace, Purpose, Reply, Request, StatsReply, Ticket,
    decode_reply, decode_request, encode_refusal, encode_reply,
};
use rkyv::util::AlignedVec;

use crate::messages::GENERATION;
use held::Held;
use script::Script;

const CLIENTS: usize = 4;
const BODY_BYTES_MAX: u32 = 4096;
/// Far above what a frame of this size needs with one step a turn.
const TURNS_MAX: u32 = 20_000;

/// Runs one input: commands until it ends. Returns what the shard counted.
pub(crate) fn run(input: &[u8]) -> StatsReply {
    let mut world = World::new();
    let mut script = Script::new(input);
    while let Some(command) = script.byte() {
        world.command(command, &mut script);
        world.check();
    }
    for index in 0..CLIENTS {
        world.finish(index, 3);
        world.check();
    }
    let mut stats = StatsReply::default();
    world.shard.fill_stats(world.now, &mut stats);
    stats
}

/// A frame that waits for its next turn.
struct Pending {
    bytes: AlignedVec<16>,
    work: Work,
}

#[derive(Default)]
struct Client {
    id: Option<ClientId>,
    connection_number: u64,
    pending: Option<Pending>,
}

struct World {
    shard: Shard,
    now: Time,
    clients: [Client; CLIENTS],
    held: Held,
    out: Vec<u8>,
}

fn config() -> Config {
    let mut config = Config::new(0, 1, GENERATION, 4096);
    config.limits = Limits {
        body_bytes_max: BODY_BYTES_MAX,
        keys_per_frame_max: 64,
        object_bytes_max: 4 * 4096,
        leases_max: 6,
        connections_max: 3,
        reservation_ttl_us: 1000,
        lease_ttl_us: 1200,
        fence_us: 700,
        ..config.limits
    };
    config.page_count_max = 96;
    config.extents_max = 4;
    config.incarnations_max = 3;
    config.namespaces_max = 2;
    config.reservations_max = 40;
    config.leases_max = 12;
    config.pins_max = 64;
    config.eviction_log_keys = 16;
    config
}

impl World {
    fn new() -> Self {
        let extents = [
            Extent { region: 0, page_index: 8, page_count: 40 },
            Extent { region: 1, page_index: 0, page_count: 24 },
        ];
        Self {
            shard: Shard::new(config(), &extents),
            now: Time(0),
            clients: Default::default(),
            held: Held::default(),
            out: Vec::new(),
        }
    }

    fn check(&self) {
        self.shard.check_books().expect("the books balance");
    }

    fn command(&mut self, command: u8, script: &mut Script<'_>) {
        let index = usize::from(command >> 3) % CLIENTS;
        match command & 7 {
            0 => self.pass_time(script),
            1 => self.hello(index, script),
            2 => self.close_or_bury(index, script),
            3 => {
                let budget = u32::from(script.byte().unwrap_or(1));
                self.turn(index, budget);
            }
            4 => self.grow(script),
            5 => self.submit(index, &script.raw_frames()),
            _ => {
                self.finish(index, 1);
                let frame = script.request(self.held.tickets(), self.held.leases());
                self.submit(index, &frame);
            }
        }
    }

    fn pass_time(&mut self, script: &mut Script<'_>) {
        let jump = script.number();
        self.now = self.now.after((jump >> 4) << (jump & 15));
        let mut budget = u32::from(script.byte().unwrap_or(0));
        let before = budget;
        let is_more_due = self.shard.tick(self.now, &mut budget);
        assert!(budget <= before);
        assert!(!is_more_due || budget == 0, "a tick stops only for its budget");
    }

    fn hello(&mut self, index: usize, script: &mut Script<'_>) {
        let choice = script.byte().unwrap_or(0);
        let purpose = if choice & 1 == 0 { Purpose::Data } else { Purpose::Monitor };
        let number = self.clients[index].connection_number + u64::from(choice & 2 == 0);
        let tickets = match (purpose, choice & 4) {
            (Purpose::Data, 0) => self.held.tickets_of(index),
            _ => Vec::new(),
        };
        let name = if choice & 8 == 0 { "a" } else { "b" };
        let hello = Hello {
            client_nonce: [0; 32],
            version_min: 1,
            version_max: 1 + u16::from(choice & 16),
            purpose,
            incarnation: incarnation(index),
            connection_number: number,
            shard: 0,
            namespace: Namespace::new(name),
            namespace_name: name.into(),
            node_name: String::new(),
            pool_list_digest: [choice & 32; 32],
            transfer_timeout_us: 400,
            object_bytes_max: 4096 << ((choice >> 6) & 1),
            tickets,
        };
        let peer = Peer::Uid(u32::from(index > 1));
        if let Ok(admission) = self.shard.hello(self.now, &hello, peer) {
            self.clients[index].id = Some(admission.client);
            if purpose == Purpose::Data {
                self.clients[index].connection_number = number;
                self.clients[index].pending = None;
                self.held.keep_only(index, &hello.tickets);
            }
        }
    }

    fn close_or_bury(&mut self, index: usize, script: &mut Script<'_>) {
        let choice = script.byte().unwrap_or(0);
        let purpose = if choice & 1 == 0 { Purpose::Data } else { Purpose::Monitor };
        if choice & 6 == 6 {
            self.shard.incarnation_dead(self.now, incarnation(index));
            self.held.keep_only(index, &[]);
            self.clients[index].pending = None;
        } else if let Some(id) = self.clients[index].id {
            let number = self.clients[index].connection_number;
            self.shard.connection_closed(self.now, id, purpose, number);
            if purpose == Purpose::Data {
                self.clients[index].pending = None;
            }
        }
    }

    fn grow(&mut self, script: &mut Script<'_>) {
        let choice = script.byte().unwrap_or(0);
        match choice & 3 {
            0 => self.shard.set_growth(Growth::Impossible),
            1 => self.shard.set_growth(Growth::Startable),
            2 => self.shard.set_growth(Growth::Running { retry_after_us: 5 }),
            _ => {
                let region = 2 + u32::from(choice >> 2);
                if self.held.add_region(region) {
                    let extent = Extent { region, page_index: 0, page_count: 8 };
                    let is_added = self.shard.add_extent(extent);
                    assert_eq!(is_added, self.held.region_count() <= 2, "two extents are free");
                }
            }
        }
    }

    /// Takes the frames of `bytes` as a connection does: one after the other, each to its end.
    fn submit(&mut self, index: usize, bytes: &[u8]) {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = bytes;
        while let Ok(Some(frame)) = assembler.next(&mut input) {
            let Ok(request) = decode_request(&frame) else { return };
            self.finish(index, 1);
            self.held.announce(index, &request, self.now.after(config().limits.fence_us));
            let mut bytes = AlignedVec::new();
            bytes.extend_from_slice(&frame.header.encode());
            bytes.extend_from_slice(frame.body);
            bytes.resize(frame.header.frame_bytes(), 0);
            self.clients[index].pending = Some(Pending { bytes, work: Work::new() });
            self.turn(index, 2);
            if !input.is_empty() {
                self.check();
            }
        }
    }

    fn finish(&mut self, index: usize, budget: u32) {
        let mut turns = 0;
        while self.clients[index].pending.is_some() {
            self.turn(index, budget);
            turns += 1;
            assert!(turns < TURNS_MAX, "a frame ends, however small its budget");
        }
    }

    /// Gives the pending frame of a client one turn.
    fn turn(&mut self, index: usize, budget: u32) {
        let Some(mut pending) = self.clients[index].pending.take() else { return };
        let Some(client) = self.clients[index].id else { return };
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = pending.bytes.as_slice();
        let frame = assembler.next(&mut input).expect("seen before").expect("whole");
        let request = decode_request(&frame).expect("seen before");
        let (op, id) = (request.op(), frame.header.request_id);
        let call = Call { client, generation: frame.header.generation, request };
        let mut left = budget;
        let progress = self.shard.handle(self.now, &call, &mut pending.work, &mut left);
        assert!(left <= budget);
        self.out.clear();
        match progress {
            Progress::Paused => {
                assert_eq!(left, 0, "a call pauses only for its budget");
                self.clients[index].pending = Some(pending);
                return;
            }
            Progress::Done => {
                encode_reply(&mut self.out, op, id, GENERATION, &pending.work.replies);
            }
            Progress::Refused(refusal) => {
                encode_refusal(&mut self.out, op, id, GENERATION, refusal)
            }
        }
        let mut input = self.out.as_slice();
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let reply = assembler.next(&mut input).expect("within the limit").expect("whole");
        assert_eq!((reply.header.op, reply.header.request_id), (op, id));
        let reply = decode_reply(&reply).expect("every answer is legal");
        check_counts(&request, &reply);
        self.held.learn(index, &reply, self.now);
    }
}

/// One outcome per item of the request.
fn check_counts(request: &Request<'_>, reply: &Reply<'_>) {
    match (request, reply) {
        (_, Reply::Refused(_)) => {}
        (Request::Reserve(asked), Reply::Reserve(got)) => {
            assert_eq!(asked.items.len(), got.outcomes.len());
        }
        (Request::Publish(asked), Reply::Publish(got)) => {
            assert_eq!(asked.items.len(), got.outcomes.len());
        }
        (Request::Lookup(asked), Reply::Lookup(got)) => {
            assert_eq!(asked.keys.len(), got.outcomes.len());
        }
        (Request::Release(asked), Reply::Release(got)) => {
            assert_eq!(asked.items.len(), got.held.len());
        }
        (Request::Remove(asked), Reply::Remove(got)) => {
            assert_eq!(asked.items.len(), got.outcomes.len());
        }
        (Request::Exists(asked), Reply::Exists(got)) => {
            assert!(got.leading_count.to_native() as usize <= asked.keys.len());
            let words = asked.keys.len().div_ceil(64);
            assert!(got.bitmap.len() == words || got.bitmap.is_empty());
        }
        (Request::Abandon(asked), Reply::Abandon(got)) => {
            assert!(got.abandoned_count.to_native() as usize <= asked.tickets.len());
        }
        (Request::EvictedSince(asked), Reply::EvictedSince(got)) => {
            assert!(got.keys.len() <= asked.keys_max.to_native() as usize);
        }
        (Request::Clear(_), Reply::Clear(_))
        | (Request::Ping, Reply::Ping(_))
        | (Request::Stats, Reply::Stats(_))
        | (Request::Regions, Reply::Regions(_)) => {}
        (request, reply) => panic!("{reply:?} does not answer {request:?}"),
    }
}

fn incarnation(index: usize) -> Incarnation {
    let mut bytes = [0x1c; 16];
    bytes[0] = u8::try_from(index).expect("four clients");
    Incarnation(bytes)
}

/// Whether a Reserve's outcome is a grant, and its ticket.
pub(crate) fn ticket_of(outcome: &maru_wire::ArchivedReserveOutcome) -> Option<(Ticket, u32)> {
    match outcome {
        maru_wire::ArchivedReserveOutcome::Granted(grant) => {
            Some((grant.ticket, grant.run_count.to_native()))
        }
        _ => None,
    }
}
