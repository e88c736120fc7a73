//! Every interleaving of sleep, wake and mailbox. A lost wake-up shows as loom's deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p maru-uring --lib --target-dir target/loom`

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::Sleeper;
use crate::mailbox::{self, Receiver};

/// Waits as a turn of the reactor does, and returns whether it would report `Woken`.
fn turn(sleeper: &Sleeper) -> bool {
    if !sleeper.is_notified() && sleeper.prepare() {
        sleeper.bell().take().expect("the model's bell does not fail");
    }
    sleeper.take()
}

/// A turn in which a socket, not the bell, ends the sleep.
fn turn_ended_by_a_socket(sleeper: &Sleeper) -> bool {
    sleeper.prepare();
    sleeper.take()
}

fn pop_all(receiver: &mut Receiver<usize>, seen: &mut Vec<usize>) {
    while let Some(message) = receiver.pop() {
        seen.push(message);
    }
}

#[test]
fn no_message_and_no_wake_up_is_lost() {
    loom::model(|| {
        let sleeper = Sleeper::new().unwrap();
        let (mut sender, mut receiver) = mailbox::channel(2, sleeper.waker());
        let writer = thread::spawn(move || {
            for message in 0..2 {
                sender.try_send(message).unwrap();
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 2 {
            if turn(&sleeper) {
                pop_all(&mut receiver, &mut seen);
            }
        }
        assert_eq!(seen, [0, 1]);
        writer.join().unwrap();
    });
}

#[test]
fn a_sleep_that_a_socket_ends_loses_no_wake_up() {
    loom::model(|| {
        let sleeper = Sleeper::new().unwrap();
        let (mut sender, mut receiver) = mailbox::channel(1, sleeper.waker());
        let writer = thread::spawn(move || sender.try_send(7).unwrap());
        let mut seen = Vec::new();
        if turn_ended_by_a_socket(&sleeper) {
            pop_all(&mut receiver, &mut seen);
        }
        while seen.is_empty() {
            if turn(&sleeper) {
                pop_all(&mut receiver, &mut seen);
            }
        }
        assert_eq!(seen, [7]);
        writer.join().unwrap();
    });
}

#[test]
fn many_wakers_lose_no_wake_up() {
    // Three threads have too many interleavings; three forced switches find every known fault.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let sleeper = Sleeper::new().unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (waker, count) = (sleeper.waker(), Arc::clone(&count));
                thread::spawn(move || {
                    // Relaxed: the wake-up alone must carry what was written before it.
                    count.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 2 {
            if turn(&sleeper) {
                seen = count.load(Ordering::Relaxed);
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn a_full_mailbox_gives_the_message_back() {
    loom::model(|| {
        let sleeper = Sleeper::new().unwrap();
        let (mut sender, mut receiver) = mailbox::channel(1, sleeper.waker());
        let writer = thread::spawn(move || {
            let first = sender.try_send(1).is_ok();
            let second = sender.try_send(2);
            (first, second)
        });
        let early = receiver.pop();
        let (first, second) = writer.join().unwrap();
        assert!(first);
        match second {
            Ok(()) => assert_eq!((early, receiver.pop()), (Some(1), Some(2))),
            Err(message) => {
                assert_eq!(message, 2);
                assert_eq!(early.or_else(|| receiver.pop()), Some(1));
                assert_eq!(receiver.pop(), None);
            }
        }
    });
}
