use std::vec;

use maru_wire::{
    Abandon, Checksum, Exists, Lookup, Match, Op, Publish, PublishItem, PublishOutcome, Refusal,
    RequestBody, Secret,
};

use crate::bench::{Bench, config, data, key, ticket};
use crate::session::OWN_ID;
use crate::{CallId, CloseCause, Failure, LinkFault, Output};

fn publish(numbers: &[u8]) -> Publish {
    let item = |number: &u8| PublishItem {
        ticket: ticket(*number),
        key: key(*number),
        checksum: Checksum::default(),
    };
    Publish { items: numbers.iter().map(item).collect() }
}

#[test]
fn asks_for_no_connection_before_a_call() {
    let mut bench = Bench::new();
    assert_eq!(bench.later(1_000_000_000).outputs(), []);
    assert_eq!(bench.session.next_deadline(), None);
}

#[test]
fn a_call_dials_its_shard_and_is_sent_after_the_handshake() {
    let mut bench = Bench::new();
    let first = bench.up(0, 1);
    bench.ping(5, 2);
    let dial = bench.dial();
    assert!(dial > first, "connection numbers rise");
    let hello = bench.accept(dial, 1).clone();
    assert_eq!((hello.shard, hello.connection_number), (2, dial.0));
    assert_eq!(bench.sent(dial).iter().map(|sent| (sent.op, sent.id)).next(), Some((Op::Ping, 5)));
    assert_eq!(bench.reply(dial, (Op::Ping, 5, 1), |_| {}), Some(CallId(5)));
}

#[test]
fn the_layout_is_known_after_the_first_hello() {
    let mut bench = Bench::new();
    assert!(bench.session.layout().is_none());
    bench.up(0, 1);
    let layout = bench.session.layout().expect("a layout");
    assert_eq!((layout.generation.0, layout.shard_count), (1, 4));
}

#[test]
fn a_failed_dial_fails_its_calls_and_the_next_call_waits_for_the_back_off_only() {
    let mut bench = Bench::new();
    bench.session.reach(bench.now, CallId(1), data(0));
    let dial = bench.dial();
    bench.session.closed(bench.now, dial, CloseCause::System(111));
    let fault = LinkFault::ConnectFailed(111);
    assert_eq!(bench.completions(), [(1, Err(Failure::Unreachable(fault)))]);

    bench.session.reach(bench.now, CallId(2), data(0));
    assert_eq!(bench.outputs(), [], "the back-off runs");
    let wait = bench.session.next_deadline().expect("a dial is due").0 - bench.now.0;
    assert!((1..=125_000).contains(&wait), "{wait}");
    let dial = bench.later(wait).dial();
    bench.accept(dial, 1);
    assert_eq!(bench.completions(), [(2, Ok(()))]);
}

#[test]
fn however_often_dials_failed_a_call_waits_at_most_the_cap() {
    let mut bench = Bench::new();
    for call in 1..60 {
        bench.session.reach(bench.now, CallId(call), data(0));
        let dial = bench.later(125_000).dial();
        bench.session.closed(bench.now, dial, CloseCause::System(111));
        bench.outputs();
    }
    assert_eq!(bench.later(1_000_000_000).outputs(), [], "nobody asks for a link");
}

#[test]
fn a_handshake_that_takes_too_long_fails() {
    let mut bench = Bench::new();
    bench.session.reach(bench.now, CallId(1), data(0));
    let dial = bench.dial();
    bench.session.connected(bench.now, dial);
    bench.later(500_000);
    let fault = Failure::Unreachable(LinkFault::HandshakeTimeout);
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Close(dial, "handshake_timeout")));
    assert!(outputs.contains(&Output::Complete(CallId(1), Err(fault))));
}

/// A refused hello is told at once for the retry period, then tried again.
#[test]
fn a_lasting_fault_is_told_without_a_dial_until_the_retry_period_ends() {
    for refusal in [Refusal::WrongSecret, Refusal::WrongNamespace, Refusal::WrongNode] {
        let mut bench = Bench::new();
        bench.session.reach(bench.now, CallId(1), data(0));
        let dial = bench.dial();
        bench.refuse_hello(dial, 1, refusal);
        let failure = Failure::Unreachable(LinkFault::Refused(refusal));
        assert_eq!(bench.completions(), [(1, Err(failure))]);
        bench.later(29_000_000);
        bench.session.reach(bench.now, CallId(2), data(0));
        assert_eq!(bench.outputs(), [Output::Complete(CallId(2), Err(failure))]);
        bench.later(1_000_000);
        bench.session.reach(bench.now, CallId(3), data(0));
        let dial = bench.dial();
        bench.accept(dial, 1);
        assert_eq!(bench.completions(), [(3, Ok(()))]);
    }
}

/// A connection number that the server has seen already is passed, and the call goes on.
#[test]
fn a_used_connection_number_is_passed() {
    let mut bench = Bench::new();
    bench.ping(1, 0);
    let dial = bench.dial();
    bench.refuse_hello(dial, 1, Refusal::ConnectionNumberUsed(700));
    assert_eq!(bench.completions(), [], "the call waits on");
    let wait = bench.session.next_deadline().expect("a dial is due").0 - bench.now.0;
    let dial = bench.later(wait).dial();
    assert_eq!(bench.accept(dial, 1).connection_number, 701);
    assert_eq!(bench.sent(dial)[0].id, 1);
}

/// Whoever refuses each number, or names one with none above it, is told to the callers.
#[test]
fn used_connection_numbers_without_end_are_told() {
    for used in [1_000, u64::MAX] {
        let mut bench = Bench::new();
        bench.session.reach(bench.now, CallId(1), data(0));
        let refusal = Refusal::ConnectionNumberUsed(used);
        let mut dials = 0;
        let told = loop {
            let dial = bench.dial();
            dials += 1;
            bench.refuse_hello(dial, 1, refusal);
            let told = bench.completions();
            if !told.is_empty() {
                break told;
            }
            bench.later(125_000);
        };
        assert_eq!(told, [(1, Err(Failure::Unreachable(LinkFault::Refused(refusal))))]);
        assert_eq!(dials, if used == u64::MAX { 1 } else { 9 });
    }
}

#[test]
fn a_server_without_the_secret_is_not_trusted() {
    let mut bench = Bench::with(crate::SessionConfig { secret: Secret::new(b"right"), ..config() });
    bench.secret = Secret::new(b"wrong");
    bench.session.reach(bench.now, CallId(1), data(0));
    let dial = bench.dial();
    bench.accept(dial, 1);
    let failure = Failure::Unreachable(LinkFault::WrongProof);
    assert_eq!(bench.completions(), [(1, Err(failure))]);
    assert!(bench.session.layout().is_none());
}

#[test]
fn a_server_of_another_protocol_version_is_told_with_both() {
    let mut bench = Bench::new();
    bench.session.reach(bench.now, CallId(1), data(0));
    let dial = bench.dial();
    bench.session.connected(bench.now, dial);
    let (version_min, version_max, secret_required) = (7, 9, false);
    let challenge =
        maru_wire::Challenge { server_nonce: [7; 32], version_min, version_max, secret_required };
    let mut out = std::vec::Vec::new();
    maru_wire::encode_challenge(&mut out, maru_wire::Generation(1), &challenge);
    bench.feed(dial, &out);
    let fault = LinkFault::WrongVersion { min: 7, max: 9, ours: 1 };
    assert_eq!(bench.completions(), [(1, Err(Failure::Unreachable(fault)))]);
    let text = std::string::ToString::to_string(&fault);
    assert_eq!(text, "the server speaks protocol versions 7 to 9, this client speaks 1");
}

#[test]
fn both_ends_have_a_secret_or_none_has() {
    for (client, server, fault) in [
        (Secret::none(), Secret::new(b"s"), LinkFault::SecretRequired),
        (Secret::new(b"s"), Secret::none(), LinkFault::ServerHasNoSecret),
    ] {
        let mut bench = Bench::with(crate::SessionConfig { secret: client, ..config() });
        bench.secret = server;
        bench.session.reach(bench.now, CallId(1), data(0));
        let dial = bench.dial();
        bench.challenge(dial, 1);
        assert_eq!(bench.completions(), [(1, Err(Failure::Unreachable(fault)))]);
        assert_eq!(bench.sent(dial), [], "no hello goes to a server that is not the right one");
    }
}

/// C25: the bound is exact.
#[test]
fn ttls_must_be_twice_the_transfer_timeout() {
    let mut bench = Bench::new();
    bench.up(0, 1);
    let mut bench = Bench::new();
    bench.limits.lease_ttl_us = 59_999_999;
    bench.session.reach(bench.now, CallId(1), data(0));
    let dial = bench.dial();
    bench.accept(dial, 1);
    let fault = LinkFault::Refused(Refusal::TtlTooShort(59_999_999));
    assert_eq!(bench.completions(), [(1, Err(Failure::Unreachable(fault)))]);
}

/// C31: a Reserve reply after its caller's deadline is abandoned.
#[test]
fn late_grants_are_abandoned() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1, 2]);
    bench.sent(dial);
    bench.session.give_up(bench.now, CallId(5));
    assert_eq!(bench.grant(dial, 5, &[1, 2]), None);
    let sent = bench.sent(dial);
    assert_eq!((sent.len(), sent[0].op), (1, Op::Abandon));
    assert_eq!(bench.session.ticket_count(0), 2, "held until the answer");
    bench.reply(dial, (Op::Abandon, sent[0].id, 1), |replies| replies.abandon.abandoned_count = 2);
    assert_eq!(bench.session.ticket_count(0), 0);
    assert!(!bench.session.has_debt());
}

#[test]
fn late_leases_are_released() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    let body = Lookup { keys: vec![key(1)], matching: Match::All };
    bench.submit(5, 0, &RequestBody::Lookup(&body));
    bench.sent(dial);
    bench.session.give_up(bench.now, CallId(5));
    bench.found(dial, 5, 9);
    let sent = bench.sent(dial);
    assert_eq!((sent.len(), sent[0].op), (1, Op::Release));
}

/// A caller may leave between the reply's arrival and its pick-up.
#[test]
fn a_reply_nobody_took_is_given_back() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    assert_eq!(bench.grant(dial, 5, &[1]), Some(CallId(5)));
    let mut out = vec![];
    let mut replies = maru_wire::ReplyBuffer::default();
    crate::bench::grant(&mut replies, &[1]);
    maru_wire::encode_reply(&mut out, Op::Reserve, 5, maru_wire::Generation(1), &replies);
    let mut assembler = maru_wire::Assembler::new(maru_wire::BODY_BYTES_MAX);
    let mut input = out.as_slice();
    let frame = assembler.next(&mut input).unwrap().unwrap();
    bench.session.late(bench.now, dial, &frame);
    assert_eq!(bench.sent(dial)[0].op, Op::Abandon);
}

#[test]
fn replies_that_answer_nothing_close_the_connection() {
    let wrong: [(Op, u64, u64); 3] = [(Op::Ping, 6, 1), (Op::Stats, 5, 1), (Op::Ping, 5, 2)];
    for reply in wrong {
        let mut bench = Bench::new();
        let dial = bench.up(0, 1);
        bench.ping(5, 0);
        bench.sent(dial);
        assert_eq!(bench.reply(dial, reply, |_| {}), None);
        let outputs = bench.outputs();
        let lost = Output::Complete(CallId(5), Err(Failure::Disconnected));
        assert!(outputs.contains(&lost), "{reply:?}: {outputs:?}");
        assert!(
            outputs
                .iter()
                .any(|output| matches!(output, Output::Close(closed, _) if *closed == dial))
        );
    }
}

#[test]
fn a_reply_with_too_few_outcomes_closes_the_connection() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1, 2]);
    bench.sent(dial);
    assert_eq!(bench.grant(dial, 5, &[1]), None);
    assert_eq!(bench.completions(), [(5, Err(Failure::Disconnected))]);
    assert_eq!(bench.session.ticket_count(0), 0, "grants not taken are void");
}

/// C31: the next hello lists what is held, and a lost Reserve brings that hello about.
#[test]
fn a_lost_connection_is_made_again_for_the_grants_that_it_may_have_lost() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1]);
    bench.reserve(6, 0, &[2]);
    bench.sent(dial);
    bench.cut(dial);
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Complete(CallId(6), Err(Failure::Disconnected))));
    let Some(Output::Connect(again)) = outputs.iter().find(|o| matches!(o, Output::Connect(_)))
    else {
        panic!("{outputs:?}")
    };
    let hello = bench.accept(*again, 1);
    assert_eq!(hello.tickets, [ticket(1)]);
    assert!(hello.connection_number > dial.0);
    assert!(!bench.session.has_debt());
}

#[test]
fn a_publish_settles_its_tickets_and_a_wrong_key_does_not() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1, 2, 3]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1, 2, 3]);
    bench.submit(6, 0, &RequestBody::Publish(&publish(&[1, 2, 3])));
    bench.sent(dial);
    bench.reply(dial, (Op::Publish, 6, 1), |replies| {
        replies.publish.outcomes =
            vec![PublishOutcome::Created, PublishOutcome::WrongKey, PublishOutcome::Unknown];
    });
    assert_eq!(bench.session.ticket_count(0), 1);
}

/// C31: an abandon is repeated until it is answered.
#[test]
fn an_abandon_lost_with_its_connection_is_sent_again() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1]);
    bench.session.abandon(bench.now, 0, &[ticket(1)], true);
    assert_eq!(bench.sent(dial)[0].op, Op::Abandon);
    bench.cut(dial);
    let again = bench.dial();
    assert_eq!(bench.accept(again, 1).tickets, [ticket(1)]);
    let sent = bench.sent(again);
    assert_eq!(sent[0].op, Op::Abandon);
    bench.reply(again, (Op::Abandon, sent[0].id, 1), |_| {});
    assert!(!bench.session.has_debt());
}

#[test]
fn a_callers_abandon_that_failed_is_the_sessions() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1]);
    let body = Abandon { tickets: vec![ticket(1)], after_error: false };
    bench.submit(6, 0, &RequestBody::Abandon(&body));
    bench.cut(dial);
    assert!(bench.session.has_debt());
}

#[test]
fn a_publish_given_up_and_lost_is_abandoned() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1]);
    bench.submit(6, 0, &RequestBody::Publish(&publish(&[1])));
    bench.sent(dial);
    bench.session.give_up(bench.now, CallId(6));
    bench.cut(dial);
    assert!(bench.session.has_debt());
}

#[test]
fn a_new_generation_voids_tickets_and_requests_that_wait() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1]);
    bench.cut(dial);
    bench.outputs();
    bench.ping(6, 0);
    let again = bench.dial();
    bench.accept(again, 2);
    assert_eq!(bench.completions(), [(6, Err(Failure::Stale))]);
    assert_eq!(bench.session.ticket_count(0), 0);
    assert_eq!(bench.session.layout().expect("a layout").generation.0, 2);
    bench.ping(7, 0);
    assert_eq!(bench.completions(), [(7, Err(Failure::Stale))], "not sent to the new one");
}

#[test]
fn a_restart_wins_when_the_old_links_end() {
    let mut bench = Bench::new();
    let old = bench.up(0, 1);
    bench.session.reach(bench.now, CallId(1), data(1));
    let new = bench.dial();
    bench.accept(new, 2);
    assert_eq!(bench.sent(old)[0].op, Op::Ping, "is the old one alive?");
    assert_eq!(bench.session.layout().expect("a layout").generation.0, 1);
    bench.cut(old);
    assert_eq!(bench.completions(), [(1, Ok(()))]);
    assert_eq!(bench.session.layout().expect("a layout").generation.0, 2);
}

#[test]
fn a_restart_wins_when_the_old_links_are_silent() {
    let mut bench = Bench::new();
    let old = bench.up(0, 1);
    bench.session.reach(bench.now, CallId(1), data(1));
    let new = bench.dial();
    bench.accept(new, 2);
    bench.later(500_000);
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Close(old, "old_generation_silent")), "{outputs:?}");
    assert!(outputs.contains(&Output::Complete(CallId(1), Ok(()))));
    assert_eq!(bench.session.layout().expect("a layout").generation.0, 2);
}

#[test]
fn two_live_generations_are_several_servers() {
    let mut bench = Bench::new();
    let old = bench.up(0, 1);
    bench.session.reach(bench.now, CallId(1), data(1));
    let new = bench.dial();
    bench.accept(new, 2);
    let ping = bench.sent(old)[0].id;
    assert!(ping & OWN_ID != 0);
    bench.reply(old, (Op::Ping, ping, 1), |_| {});
    let failure = Failure::Unreachable(LinkFault::SeveralServers);
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Complete(CallId(1), Err(failure))), "{outputs:?}");
    assert!(outputs.contains(&Output::Close(new, "several_servers")));
    assert_eq!(bench.session.layout().expect("a layout").generation.0, 1);
}

/// The server must be able to list them: what a hello does not list is freed under the writer.
#[test]
fn never_more_tickets_are_held_than_a_hello_lists() {
    let mut config = config();
    config.limits.tickets_per_shard_max = 3;
    let mut bench = Bench::with(config);
    let dial = bench.up(0, 1);
    bench.reserve(5, 0, &[1, 2]);
    bench.reserve(6, 0, &[3, 4]);
    assert_eq!(bench.completions(), [(6, Err(Failure::Busy))]);
    bench.sent(dial);
    bench.grant(dial, 5, &[1, 2]);
    bench.reserve(7, 0, &[3]);
    assert_eq!(bench.sent(dial).len(), 1);
}

#[test]
fn requests_of_one_link_are_bounded() {
    let mut config = config();
    config.limits.requests_per_link_max = 2;
    let mut bench = Bench::with(config);
    bench.up(0, 1);
    for id in 5..8 {
        bench.ping(id, 0);
    }
    assert_eq!(bench.completions(), [(7, Err(Failure::Busy))]);
}

#[test]
fn a_link_that_owes_an_answer_and_says_nothing_is_closed() {
    let mut bench = Bench::new();
    let dial = bench.up(0, 1);
    bench.later(3_600_000_000);
    assert_eq!(bench.outputs(), [], "an idle link may be silent");
    bench.ping(5, 0);
    bench.later(4_999_999);
    assert_eq!(bench.completions(), []);
    bench.later(1);
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Close(dial, "silent")));
    assert!(outputs.contains(&Output::Complete(CallId(5), Err(Failure::Disconnected))));
}

#[test]
fn a_request_that_waits_and_is_given_up_is_never_sent() {
    let mut bench = Bench::new();
    bench.up(0, 1);
    bench.reserve(5, 1, &[1]);
    let dial = bench.dial();
    bench.session.give_up(bench.now, CallId(5));
    bench.accept(dial, 1);
    assert_eq!(bench.sent(dial), []);
}

#[test]
fn a_shard_that_the_server_does_not_have_is_refused_here() {
    let mut bench = Bench::new();
    bench.up(0, 1);
    let body = Exists { keys: vec![key(1)], matching: Match::All };
    bench.submit(5, 4, &RequestBody::Exists(&body));
    let fault = LinkFault::Refused(Refusal::NoSuchShard(4));
    assert_eq!(bench.completions(), [(5, Err(Failure::Unreachable(fault)))]);
}

/// A restart with fewer shards: the shard that is gone tells, shard 0 proves.
#[test]
fn a_generation_with_fewer_shards_makes_requests_stale() {
    let mut bench = Bench::new();
    let first = bench.up(0, 1);
    let gone = bench.up(3, 1);
    bench.cut(first);
    bench.cut(gone);
    bench.outputs();
    bench.shard_count = 2;
    bench.ping(5, 3);
    let dial = bench.dial();
    bench.refuse_hello(dial, 2, Refusal::NoSuchShard(2));
    let outputs = bench.outputs();
    assert!(outputs.contains(&Output::Complete(CallId(5), Err(Failure::Stale))), "{outputs:?}");
    let again = outputs.iter().find_map(|output| match output {
        Output::Connect(dial) => Some(*dial),
        Output::Close(..) | Output::Send(_) | Output::Complete(..) => None,
    });
    bench.accept(again.expect("shard 0 is asked"), 2);
    assert_eq!(bench.session.layout().expect("a layout").shard_count, 2);
}
