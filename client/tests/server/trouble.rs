//! What calls do when the server, the network or the caller goes away.

use std::thread;
use std::time::{Duration, Instant};

use maru_client::{
    Client, ClientConfig, Effect, Error, IoMode, LinkFault, LoadItem, LoadOutcome, Match, Refusal,
    ReserveItem, Reserved, Secret, ServerAddress, StoreItem, StoreOutcome,
};
use maru_wire::Op;

use crate::mini::MiniServer;
use crate::{LONG, Pair, both, eventually};

const SHORT: Duration = Duration::from_millis(50);

fn item(pair: &Pair) -> ReserveItem {
    ReserveItem { key: pair.client.key(b"a"), object_bytes: 100 }
}

fn restart(pair: Pair, generation: u64) -> Pair {
    let Pair { client, server, mut config, _folder } = pair;
    server.kill();
    config.generation = generation;
    let server = MiniServer::start(config.clone());
    Pair { client, server, config, _folder }
}

/// C31, R7: a grant that comes after its caller's deadline is abandoned, a lease released.
#[test]
fn late_replies_are_given_back() {
    both(|io| {
        let pair = Pair::new(io);
        let bytes = [1; 100];
        let stored = StoreItem { key: pair.client.key(b"stored"), bytes: &bytes };
        pair.client.store(&[stored], LONG).expect("the server is there");
        pair.server.script().hold = vec![Op::Reserve, Op::Lookup];
        let error = pair.client.reserve(&[item(&pair)], SHORT).expect_err("no answer comes");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert_eq!(error.effect(), Effect::MaybeExecuted);
        let error = pair.client.lookup(&[stored.key], Match::All, SHORT).expect_err("no answer");
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        eventually("both were executed", || {
            pair.server.pages().reserved == 1 && pair.server.lease_count() == 1
        });
        pair.server.let_replies_go();
        eventually("both are given back", || {
            pair.server.pages().reserved == 0 && pair.server.lease_count() == 0
        });
    });
}

/// A release that comes too late to be believed still gives the pins back.
#[test]
fn pins_are_given_back_even_without_time_for_an_answer() {
    both(|io| {
        let pair = Pair::new(io);
        let bytes = [1; 100];
        let key = pair.client.key(b"a");
        pair.client.store(&[StoreItem { key, bytes: &bytes }], LONG).expect("stored");
        let pinned = pair.client.lookup(&[key], Match::All, LONG).expect("answered");
        assert_eq!(pinned.leading_count(), 1);
        let _held = pair.client.release(pinned, Duration::ZERO);
        eventually("the lease ends", || pair.server.lease_count() == 0);
    });
}

/// C24, S16: without an answer to the release nobody knows whether the bytes were held: they do not
/// count, and the release is not repeated.
#[test]
fn bytes_whose_release_was_not_answered_do_not_count() {
    both(|io| {
        let pair = Pair::new(io);
        let bytes = [1; 100];
        let key = pair.client.key(b"a");
        pair.client.store(&[StoreItem { key, bytes: &bytes }], LONG).expect("stored");
        pair.server.script().cut = vec![Op::Release];
        let mut into = [0; 100];
        let mut items = [LoadItem { key, into: &mut into }];
        let outcomes = pair.client.load(&mut items, Match::All, LONG).expect("answered");
        assert_eq!(outcomes, [LoadOutcome::NotHeld]);
        assert_eq!(pair.server.executed(Op::Release), 1);
        pair.server.script().cut.clear();
        let mut items = [LoadItem { key, into: &mut into }];
        let outcomes = pair.client.load(&mut items, Match::All, LONG).expect("answered");
        assert_eq!(outcomes, [LoadOutcome::Loaded(100)]);
        assert_eq!(pair.server.lease_count(), 0);
    });
}

/// A lost Publish reply: the repeat over a new connection gets the true answer.
#[test]
fn a_publish_whose_reply_was_lost_is_asked_again() {
    both(|io| {
        let pair = Pair::new(io);
        pair.server.script().cut = vec![Op::Publish];
        let bytes = [1; 100];
        let store = StoreItem { key: pair.client.key(b"a"), bytes: &bytes };
        let error = pair.client.store(&[store], LONG).expect_err("cut twice");
        assert_eq!(error.effect(), Effect::MaybeExecuted, "{error}");
        pair.server.script().cut.clear();
        let outcomes = pair.client.store(&[store], LONG).expect("the server is there");
        assert_eq!(outcomes, [StoreOutcome::Present]);
        eventually("nothing is owed", || pair.server.pages().reserved == 0);
    });
}

/// Grants that died with their connection are freed by the next hello, without another call.
#[test]
fn grants_lost_with_their_connection_are_freed() {
    both(|io| {
        let pair = Pair::new(io);
        pair.client.shard_count(LONG).expect("the server is there");
        pair.server.script().cut = vec![Op::Reserve];
        let error = pair.client.reserve(&[item(&pair)], LONG).expect_err("the reply is lost");
        assert_eq!(error.effect(), Effect::MaybeExecuted);
        pair.server.script().cut.clear();
        eventually("the grant is freed", || pair.server.pages().reserved == 0);
    });
}

/// A reservation survives a reconnect: its hello lists it.
#[test]
fn a_reservation_outlives_its_connection() {
    both(|io| {
        let pair = Pair::new(io);
        let reserved = pair.client.reserve(&[item(&pair)], LONG).expect("answered");
        pair.server.script().cut = vec![Op::Exists];
        let key = pair.client.key(b"a");
        pair.client.exists(&[key], Match::All, LONG).expect_err("the connection is lost");
        pair.server.script().cut.clear();
        pair.client.exists(&[key], Match::All, LONG).expect("connected again");
        assert_eq!(pair.server.pages().reserved, 1);
        let [Reserved::Granted(reservation)] = <[_; 1]>::try_from(reserved).expect("one") else {
            panic!("it is granted")
        };
        let mut granted = [reservation];
        pair.client.publish(&mut granted, LONG).expect("answered");
        assert_eq!(pair.server.pages().published, 1);
    });
}

/// Every call on a dead server returns by its deadline; the first one after its return works.
#[test]
fn calls_fail_while_the_server_is_gone_and_work_when_it_is_back() {
    both(|io| {
        let pair = Pair::new(io);
        let bytes = [7; 5_000];
        let key = pair.client.key(b"a");
        let store = StoreItem { key, bytes: &bytes };
        pair.client.store(&[store], LONG).expect("the server is there");
        let old = pair.client.attachment(LONG).expect("attached");
        let Pair { client, server, mut config, _folder } = pair;
        server.kill();
        for _ in 0..20 {
            let begun = Instant::now();
            client.exists(&[key], Match::All, SHORT).expect_err("the server is gone");
            client.store(&[store], SHORT).expect_err("the server is gone");
            assert!(begun.elapsed() < LONG);
        }
        eventually("the mapping of the lost server is dropped", || old.is_lost());
        config.generation = 2;
        let server = MiniServer::start(config);
        assert_eq!(client.store(&[store], LONG).expect("it is back"), [StoreOutcome::Stored]);
        let mut into = [0; 5_000];
        let mut items = [LoadItem { key, into: &mut into }];
        let outcomes = client.load(&mut items, Match::All, LONG).expect("it is back");
        assert_eq!(outcomes, [LoadOutcome::Loaded(5_000)]);
        assert_eq!(into, bytes);
        assert_eq!(client.attachment(LONG).expect("attached").generation().0, 2);
        drop(server);
    });
}

/// C29: a store in a new generation re-attaches inside the call.
#[test]
fn a_restart_between_calls_is_not_seen_by_callers() {
    both(|io| {
        let mut pair = Pair::new(io);
        for generation in 2..6 {
            let bytes = [3; 100];
            let store = StoreItem { key: pair.client.key(b"a"), bytes: &bytes };
            let outcomes = pair.client.store(&[store], LONG).expect("the server is there");
            assert_eq!(outcomes, [StoreOutcome::Stored], "{generation}");
            pair = restart(pair, generation);
        }
    });
}

/// A reservation of a past run is void: it is neither published nor written.
#[test]
fn a_reservation_of_a_past_generation_is_void() {
    let pair = Pair::new(IoMode::Auto);
    let mut granted: Vec<_> = pair
        .client
        .reserve(&[item(&pair)], LONG)
        .expect("answered")
        .into_iter()
        .filter_map(|reserved| match reserved {
            Reserved::Granted(reservation) => Some(reservation),
            _ => None,
        })
        .collect();
    let pair = restart(pair, 2);
    let error = pair.client.publish(&mut granted, LONG).expect_err("it is void");
    assert_eq!(error.effect(), Effect::None, "{error}");
    let attachment = pair.client.attachment(LONG).expect("attached");
    let error = attachment.write(&granted[0], 0, &[1]).expect_err("it is void");
    assert!(matches!(error, Error::OtherGeneration));
}

#[test]
fn a_server_closed_in_mid_call_ends_the_call() {
    both(|io| {
        let pair = Pair::new(io);
        pair.client.shard_count(LONG).expect("the server is there");
        pair.server.script().hold = vec![Op::Exists];
        let key = pair.client.key(b"a");
        let Pair { client, server, config: _, _folder } = pair;
        thread::scope(|scope| {
            let call = scope.spawn(|| client.exists(&[key], Match::All, LONG));
            eventually("the call is at the server", || server.executed(Op::Exists) == 1);
            server.kill();
            let error = call.join().expect("no panic").expect_err("the server is gone");
            assert_eq!(error.effect(), Effect::MaybeExecuted, "{error}");
        });
    });
}

fn fault(error: &Error) -> LinkFault {
    match error {
        Error::Unreachable { fault, .. } => *fault,
        other => panic!("{other}"),
    }
}

#[test]
fn a_rogue_server_without_the_secret_gets_nothing() {
    both(|io| {
        let rogue = |config: &mut crate::mini::MiniConfig| {
            config.secret = Secret::new(b"a guess of the rogue");
            config.is_rogue = true;
        };
        let pair = Pair::with(io, rogue, |config| config.secret = Secret::new(b"the true secret!"));
        let key = pair.client.key(b"a");
        let error = pair.client.exists(&[key], Match::All, LONG).expect_err("not proved");
        assert_eq!(fault(&error), LinkFault::WrongProof);
        let bytes = [1];
        pair.client.store(&[StoreItem { key, bytes: &bytes }], LONG).expect_err("not proved");
        assert_eq!(pair.server.executed(Op::Exists), 0);
    });
}

#[test]
fn a_wrong_secret_is_told_at_once_and_again() {
    let pair = Pair::with(
        IoMode::Auto,
        |config| config.secret = Secret::new(b"the true secret!"),
        |config| config.secret = Secret::new(b"another secret!!"),
    );
    for _ in 0..3 {
        let error = pair.client.shard_count(LONG).expect_err("refused");
        assert_eq!(fault(&error), LinkFault::Refused(Refusal::WrongSecret));
    }
}

#[test]
fn no_server_at_all_is_told_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = ServerAddress::Unix(folder.path().join("none"));
    let client = Client::new(ClientConfig::new(address, "test")).expect("a client");
    let error = client.shard_count(LONG).expect_err("nobody is there");
    assert_eq!(fault(&error), LinkFault::ConnectFailed(2));
}

/// Bytes move on the server's host only; the error says so without a connection.
#[test]
fn store_and_load_need_a_local_address() {
    let address: ServerAddress = "tcp:127.0.0.1:1".parse().expect("an address");
    let client = Client::new(ClientConfig::new(address, "test")).expect("a client");
    let item = StoreItem { key: client.key(b"a"), bytes: &[1] };
    let error = client.store(&[item], LONG).expect_err("not local");
    assert!(matches!(error, Error::NotLocal { .. }), "{error}");
    assert!(matches!(client.load(&mut [], Match::All, LONG), Err(Error::NotLocal { .. })));
}

/// X6 and C33: a client that goes gives everything back.
#[test]
fn a_dropped_client_gives_back_what_it_holds() {
    both(|io| {
        let pair = Pair::new(io);
        let reserved = pair.client.reserve(&[item(&pair)], LONG).expect("answered");
        let Pair { client, server, config: _, _folder } = pair;
        drop(client);
        assert_eq!(server.pages().reserved, 1, "a reservation outlives the handle");
        drop(reserved);
        eventually("it is given back", || server.pages().reserved == 0);
    });
}

#[test]
fn a_forked_child_gets_an_error_and_harms_nobody() {
    both(|io| {
        let pair = Pair::new(io);
        let bytes = [5; 100];
        let key = pair.client.key(b"a");
        pair.client.store(&[StoreItem { key, bytes: &bytes }], LONG).expect("stored");
        let held = pair
            .client
            .reserve(&[ReserveItem { key: pair.client.key(b"b"), object_bytes: 100 }], LONG);
        // SAFETY: the child runs the client's checks and leaves by _exit; it takes no lock that
        // another thread may have held, and returns to no caller.
        let forked = unsafe { nix::unistd::fork() }.expect("a process");
        match forked {
            nix::unistd::ForkResult::Child => {
                let is_told = |error| matches!(error, Err(Error::Forked { .. }));
                let exists = pair.client.exists(&[key], Match::All, LONG).map(drop);
                let mut into = [0; 100];
                let mut items = [LoadItem { key, into: &mut into }];
                let load = pair.client.load(&mut items, Match::All, LONG).map(drop);
                drop(held);
                let code = i32::from(!(is_told(exists) && is_told(load)));
                // SAFETY: ends the child at once, without the parent's destructors.
                unsafe { nix::libc::_exit(code) }
            }
            nix::unistd::ForkResult::Parent { child } => {
                let status = nix::sys::wait::waitpid(child, None).expect("my child");
                assert_eq!(status, nix::sys::wait::WaitStatus::Exited(child, 0));
                assert_eq!(pair.server.pages().reserved, 1, "the child abandoned nothing");
                pair.client.exists(&[key], Match::All, LONG).expect("the parent goes on");
                drop(held);
            }
        }
    });
}
