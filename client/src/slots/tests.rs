use maru_session::{CallId, Failure};
use maru_wire::{Flags, Frame, Generation, Header, Op};

use super::{Phase, Slots};

fn frame(id: CallId) -> Frame<'static> {
    let header = Header {
        op: Op::Ping,
        flags: Flags::REPLY,
        body_bytes: 3,
        request_id: id.0,
        generation: Generation(1),
    };
    Frame { header, body: b"abc" }
}

fn wait(slots: &Slots, id: CallId) {
    slots.lock(id).expect("its own").phase = Phase::Pending(std::thread::current());
}

/// A late reply never meets a later caller of the same slot.
#[test]
fn an_id_is_void_once_its_slot_is_free() {
    let slots = Slots::new(1);
    let first = slots.take().expect("a slot");
    assert!(slots.take().is_none(), "the table is bounded");
    wait(&slots, first);
    slots.free(first, |_| ());
    assert!(!slots.reply(first, &frame(first)));
    let second = slots.take().expect("a slot");
    assert_ne!(first, second);
    wait(&slots, second);
    assert!(!slots.reply(first, &frame(first)));
    assert!(slots.reply(second, &frame(second)));
    assert_eq!(slots.lock(second).expect("its own").reply.as_slice(), b"abc");
    assert!(!slots.reply(second, &frame(second)), "a call is answered once");
}

/// C31: a reply that comes while its caller goes away is either seen by the caller or handed back
/// to the ring thread, which then returns what it grants. None is lost in between.
#[test]
fn a_reply_is_not_lost_to_a_caller_that_is_going() {
    let slots = Slots::new(1);
    let id = slots.take().expect("a slot");
    wait(&slots, id);
    let begun = std::sync::Barrier::new(2);
    let is_taken = std::thread::scope(|scope| {
        let late = slots.free(id, |slot| {
            assert!(matches!(slot.phase, Phase::Pending(_)));
            let late = scope.spawn(|| {
                begun.wait();
                slots.reply(id, &frame(id))
            });
            begun.wait();
            late
        });
        late.join().expect("no panic")
    });
    assert!(!is_taken);
}

#[test]
fn every_caller_is_told_when_the_thread_ends() {
    let slots = Slots::new(3);
    let ids: Vec<CallId> = (0..3).map(|_| slots.take().expect("a slot")).collect();
    ids[..2].iter().for_each(|id| wait(&slots, *id));
    slots.fail_all(Failure::Disconnected);
    let is_told = |id: &CallId| {
        let slot = slots.lock(*id).expect("its own");
        matches!(slot.phase, Phase::Ended(Err(Failure::Disconnected)))
    };
    assert_eq!(ids.iter().map(is_told).collect::<Vec<_>>(), [true, true, false]);
}

/// Ids keep clear of the session's own bit, however often a slot is used.
#[test]
fn tags_wrap_below_the_sessions_bit() {
    let slots = Slots::new(1);
    let id = slots.take().expect("a slot");
    slots.lock(id).expect("its own").id = CallId(u64::MAX >> 1 & !0xffff);
    slots.free(CallId(u64::MAX >> 1 & !0xffff), |_| ());
    let next = slots.take().expect("a slot");
    assert_eq!(next.0 >> 63, 0);
}
