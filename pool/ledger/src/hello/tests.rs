//! Who may talk to the shard, and what a new connection or a death does.

use std::vec;

use maru_wire::{
    Exists, Generation, Incarnation, Match, Namespace, PublishOutcome, Purpose, Refusal,
    RequestBody, Reserve, ReserveItem, ReserveOutcome,
};

use crate::bench::{
    Bench, LEASE_TTL, PAGE_BYTES, RESERVATION_TTL, config, hello, key, with_request,
};
use crate::{Call, Extent, Growth, Peer, Progress};

fn small() -> Extent {
    Extent { region: 0, page_index: 0, page_count: 16 }
}

#[test]
fn bad_hellos_are_refused_by_name() {
    let mut bench = Bench::new(16);
    let good = hello(1, Purpose::Data, 1);
    let mut bad = good.clone();
    bad.version_min = 2;
    bad.version_max = 3;
    assert_eq!(bench.hello(&bad), Err(Refusal::WrongVersion(1)));
    let mut bad = good.clone();
    bad.shard = 1;
    assert_eq!(bench.hello(&bad), Err(Refusal::NoSuchShard(1)));
    let mut bad = good.clone();
    bad.purpose = Purpose::Attach;
    assert_eq!(bench.hello(&bad), Err(Refusal::UnexpectedHello));
    // C25: TTLs of exactly twice the time-out are enough.
    let mut bad = good.clone();
    bad.transfer_timeout_us = RESERVATION_TTL / 2 + 1;
    assert_eq!(bench.hello(&bad), Err(Refusal::TtlTooShort(RESERVATION_TTL)));
    // Design §7: 16 of the largest object, at least.
    let mut bad = good.clone();
    bad.object_bytes_max = PAGE_BYTES + 1;
    assert_eq!(bench.hello(&bad), Err(Refusal::ShardTooSmall(8)));
    bad.object_bytes_max = 65 * PAGE_BYTES;
    assert_eq!(bench.hello(&bad), Err(Refusal::ShardTooSmall(0)));
    assert_eq!(bench.stats().incarnation_count, 0);
    assert_eq!(bench.stats().refused_total, 6);
    bench.hello(&good).unwrap();
}

// Two clients with one incarnation and connection number.
#[test]
fn a_connection_number_must_rise() {
    let mut bench = Bench::new(16);
    bench.hello(&hello(1, Purpose::Data, 5)).unwrap();
    for number in [0, 4, 5] {
        let refused = bench.hello(&hello(1, Purpose::Data, number));
        assert_eq!(refused, Err(Refusal::ConnectionNumberUsed(5)));
    }
    let admission = bench.hello(&hello(1, Purpose::Data, 6)).unwrap();
    assert!(admission.superseded);
    bench.close(admission.client, 6);
    assert_eq!(bench.hello(&hello(1, Purpose::Data, 6)), Err(Refusal::ConnectionNumberUsed(6)));
    assert!(!bench.hello(&hello(1, Purpose::Data, 7)).unwrap().superseded);
}

// Design §7: a hello frees what it does not list, and ends the older connections' leases.
#[test]
fn a_hello_supersedes() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let lease = bench.pin(a, &[1]);
    let kept = bench.reserve(a, 2, 2);
    let dropped = bench.reserve(a, 3, 3);
    let overdue = bench.at(RESERVATION_TTL).reserve(a, 4, 4);
    assert_eq!((bench.pages().overdue, bench.pages().reserved), (5, 4));
    let mut next = hello(1, Purpose::Data, bench.number() + 1);
    next.tickets = vec![kept, kept, maru_wire::Ticket([9; 16])];
    let admission = bench.hello(&next).unwrap();
    assert!(admission.superseded);
    assert_eq!(admission.client, a);
    assert_eq!((bench.pages().overdue, bench.pages().reserved), (2, 0));
    assert!(!bench.release(a, lease, 0));
    assert_eq!(bench.at(RESERVATION_TTL + 1).stats().pinned_count, 0);
    assert_eq!(bench.publish(a, dropped, 3), PublishOutcome::Unknown);
    assert_eq!(bench.publish(a, overdue, 4), PublishOutcome::Unknown);
    assert_eq!(bench.publish(a, kept, 2), PublishOutcome::Created);
}

// S11: closing a connection frees no page.
#[test]
fn a_closed_connection_frees_no_page() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.close(b, bench.number());
    let ticket = bench.reserve(a, 1, 16);
    bench.close(a, bench.number() - 1);
    assert_eq!(bench.at(1 << 50).pages().overdue, 16);
    let mut next = hello(1, Purpose::Data, 100);
    next.tickets = vec![ticket];
    let a = bench.hello(&next).unwrap().client;
    assert_eq!(bench.publish(a, ticket, 1), PublishOutcome::Created);
}

// A monitor lists no tickets and supersedes nothing.
#[test]
fn a_monitor_changes_nothing() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    let lease = bench.pin(a, &[1]);
    let ticket = bench.reserve(a, 2, 1);
    let monitor = bench.hello(&hello(1, Purpose::Monitor, 0)).unwrap();
    assert_eq!((monitor.client, monitor.superseded), (a, false));
    bench.shard.connection_closed(bench.now, a, Purpose::Monitor, 0);
    assert!(bench.release(a, lease, 0));
    assert_eq!(bench.publish(a, ticket, 2), PublishOutcome::Created);
}

// X5: a proven death gives the pages back at once.
#[test]
fn a_proven_death_frees_its_pages() {
    let mut bench = Bench::new(16);
    let (a, b) = (bench.client(1), bench.client(2));
    bench.store(a, 1, 1);
    bench.pin(a, &[1]);
    bench.reserve(a, 2, 4);
    bench.at(RESERVATION_TTL).reserve(a, 3, 2);
    let other = bench.reserve(b, 4, 1);
    bench.close(a, bench.number() - 1);
    assert_eq!(bench.pages().overdue, 4);
    assert_eq!(bench.shard.incarnation_dead(bench.now, Incarnation([1; 16])), 6);
    assert_eq!(bench.at(RESERVATION_TTL + 1).stats().pinned_count, 0);
    assert_eq!((bench.pages().free, bench.pages().published), (14, 1));
    assert_eq!(bench.publish(b, other, 4), PublishOutcome::Created);
    assert_eq!(bench.shard.incarnation_dead(bench.now, Incarnation([1; 16])), 0);
    assert_eq!(bench.shard.incarnation_dead(bench.now, Incarnation([99; 16])), 0);
}

// S5: a stale generation is refused unexecuted, except Ping.
#[test]
fn another_generation_is_refused() {
    let mut bench = Bench::new(16);
    let client = bench.client(1);
    let generation = Generation(8);
    let request = Reserve { items: vec![ReserveItem { key: key(1), object_bytes: 1 }] };
    let refused = with_request(&RequestBody::Reserve(&request), |request| {
        let call = Call { client, generation, request };
        bench.shard.handle(bench.now, &call, &mut bench.work, &mut 10)
    });
    assert_eq!(refused, Progress::Refused(Refusal::StaleGeneration));
    assert_eq!(bench.pages().free, 16);
    let answered = with_request(&RequestBody::Ping, |request| {
        let call = Call { client, generation, request };
        bench.shard.handle(bench.now, &call, &mut bench.work, &mut 0)
    });
    assert_eq!(answered, Progress::Done);
    assert_eq!(bench.stats().refused_total, 1);
}

// Design §5: a frame with a key of another shard is refused whole.
#[test]
fn another_shard_s_key_refuses_the_frame() {
    let mut config = config();
    config.shard_count = 2;
    let mut bench = Bench::with(config, &[small()]);
    let a = bench.client(1);
    let mine = (0..).map(key).find(|key| key.shard(2) == 0).unwrap();
    let other = (0..).map(key).find(|key| key.shard(2) == 1).unwrap();
    let item = |key| ReserveItem { key, object_bytes: 1 };
    let request = Reserve { items: vec![item(mine), item(other)] };
    let progress = bench.call_within(a, &RequestBody::Reserve(&request), &mut 10);
    assert_eq!(progress, Progress::Refused(Refusal::WrongShard(1)));
    assert_eq!(bench.pages().free, 16);
    let request = Exists { keys: vec![mine, other], matching: Match::Leading };
    let progress = bench.call_within(a, &RequestBody::Exists(&request), &mut 10);
    assert_eq!(progress, Progress::Refused(Refusal::WrongShard(1)));
}

#[test]
fn too_many_keys_refuse_the_frame() {
    let mut config = config();
    config.limits.keys_per_frame_max = 2;
    let mut bench = Bench::with(config, &[small()]);
    let a = bench.client(1);
    let request = Exists { keys: vec![key(1); 3], matching: Match::All };
    let progress = bench.call_within(a, &RequestBody::Exists(&request), &mut 10);
    assert_eq!(progress, Progress::Refused(Refusal::TooManyKeys(2)));
}

#[test]
fn an_incarnation_has_one_namespace_and_one_peer() {
    let mut bench = Bench::new(16);
    bench.client(1);
    let mut other = hello(1, Purpose::Data, 100);
    other.namespace = Namespace([77; 32]);
    assert_eq!(bench.hello(&other), Err(Refusal::WrongNamespace));
    let same = hello(1, Purpose::Data, 100);
    let taken = Refusal::IncarnationTaken(u32::from_le_bytes([1; 4]));
    assert_eq!(bench.shard.hello(bench.now, &same, Peer::Uid(44)), Err(taken));
}

// Without a connection the client may come back from elsewhere; what it holds comes along.
#[test]
fn a_client_may_move() {
    let mut bench = Bench::new(16);
    let a = bench.client(1);
    let ticket = bench.reserve(a, 1, 1);
    bench.close(a, bench.number());
    let mut next = hello(1, Purpose::Data, 100);
    next.tickets = vec![ticket];
    let admission = bench.shard.hello(bench.now, &next, Peer::Address([4; 16])).unwrap();
    bench.shard.check_books().unwrap();
    assert_eq!(bench.publish(admission.client, ticket, 1), PublishOutcome::Created);
}

#[test]
fn connections_have_a_limit() {
    let mut config = config();
    config.limits.connections_max = 2;
    let mut bench = Bench::with(config, &[small()]);
    let a = bench.client(1);
    bench.hello(&hello(1, Purpose::Monitor, 0)).unwrap();
    let refused = bench.hello(&hello(1, Purpose::Monitor, 0));
    assert_eq!(refused, Err(Refusal::TooManyConnections(2)));
    // A data connection takes the place of the older one.
    bench.client(1);
    bench.shard.connection_closed(bench.now, a, Purpose::Monitor, 0);
    bench.hello(&hello(1, Purpose::Monitor, 0)).unwrap();
}

// Tables have limits: who holds nothing and has no connection makes room, others do not.
#[test]
fn incarnations_and_namespaces_have_a_limit() {
    let mut config = config();
    config.incarnations_max = 2;
    config.namespaces_max = 2;
    let mut bench = Bench::with(config, &[small()]);
    let (a, b) = (bench.client(1), bench.client(2));
    let third = hello(3, Purpose::Data, 1);
    assert_eq!(bench.hello(&third), Err(Refusal::TooManyIncarnations(2)));
    let ticket = bench.reserve(b, 1, 1);
    bench.close(b, bench.number());
    assert_eq!(bench.hello(&third), Err(Refusal::TooManyIncarnations(2)));
    bench.close(a, bench.number() - 1);
    let third = bench.hello(&third).unwrap().client;
    // The forgotten one's name is void, and says so.
    let request = Exists { keys: vec![key(1)], matching: Match::All };
    let progress = bench.call_within(a, &RequestBody::Exists(&request), &mut 10);
    assert_eq!(progress, Progress::Refused(Refusal::UnexpectedHello));
    bench.store(third, 2, 1);
    // The namespace of a stored chunk stays when its client goes.
    let mut next = hello(2, Purpose::Data, 100);
    next.tickets = vec![ticket];
    let b = bench.hello(&next).unwrap().client;
    assert_eq!(bench.publish(b, ticket, 1), PublishOutcome::Created);
    bench.close(b, 100);
    assert_eq!(bench.hello(&hello(4, Purpose::Data, 1)), Err(Refusal::TooManyNamespaces(2)));
    assert_eq!(bench.stats().namespaces.len(), 2);
}

// A lease that is ending is still something that its client holds.
#[test]
fn a_client_with_pins_is_not_forgotten() {
    let mut config = config();
    config.incarnations_max = 1;
    let mut bench = Bench::with(config, &[small()]);
    let a = bench.client(1);
    bench.store(a, 1, 1);
    bench.pin(a, &[1]);
    bench.close(a, bench.number());
    let next = hello(2, Purpose::Data, 1);
    assert_eq!(bench.hello(&next), Err(Refusal::TooManyIncarnations(1)));
    bench.at(LEASE_TTL);
    bench.hello(&next).unwrap();
}

#[test]
fn a_shard_that_may_grow_counts_with_all_its_pages() {
    let mut config = config();
    config.page_count_max = 32;
    let mut bench = Bench::with(config, &[small()]);
    let mut large = hello(1, Purpose::Data, 1);
    large.object_bytes_max = 2 * PAGE_BYTES;
    assert_eq!(bench.hello(&large), Err(Refusal::ShardTooSmall(8)));
    bench.shard.set_growth(Growth::Startable);
    let a = bench.hello(&large).unwrap().client;
    assert!(matches!(bench.try_reserve(a, 1, 2), ReserveOutcome::Granted(_)));
}
