//! A full pool, two writers of one key, keys and tickets that are wrong, and TTLs.

use std::time::Duration;

use maru_client::{Client, Key, LookedUp, Match, Pinned, Reservation, ReserveItem, Reserved};
use maru_wire::{
    ArchivedPublishOutcome, Key as WireKey, Publish, PublishItem, Purpose, Refusal, Reply,
    RequestBody, Reserve, Secret, Ticket,
};

use crate::harness::{CALL, Server, is_balanced, pattern};
use crate::raw::{Raw, hello};
use crate::requests::{is_present, load_one, reserve, store_one, try_reserve};
use crate::worker::OBJECT_BYTES;

fn keys(client: &Client, count: u64) -> Vec<Key> {
    (0..count).map(|i| client.key(&i.to_le_bytes())).collect()
}

/// Pins `keys` in batches. The leases live as long as the result.
fn pin(client: &Client, keys: &[Key]) -> Vec<Pinned> {
    keys.chunks(64).map(|keys| client.lookup(keys, Match::All, CALL).unwrap()).collect()
}

fn pinned_count(pinned: &[Pinned]) -> usize {
    let found = |pinned: &Pinned| {
        pinned.outcomes().iter().filter(|outcome| matches!(outcome, LookedUp::Found(_))).count()
    };
    pinned.iter().map(found).sum()
}

/// S9, S8: a pool whose objects are all pinned answers Full at once; unpinned, it never does.
#[test]
fn a_pinned_pool_is_full_and_an_unpinned_one_is_not() {
    let server = Server::start(&["--pool-bytes", "4M"]);
    let writer = server.client();
    let all = keys(&writer, 64);
    for (i, key) in all.iter().enumerate() {
        assert!(store_one(&writer, *key, &pattern(i as u64, OBJECT_BYTES)).is_stored());
    }
    // One incarnation may pin a quarter but at least 32 objects, one user half: so two users.
    let mut by_tcp = server.client_config();
    by_tcp.address = format!("tcp:{}", server.tcp).parse().unwrap();
    let readers = [server.client(), Client::new(by_tcp).unwrap()];
    let pins: Vec<_> =
        readers.iter().zip(all.chunks(32)).map(|(reader, keys)| pin(reader, keys)).collect();
    assert_eq!(pins.iter().map(|pins| pinned_count(pins)).sum::<usize>(), 64);
    let key = writer.key(b"one more");
    assert!(matches!(try_reserve(&writer, key, OBJECT_BYTES as u64), Reserved::Full));
    let stats = server.stats().remove(0);
    assert_eq!((stats.full_total, stats.evicted_total), (1, 0), "nothing was evicted for it");
    drop(pins);
    server.wait_for("unpinned", |stats| stats.pinned_count == 0);
    // A burst of stores to a full pool of unpinned objects: not one is refused.
    for round in 0..4u64 {
        let burst: Vec<_> =
            (0..64u64).map(|i| (writer.key(&(1_000 + round * 64 + i).to_le_bytes()), i)).collect();
        for (key, seed) in burst {
            assert!(store_one(&writer, key, &pattern(seed, OBJECT_BYTES)).is_stored());
        }
    }
    let stats = server.stats().remove(0);
    assert_eq!((stats.full_total, stats.evicted_total), (1, 256));
    assert!(is_balanced(&stats));
}

/// S2: with eviction off a full pool answers Full.
#[test]
fn without_eviction_a_full_pool_stays() {
    let server = Server::start(&["--pool-bytes", "4M", "--eviction", "none"]);
    let client = server.client();
    let all = keys(&client, 64);
    for key in &all {
        assert!(store_one(&client, *key, &pattern(1, OBJECT_BYTES)).is_stored());
    }
    let more = client.key(b"one more");
    assert!(matches!(try_reserve(&client, more, OBJECT_BYTES as u64), Reserved::Full));
    assert_eq!(client.exists(&all, Match::All, CALL).unwrap().leading_count, 64);
}

/// X10: the second writer of a key waits for the first one's transfer timeout, no longer.
#[test]
fn two_writers_of_one_key() {
    let server = Server::start(&[]);
    let mut settings = server.client_config();
    settings.transfer_timeout = Duration::from_millis(150);
    let first = Client::new(settings.clone()).unwrap();
    let second = Client::new(settings).unwrap();
    let key = first.key(b"wanted by both");
    let mut early = reserve(&first, key, OBJECT_BYTES as u64);
    assert!(matches!(try_reserve(&second, key, OBJECT_BYTES as u64), Reserved::InFlight));
    let stored = store_one(&second, key, &pattern(2, OBJECT_BYTES));
    assert!(!stored.is_stored() && !is_present(&second, key), "{stored:?}");
    let granted = crate::harness::poll(|| match try_reserve(&second, key, OBJECT_BYTES as u64) {
        Reserved::Granted(reservation) => Some(reservation),
        Reserved::InFlight => None,
        other => panic!("{other:?}"),
    });
    let mut late = granted.expect("granted after the transfer timeout");
    assert!(disjoint(&early, &late), "each has pages of its own");
    write_and_publish(&second, std::slice::from_mut(&mut late), 2);
    write_and_publish(&first, std::slice::from_mut(&mut early), 1);
    // S15: the first value stays.
    assert_eq!(load_one(&first, key), Some(pattern(2, OBJECT_BYTES)));
    server.wait_for("whole again", |stats| stats.pages.reserved == 0 && is_balanced(stats));
}

fn disjoint(a: &Reservation, b: &Reservation) -> bool {
    let pages = |reservation: &Reservation| {
        let runs = reservation.runs().to_vec();
        runs.into_iter()
            .flat_map(|run| {
                (run.page_index..run.page_index + run.page_count).map(move |i| (run.region, i))
            })
            .collect::<Vec<_>>()
    };
    pages(a).iter().all(|page| !pages(b).contains(page))
}

fn write_and_publish(client: &Client, reservations: &mut [Reservation], seed: u64) {
    let attachment = client.attachment(CALL).unwrap();
    attachment.write(&reservations[0], 0, &pattern(seed, OBJECT_BYTES)).unwrap();
    client.publish(reservations, CALL).unwrap();
}

/// Bad input, named: a key twice, objects over their limit, announced objects too large.
#[test]
fn wrong_keys_and_sizes_are_named() {
    let server = Server::start(&["--pool-bytes", "4M"]);
    let client = server.client();
    let key = client.key(b"twice");
    let twice = [ReserveItem { key, object_bytes: 9 }; 2];
    let outcomes = client.reserve(&twice, CALL).unwrap();
    assert!(matches!(outcomes[..], [Reserved::Granted(_), Reserved::Duplicate]));
    let large = try_reserve(&client, client.key(b"large"), 5 << 20);
    assert!(matches!(large, Reserved::Rejected));
    // The pool of 4 MiB holds fewer than 16 objects of 512 KiB.
    let mut raw = Raw::tcp(&server);
    let challenge = raw.challenge();
    let mut said = hello(1, 1, Purpose::Data);
    said.object_bytes_max = 512 << 10;
    said.object_bytes_max = said.object_bytes_max.min(64 * 4096);
    let answer = raw.greet(&challenge, &said, &Secret::none());
    assert!(answer.is_ok(), "16 objects of 256 KiB fit");
    let mut raw = Raw::tcp(&server);
    let challenge = raw.challenge();
    said.object_bytes_max = 1 << 20;
    said.connection_number = 2;
    assert_eq!(raw.greet(&challenge, &said, &Secret::none()), Err(Refusal::ShardTooSmall(0)));
    said.object_bytes_max = 9;
    said.transfer_timeout_us = 60_000_000;
    let mut raw = Raw::tcp(&server);
    let challenge = raw.challenge();
    assert_eq!(
        raw.greet(&challenge, &said, &Secret::none()),
        Err(Refusal::TtlTooShort(60_000_000))
    );
}

/// Bad input, named: a frame with a key of another shard, before anything of it is executed.
#[test]
fn keys_of_another_shard_are_refused() {
    let server = Server::start(&["--shards", "2"]);
    let mut raw = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
    let items = [0x00, 0xFF]
        .map(|high| {
            let mut key = WireKey([0; 32]);
            key.0[7] = high;
            ReserveItem { key, object_bytes: 9 }
        })
        .to_vec();
    raw.ask(&RequestBody::Reserve(&Reserve { items }), |reply| {
        assert!(matches!(reply, Reply::Refused(Refusal::WrongShard(1))));
    });
    let stats = server.stats();
    assert!(stats.iter().all(|shard| shard.pages.reserved == 0 && is_balanced(shard)));
}

/// Bad input, named: a ticket of another shard, though of this client object.
#[test]
fn a_ticket_of_another_shard_is_unknown() {
    let server = Server::start(&["--shards", "2"]);
    let mut links = [0, 1].map(|shard| {
        let mut said = hello(1, 1 + u64::from(shard), Purpose::Data);
        said.shard = shard;
        Raw::admitted(&server, &said)
    });
    let [here, there] = [0x00, 0xFF].map(|high| {
        let mut key = WireKey([3; 32]);
        key.0[7] = high;
        key
    });
    let items = vec![ReserveItem { key: here, object_bytes: 9 }];
    let ticket = links[0].ask(&RequestBody::Reserve(&Reserve { items }), |reply| match reply {
        Reply::Reserve(reply) => match &reply.outcomes[0] {
            maru_wire::ArchivedReserveOutcome::Granted(grant) => grant.ticket,
            other => panic!("{other:?}"),
        },
        _ => panic!("another reply"),
    });
    let items = vec![PublishItem { ticket, key: there, checksum: Default::default() }];
    links[1].ask(&RequestBody::Publish(&Publish { items }), |reply| match reply {
        Reply::Publish(reply) => {
            assert!(matches!(reply.outcomes[0], ArchivedPublishOutcome::Unknown));
        }
        _ => panic!("another reply"),
    });
    let reserved: Vec<_> = server.stats().iter().map(|shard| shard.pages.reserved).collect();
    assert_eq!(reserved, [1, 0], "the owner's reservation stands");
}

/// Bad input, named: a ticket twice, of another incarnation, another generation, of nobody.
#[test]
fn wrong_tickets_are_named() {
    let server = Server::start(&[]);
    let mut owner = Raw::admitted(&server, &hello(1, 1, Purpose::Data));
    let mut other = Raw::admitted(&server, &hello(2, 1, Purpose::Data));
    let key = WireKey([3; 32]);
    let items = vec![ReserveItem { key, object_bytes: 9 }];
    let ticket = owner.ask(&RequestBody::Reserve(&Reserve { items }), |reply| match reply {
        Reply::Reserve(reply) => match &reply.outcomes[0] {
            maru_wire::ArchivedReserveOutcome::Granted(grant) => grant.ticket,
            other => panic!("{other:?}"),
        },
        _ => panic!("another reply"),
    });
    let publish = |raw: &mut Raw, tickets: &[Ticket]| {
        let item =
            |ticket: &Ticket| PublishItem { ticket: *ticket, key, checksum: Default::default() };
        let items = tickets.iter().map(item).collect();
        raw.ask(&RequestBody::Publish(&Publish { items }), |reply| match reply {
            Reply::Publish(reply) => reply
                .outcomes
                .iter()
                .map(|outcome| match outcome {
                    ArchivedPublishOutcome::Created => "created",
                    ArchivedPublishOutcome::AlreadyPresent => "present",
                    ArchivedPublishOutcome::Cleared => "cleared",
                    ArchivedPublishOutcome::Unknown => "unknown",
                    ArchivedPublishOutcome::WrongKey => "wrong key",
                })
                .collect::<Vec<_>>(),
            _ => panic!("another reply"),
        })
    };
    assert_eq!(publish(&mut other, &[ticket]), ["unknown"], "another incarnation's");
    assert_eq!(publish(&mut owner, &[Ticket([9; 16])]), ["unknown"], "nobody's");
    assert_eq!(publish(&mut owner, &[ticket, ticket]), ["created", "present"], "twice");
    assert_eq!(publish(&mut other, &[ticket]), ["present"], "S15: a true answer");
    owner.generation.0 ^= 1;
    let items = vec![PublishItem { ticket, key, checksum: Default::default() }];
    owner.ask(&RequestBody::Publish(&Publish { items }), |reply| {
        assert!(matches!(reply, Reply::Refused(Refusal::StaleGeneration)));
    });
}

/// S11, S16: a lease that ran out is said to be so at its release; its chunk can be evicted.
#[test]
fn leases_end_by_their_ttl() {
    let server = Server::start(&["--lease-ttl", "400ms"]);
    let client = server.client();
    let key = client.key(b"chunk");
    assert!(store_one(&client, key, &pattern(1, OBJECT_BYTES)).is_stored());
    let held = client.lookup(&[key], Match::All, CALL).unwrap();
    assert_eq!(client.release(held, CALL), [true]);
    let lost = client.lookup(&[key], Match::All, CALL).unwrap();
    server.wait_for("expired", |stats| stats.lease_expired_total == 1 && stats.pinned_count == 0);
    assert_eq!(client.release(lost, CALL), [false]);
}
