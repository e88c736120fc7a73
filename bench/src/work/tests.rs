use maru_wire::{
    AbandonReply, Assembler, BODY_BYTES_MAX, ExistsReply, Found, Grant, LookupOutcome, LookupReply,
    Op, PublishOutcome, PublishReply, ReleaseReply, ReplyBuffer, Request, ReserveOutcome,
    ReserveReply, decode_reply, decode_request, encode_reply,
};

use super::*;
use crate::keys::key;

const GENERATION: Generation = Generation(7);

struct Bench {
    work: Work,
    out: Vec<u8>,
}

impl Bench {
    fn new(operation: Operation, keys_per_frame: usize, resident: u64, new: (u64, u64)) -> Self {
        let resident: Vec<Key> = (0..resident).map(key).collect();
        let new_keys = ShardKeys::new(0, 1, new.0, new.1);
        let what = (operation, keys_per_frame);
        Self { work: Work::new(what, GENERATION, &resident, new_keys, 1), out: Vec::new() }
    }

    fn begin(&mut self, request_id: u64) -> bool {
        self.out.clear();
        self.work.begin(&mut self.out, 0, request_id)
    }

    /// Decodes what was appended last, and returns its id and what `read` takes from it.
    fn sent<T>(&self, read: impl Fn(Request<'_>) -> T) -> (u64, T) {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = &self.out[..];
        let frame = assembler.next(&mut input).unwrap().unwrap();
        assert_eq!(frame.header.generation, GENERATION);
        (frame.header.request_id, read(decode_request(&frame).unwrap()))
    }

    fn answer(&mut self, op: Op, replies: &ReplyBuffer) -> Next {
        let mut bytes = Vec::new();
        encode_reply(&mut bytes, op, 3, GENERATION, replies);
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut input = &bytes[..];
        let frame = assembler.next(&mut input).unwrap().unwrap();
        self.out.clear();
        self.work.proceed(&decode_reply(&frame).unwrap(), &mut self.out, (0, 3)).unwrap()
    }
}

fn keys_of(request: Request<'_>) -> Vec<Key> {
    match request {
        Request::Exists(exists) => exists.keys.to_vec(),
        Request::Lookup(lookup) => lookup.keys.to_vec(),
        Request::Reserve(reserve) => reserve.items.iter().map(|item| item.key).collect(),
        Request::Publish(publish) => publish.items.iter().map(|item| item.key).collect(),
        other => panic!("{other:?} was not to be sent"),
    }
}

#[test]
fn canned_frames_are_whole_and_come_round_again() {
    let mut bench = Bench::new(Operation::Exists, 2, 5, (0, 0));
    let expected = [[key(0), key(1)], [key(2), key(3)], [key(0), key(1)]];
    for (request_id, keys) in (10..).zip(expected) {
        assert!(bench.begin(request_id));
        assert_eq!(bench.sent(keys_of), (request_id, keys.to_vec()));
    }
    let exists = ExistsReply { leading_count: 1, ..ExistsReply::default() };
    assert_eq!(bench.answer(Op::Exists, &ReplyBuffer { exists, ..Default::default() }), Next::Done);
    assert_eq!((bench.work.counts.keys, bench.work.counts.others), (1, 1));
}

#[test]
fn a_lookup_is_followed_by_the_release_of_its_lease() {
    let mut bench = Bench::new(Operation::Lookup, 2, 2, (0, 0));
    assert!(bench.begin(3));
    assert_eq!(bench.sent(keys_of).1, [key(0), key(1)]);
    let found = Found {
        object_bytes: OBJECT_BYTES,
        checksum: Checksum::default(),
        ticket: Ticket([1; 16]),
        run_count: 1,
    };
    let lease = LeaseId([9; 16]);
    let run = maru_wire::PageRun { region: 0, page_index: 0, page_count: 1 };
    let outcomes = vec![LookupOutcome::Found(found), LookupOutcome::Missing];
    let lookup = LookupReply { lease, outcomes, runs: vec![run], ..LookupReply::default() };
    let replies = ReplyBuffer { lookup, ..Default::default() };
    assert_eq!(bench.answer(Op::Lookup, &replies), Next::Second);
    let lease_sent = bench.sent(|request| match request {
        Request::Release(release) => release.items[0].lease,
        other => panic!("{other:?}"),
    });
    assert_eq!(lease_sent, (3, lease));
    let release = ReleaseReply { held: vec![false], ..ReleaseReply::default() };
    let replies = ReplyBuffer { release, ..Default::default() };
    assert_eq!(bench.answer(Op::Release, &replies), Next::Done);
    let counts = bench.work.counts;
    assert_eq!((counts.frames, counts.keys, counts.others, counts.not_held), (2, 1, 1, 1));
}

#[test]
fn granted_keys_are_published_and_the_others_counted() {
    let mut bench = Bench::new(Operation::Reserve, 3, 0, (100, 104));
    assert!(bench.begin(3));
    assert_eq!(bench.sent(keys_of).1, [key(100), key(101), key(102)]);
    let run = maru_wire::PageRun { region: 0, page_index: 0, page_count: 1 };
    let granted = ReserveOutcome::Granted(Grant { ticket: Ticket([2; 16]), run_count: 1 });
    let outcomes = vec![ReserveOutcome::Full, granted, ReserveOutcome::ClientLimit];
    let reserve = ReserveReply { outcomes, runs: vec![run], ..ReserveReply::default() };
    let replies = ReplyBuffer { reserve, ..Default::default() };
    assert_eq!(bench.answer(Op::Reserve, &replies), Next::Second);
    assert_eq!(bench.sent(keys_of), (3, vec![key(101)]));
    let publish = PublishReply { outcomes: vec![PublishOutcome::Created], ..Default::default() };
    let replies = ReplyBuffer { publish, ..Default::default() };
    assert_eq!(bench.answer(Op::Publish, &replies), Next::Done);
    let counts = bench.work.counts;
    assert_eq!((counts.keys, counts.others, counts.full, counts.client_limit), (1, 2, 1, 1));

    assert!(bench.begin(4), "a last, shorter frame");
    assert_eq!(bench.sent(keys_of).1, [key(103)]);
    assert!(!bench.begin(5), "no keys are left");
}

/// One frame of 4,096 grants: they do not fit into one Publish.
fn grant_a_whole_frame(operation: Operation) -> (Bench, Next) {
    let mut bench = Bench::new(operation, 4096, 0, (0, 4096));
    assert!(bench.begin(3));
    let grant = |item: u16| {
        let mut ticket = Ticket([1; 16]);
        ticket.0[..2].copy_from_slice(&item.to_le_bytes());
        ReserveOutcome::Granted(Grant { ticket, run_count: 1 })
    };
    let run = maru_wire::PageRun { region: 0, page_index: 0, page_count: 1 };
    let (outcomes, runs) = ((0..4096).map(grant).collect(), vec![run; 4096]);
    let reserve = ReserveReply { outcomes, runs, ..ReserveReply::default() };
    let next = bench.answer(Op::Reserve, &ReplyBuffer { reserve, ..Default::default() });
    (bench, next)
}

#[test]
fn what_one_publish_does_not_take_goes_into_a_second() {
    let (mut bench, next) = grant_a_whole_frame(Operation::Reserve);
    assert_eq!(next, Next::Second);
    assert_eq!(bench.sent(keys_of).1.len(), 4095);
    for (count, next) in [(4095, Next::Second), (1, Next::Done)] {
        let outcomes = vec![PublishOutcome::Created; count];
        let publish = PublishReply { outcomes, ..Default::default() };
        let replies = ReplyBuffer { publish, ..Default::default() };
        assert_eq!(bench.answer(Op::Publish, &replies), next);
        if next == Next::Second {
            assert_eq!(bench.sent(keys_of), (3, vec![key(4095)]));
        }
    }
    assert_eq!((bench.work.counts.keys, bench.work.counts.others), (4096, 0));
}

#[test]
fn grants_are_given_back_in_one_frame() {
    let (mut bench, next) = grant_a_whole_frame(Operation::Abandon);
    assert_eq!(next, Next::Second);
    let tickets = bench.sent(|request| match request {
        Request::Abandon(abandon) => abandon.tickets.len(),
        other => panic!("{other:?} was not to be sent"),
    });
    assert_eq!(tickets, (3, 4096));
    let abandon = AbandonReply { abandoned_count: 4096, ..Default::default() };
    let replies = ReplyBuffer { abandon, ..Default::default() };
    assert_eq!(bench.answer(Op::Abandon, &replies), Next::Done);
    assert_eq!(bench.work.counts.keys, 4096);
}
