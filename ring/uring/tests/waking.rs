//! Wake-ups from other threads, deadlines, and sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_queue::ArrayQueue;
use maru_uring::{Event, IoMode, Reactor, ReactorConfig, mailbox, now_ns};

use crate::bench::{Bench, Kind, Seen, config};

on_both_backends!(
    no_wake_up_is_lost,
    a_mailbox_keeps_order,
    many_threads_wake_one_reactor,
    a_deadline_ends_a_turn,
    idle_connections_cost_nothing,
);

const WAKES: u64 = 10_000;

/// The far end of every wait here; a lost wake-up shows as `TimedOut`.
fn patience() -> Option<u64> {
    Some(now_ns() + 60_000_000_000)
}

/// Turns until `WAKES` are counted by `on_woken`, which returns the sum so far.
fn count_wakes(reactor: &mut Reactor, mut on_woken: impl FnMut() -> u64) {
    let mut sum = 0;
    while sum < WAKES {
        let turned = reactor.turn(patience(), &mut |_, event| match event {
            Event::Woken => sum = on_woken(),
            other => panic!("a wake-up was lost: {other:?}"),
        });
        turned.unwrap();
    }
}

fn no_wake_up_is_lost(io: IoMode) {
    for spin_us in [0, 20] {
        let mut reactor = Reactor::new(ReactorConfig { spin_us, ..config(io) }).unwrap();
        let waker = reactor.waker();
        let asked = Arc::new(AtomicU64::new(0));
        let answered = Arc::new(AtomicU64::new(0));
        let writer = thread::spawn({
            let (asked, answered) = (Arc::clone(&asked), Arc::clone(&answered));
            move || {
                for number in 1..=WAKES {
                    asked.store(number, Ordering::Relaxed);
                    waker.wake();
                    while answered.load(Ordering::Acquire) != number {
                        thread::yield_now();
                    }
                }
            }
        });
        count_wakes(&mut reactor, || {
            let number = asked.load(Ordering::Relaxed);
            answered.store(number, Ordering::Release);
            number
        });
        writer.join().unwrap();
    }
}

fn a_mailbox_keeps_order(io: IoMode) {
    let mut reactor = Reactor::new(config(io)).unwrap();
    let (mut sender, mut receiver) = mailbox::channel(16, reactor.waker());
    let writer = thread::spawn(move || {
        for number in 0..WAKES {
            while sender.try_send(number).is_err() {
                thread::yield_now();
            }
        }
    });
    let mut next = 0;
    count_wakes(&mut reactor, || {
        while let Some(number) = receiver.pop() {
            assert_eq!(number, next);
            next += 1;
        }
        next
    });
    writer.join().unwrap();
    assert!(receiver.is_abandoned());
}

fn many_threads_wake_one_reactor(io: IoMode) {
    let mut reactor = Reactor::new(config(io)).unwrap();
    let queue = Arc::new(ArrayQueue::new(64));
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let (waker, queue) = (reactor.waker(), Arc::clone(&queue));
            thread::spawn(move || {
                for number in 0..WAKES / 4 {
                    while queue.push(number).is_err() {
                        thread::yield_now();
                    }
                    waker.wake();
                }
            })
        })
        .collect();
    let (mut count, mut sum) = (0, 0);
    count_wakes(&mut reactor, || {
        while let Some(number) = queue.pop() {
            count += 1;
            sum += number;
        }
        count
    });
    assert_eq!(sum, 4 * (0..WAKES / 4).sum::<u64>());
    writers.into_iter().for_each(|writer| writer.join().unwrap());
}

fn a_deadline_ends_a_turn(io: IoMode) {
    let mut bench = Bench::new(io);
    let deadline = now_ns() + 3_000_000;
    while bench.seen.is_empty() {
        bench.turn_until(Some(deadline));
    }
    assert!(now_ns() >= deadline);
    bench.turn_until(Some(0));
    assert_eq!(bench.seen, [Seen::TimedOut, Seen::TimedOut]);
    assert_eq!(bench.reactor.counters().sleeps, 1, "a deadline in the past only polls");
}

fn idle_connections_cost_nothing(io: IoMode) {
    let (soft, hard) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    let wanted = soft.max(4096).min(hard);
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, wanted, hard)
        .unwrap();
    let mut bench = Bench::new(io).echo();
    let _peers: Vec<_> = (0..1000)
        .map(|_| {
            let (_, mut peer) = bench.add(Kind::Unix);
            peer.write(b"hello");
            peer
        })
        .collect();
    let mut back = Vec::new();
    let mut peers = _peers;
    bench.until("all echoes", |_| {
        peers.iter_mut().for_each(|peer| {
            peer.read(&mut back, 10);
        });
        back.len() == 5000
    });
    // Whatever is left of that is over when a turn sees nothing but its deadline.
    bench.turn_until(Some(0));
    let before = bench.reactor.counters();
    bench.turn_until(Some(now_ns() + 100_000_000));
    let after = bench.reactor.counters();
    assert_eq!(bench.seen.last(), Some(&Seen::TimedOut), "one system call slept all the time");
    assert_eq!((after.turns, after.sleeps), (before.turns + 1, before.sleeps + 1));
}
